// The kernels as plain loops: the reading copy, and what runs where no vector unit is known.
#include "kernels/max_sim/max_sim.hpp"
#include "kernels/max_sim/max_sim_kernels.hpp"

namespace riemem {
namespace {

void pack(const std::int8_t* rows, std::size_t count, std::size_t d, std::int8_t* panel) {
    for (std::size_t i = 0; i < count * d; ++i) panel[i] = rows[i];
}

void best(const std::int8_t* panel, std::size_t count, const std::uint8_t* bits, std::size_t rows,
          std::size_t d, std::int32_t* best) {
    std::int8_t ones[kMaxSimMostDims];
    for (std::size_t i = 0; i < rows; ++i) {
        const std::uint8_t* row = bits + i * (d / 8);
        for (std::size_t j = 0; j < d; ++j) {
            ones[j] = static_cast<std::int8_t>(row[j / 8] >> (j % 8) & 1);
        }
        for (std::size_t b = 0; b < count; ++b) {
            std::int32_t sum = 0;
            for (std::size_t j = 0; j < d; ++j) sum += panel[b * d + j] * ones[j];
            if (i == 0 || sum > best[b]) best[b] = sum;
        }
    }
}

constexpr MaxSimKernels kKernels = {8, pack, best};

}  // namespace

const MaxSimKernels& max_sim_kernels_scalar() { return kKernels; }

}  // namespace riemem
