#include "kernels/max_member/max_member_vec.inl.hpp"

// The dot product of bytes is an extension that AVX-512 processors have or have not; it is asked
// for per function, so that the rest of this file runs on all of them.
#define RIEMEM_VNNI __attribute__((target("avx512vnni")))

namespace riemem {
namespace {

// As add_dot4() of simd/vec.hpp, which knows the instruction only where a whole file may use it.
RIEMEM_VNNI static inline __attribute__((always_inline)) void add_dot4_to(__m512i& sum, __m512i a,
                                                                          __m512i b) {
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

template <std::size_t R>
RIEMEM_VNNI static inline __attribute__((always_inline)) void code_tile(
    const std::int8_t* codes, std::size_t stride, const std::uint8_t* panel, const CodeTerms& terms,
    std::size_t row, bool more, float* tile, VecF lower[2]) {
    // Unrolled from the start, or the compiler keeps the sums in memory.
    __m512i sums[R][2];
#pragma GCC unroll 12
    for (std::size_t i = 0; i < R; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_si512();
    for (std::size_t t = 0; t < stride; t += 4) {
        if (more && t % 64 == 0) {
            for (std::size_t i = 0; i < R; ++i) __builtin_prefetch(codes + (R + i) * stride + t);
        }
        const __m512i a = _mm512_loadu_si512(panel + t * kPanel);
        const __m512i b = _mm512_loadu_si512(panel + t * kPanel + 64);
#pragma GCC unroll 12
        for (std::size_t i = 0; i < R; ++i) {
            std::int32_t four;
            std::memcpy(&four, codes + i * stride + t, sizeof(four));
            const __m512i x = _mm512_set1_epi32(four);
            add_dot4_to(sums[i][0], a, x);
            add_dot4_to(sums[i][1], b, x);
        }
    }
#pragma GCC unroll 12
    for (std::size_t i = 0; i < R; ++i) {
        const __m512i offset = _mm512_set1_epi32(128 * terms.sum[row + i]);
        const VecF scale = broadcast(terms.scale[row + i]);
        const VecF bound = broadcast(terms.error[row + i]);
        for (std::size_t half = 0; half < 2; ++half) {
            const VecF dots = _mm512_mask_cvtepi32_ps(broadcast(0.0f), 0xffff,
                                                      _mm512_sub_epi32(sums[i][half], offset));
            const VecF value = dots * scale * load(terms.lane_scale + half * kLanes);
            const VecF error = bound * load(terms.lane_norm + half * kLanes);
            store(tile + i * kPanel + half * kLanes, value + error);
            lower[half] = vmax(lower[half], value - error);
        }
    }
}

RIEMEM_VNNI void code_panel(const std::int8_t* codes, std::size_t stride, std::size_t n,
                            const std::uint8_t* panel, const CodeTerms& terms, float* tile,
                            float* lower) {
    VecF greatest[2] = {load(lower), load(lower + kLanes)};
    std::size_t i = 0;
    for (; i + kTileRows <= n; i += kTileRows) {
        code_tile<kTileRows>(codes + i * stride, stride, panel, terms, i, i + 2 * kTileRows <= n,
                             tile + i * kPanel, greatest);
    }
    for (; i < n; ++i) {
        code_tile<1>(codes + i * stride, stride, panel, terms, i, false, tile + i * kPanel,
                     greatest);
    }
    store(lower, greatest[0]);
    store(lower + kLanes, greatest[1]);
}

constexpr MaxMemberKernels kVnniKernels = {
    kPanel,     panel_roundings, single_roundings, dot_panel,
    dot_single, code_panel,      max_panel,        select_panel,
    dot,        square,          square_wide,
};

}  // namespace

const MaxMemberKernels& max_member_kernels_avx512() {
    return __builtin_cpu_supports("avx512vnni") ? kVnniKernels : kKernels;
}

}  // namespace riemem
