// The kernel on vector types. Included once by each scatter_<isa>.cpp.
#pragma once

#include "kernels/scatter/scatter_kernels.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

// I rows by J vectors of doubles: I J sums stay in registers over the whole depth.
template <std::size_t I, std::size_t J>
RIEMEM_INLINE void tile(const double* a, const double* b, std::size_t depth, double sign,
                        double* out, std::size_t stride) {
    // Asked for now, needed when the sums are done: rows of a large matrix lie pages apart.
    for (std::size_t i = 0; i < I; ++i) {
        for (std::size_t j = 0; j < J * kDoubles; j += 8) {
            __builtin_prefetch(out + i * stride + j, 1);
        }
        __builtin_prefetch(out + i * stride + J * kDoubles - 1, 1);
    }
    VecD sum[I][J];
    for (std::size_t i = 0; i < I; ++i) {
        for (std::size_t j = 0; j < J; ++j) sum[i][j] = broadcast_double(0.0);
    }
    for (std::size_t r = 0; r < depth; ++r) {
        VecD column[J];
        for (std::size_t j = 0; j < J; ++j) {
            column[j] = load_doubles(b + r * kScatterPanel + j * kDoubles);
        }
        for (std::size_t i = 0; i < I; ++i) {
            const VecD x = broadcast_double(a[r * kScatterPanel + i]);
            for (std::size_t j = 0; j < J; ++j) sum[i][j] += x * column[j];
        }
    }
    const VecD factor = broadcast_double(sign);
    for (std::size_t i = 0; i < I; ++i) {
        for (std::size_t j = 0; j < J; ++j) {
            double* at = out + i * stride + j * kDoubles;
            store_doubles(at, load_doubles(at) + factor * sum[i][j]);
        }
    }
}

void block(const double* a, const double* b, std::size_t depth, double sign, double* out,
           std::size_t stride) {
    constexpr std::size_t kWidth = kTileColumns * kDoubles;
    static_assert(kScatterPanel % kWidth == 0 && kScatterPanel % kTileLines == 0);
    for (std::size_t j = 0; j < kScatterPanel; j += kWidth) {
        for (std::size_t i = 0; i < kScatterPanel; i += kTileLines) {
            tile<kTileLines, kTileColumns>(a + i, b + j, depth, sign, out + i * stride + j, stride);
        }
    }
}

constexpr ScatterKernels kKernels = {block};

}  // namespace
}  // namespace riemem
