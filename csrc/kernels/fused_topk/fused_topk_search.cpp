// Certified top k: float32 scores with proven error bounds choose the few rows that may matter,
// float64 decides among them.
#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

#include "kernels/fused_topk/fused_topk_scan.hpp"

namespace riemem {
namespace fused {
namespace {

constexpr std::size_t kChunkBlocks = 16;
constexpr std::size_t kLeastPairs = 16;   // int8 queries that make keeping their scores worth it
constexpr std::size_t kExactRows = 64;    // fewer rows than this are simply evaluated
constexpr std::size_t kPanelQueries = 4;  // fewer float32 queries than this go one by one
constexpr std::size_t kStoredBytes = std::size_t{4} << 20;  // scores kept rather than made again
constexpr std::size_t kFirstParts = 8;  // best parts, searched for a threshold before the rest

// The k largest values seen so far.
class Largest {
 public:
    explicit Largest(std::size_t k) : k_(k) { heap_.reserve(k); }

    // The k-th largest, or minus infinity while there are fewer.
    double threshold() const { return heap_.size() < k_ ? -kInfinity : heap_.front(); }

    std::size_t size() const { return k_; }

    void offer(double value) {
        if (heap_.size() < k_) {
            heap_.push_back(value);
            std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        } else if (value > heap_.front()) {
            std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
            heap_.back() = value;
            std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
        }
    }

 private:
    std::size_t k_;
    std::vector<double> heap_;
};

// A row and the most its score can be.
struct Candidate {
    double upper;
    std::size_t row;
};

bool higher(const Candidate& a, const Candidate& b) {
    return a.upper > b.upper || (a.upper == b.upper && a.row < b.row);
}

// Calls visit(upper, row) from the highest upper bound down until it returns false. Few of many are
// visited, so they come from a heap and are not sorted.
template <typename Visit>
void best_first(std::vector<Candidate>& candidates, Visit visit) {
    const auto lower = [](const Candidate& a, const Candidate& b) { return higher(b, a); };
    std::make_heap(candidates.begin(), candidates.end(), lower);
    for (auto end = candidates.end(); end != candidates.begin(); --end) {
        if (!visit(candidates.front().upper, candidates.front().row)) return;
        std::pop_heap(candidates.begin(), end, lower);
    }
}

// The search of one query over the scores of a scan.
class Search {
 public:
    Search(const PreparedPoints& prepared, const FusedOptions& options, const Scan& scan,
           std::size_t lane, std::size_t query, const float* stored, std::size_t stored_stride,
           const float* extremes, std::size_t width)
        : points_(prepared.points),
          parts_(part_count(points_.rows.rows)),
          options_(options),
          kernels_(fused_topk_kernels(options.isa)),
          scan_(scan),
          lane_(lane),
          stored_(stored),
          stored_stride_(stored_stride),
          extremes_(extremes + lane * 4),
          extremes_stride_(width * 4),
          mask_(query_mask(options, query, points_.rows.rows)) {
        const std::vector<BlockScales>& blocks = prepared.tables().blocks;
        bounds_.reserve(blocks.size());
        for (const BlockScales& block : blocks) {
            bounds_.push_back(error_bounds(block, scan.scales(lane)));
        }
    }

    // False when float32 cannot tell the scores apart at all.
    bool run(std::size_t k, std::vector<Scored>& found);
    std::size_t exact_rows() const { return exact_rows_; }

 private:
    struct Scores {
        const float* cos;
        const float* rie;
    };
    Scores approximate(std::size_t part);
    float extreme(std::size_t part, std::size_t which) const {
        return extremes_[part * extremes_stride_ + which];
    }
    const std::uint8_t* part_mask(std::size_t part) const {
        return mask_ == nullptr ? nullptr : mask_ + part * kPartRows;
    }
    bool empty(std::size_t part) const { return extreme(part, 0) > extreme(part, 1); }
    Pair exact(std::size_t row);
    double exact_extreme(std::size_t which);
    Normaliser exact_range(std::size_t score);
    Linear linear_of(const Fusion& fusion) const;
    void collect(std::size_t part, const Linear& linear, Largest& lower,
                 std::vector<Candidate>& kept);

    const FusedPoints& points_;
    std::size_t parts_;
    const FusedOptions& options_;
    const FusedTopkKernels& kernels_;
    const Scan& scan_;
    std::size_t lane_;
    const float* stored_;
    std::size_t stored_stride_;
    const float* extremes_;
    std::size_t extremes_stride_;
    const std::uint8_t* mask_;
    std::vector<Bounds> bounds_;  // of each block
    float again_[2 * kBlockRows];
    std::uint32_t hits_[kPartRows];
    std::vector<double> values_;
    std::vector<float> row_scratch_;
    std::unordered_map<std::int32_t, Dots> twins_;  // of rows that occur more than once
    std::size_t exact_rows_ = 0;
};

Search::Scores Search::approximate(std::size_t part) {
    if (stored_ == nullptr) {
        scan_.score_part(part, lane_, again_);
        return {again_, again_ + kBlockRows};
    }
    const float* at = stored_ + part / kBlockParts * stored_stride_ + lane_ * 2 * kBlockRows +
                      part % kBlockParts * kPartRows;
    return {at, at + kBlockRows};
}

Pair Search::exact(std::size_t row) {
    const std::int32_t twin = points_.twin == nullptr ? -1 : points_.twin[row];
    const auto known = twin < 0 ? twins_.end() : twins_.find(twin);
    if (known != twins_.end()) return scores_of(points_, scan_.query(lane_), row, known->second);
    ++exact_rows_;
    const Dots dots = dots_of(kernels_, points_, scan_.query(lane_), row, row_scratch_);
    if (twin >= 0) twins_.emplace(twin, dots);
    return scores_of(points_, scan_.query(lane_), row, dots);
}

// which: 0 least cos, 1 greatest cos, 2 least rie, 3 greatest rie. Works on sign * value, so that
// it always looks for the greatest; best parts first, best rows first, until no bound can win.
double Search::exact_extreme(std::size_t which) {
    const double sign = which % 2 == 0 ? -1.0 : 1.0;
    const std::size_t score = which / 2;
    auto bound = [&](std::size_t part) {
        return score == 0 ? bounds_[part / kBlockParts].cos : bounds_[part / kBlockParts].rie;
    };
    double floor = -kInfinity;
    std::vector<Candidate> order;
    for (std::size_t part = 0; part < parts_; ++part) {
        const double e = bound(part);
        const double value = sign * static_cast<double>(extreme(part, which));
        if (e == kInfinity) {
            order.push_back({kInfinity, part});
        } else if (!empty(part)) {
            floor = std::max(floor, value - e);
            if (value + e >= floor) order.push_back({value + e, part});
        }
    }
    double best = -kInfinity;
    double greatest = -kInfinity;
    std::vector<Candidate> rows;
    best_first(order, [&](double upper, std::size_t part) {
        if (upper < std::max(best, floor)) return false;
        const double e = bound(part);
        const Scores scores = approximate(part);
        const float* values = score == 0 ? scores.cos : scores.rie;
        const std::uint8_t* passes = part_mask(part);
        const std::size_t n = part_size(points_.rows.rows, part);
        rows.clear();
        if (e == kInfinity) {
            for (std::size_t i = 0; i < n; ++i) {
                if (passes == nullptr || passes[i] != 0) {
                    rows.push_back({kInfinity, part * kPartRows + i});
                }
            }
        } else {
            const float least = round_down(std::max(best, floor) - e);
            const std::size_t found = kernels_.select(values, values, passes, n,
                                                      static_cast<float>(sign), 0.0f, least, hits_);
            for (std::size_t j = 0; j < found; ++j) {
                rows.push_back({sign * static_cast<double>(values[hits_[j]]) + e,
                                part * kPartRows + hits_[j]});
            }
        }
        best_first(rows, [&](double most, std::size_t row) {
            if (most < best) return false;
            const Pair pair = exact(row);
            // The query's bias is part of the exact value and not of the bounds.
            const double value = sign * (score == 0 ? pair.cos : pair.rie);
            greatest = std::max(greatest, value);
            best = std::max(best, score == 0 ? value : value - sign * scan_.query(lane_).bias);
            return true;
        });
        return true;
    });
    return sign * greatest;
}

Normaliser Search::exact_range(std::size_t score) {
    const double low = exact_extreme(2 * score);
    const double high = exact_extreme(2 * score + 1);
    return high > low ? Normaliser{low, high - low} : Normaliser{0.0, 0.0};
}

Linear Search::linear_of(const Fusion& fusion) const {
    Linear linear;
    const double w = fusion.cosine_weight;
    if (w > 0.0 && fusion.cos.width > 0.0) linear.a = w / fusion.cos.width;
    if (w < 1.0 && fusion.rie.width > 0.0) linear.b = (1.0 - w) / fusion.rie.width;
    double most_cos = 0.0, most_rie = 0.0;
    for (std::size_t part = 0; part < parts_; ++part) {
        if (bounds_[part / kBlockParts].cos == kInfinity || empty(part)) continue;
        for (std::size_t side = 0; side < 2; ++side) {
            most_cos = std::max(most_cos, std::abs(static_cast<double>(extreme(part, side))));
            most_rie = std::max(most_rie, std::abs(static_cast<double>(extreme(part, 2 + side))));
        }
    }
    linear.rounding =
        kSlack * 6.0 * kUnit * (linear.a * most_cos + linear.b * most_rie) + 4.0 * kSubnormal;
    return linear;
}

// Keeps the rows of a part whose upper bound reaches the k-th largest lower bound so far.
void Search::collect(std::size_t part, const Linear& linear, Largest& lower,
                     std::vector<Candidate>& kept) {
    const double bound = linear.bound(bounds_[part / kBlockParts]);
    const std::size_t n = part_size(points_.rows.rows, part);
    const std::uint8_t* passes = part_mask(part);
    const std::size_t first = part * kPartRows;
    if (bound == kInfinity) {
        for (std::size_t i = 0; i < n; ++i) {
            if (passes == nullptr || passes[i] != 0) kept.push_back({kInfinity, first + i});
        }
        return;
    }
    const Scores scores = approximate(part);
    const auto value_of = [&](std::size_t i) {
        return linear.value(static_cast<double>(scores.cos[i]), static_cast<double>(scores.rie[i]));
    };
    const auto select = [&] {
        return kernels_.select(scores.cos, scores.rie, passes, n, static_cast<float>(linear.a),
                               static_cast<float>(linear.b), round_down(lower.threshold() - bound),
                               hits_);
    };
    std::size_t found = select();
    if (lower.threshold() ==
        -kInfinity) {  // fewer than k rows so far: this part's own best come first
        values_.clear();
        for (std::size_t j = 0; j < found; ++j) values_.push_back(value_of(hits_[j]));
        const std::size_t best = std::min(lower.size(), found);
        std::partial_sort(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(best),
                          values_.end(), std::greater<>());
        for (std::size_t j = 0; j < best; ++j) lower.offer(values_[j] - bound);
        found = select();
        for (std::size_t j = 0; j < found; ++j) {
            kept.push_back({value_of(hits_[j]) + bound, first + hits_[j]});
        }
        return;
    }
    for (std::size_t j = 0; j < found; ++j) {
        const double value = value_of(hits_[j]);
        lower.offer(value - bound);
        kept.push_back({value + bound, first + hits_[j]});
    }
}

bool Search::run(std::size_t k, std::vector<Scored>& found) {
    Fusion fusion{options_.cosine_weight, {}, {}};
    if (options_.norm == Norm::minmax) {
        if (options_.cosine_weight > 0.0) fusion.cos = exact_range(0);
        if (options_.cosine_weight < 1.0) fusion.rie = exact_range(1);
    }
    const Linear linear = linear_of(fusion);
    if (!linear.representable()) return false;
    found.clear();
    if (linear.a == 0.0 && linear.b == 0.0) {  // neither score has any spread: all are 0
        for (std::size_t row = 0; row < points_.rows.rows && found.size() < k; ++row) {
            if (mask_ == nullptr || mask_[row] != 0) {
                found.push_back({0.0, static_cast<std::int64_t>(row)});
            }
        }
        return true;
    }

    std::vector<Candidate> order;
    for (std::size_t part = 0; part < parts_; ++part) {
        const double bound = linear.bound(bounds_[part / kBlockParts]);
        if (bound == kInfinity) {
            order.push_back({kInfinity, part});
        } else if (!empty(part)) {
            order.push_back({linear.value(static_cast<double>(extreme(part, 1)),
                                          static_cast<double>(extreme(part, 3))) +
                                 bound,
                             part});
        }
    }
    const std::size_t best = std::min(kFirstParts, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(best), order.end(),
                      higher);
    Largest lower(k);
    std::vector<Candidate> kept;
    for (const auto& [upper, part] : order) {
        if (upper >= lower.threshold()) collect(part, linear, lower, kept);
    }

    Largest exactly(k);
    best_first(kept, [&](double upper, std::size_t row) {
        if (upper < lower.threshold() || upper < exactly.threshold()) return false;
        const Pair pair = exact(row);
        found.push_back({fusion(pair), static_cast<std::int64_t>(row)});
        exactly.offer(linear.value(pair.cos, pair.rie - scan_.query(lane_).bias));
        return true;
    });
    return true;
}

}  // namespace

std::size_t queries_together(const PreparedPoints& points, const FusedOptions& options) {
    const std::size_t lanes = fused_topk_kernels(options.isa).lanes;
    if (points.points.storage != ScanStorage::int8) return lanes;
    // As many as share one reading of the tiles, but no more than can keep their scores.
    const std::size_t scores =
        block_count(points.points.rows.rows) * 2 * kBlockRows * sizeof(float);
    const std::size_t kept = kStoredBytes / scores;
    return kept < kLeastPairs ? kMostPairs : std::min(kept, kMostPairs);
}

std::size_t search_together(const PreparedPoints& points, const FusedQueries& queries,
                            const FusedOptions& options, std::size_t begin, std::size_t end,
                            std::size_t k, FusedTopkResult& result) {
    const Scan scan(points, queries, options, begin, end);
    const FusedTopkKernels& kernels = fused_topk_kernels(options.isa);
    const std::size_t n = points.points.rows.rows;
    const std::size_t blocks = block_count(n);
    const std::size_t count = scan.count();
    const std::size_t tile = scan.width() * 2 * kBlockRows;
    const bool keep = blocks * tile * sizeof(float) <= kStoredBytes;
    const std::unique_ptr<float[]> stored(keep ? new float[blocks * tile] : nullptr);
    const std::unique_ptr<float[]> extremes(new float[part_count(n) * count * 4]);
    const auto score_block = [&](std::size_t block, float* out) {
        const std::size_t first_part = block * kBlockParts;
        const std::size_t last_part = std::min(first_part + kBlockParts, part_count(n));
        const auto mask_of = [&](std::size_t lane) { return query_mask(options, begin + lane, n); };
        bool any = false;
        for (std::size_t lane = 0; lane < count && !any; ++lane) {
            const std::uint8_t* mask = mask_of(lane);
            any = rows_pass(mask == nullptr ? nullptr : mask + block * kBlockRows,
                            block_size(n, block));
            if (!options.mask_per_query) break;
        }
        if (any) scan.score(block, out);
        for (std::size_t part = first_part; part < last_part; ++part) {
            for (std::size_t lane = 0; lane < count; ++lane) {
                const std::uint8_t* mask = mask_of(lane);
                const float* cos = out + lane * 2 * kBlockRows + (part - first_part) * kPartRows;
                // Without a row that passes, the least is above the greatest: an empty part.
                kernels.extremes(
                    cos, cos + kBlockRows, mask == nullptr ? nullptr : mask + part * kPartRows,
                    any ? part_size(n, part) : 0, extremes.get() + (part * count + lane) * 4);
            }
        }
    };
    const std::size_t threads = threads_for(points.points);
    parallel_for((blocks + kChunkBlocks - 1) / kChunkBlocks, threads, [&](std::size_t chunk) {
        const std::unique_ptr<float[]> passing(keep ? nullptr : new float[tile]);
        const std::size_t last = std::min(blocks, (chunk + 1) * kChunkBlocks);
        for (std::size_t block = chunk * kChunkBlocks; block < last; ++block) {
            score_block(block, keep ? stored.get() + block * tile : passing.get());
        }
    });
    std::vector<std::size_t> exact_rows(count, 0);
    parallel_for(count, threads, [&](std::size_t lane) {
        Search search(points, options, scan, lane, begin + lane, stored.get(), tile, extremes.get(),
                      count);
        std::vector<Scored> found;
        if (search.run(k, found)) {
            write_result(found, begin + lane, k, result);
            exact_rows[lane] = search.exact_rows();
        } else {
            FusedTopkResult part = result;
            part.exact_rows = 0;
            exact_topk(points.points, queries, options, begin + lane, begin + lane + 1, k, part);
            exact_rows[lane] = part.exact_rows;
        }
    });
    std::size_t total = 0;
    for (std::size_t rows : exact_rows) total += rows;
    return total;
}

}  // namespace fused

void fused_topk(const PreparedPoints& points, const FusedQueries& queries,
                const FusedOptions& options, std::size_t k, FusedTopkResult& result) {
    using namespace fused;
    const std::size_t n = points.points.rows.rows;
    result.exact_rows = 0;
    if (n <= kExactRows || k > n / 4 || k == 0 || options.norm == Norm::zscore) {
        exact_topk(points.points, queries, options, 0, queries.count, k, result);
        return;
    }
    const std::size_t together = queries_together(points, options);
    const std::size_t least = points.points.storage == ScanStorage::int8 ? 1 : kPanelQueries;
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
    for (std::size_t b = 0; b < queries.count;) {
        const std::size_t rest = queries.count - b;
        const std::size_t step = rest >= least ? std::min(together, rest) : 1;
        ranges.emplace_back(b, b + step);
        b += step;
    }
    // Large sets are split by rows inside each group of queries, small ones by groups.
    const bool by_rows = threads_for(points.points) > 1;
    const std::size_t work = n * points.points.rows.cols * sizeof(float) * ranges.size();
    const std::size_t threads = by_rows || work < kSerialBytes ? 1 : num_threads();
    std::vector<std::size_t> exact_rows(ranges.size(), 0);
    parallel_for(ranges.size(), threads, [&](std::size_t i) {
        exact_rows[i] =
            search_together(points, queries, options, ranges[i].first, ranges[i].second, k, result);
    });
    for (std::size_t rows : exact_rows) result.exact_rows += rows;
}

}  // namespace riemem
