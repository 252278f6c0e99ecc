// What each instruction set provides to the algorithm in max_member_assign.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"

namespace riemem {

constexpr std::size_t kMostPanel = 32;  // chunks in one panel, at most

// Per-row constants of int8 codes and per-lane constants of a panel of codes.
struct CodeTerms {
    const float* scale;
    const float* error;
    const std::int32_t* sum;
    const float* lane_scale;
    const float* lane_norm;
};

struct MaxMemberKernels {
    std::size_t lanes;  // chunks in one panel

    // Most rounded operations between an input and the result of one dot product.
    std::size_t (*panel_roundings)(std::size_t d);
    std::size_t (*single_roundings)(std::size_t d);

    // tile (n, lanes) = row . lane * inverse_row; panel is (d, lanes). inverse may be null: 1.
    void (*dot_panel)(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                      const float* panel, const float* inverse, float* tile);
    // out (n) = row . q * inverse_row; q is padded with zeros to a multiple of 64 floats.
    void (*dot_single)(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                       const float* q, const float* inverse, float* out);
    // From int8 codes: tile = approximation + the row's part of the error bound, and `lower` the
    // running maximum per lane of approximation - that part. panel is (stride / 4, lanes, 4),
    // codes + 128. Null where the processor has no dot product of bytes.
    void (*code_panel)(const std::int8_t* codes, std::size_t stride, std::size_t n,
                       const std::uint8_t* panel, const CodeTerms& terms, float* tile,
                       float* lower);

    // Running maximum per lane.
    void (*max_panel)(const float* tile, std::size_t n, float* out);
    // Rows where any lane reaches its threshold, and the lanes as bits.
    std::size_t (*select_panel)(const float* tile, std::size_t n, const float* thresholds,
                                std::uint32_t* out_rows, std::uint32_t* out_lanes);

    // The canonical dot product; q padded with zeros to 8 doubles.
    double (*dot)(const float* row, const double* q, std::size_t d);
    // Sums of squares in the canonical order; the second of a multiple of 8 doubles.
    double (*square)(const float* row, std::size_t d);
    double (*square_wide)(const double* v, std::size_t padded);
};

const MaxMemberKernels& max_member_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const MaxMemberKernels& max_member_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const MaxMemberKernels& max_member_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
const MaxMemberKernels& max_member_kernels_neon();
#endif

const MaxMemberKernels& max_member_kernels(Isa isa);

}  // namespace riemem
