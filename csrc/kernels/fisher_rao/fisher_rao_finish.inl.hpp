// From sums to approximate scores: one plain loop, which each compilation turns into its vectors.
#pragma once

#include <cstdint>

#include "kernels/fisher_rao/fisher_rao_kernels.hpp"

namespace riemem {
namespace {

static inline __attribute__((always_inline)) float exp_of(float x) {
    x = x > -87.0f ? x : -87.0f;  // e^-87 is far below the error that is allowed
    const float n = __builtin_floorf(x * 1.44269504f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
    float scale;
    __builtin_memcpy(&scale, &bits, sizeof(scale));
    return p * scale;
}

void finish(const float* distance, const float* dot, std::size_t n, const FisherTerms& terms,
            float* out) {
    const float inverse = -terms.inverse_temperature;
    if (terms.ramp == nullptr) {
        for (std::size_t i = 0; i < n; ++i) out[i] = exp_of(distance[i] * inverse);
        return;
    }
    for (std::size_t i = 0; i < n; ++i) {
        const float cosine = dot[i] * terms.inv_norm[i] * terms.query_inv_norm;
        const float ramp = terms.ramp[i];
        out[i] = (1.0f - ramp) * (0.5f * (cosine + 1.0f)) + ramp * exp_of(distance[i] * inverse);
    }
}

}  // namespace
}  // namespace riemem
