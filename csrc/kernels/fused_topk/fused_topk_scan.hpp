// float32 scores of a few queries against a set of points, block by block, whatever it is stored
// as.
#pragma once

#include "kernels/fused_topk/fused_topk_bounds.hpp"

namespace riemem::fused {

constexpr std::size_t kPartRows = 64;  // rows with their own extremes, scored again together
constexpr std::size_t kBlockParts = kBlockRows / kPartRows;
static_assert(kPartRows == kTileRows64, "a part is one int8 tile");

inline std::size_t part_count(std::size_t rows) { return (rows + kPartRows - 1) / kPartRows; }
inline std::size_t part_size(std::size_t rows, std::size_t part) {
    return std::min(kPartRows, rows - part * kPartRows);
}

// float32 scores of a few queries, block by block.
class Scan {
 public:
    Scan(const PreparedPoints& prepared, const FusedQueries& queries, const FusedOptions& options,
         std::size_t begin, std::size_t end);

    std::size_t count() const { return queries_.size(); }
    const PaddedQuery& query(std::size_t lane) const { return queries_[lane]; }
    const QueryScales& scales(std::size_t lane) const { return scales_[lane]; }

    // (count or more, 2, kBlockRows) scores of all queries.
    void score(std::size_t block, float* out) const;
    // Scores of one query over one part: cos at out, rie at out + kBlockRows.
    void score_part(std::size_t part, std::size_t lane, float* out) const;
    // Queries that score() writes: count(), rounded up to what the kernel does at once.
    std::size_t width() const { return width_; }

 private:
    const float* float_rows(std::size_t first, std::size_t n, std::vector<float>& scratch,
                            std::ptrdiff_t& stride) const;

    const FusedPoints& points_;
    const PreparedPoints::Tables& tables_;
    const FusedTopkKernels& kernels_;
    std::size_t d_, padded_, width_;
    bool panel_;
    std::vector<PaddedQuery> queries_;
    std::vector<QueryScales> scales_;
    std::vector<float> single_;  // (count, 2, padded): q then w
    std::vector<float> packed_;  // (d, 2, lanes)
    std::vector<float> offsets_;
    std::vector<Int8Query> int8_;  // q then w of each query
    std::vector<Int8Pair> pairs_;
};

}  // namespace riemem::fused
