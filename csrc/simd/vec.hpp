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
RIEMEM_INLINE VecF vmin(VecF a, VecF b) { return _mm512_min_ps(a, b); }
RIEMEM_INLINE VecF vmax(VecF a, VecF b) { return _mm512_max_ps(a, b); }
RIEMEM_INLINE std::uint32_t at_least(VecF a, VecF b) {
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

// Four products of an unsigned by a signed byte added to each 32-bit lane.
constexpr std::size_t kInt8Rows = 4;  // vectors of rows and queries whose sums fit the registers
constexpr std::size_t kInt8Pairs = 3;
using VecI = __m512i;
RIEMEM_INLINE VecI load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
RIEMEM_INLINE VecI broadcast_int(std::int32_t x) { return _mm512_set1_epi32(x); }
RIEMEM_INLINE VecI subtract(VecI a, VecI b) { return _mm512_sub_epi32(a, b); }
RIEMEM_INLINE VecF to_float(VecI v) { return _mm512_cvtepi32_ps(v); }
RIEMEM_INLINE VecI add_dot4(VecI sum, VecI rows, VecI query) {
#if defined(__AVX512VNNI__)
    // gcc 12 moves the sums of the intrinsic between registers and spills them: a third of the
    // speed.
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(rows), "v"(query));
    return sum;
#else
    // Even and odd bytes as 16-bit numbers: their products never saturate.
    const VecI even = _mm512_and_si512(rows, _mm512_set1_epi16(0x00ff));
    const VecI odd = _mm512_srli_epi16(rows, 8);
    const VecI query_even = _mm512_srai_epi16(_mm512_slli_epi16(query, 8), 8);
    const VecI query_odd = _mm512_srai_epi16(query, 8);
    return _mm512_add_epi32(sum, _mm512_add_epi32(_mm512_madd_epi16(even, query_even),
                                                  _mm512_madd_epi16(odd, query_odd)));
#endif
}
RIEMEM_INLINE VecF load_bfloat16(const std::uint16_t* p) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

constexpr std::size_t kDoubles = 8;
constexpr std::size_t kTileLines = 8;  // 24 sums, 3 columns and a broadcast of 32 registers
constexpr std::size_t kTileColumns = 3;
using VecD = __m512d;
RIEMEM_INLINE VecD load_doubles(const double* p) { return _mm512_loadu_pd(p); }
RIEMEM_INLINE void store_doubles(double* p, VecD v) { _mm512_storeu_pd(p, v); }
RIEMEM_INLINE VecD broadcast_double(double x) { return _mm512_set1_pd(x); }
RIEMEM_INLINE VecD vmin(VecD a, VecD b) { return _mm512_min_pd(a, b); }
RIEMEM_INLINE VecD vmax(VecD a, VecD b) { return _mm512_max_pd(a, b); }
// Elements t, t + 1, ... of kDoubles rows: out[k] holds element t + k of each.
RIEMEM_INLINE void load_transposed(const float* const* rows, std::size_t t, VecD* out) {
    __m256 pair[8], four[8];
    for (int i = 0; i < 8; i += 2) {
        const __m256 a = _mm256_loadu_ps(rows[i] + t);
        const __m256 b = _mm256_loadu_ps(rows[i + 1] + t);
        pair[i] = _mm256_unpacklo_ps(a, b);
        pair[i + 1] = _mm256_unpackhi_ps(a, b);
    }
    for (int i = 0; i < 8; i += 4) {
        four[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
        four[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
        four[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
        four[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
        out[i] = _mm512_cvtps_pd(_mm256_permute2f128_ps(four[i], four[i + 4], 0x20));
        out[i + 4] = _mm512_cvtps_pd(_mm256_permute2f128_ps(four[i], four[i + 4], 0x31));
    }
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

constexpr std::size_t kInt8Rows = 2;
constexpr std::size_t kInt8Pairs = 1;
using VecI = __m256i;
RIEMEM_INLINE VecI load_bytes(const std::uint8_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
RIEMEM_INLINE VecI broadcast_int(std::int32_t x) { return _mm256_set1_epi32(x); }
RIEMEM_INLINE VecI subtract(VecI a, VecI b) { return _mm256_sub_epi32(a, b); }
RIEMEM_INLINE VecF to_float(VecI v) { return _mm256_cvtepi32_ps(v); }
RIEMEM_INLINE VecI add_dot4(VecI sum, VecI rows, VecI query) {
    // Even and odd bytes as 16-bit numbers: their products never saturate.
    const VecI even = _mm256_and_si256(rows, _mm256_set1_epi16(0x00ff));
    const VecI odd = _mm256_srli_epi16(rows, 8);
    const VecI query_even = _mm256_srai_epi16(_mm256_slli_epi16(query, 8), 8);
    const VecI query_odd = _mm256_srai_epi16(query, 8);
    return _mm256_add_epi32(sum, _mm256_add_epi32(_mm256_madd_epi16(even, query_even),
                                                  _mm256_madd_epi16(odd, query_odd)));
}
RIEMEM_INLINE VecF load_bfloat16(const std::uint16_t* p) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

constexpr std::size_t kDoubles = 4;
constexpr std::size_t kTileLines = 4;
constexpr std::size_t kTileColumns = 3;
using VecD = __m256d;
RIEMEM_INLINE VecD load_doubles(const double* p) { return _mm256_loadu_pd(p); }
RIEMEM_INLINE void store_doubles(double* p, VecD v) { _mm256_storeu_pd(p, v); }
RIEMEM_INLINE VecD broadcast_double(double x) { return _mm256_set1_pd(x); }
RIEMEM_INLINE VecD vmin(VecD a, VecD b) { return _mm256_min_pd(a, b); }
RIEMEM_INLINE VecD vmax(VecD a, VecD b) { return _mm256_max_pd(a, b); }
RIEMEM_INLINE void load_transposed(const float* const* rows, std::size_t t, VecD* out) {
    __m128 a = _mm_loadu_ps(rows[0] + t), b = _mm_loadu_ps(rows[1] + t);
    __m128 c = _mm_loadu_ps(rows[2] + t), d = _mm_loadu_ps(rows[3] + t);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    out[0] = _mm256_cvtps_pd(a);
    out[1] = _mm256_cvtps_pd(b);
    out[2] = _mm256_cvtps_pd(c);
    out[3] = _mm256_cvtps_pd(d);
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
constexpr std::size_t kInt8Rows = 4;
constexpr std::size_t kInt8Pairs = 2;
using VecI = int32x4_t;
RIEMEM_INLINE VecI load_bytes(const std::uint8_t* p) { return vreinterpretq_s32_u8(vld1q_u8(p)); }
RIEMEM_INLINE VecI broadcast_int(std::int32_t x) { return vdupq_n_s32(x); }
RIEMEM_INLINE VecI subtract(VecI a, VecI b) { return vsubq_s32(a, b); }
RIEMEM_INLINE VecF to_float(VecI v) { return vcvtq_f32_s32(v); }
RIEMEM_INLINE VecI add_dot4(VecI sum, VecI rows, VecI query) {
    const uint8x16_t r = vreinterpretq_u8_s32(rows);
    const int8x16_t q = vreinterpretq_s8_s32(query);
    const int16x8_t row_low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(r)));
    const int16x8_t row_high = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(r)));
    const int16x8_t query_low = vmovl_s8(vget_low_s8(q));
    const int16x8_t query_high = vmovl_s8(vget_high_s8(q));
    const int32x4_t low = vpaddq_s32(vmull_s16(vget_low_s16(row_low), vget_low_s16(query_low)),
                                     vmull_s16(vget_high_s16(row_low), vget_high_s16(query_low)));
    const int32x4_t high =
        vpaddq_s32(vmull_s16(vget_low_s16(row_high), vget_low_s16(query_high)),
                   vmull_s16(vget_high_s16(row_high), vget_high_s16(query_high)));
    return vaddq_s32(sum, vpaddq_s32(low, high));
}
RIEMEM_INLINE VecF load_bfloat16(const std::uint16_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

constexpr std::size_t kDoubles = 2;
constexpr std::size_t kTileLines = 6;
constexpr std::size_t kTileColumns = 4;
using VecD = float64x2_t;
RIEMEM_INLINE VecD load_doubles(const double* p) { return vld1q_f64(p); }
RIEMEM_INLINE void store_doubles(double* p, VecD v) { vst1q_f64(p, v); }
RIEMEM_INLINE VecD broadcast_double(double x) { return vdupq_n_f64(x); }
RIEMEM_INLINE VecD vmin(VecD a, VecD b) { return vminq_f64(a, b); }
RIEMEM_INLINE VecD vmax(VecD a, VecD b) { return vmaxq_f64(a, b); }
RIEMEM_INLINE void load_transposed(const float* const* rows, std::size_t t, VecD* out) {
    const float32x2_t a = vld1_f32(rows[0] + t);
    const float32x2_t b = vld1_f32(rows[1] + t);
    out[0] = vcvt_f64_f32(vzip1_f32(a, b));
    out[1] = vcvt_f64_f32(vzip2_f32(a, b));
}

#endif

#if defined(__AVX512F__) || defined(__AVX2__) || defined(__ARM_NEON)
// Sum over the lanes as a tree: log2(kLanes) additions deep, lane i + lane i + half at each step.
#if defined(__AVX2__)
RIEMEM_INLINE float sum_four(__m128 v) {
    v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    return _mm_cvtss_f32(_mm_add_ss(v, _mm_shuffle_ps(v, v, 1)));
}
RIEMEM_INLINE float sum_eight(__m256 v) {
    return sum_four(_mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)));
}
#endif
#if defined(__AVX512F__)
RIEMEM_INLINE float sum_lanes(VecF v) {
    return sum_eight(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
#elif defined(__AVX2__)
RIEMEM_INLINE float sum_lanes(VecF v) { return sum_eight(v); }
#else
RIEMEM_INLINE float sum_lanes(VecF v) {
    float lane[kLanes];
    store(lane, v);
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    return lane[0];
}
#endif
RIEMEM_INLINE float min_lanes(VecF v) {
    float lane[kLanes];
    store(lane, v);
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) {
            lane[i] = lane[i + half] < lane[i] ? lane[i + half] : lane[i];
        }
    }
    return lane[0];
}
RIEMEM_INLINE float max_lanes(VecF v) {
    float lane[kLanes];
    store(lane, v);
    for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
        for (std::size_t i = 0; i < half; ++i) {
            lane[i] = lane[i + half] > lane[i] ? lane[i + half] : lane[i];
        }
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

// The last, incomplete group of eight, padded with zeros.
RIEMEM_INLINE Vec8d load8_tail(const float* p, std::size_t n) {
    float padded[8] = {};
    std::memcpy(padded, p, n * sizeof(float));
    return load8_from_float(padded);
}

// Sum of squares of a row in the order of the canonical dot product.
RIEMEM_INLINE double canonical_square(const float* row, std::size_t d) {
    Vec8d sum = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        const Vec8d x = load8_from_float(row + t);
        sum += x * x;
    }
    if (t < d) {
        const Vec8d x = load8_tail(row + t, d - t);
        sum += x * x;
    }
    return sum8(sum);
}

}  // namespace
}  // namespace riemem
