// What each instruction set provides to the algorithm in fused_topk_dispatch.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"

namespace riemem {

constexpr std::size_t kBlockRows = 256;   // rows scored, bounded and skipped together
constexpr std::size_t kMostLanes = 16;    // queries in one panel, at most
constexpr std::size_t kQuadraticPad = 8;  // columns of the whitening matrix are padded to this

// Per-row constants of one block, as float32.
struct BlockTerms {
    const float* inv_norm;
    const float* scale;
    const float* bias;
};

struct FusedTopkKernels {
    std::size_t lanes;  // queries in one panel

    // Most rounded operations between an input and the result of one dot product.
    std::size_t (*single_roundings)(std::size_t d);
    std::size_t (*panel_roundings)(std::size_t d);

    // cos[i], rie[i] of n rows against one query. q and w are padded with zeros to a multiple
    // of 64 floats.
    void (*score_single)(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                         const float* q, const float* w, float offset, const BlockTerms& terms,
                         float* cos, float* rie);
    // The same for `lanes` queries. panel is (d, 2, lanes): q then w. tile is (n, 2, lanes).
    void (*score_panel)(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                        const float* panel, const float* offsets, const BlockTerms& terms,
                        float* tile);

    // Least and greatest cos and rie of the rows that pass; mask may be null.
    void (*extremes_single)(const float* cos, const float* rie, const std::uint8_t* mask,
                            std::size_t n, float out[4]);
    void (*extremes_panel)(const float* tile, const std::uint8_t* mask, std::size_t n,
                           float* out /* (4, lanes) */);

    // Rows with a cos + b rie >= threshold, ascending; returns how many.
    std::size_t (*select_single)(const float* cos, const float* rie, const std::uint8_t* mask,
                                 std::size_t n, float a, float b, float threshold,
                                 std::uint32_t* out);
    // The same per lane: rows where any lane passes, and the lanes as bits.
    std::size_t (*select_panel)(const float* tile, const std::uint8_t* mask, std::size_t n,
                                const float* a, const float* b, const float* thresholds,
                                std::uint32_t* out_rows, std::uint32_t* out_lanes);

    // The canonical dot products row . q and row . w; q and w padded with zeros to 8 doubles.
    void (*dot_pair)(const float* row, const double* q, const double* w, std::size_t d,
                     double out[2]);
    // Sum of squares of one row in the canonical order.
    double (*square_norm)(const float* row, std::size_t d);
    // Four rows at a time, centred and interleaved as (d, 4); whitening (d, padded_rank).
    void (*quadratic_four)(const double* centred, const double* whitening, std::size_t d,
                           std::size_t padded_rank, double out[4]);
};

const FusedTopkKernels& fused_topk_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const FusedTopkKernels& fused_topk_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const FusedTopkKernels& fused_topk_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
const FusedTopkKernels& fused_topk_kernels_neon();
#endif

const FusedTopkKernels& fused_topk_kernels(Isa isa);

}  // namespace riemem
