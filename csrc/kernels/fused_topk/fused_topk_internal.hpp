// Pieces shared by the certified search and the exact pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/thread_pool.hpp"
#include "kernels/fused_topk/fused_topk.hpp"
#include "kernels/fused_topk/fused_topk_kernels.hpp"
#include "kernels/fused_topk/fused_topk_math.hpp"
#include "kernels/quantize/quantize.hpp"

namespace riemem::fused {

// Below this many bytes of rows a second thread costs more than it brings.
constexpr std::size_t kSerialBytes = std::size_t{1} << 20;

inline std::size_t threads_for(const FusedPoints& points) {
    const std::size_t bytes = points.rows.rows * points.rows.cols * sizeof(float);
    return bytes < kSerialBytes ? 1 : num_threads();
}

inline std::size_t block_count(std::size_t rows) { return (rows + kBlockRows - 1) / kBlockRows; }

inline std::size_t block_size(std::size_t rows, std::size_t block) {
    return std::min(kBlockRows, rows - block * kBlockRows);
}

inline const std::uint8_t* query_mask(const FusedOptions& options, std::size_t query,
                                      std::size_t rows) {
    if (options.mask == nullptr || !options.mask_per_query) return options.mask;
    return options.mask + query * rows;
}

inline std::size_t rows_passing(const std::uint8_t* mask, std::size_t rows) {
    if (mask == nullptr) return rows;
    return static_cast<std::size_t>(
        std::count_if(mask, mask + rows, [](std::uint8_t m) { return m != 0; }));
}

inline bool rows_pass(const std::uint8_t* mask, std::size_t rows) {
    if (mask == nullptr) return true;
    std::uint8_t any = 0;
    for (std::size_t i = 0; i < rows; ++i) any |= mask[i];
    return any != 0;
}

// One query, padded with zeros so that kernels may read whole vectors.
struct PaddedQuery {
    std::vector<double> q, w;
    double offset, bias;

    PaddedQuery(const FusedQueries& queries, std::size_t index, std::size_t d)
        : q((d + 7) / 8 * 8),
          w((d + 7) / 8 * 8),
          offset(queries.offset[index]),
          bias(queries.bias[index]) {
        std::copy_n(queries.q + index * d, d, q.begin());
        std::copy_n(queries.w + index * d, d, w.begin());
    }
};

// One row as float32; scratch holds it where it must be put together first.
inline const float* fetch_row(const FusedPoints& points, std::size_t row,
                              std::vector<float>& scratch) {
    if (points.storage != ScanStorage::bfloat16) return points.rows.row(row);
    const std::size_t d = points.rows.cols;
    scratch.resize(d);
    join_bfloat16(points.high + row * d, points.low + row * d, d, scratch.data());
    return scratch.data();
}

inline Dots dots_of(const FusedTopkKernels& kernels, const FusedPoints& points,
                    const PaddedQuery& query, std::size_t row, std::vector<float>& scratch) {
    double dot[2];
    kernels.dot_pair(fetch_row(points, row, scratch), query.q.data(), query.w.data(),
                     points.rows.cols, dot);
    return {dot[0], dot[1]};
}

inline Pair scores_of(const FusedPoints& points, const PaddedQuery& query, std::size_t row,
                      Dots dots) {
    const double scale = points.row_scale == nullptr ? 1.0 : points.row_scale[row];
    const double bias = points.row_bias == nullptr ? 0.0 : points.row_bias[row];
    return scores_from(dots, points.inv_norm[row], scale, bias, query.offset, query.bias);
}

struct Scored {
    double score;
    std::int64_t row;
};

// The total order of results: higher score, then lower row.
inline bool ranks_before(const Scored& a, const Scored& b) {
    return a.score > b.score || (a.score == b.score && a.row < b.row);
}

// Sorts the best into place and writes row `query` of the result.
void write_result(std::vector<Scored>& scored, std::size_t query, std::size_t k,
                  FusedTopkResult& result);

// Certified search of the queries in [begin, end), together. Returns the rows it evaluated exactly.
std::size_t search_together(const PreparedPoints& points, const FusedQueries& queries,
                            const FusedOptions& options, std::size_t begin, std::size_t end,
                            std::size_t k, FusedTopkResult& result);
// How many queries search_together takes at once.
std::size_t queries_together(const PreparedPoints& points, const FusedOptions& options);

// Exact top k of the queries in [begin, end) by evaluating every row in float64.
void exact_topk(const FusedPoints& points, const FusedQueries& queries, const FusedOptions& options,
                std::size_t begin, std::size_t end, std::size_t k, FusedTopkResult& result);

}  // namespace riemem::fused
