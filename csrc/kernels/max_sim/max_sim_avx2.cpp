#include "kernels/max_sim/max_sim_x86.inl.hpp"

namespace riemem {
namespace {

constexpr std::size_t kStep = 32;
using Acc = __m256i;
using Bits = __m256i;

RIEMEM_INLINE Acc zero() { return _mm256_setzero_si256(); }

// Lane l of eight takes bit l of each of the four bytes: byte 4 l + i is dimension 8 i + l.
RIEMEM_INLINE void arrange(const std::int8_t* from, std::int8_t* to) {
    const auto* bytes = reinterpret_cast<const __m128i*>(from);
    const __m128i a = _mm_loadu_si128(bytes);
    const __m128i b = _mm_loadu_si128(bytes + 1);
    const __m128i low = _mm_unpacklo_epi8(a, _mm_srli_si128(a, 8));
    const __m128i high = _mm_unpacklo_epi8(b, _mm_srli_si128(b, 8));
    auto* out = reinterpret_cast<__m128i*>(to);
    _mm_storeu_si128(out, _mm_unpacklo_epi16(low, high));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi16(low, high));
}

RIEMEM_INLINE Bits expand(const std::uint8_t* bytes) {
    std::int32_t four;
    std::memcpy(&four, bytes, sizeof(four));
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(four), lane), _mm256_set1_epi8(1));
}

RIEMEM_INLINE Acc add(Acc acc, Bits bits, const std::int8_t* q) {
    const __m256i numbers = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(bits, numbers));
}

// A step adds at most 2 * 128 to an int16, and combine() adds eight of them before it widens: after
// 16 steps that is -32768 at the least and 32512 at the most.
constexpr std::size_t kMost = 16;

RIEMEM_INLINE __m256i pairs(__m256i a, __m256i b) {
    return _mm256_add_epi16(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
RIEMEM_INLINE __m256i fours(__m256i a, __m256i b) {
    return _mm256_add_epi16(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
RIEMEM_INLINE Sums combine(const Acc* acc) {
    const __m256i low = fours(pairs(acc[0], acc[1]), pairs(acc[2], acc[3]));
    const __m256i high = fours(pairs(acc[4], acc[5]), pairs(acc[6], acc[7]));
    const __m256i all = _mm256_add_epi16(_mm256_permute2x128_si256(low, high, 0x20),
                                         _mm256_permute2x128_si256(low, high, 0x31));
    return _mm256_madd_epi16(all, _mm256_set1_epi16(1));
}

}  // namespace
}  // namespace riemem

#include "kernels/max_sim/max_sim_vec.inl.hpp"

namespace riemem {

const MaxSimKernels& max_sim_kernels_avx2() { return kKernels; }

}  // namespace riemem
