// Pieces of fused_topk on a GPU that its files share: what is kept per query, the layout of the
// workspace, and the canonical dot products by eight lanes.
#pragma once

#include "cuda/warp.hpp"
#include "kernels/fused_topk/fused_topk_cuda.hpp"
#include "kernels/fused_topk/fused_topk_math.hpp"

namespace riemem::cuda {

constexpr std::size_t kTogether = 16;  // queries in one pass over the rows, at most
constexpr std::size_t kScoreBytes = std::size_t{256} << 20;  // aimed at by the choice of how many

enum class Mode : int { certified = 0, flat = 1, everything = 2 };

// extremes are in the order least cos, greatest cos, least rie, greatest rie, each times -1 or 1 so
// that the greatest is looked for.
struct QueryState {
    fused::QueryScales scales;
    float offset, q_scale, w_scale;  // the two scales for int8
    Key floor[4];                    // no extreme lies below
    Key most[2];                     // largest |cos| and |rie| of the float32 scores
    Key extreme[4];                  // exact
    fused::Fusion fusion;
    fused::Linear linear;
    Mode mode;
    double threshold;  // of the linear score
    unsigned found;
};

// (C, ...) arrays for C queries at a time.
struct Workspace {
    std::size_t together;
    QueryState* states;
    float* vectors;         // (C, 2, d) q and w as float32, or (C, 2, groups) packed int8
    double* rotated;        // int8: (C, 2, d)
    float* scores;          // (C, 2, N)
    float* extremes;        // (C, parts, 4)
    fused::Bounds* bounds;  // (C, parts)
    float* best;            // (C, parts) greatest linear score
    double* exact;          // zscore and all scores: (C, 2, N)
    double* sums;           // zscore: (C, 2, blocks)
    Key* keys;              // (C, N)
    unsigned* rows;         // (C, N), with the sign of a zero score on top
    Key* sorted;            // (C, padded k)
    Key* ties;              // (C, padded k)
    std::size_t padded_k;
    std::size_t bytes;
};

constexpr std::size_t kSumRows = 256;  // rows whose sum is taken alone: kBlockRows of the CPU

// Carves the arrays out of memory at `base`, which may be null to learn the size.
Workspace workspace_of(const DevicePoints& points, std::size_t queries, bool exact, std::size_t k,
                       void* base);

// Points whose low can be read: high in its place where there is none, and nothing of it is taken.
// A branch in every element would cost registers.
inline DevicePoints with_low(DevicePoints points) {
    if (points.low == nullptr) {
        points.low = reinterpret_cast<const std::int16_t*>(points.high);
        points.low_mask = 0;
    }
    return points;
}

// One element of a row as float32.
template <bool kSplit>
__device__ inline float element(const DevicePoints& points, std::size_t row, std::size_t t) {
    if constexpr (kSplit) {
        const std::size_t at = row * points.stride + t;
        const unsigned top = static_cast<unsigned>(points.high[at]) << 16;
        const int rest = static_cast<int>(points.low[at]) & points.low_mask;
        return __uint_as_float(top + static_cast<unsigned>(rest));
    } else {
        return points.rows[row * points.stride + t];
    }
}

// Both canonical dot products of a row, by the eight lanes of a group; rows may differ by group.
template <bool kSplit>
__device__ inline fused::Dots dots_of(const DevicePoints& points, std::size_t row, const double* q,
                                      const double* w) {
    double part_q = 0.0;
    double part_w = 0.0;
    for (std::size_t t = threadIdx.x % 8; t < points.dim; t += 8) {
        const double x = static_cast<double>(element<kSplit>(points, row, t));
        part_q += x * q[t];
        part_w += x * w[t];
    }
    return {sum_eight(part_q), sum_eight(part_w)};
}

__device__ inline double row_scale_of(const DevicePoints& points, std::size_t row) {
    return points.row_scale == nullptr ? 1.0 : points.row_scale[row];
}
__device__ inline double row_bias_of(const DevicePoints& points, std::size_t row) {
    return points.row_bias == nullptr ? 0.0 : points.row_bias[row];
}

__device__ inline fused::Pair pair_of(const DevicePoints& points, const DeviceQueries& queries,
                                      std::size_t query, std::size_t row, fused::Dots dots) {
    return fused::scores_from(dots, points.inv_norm[row], row_scale_of(points, row),
                              row_bias_of(points, row), queries.offset[query], queries.bias[query]);
}

__device__ inline bool passes(const DeviceOptions& options, std::size_t rows, std::size_t query,
                              std::size_t row) {
    if (options.mask == nullptr) return true;
    return options.mask[(options.mask_per_query ? query * rows : 0) + row] != 0;
}

__device__ inline fused::BlockScales part_scales_of(const DevicePoints& points, std::size_t part) {
    const double* s = points.part_scales + part * kPartScales;
    return {s[0], s[1], s[2], s[3], s[4], s[5], s[6]};
}

// Calls visit(row, pair) in every lane of a group of eight for each row of the warp's 32 that is
// marked; four rows at a time. first is the row of lane 0, `marked` this lane's own.
template <bool kSplit, typename Visit>
__device__ void visit_marked(const DevicePoints& points, const DeviceQueries& queries,
                             std::size_t query, std::size_t first, bool marked,
                             const Visit& visit) {
    const double* q = queries.q + query * points.dim;
    const double* w = queries.w + query * points.dim;
    unsigned bits = __ballot_sync(kFullWarp, marked ? 1 : 0);
    while (bits != 0) {
        const int mine = nth_bit(bits, lane_of() / 8);
        const int lane = mine < 0 ? nth_bit(bits, 0) : mine;
        const std::size_t row = first + static_cast<std::size_t>(lane);
        const fused::Dots dots = dots_of<kSplit>(points, row, q, w);
        if (mine >= 0) visit(row, pair_of(points, queries, query, row, dots));
        for (int j = 0; j < 4; ++j) bits &= bits - 1;
    }
}

// Launchers of the other files. launch_states is the first step of launch_scores alone.
Status launch_states(const DevicePoints& points, const DeviceQueries& queries,
                     const DeviceOptions& options, const Workspace& work, std::size_t begin,
                     std::size_t count, cudaStream_t stream);
Status launch_scores(const DevicePoints& points, const DeviceQueries& queries,
                     const DeviceOptions& options, const Workspace& work, std::size_t begin,
                     std::size_t count, cudaStream_t stream);
Status launch_finish(const DevicePoints& points, const DeviceQueries& queries,
                     const DeviceOptions& options, const Workspace& work, std::size_t begin,
                     std::size_t count, std::size_t k, const DeviceTopk& result,
                     cudaStream_t stream);
Status launch_exact(const DevicePoints& points, const DeviceQueries& queries,
                    const DeviceOptions& options, const Workspace& work, std::size_t begin,
                    std::size_t count, cudaStream_t stream);

}  // namespace riemem::cuda
