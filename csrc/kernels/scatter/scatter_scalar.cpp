// The kernel as plain loops: the reading copy, and what runs where no vector unit is known.
#include "kernels/scatter/scatter_kernels.hpp"

namespace riemem {
namespace {

void block(const double* a, const double* b, std::size_t depth, double sign, double* out,
           std::size_t stride) {
    for (std::size_t i = 0; i < kScatterPanel; ++i) {
        double sum[kScatterPanel] = {};
        for (std::size_t r = 0; r < depth; ++r) {
            const double x = a[r * kScatterPanel + i];
            for (std::size_t j = 0; j < kScatterPanel; ++j) sum[j] += x * b[r * kScatterPanel + j];
        }
        for (std::size_t j = 0; j < kScatterPanel; ++j) out[i * stride + j] += sign * sum[j];
    }
}

constexpr ScatterKernels kKernels = {block};

}  // namespace

const ScatterKernels& scatter_kernels_scalar() { return kKernels; }

}  // namespace riemem
