// What each instruction set provides to the algorithm in fused_topk_dispatch.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"

namespace riemem {

constexpr std::size_t kBlockRows = 256;        // rows scored, bounded and skipped together
constexpr std::size_t kMostLanes = 16;         // queries in one panel, at most
constexpr std::size_t kMostPairs = 64;         // queries in one int8 pass, at most
constexpr std::size_t kQuadraticColumns = 32;  // columns of the whitening matrix in one panel
constexpr std::size_t kFoldSteps = 4;          // rows of a matrix that are added together
constexpr std::size_t kDotRows = 4;            // rows in one canonical product of several

// Per-row constants of one block, as float32: cos = cos_scale * dot, rie = rie_scale * dot_w +
// scale * offset + bias. For float32 rows cos_scale is inv_norm and rie_scale is scale; for int8
// both carry the row's quantisation scale as well.
struct BlockTerms {
    const float* cos_scale;
    const float* rie_scale;
    const float* scale;
    const float* bias;
};

// One query against int8 tiles: its two vectors, four dimensions to an int32.
struct Int8Pair {
    const std::int32_t* q;
    const std::int32_t* w;
    std::int32_t q_correction;
    std::int32_t w_correction;
    float q_scale;
    float w_scale;
    float offset;
};

struct FusedTopkKernels {
    std::size_t lanes;  // queries in one panel

    // Most rounded operations between an input and the result of one dot product.
    std::size_t (*single_roundings)(std::size_t d);
    std::size_t (*panel_roundings)(std::size_t d);

    // All three score n <= kBlockRows rows and write (queries, 2, kBlockRows): cos, then rie.
    // One query; q and w are padded with zeros to a multiple of 64 floats.
    void (*score_single)(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                         const float* q, const float* w, float offset, const BlockTerms& terms,
                         float* out);
    // `lanes` queries at once; panel is (d, 2, lanes): q then w.
    void (*score_panel)(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                        const float* panel, const float* offsets, const BlockTerms& terms,
                        float* out);
    // `count` queries on int8 tiles (kernels/quantize); whole groups of 64 rows are written.
    void (*score_int8)(const std::uint8_t* tiles, std::size_t n, std::size_t d,
                       const Int8Pair* pairs, std::size_t count, const BlockTerms& terms,
                       float* out);
    // Rows of bfloat16 as float32.
    void (*widen)(const std::uint16_t* high, std::size_t count, float* out);

    // Least and greatest cos, least and greatest rie of the rows that pass; mask may be null.
    void (*extremes)(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
                     float out[4]);
    // Rows with a cos + b rie >= threshold, ascending; returns how many.
    std::size_t (*select)(const float* cos, const float* rie, const std::uint8_t* mask,
                          std::size_t n, float a, float b, float threshold, std::uint32_t* out);

    // The canonical dot products row . q and row . w; q and w padded with zeros to 8 doubles.
    void (*dot_pair)(const float* row, const double* q, const double* w, std::size_t d,
                     double out[2]);
    // The same of four rows at once, whose sums do not wait for each other; q may be null, then 0
    // stands for its products.
    void (*dot_four)(const float* const rows[kDotRows], const double* q, const double* w,
                     std::size_t d, double out[kDotRows][2]);
    // Sum of squares of one row in the canonical order.
    double (*square_norm)(const float* row, std::size_t d);
    // The quotients in float64, rounded to float32; row and norm > 0 are finite.
    void (*divide)(const float* row, std::size_t d, double norm, float* out);
    // Four rows, centred and interleaved as (d, 4), against one panel (d, kQuadraticColumns) that
    // is zero outside its rows [begin, end): the squares of the 32 projections of row i are added
    // to lanes[i], column c to lane c % 8.
    void (*quadratic_panel)(const double* centred, const double* panel, std::size_t begin,
                            std::size_t end, double lanes[4][8]);
    // Up to four rows (count, d) times a matrix (d, d): element j is fma(x_t, matrix_tj, element)
    // for increasing t, from 0. Of a triangle, groups of kFoldSteps rows are read as far as any of
    // them may differ from zero.
    void (*fold)(const double* x, std::size_t count, const double* matrix, std::size_t d,
                 Nonzero nonzero, double* out);
};

const FusedTopkKernels& fused_topk_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const FusedTopkKernels& fused_topk_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const FusedTopkKernels& fused_topk_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_AVX512_VNNI)
const FusedTopkKernels& fused_topk_kernels_avx512_vnni();
#endif
#if defined(RIEMEM_HAVE_NEON)
const FusedTopkKernels& fused_topk_kernels_neon();
#endif

const FusedTopkKernels& fused_topk_kernels(Isa isa);

}  // namespace riemem
