// Rows times a square matrix, part of fused_topk_vec.inl.hpp: loops that the compiler turns into
// vectors, because each element is a chain of fused steps of its own.
#pragma once

#include "kernels/fused_topk/fused_topk_kernels.hpp"

namespace riemem {
namespace {

// kCount rows, one after the other at x and out, times the rows [t, t + kTaken) of the matrix, from
// element begin to end. The steps of an element keep their order; it is read and written once.
template <std::size_t kCount, std::size_t kTaken>
inline void fold_steps(const double* x, const double* matrix, std::size_t d, std::size_t t,
                       std::size_t begin, std::size_t end, double* out) {
    const double* __restrict rows = matrix + t * d;
    for (std::size_t i = 0; i < kCount; ++i) {
        const double* a = x + i * d + t;
        double* __restrict sums = out + i * d;
        for (std::size_t j = begin; j < end; ++j) {
            double sum = sums[j];
            for (std::size_t u = 0; u < kTaken; ++u)
                sum = __builtin_fma(a[u], rows[u * d + j], sum);
            sums[j] = sum;
        }
    }
}

template <std::size_t kCount>
void fold_rows(const double* x, const double* matrix, std::size_t d, Nonzero nonzero, double* out) {
    for (std::size_t j = 0; j < kCount * d; ++j) out[j] = 0.0;
    for (std::size_t t = 0; t < d; t += kFoldSteps) {
        // All that may differ from zero in any row of the group.
        const std::size_t left = d - t;
        const std::size_t begin = nonzero == Nonzero::upper ? t : 0;
        const std::size_t end = nonzero == Nonzero::lower && left > kFoldSteps ? t + kFoldSteps : d;
        if (left >= kFoldSteps) {
            fold_steps<kCount, kFoldSteps>(x, matrix, d, t, begin, end, out);
        } else {
            for (std::size_t u = 0; u < left; ++u) {
                fold_steps<kCount, 1>(x, matrix, d, t + u, begin, end, out);
            }
        }
    }
}

void fold(const double* x, std::size_t count, const double* matrix, std::size_t d, Nonzero nonzero,
          double* out) {
    if (count == 4) {
        fold_rows<4>(x, matrix, d, nonzero, out);
        return;
    }
    for (std::size_t i = 0; i < count; ++i) {
        fold_rows<1>(x + i * d, matrix, d, nonzero, out + i * d);
    }
}

}  // namespace
}  // namespace riemem
