// Vector types on the compiler's own vectors. The only file that knows lanes and intrinsics.
//
// Included by NAME_<isa>.cpp files alone, each compiled with its own flags. Everything here has
// internal linkage and is always inlined, and nothing of the standard library is instantiated:
// a function compiled for AVX-512 must never be the copy that a plain processor ends up calling.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#define RIEMEM_INLINE static inline __attribute__((always_inline))

namespace riemem {
namespace {

#if defined(__AVX512F__)

constexpr std::size_t kLanes = 16;
constexpr std::size_t kTileRows = 12;  // 24 accumulators + 2 columns of 32 registers
using VecF = __m512;
RIEMEM_INLINE VecF load(const float* p) { return _mm512_loadu_ps(p); }
RIEMEM_INLINE VecF load_first(const float* p, std::size_t n) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p);
}
RIEMEM_INLINE void store(float* p, VecF v) { _mm512_storeu_ps(p, v); }
RIEMEM_INLINE VecF broadcast(float x) { return _mm512_set1_ps(x); }
RIEMEM_INLINE VecF fma(VecF a, VecF b, VecF c) { return _mm512_fmadd_ps(a, b, c); }
// The masked forms: gcc 12 takes the plain ones for reads of an uninitialised value.
RIEMEM_INLINE VecF vmin(VecF a, VecF b) { return _mm512_mask_min_ps(a, 0xffff, a, b); }
RIEMEM_INLINE VecF vmax(VecF a, VecF b) { return _mm512_mask_max_ps(a, 0xffff, a, b); }
RIEMEM_INLINE std::uint32_t at_least(VecF a, VecF b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

#elif defined(__AVX2__)

constexpr std::size_t kLanes = 8;
constexpr std::size_t kTileRows = 6;  // 12 accumulators + 2 columns + 1 broadcast of 16
using VecF = __m256;
RIEMEM_INLINE VecF load(const float* p) { return _mm256_loadu_ps(p); }
RIEMEM_INLINE VecF load_first(const float* p, std::size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_maskload_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lane));
}
RIEMEM_INLINE void store(float* p, VecF v) { _mm256_storeu_ps(p, v); }
RIEMEM_INLINE VecF broadcast(float x) { return _mm256_set1_ps(x); }
RIEMEM_INLINE VecF fma(VecF a, VecF b, VecF c) { return _mm256_fmadd_ps(a, b, c); }
RIEMEM_INLINE VecF vmin(VecF a, VecF b) { return _mm256_min_ps(a, b); }
RIEMEM_INLINE VecF vmax(VecF a, VecF b) { return _mm256_max_ps(a, b); }
RIEMEM_INLINE std::uint32_t at_least(VecF a, VecF b) {
    return static_cast<std::uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)));
}

#elif defined(__ARM_NEON)

constexpr std::size_t kLanes = 4;
constexpr std::size_t kTileRows = 12;
using VecF = float32x4_t;
RIEMEM_INLINE VecF load(const float* p) { return vld1q_f32(p); }
RIEMEM_INLINE VecF load_first(const float* p, std::size_t n) {
    float padded[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    std::memcpy(padded, p, n * sizeof(float));
    return vld1q_f32(padded);
}
RIEMEM_INLINE void store(float* p, VecF v) { vst1q_f32(p, v); }
RIEMEM_INLINE VecF broadcast(float x) { return vdupq_n_f32(x); }
RIEMEM_INLINE VecF fma(VecF a, VecF b, VecF c) { return vfmaq_f32(c, a, b); }
RIEMEM_INLINE VecF vmin(VecF a, VecF b) { return vminq_f32(a, b); }
RIEMEM_INLINE VecF vmax(VecF a, VecF b) { return vmaxq_f32(a, b); }
RIEMEM_INLINE std::uint32_t at_least(VecF a, VecF b) {
    const uint32x4_t bits = {1u, 2u, 4u, 8u};
    return vaddvq_u32(vandq_u32(vcgeq_f32(a, b), bits));
}

#endif

#if defined(__AVX512F__) || defined(__AVX2__) || defined(__ARM_NEON)
// Sum over the lanes as a tree: log2(kLanes) additions deep.
RIEMEM_INLINE float sum_lanes(VecF v) {
    float lane[kLanes];
    store(lane, v);
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
}
#endif

// Eight float64 lanes whatever the machine has: the shape of the canonical dot product. The
// compiler splits them over the registers there are; the arithmetic is the same bits everywhere.
typedef double Vec8d __attribute__((vector_size(64)));
typedef float Vec8f __attribute__((vector_size(32)));

RIEMEM_INLINE Vec8d load8(const double* p) {
    Vec8d v;
    std::memcpy(&v, p, sizeof(v));
    return v;
}
RIEMEM_INLINE void store8(double* p, const Vec8d& v) { std::memcpy(p, &v, sizeof(v)); }
RIEMEM_INLINE Vec8d load8_from_float(const float* p) {
    Vec8f v;
    std::memcpy(&v, p, sizeof(v));
    return __builtin_convertvector(v, Vec8d);
}
RIEMEM_INLINE double sum8(const Vec8d& v) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

}  // namespace
}  // namespace riemem
