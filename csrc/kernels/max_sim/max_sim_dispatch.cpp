// Chooses the kernels of an instruction set and takes the texts through them.
#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "kernels/max_sim/max_sim.hpp"
#include "kernels/max_sim/max_sim_kernels.hpp"

namespace riemem {

const MaxSimKernels& max_sim_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return max_sim_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return max_sim_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
#if defined(RIEMEM_HAVE_AVX512_VNNI)
            if (has_avx512_vnni()) return max_sim_kernels_avx512_vnni();
#endif
            return max_sim_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return max_sim_kernels_neon();
#endif
        default:
            throw BackendUnavailable("max_sim: no kernels for " + std::string(isa_name(isa)));
    }
}

namespace {

constexpr std::size_t kTogether = kMaxSimTogether;
constexpr std::int32_t kNoRows = std::numeric_limits<std::int32_t>::min();

}  // namespace

void max_sim(const MaxSimQuestion& question, const MaxSimTexts& texts, Isa isa, std::int32_t* out) {
    const MaxSimKernels& kernels = max_sim_kernels(isa);
    const std::size_t d = question.d;
    const std::size_t padded = (d + kernels.step - 1) / kernels.step * kernels.step;
    std::vector<std::int8_t> panels(question.count * padded);
    // Over a row of ones the kernel gives the sum of all numbers.
    const std::vector<std::uint8_t> ones(d / 8, 255);
    std::vector<std::int32_t> sums((question.count + kTogether - 1) / kTogether * kTogether);
    for (std::size_t b = 0; b < question.count; b += kTogether) {
        const std::size_t count = std::min(kTogether, question.count - b);
        kernels.pack(question.rows + b * d, count, d, panels.data() + b * padded);
        kernels.best(panels.data() + b * padded, count, ones.data(), 1, d, sums.data() + b);
    }
    const std::uint8_t* bits = texts.rows;
    for (std::size_t i = 0; i < texts.count; ++i) {
        const auto rows = static_cast<std::size_t>(texts.counts[i]);
        for (std::size_t b = 0; b < question.count; b += kTogether) {
            const std::size_t count = std::min(kTogether, question.count - b);
            std::int32_t best[kTogether] = {};
            if (rows > 0) kernels.best(panels.data() + b * padded, count, bits, rows, d, best);
            for (std::size_t j = 0; j < count; ++j) {
                // Where a bit is 0 the number counts as negative: twice what is met, less all.
                out[(b + j) * texts.count + i] = rows > 0 ? 2 * best[j] - sums[b + j] : kNoRows;
            }
        }
        bits += rows * (d / 8);
    }
}

}  // namespace riemem
