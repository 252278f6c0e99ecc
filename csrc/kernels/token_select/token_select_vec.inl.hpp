// The kernel on vector types. Included once by each token_select_<isa>.cpp.
#pragma once

#include "kernels/token_select/token_select_kernels.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

RIEMEM_INLINE Vec8d product8(const float* gradient, const float* embedding) {
    Vec8f g, h;
    std::memcpy(&g, gradient, sizeof(g));
    std::memcpy(&h, embedding, sizeof(h));
    return __builtin_convertvector(g * h, Vec8d);
}

double square_product(const float* gradient, const float* embedding, std::size_t d) {
    Vec8d sum = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        const Vec8d x = product8(gradient + t, embedding + t);
        sum += x * x;
    }
    if (t < d) {
        float g[8] = {};
        float h[8] = {};
        std::memcpy(g, gradient + t, (d - t) * sizeof(float));
        std::memcpy(h, embedding + t, (d - t) * sizeof(float));
        const Vec8d x = product8(g, h);
        sum += x * x;
    }
    return sum8(sum);
}

constexpr TokenSelectKernels kKernels = {square_product};

}  // namespace
}  // namespace riemem
