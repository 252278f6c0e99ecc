// The primitives of AVX-512, with the dot product of bytes where the file may use it.
#pragma once

#include "kernels/max_sim/max_sim_x86.inl.hpp"

namespace riemem {
namespace {

constexpr std::size_t kStep = 64;
using Acc = __m512i;
using Bits = __m512i;

RIEMEM_INLINE Acc zero() { return _mm512_setzero_si512(); }

RIEMEM_INLINE void arrange(const std::int8_t* from, std::int8_t* to) {
    std::memcpy(to, from, kStep);
}

RIEMEM_INLINE Bits expand(const std::uint8_t* bytes) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes, sizeof(eight));
    return _mm512_maskz_mov_epi8(static_cast<__mmask64>(eight), _mm512_set1_epi8(1));
}

#if defined(__AVX512VNNI__)

constexpr std::size_t kMost = std::size_t{1} << 20;  // int32 takes them all

RIEMEM_INLINE Acc add(Acc acc, Bits bits, const std::int8_t* q) {
    // As in add_dot4() of simd/vec.hpp, the intrinsic would have gcc 12 spill the sums.
    __asm__("vpdpbusd %2, %1, %0"
            : "+v"(acc)
            : "v"(bits), "m"(*reinterpret_cast<const std::int8_t(*)[64]>(q)));
    return acc;
}
RIEMEM_INLINE __m512i sum(__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }
RIEMEM_INLINE __m256i sum(__m256i a, __m256i b) { return _mm256_add_epi32(a, b); }
RIEMEM_INLINE Sums widen(__m256i v) { return v; }

#else

// A step adds at most 2 * 128 to an int16, and combine() adds sixteen of them before widen(): after
// 8 steps that is -32768 at the least and 32512 at the most.
constexpr std::size_t kMost = 8;

RIEMEM_INLINE Acc add(Acc acc, Bits bits, const std::int8_t* q) {
    return _mm512_add_epi16(acc, _mm512_maddubs_epi16(bits, _mm512_loadu_si512(q)));
}
RIEMEM_INLINE __m512i sum(__m512i a, __m512i b) { return _mm512_add_epi16(a, b); }
RIEMEM_INLINE __m256i sum(__m256i a, __m256i b) { return _mm256_add_epi16(a, b); }
RIEMEM_INLINE Sums widen(__m256i v) { return _mm256_madd_epi16(v, _mm256_set1_epi16(1)); }

#endif

RIEMEM_INLINE __m512i pairs(__m512i a, __m512i b) {
    return sum(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
RIEMEM_INLINE __m256i fours(__m512i a, __m512i b) {
    const __m512i four = sum(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    return sum(_mm512_castsi512_si256(four), _mm512_extracti64x4_epi64(four, 1));
}
RIEMEM_INLINE Sums combine(const Acc* acc) {
    const __m256i low = fours(pairs(acc[0], acc[1]), pairs(acc[2], acc[3]));
    const __m256i high = fours(pairs(acc[4], acc[5]), pairs(acc[6], acc[7]));
    return widen(sum(_mm256_permute2x128_si256(low, high, 0x20),
                     _mm256_permute2x128_si256(low, high, 0x31)));
}

}  // namespace
}  // namespace riemem

#include "kernels/max_sim/max_sim_vec.inl.hpp"
