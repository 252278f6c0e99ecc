// Certified top k: float32 scores with proven error bounds choose the few rows that may matter,
// float64 decides among them. The bounds are derived in README.md.
#include <functional>
#include <memory>
#include <utility>

#include "kernels/fused_topk/fused_topk_internal.hpp"

namespace riemem {
namespace fused {
namespace {

constexpr double kUnit = 0x1p-24;        // half a unit in the last place of float32
constexpr double kSlack = 1.01;          // covers second-order terms and this file's own rounding
constexpr double kSubnormal = 0x1p-148;  // what one product may lose to gradual underflow
constexpr double kFloatSafe = 0x1p120;   // magnitudes beyond this might overflow in a kernel
constexpr std::size_t kChunkBlocks = 16;
constexpr std::size_t kExactRows = 64;    // fewer rows than this are simply evaluated
constexpr std::size_t kPanelQueries = 4;  // fewer queries than this are searched one by one
constexpr std::size_t kPanelBytes = std::size_t{256} << 20;  // most workspace of one panel

const double kInfinity = std::numeric_limits<double>::infinity();

// What the error bounds need to know of one block of rows.
struct BlockScales {
    double inv_norm = 0.0, scale = 0.0, scaled_norm = 0.0, norm = 0.0, bias = 0.0;  // maxima
};

std::vector<BlockScales> block_scales(const FusedPoints& points) {
    std::vector<BlockScales> scales(block_count(points.rows.rows));
    for (std::size_t i = 0; i < points.rows.rows; ++i) {
        BlockScales& block = scales[i / kBlockRows];
        const double inv = points.inv_norm[i];
        const double norm = inv > 0.0 ? 1.0 / inv : 0.0;
        const double scale = points.row_scale == nullptr ? 1.0 : std::abs(points.row_scale[i]);
        const double bias = points.row_bias == nullptr ? 0.0 : std::abs(points.row_bias[i]);
        block.inv_norm = std::max(block.inv_norm, inv);
        block.norm = std::max(block.norm, norm);
        block.scale = std::max(block.scale, scale);
        block.scaled_norm = std::max(block.scaled_norm, scale * norm);
        block.bias = std::max(block.bias, bias);
    }
    return scales;
}

// Length of the query's two vectors and the number of roundings of its dot products.
struct QueryScales {
    double q_norm, w_norm, offset, roundings;
    double subnormal;
};

double norm_of(const std::vector<double>& v) {
    double sum = 0.0;
    for (double x : v) sum += x * x;
    return std::sqrt(sum);
}

QueryScales query_scales(const PaddedQuery& query, std::size_t roundings, std::size_t d) {
    return {norm_of(query.q) * (1.0 + 1e-12), norm_of(query.w) * (1.0 + 1e-12),
            std::abs(query.offset), static_cast<double>(roundings),
            kSubnormal * static_cast<double>(2 * d + 4)};
}

struct Bounds {
    double cos, rie;
};

// Largest distance between a float32 score of this block and its float64 value; infinite where
// float32 might overflow. The query's own bias is added to neither.
Bounds error_bounds(const BlockScales& block, const QueryScales& query) {
    const double reach_q = block.norm * query.q_norm;
    const double reach_w = block.norm * query.w_norm + query.offset;
    const double most =
        std::max({reach_q, reach_w, block.inv_norm, block.scale, block.bias,
                  block.scale * reach_w + block.bias, query.q_norm, query.w_norm, block.norm});
    if (!(most < kFloatSafe)) return {kInfinity, kInfinity};
    const double u = kUnit * (query.roundings + 6.0);
    return {kSlack * (u * query.q_norm + query.subnormal * block.inv_norm + kSubnormal),
            kSlack * (u * block.scaled_norm * query.w_norm + block.scale * query.subnormal +
                      6.0 * kUnit * block.scale * query.offset + 4.0 * kUnit * block.bias +
                      2.0 * kSubnormal)};
}

double times(double factor, double bound) { return factor > 0.0 ? factor * bound : 0.0; }

// a cos + b rie orders rows as the fused score does.
struct Linear {
    double a = 0.0, b = 0.0;
    double rounding = 0.0;  // of evaluating it in float32

    bool representable() const { return a < kFloatSafe && b < kFloatSafe; }
    double bound(Bounds e) const { return times(a, e.cos) + times(b, e.rie) + rounding; }
};

// The k largest lower bounds seen so far.
class LowerBounds {
 public:
    explicit LowerBounds(std::size_t k) : k_(k) { heap_.reserve(k); }

    double threshold() const { return heap_.size() < k_ ? -kInfinity : heap_.front(); }

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

    const std::vector<double>& values() const { return heap_; }

 private:
    std::size_t k_;
    std::vector<double> heap_;
};

// Smallest float at or below x: a threshold must never be rounded up.
float round_down(double x) {
    if (!(x > -static_cast<double>(std::numeric_limits<float>::max()))) {
        return -std::numeric_limits<float>::infinity();
    }
    const float nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) <= x) return nearest;
    return std::nextafter(nearest, -std::numeric_limits<float>::infinity());
}

// Scores of one panel of queries over all rows, in float32. One query is a panel of one lane.
class Panel {
 public:
    Panel(const FusedPoints& points, const std::vector<BlockScales>& blocks,
          const FusedQueries& queries, const FusedOptions& options, std::size_t begin,
          std::size_t end)
        : points_(points),
          blocks_(blocks),
          all_queries_(queries),
          options_(options),
          kernels_(fused_topk_kernels(options.isa)),
          n_(points.rows.rows),
          d_(points.rows.cols),
          begin_(begin),
          single_(end - begin == 1),
          lanes_(single_ ? 1 : kernels_.lanes) {
        for (std::size_t b = begin; b < end; ++b) {
            queries_.emplace_back(queries, b, d_);
            const std::size_t roundings =
                single_ ? kernels_.single_roundings(d_) : kernels_.panel_roundings(d_);
            scales_.push_back(query_scales(queries_.back(), roundings, d_));
        }
        pack();
        tile_.reset(new float[n_ * 2 * lanes_]);
        extremes_.resize(block_count(n_) * 4 * lanes_);
    }

    void run(std::size_t k, FusedTopkResult& result);

 private:
    const std::uint8_t* mask(std::size_t lane) const {
        return query_mask(options_, begin_ + lane, n_);
    }
    const std::uint8_t* block_mask(std::size_t lane, std::size_t block) const {
        const std::uint8_t* whole = mask(lane);
        return whole == nullptr ? nullptr : whole + block * kBlockRows;
    }
    float* block_tile(std::size_t block) { return tile_.get() + block * kBlockRows * 2 * lanes_; }
    // cos (which = 0) or rie (which = 1) of one row, in the layout of the block's tile.
    float approximate(std::size_t lane, std::size_t block, std::size_t i, std::size_t which) const {
        const float* tile = tile_.get() + block * kBlockRows * 2 * lanes_;
        if (single_) return tile[which * block_size(n_, block) + i];
        return tile[i * 2 * lanes_ + which * lanes_ + lane];
    }
    float extreme(std::size_t lane, std::size_t block, std::size_t which) const {
        return extremes_[(block * 4 + which) * lanes_ + lane];
    }

    void pack();
    void score_block(std::size_t block);
    double exact_extreme(std::size_t lane, std::size_t which);
    Normaliser exact_range(std::size_t lane, std::size_t score);
    Linear linear_of(std::size_t lane, const Fusion& fusion) const;
    void select(std::size_t k, const std::vector<Linear>& linear, std::size_t chunk,
                std::vector<LowerBounds>& lower,
                std::vector<std::vector<std::pair<double, std::size_t>>>& kept);

    const FusedPoints& points_;
    const std::vector<BlockScales>& blocks_;
    const FusedQueries& all_queries_;
    const FusedOptions& options_;
    const FusedTopkKernels& kernels_;
    std::size_t n_, d_, begin_;
    bool single_;
    std::size_t lanes_;
    std::vector<PaddedQuery> queries_;
    std::vector<QueryScales> scales_;
    std::vector<float> packed_;      // one query: q then w, padded; else (d, 2, lanes)
    std::vector<float> offsets_;     // (lanes,)
    std::unique_ptr<float[]> tile_;  // per block: cos then rie (one query), or (rows, 2, lanes)
    std::vector<float> extremes_;    // (blocks, 4, lanes): least and greatest cos, then rie
    std::size_t exact_rows_ = 0;
};

void Panel::pack() {
    offsets_.assign(std::max(lanes_, kMostLanes), 0.0f);
    const std::size_t padded = (d_ + 63) / 64 * 64;
    packed_.assign(single_ ? 2 * padded : d_ * 2 * lanes_, 0.0f);
    for (std::size_t lane = 0; lane < queries_.size(); ++lane) {
        offsets_[lane] = static_cast<float>(queries_[lane].offset);
        for (std::size_t t = 0; t < d_; ++t) {
            const std::size_t at = single_ ? t : t * 2 * lanes_ + lane;
            packed_[at] = static_cast<float>(queries_[lane].q[t]);
            packed_[at + (single_ ? padded : lanes_)] = static_cast<float>(queries_[lane].w[t]);
        }
    }
}

void Panel::score_block(std::size_t block) {
    const std::size_t first = block * kBlockRows;
    const std::size_t n = block_size(n_, block);
    float inv_norm[kBlockRows], scale[kBlockRows], bias[kBlockRows];
    for (std::size_t i = 0; i < n; ++i) {
        inv_norm[i] = static_cast<float>(points_.inv_norm[first + i]);
        scale[i] =
            points_.row_scale == nullptr ? 1.0f : static_cast<float>(points_.row_scale[first + i]);
        bias[i] =
            points_.row_bias == nullptr ? 0.0f : static_cast<float>(points_.row_bias[first + i]);
    }
    const BlockTerms terms{inv_norm, scale, bias};
    float* tile = block_tile(block);
    float* extremes = extremes_.data() + block * 4 * lanes_;
    const float* rows = points_.rows.row(first);
    if (single_) {
        kernels_.score_single(rows, points_.rows.row_stride, n, d_, packed_.data(),
                              packed_.data() + packed_.size() / 2, offsets_[0], terms, tile,
                              tile + n);
        kernels_.extremes_single(tile, tile + n, block_mask(0, block), n, extremes);
    } else {
        kernels_.score_panel(rows, points_.rows.row_stride, n, d_, packed_.data(), offsets_.data(),
                             terms, tile);
        kernels_.extremes_panel(tile, block_mask(0, block), n, extremes);
    }
}

// which: 0 least cos, 1 greatest cos, 2 least rie, 3 greatest rie. Works on sign * value, so that
// it always looks for the greatest.
double Panel::exact_extreme(std::size_t lane, std::size_t which) {
    const double sign = which % 2 == 0 ? -1.0 : 1.0;
    const std::size_t score = which / 2;
    const std::uint8_t* passes = mask(lane);
    auto bound = [&](std::size_t block) {
        const Bounds e = error_bounds(blocks_[block], scales_[lane]);
        return score == 0 ? e.cos : e.rie;
    };
    double floor = -kInfinity;
    for (std::size_t block = 0; block < block_count(n_); ++block) {
        const double e = bound(block);
        if (e == kInfinity) continue;
        floor = std::max(floor, sign * static_cast<double>(extreme(lane, block, which)) - e);
    }
    double best = -kInfinity;
    for (std::size_t block = 0; block < block_count(n_); ++block) {
        const double e = bound(block);
        const bool reachable =
            e == kInfinity || sign * static_cast<double>(extreme(lane, block, which)) + e >= floor;
        if (!reachable) continue;
        for (std::size_t i = 0; i < block_size(n_, block); ++i) {
            const std::size_t row = block * kBlockRows + i;
            if (passes != nullptr && passes[row] == 0) continue;
            const double value = static_cast<double>(approximate(lane, block, i, score));
            if (e != kInfinity && sign * value + e < floor) continue;
            const Pair pair = evaluate(kernels_, points_, queries_[lane], row);
            best = std::max(best, sign * (score == 0 ? pair.cos : pair.rie));
            ++exact_rows_;
        }
    }
    return sign * best;
}

Normaliser Panel::exact_range(std::size_t lane, std::size_t score) {
    const double low = exact_extreme(lane, 2 * score);
    const double high = exact_extreme(lane, 2 * score + 1);
    return high > low ? Normaliser{low, high - low} : Normaliser{0.0, 0.0};
}

Linear Panel::linear_of(std::size_t lane, const Fusion& fusion) const {
    Linear linear;
    const double w = fusion.cosine_weight;
    if (w > 0.0 && fusion.cos.width > 0.0) linear.a = w / fusion.cos.width;
    if (w < 1.0 && fusion.rie.width > 0.0) linear.b = (1.0 - w) / fusion.rie.width;
    double most_cos = 0.0, most_rie = 0.0;
    for (std::size_t block = 0; block < block_count(n_); ++block) {
        if (error_bounds(blocks_[block], scales_[lane]).cos == kInfinity) continue;
        for (std::size_t side = 0; side < 2; ++side) {
            const auto c = static_cast<double>(extreme(lane, block, side));
            const auto r = static_cast<double>(extreme(lane, block, 2 + side));
            if (std::isfinite(c)) most_cos = std::max(most_cos, std::abs(c));
            if (std::isfinite(r)) most_rie = std::max(most_rie, std::abs(r));
        }
    }
    linear.rounding = kSlack * 6.0 * kUnit * (linear.a * most_cos + linear.b * most_rie) +
                      kSlack * kUnit * kUnit * std::abs(queries_[lane].bias) * linear.b +
                      4.0 * kSubnormal;
    return linear;
}

// Collects, for the blocks of one chunk, the rows whose upper bound reaches the k-th largest lower
// bound seen so far.
void Panel::select(std::size_t k, const std::vector<Linear>& linear, std::size_t chunk,
                   std::vector<LowerBounds>& lower,
                   std::vector<std::vector<std::pair<double, std::size_t>>>& kept) {
    const std::size_t count = queries_.size();
    lower.assign(count, LowerBounds(k));
    kept.assign(count, {});
    const float never = std::numeric_limits<float>::infinity();
    float a[kMostLanes] = {}, b[kMostLanes] = {}, threshold[kMostLanes];
    std::fill(threshold, threshold + kMostLanes, never);
    std::uint32_t rows[kBlockRows], lane_bits[kBlockRows];
    for (std::size_t l = 0; l < count; ++l) {
        a[l] = static_cast<float>(linear[l].a);
        b[l] = static_cast<float>(linear[l].b);
    }
    const std::size_t end = std::min(block_count(n_), (chunk + 1) * kChunkBlocks);
    for (std::size_t block = chunk * kChunkBlocks; block < end; ++block) {
        const std::size_t n = block_size(n_, block);
        double bound[kMostLanes];
        for (std::size_t l = 0; l < count; ++l) {
            bound[l] = linear[l].bound(error_bounds(blocks_[block], scales_[l]));
            threshold[l] = round_down(lower[l].threshold() - bound[l]);
        }
        auto keep = [&](std::size_t l, std::size_t i) {
            const double value =
                bound[l] == kInfinity
                    ? 0.0
                    : linear[l].a * static_cast<double>(approximate(l, block, i, 0)) +
                          linear[l].b * static_cast<double>(approximate(l, block, i, 1));
            lower[l].offer(value - bound[l]);
            kept[l].push_back({value + bound[l], block * kBlockRows + i});
        };
        auto keep_all = [&](std::size_t l) {
            const std::uint8_t* passes = block_mask(l, block);
            for (std::size_t i = 0; i < n; ++i) {
                if (passes == nullptr || passes[i] != 0) keep(l, i);
            }
        };
        const float* tile = block_tile(block);
        if (single_) {
            if (bound[0] == kInfinity) {
                keep_all(0);
                continue;
            }
            const std::size_t found = kernels_.select_single(tile, tile + n, block_mask(0, block),
                                                             n, a[0], b[0], threshold[0], rows);
            for (std::size_t j = 0; j < found; ++j) keep(0, rows[j]);
            continue;
        }
        for (std::size_t l = 0; l < count; ++l) {
            if (bound[l] == kInfinity) threshold[l] = never;
        }
        const std::size_t found =
            kernels_.select_panel(tile, block_mask(0, block), n, a, b, threshold, rows, lane_bits);
        for (std::size_t j = 0; j < found; ++j) {
            for (std::uint32_t bits = lane_bits[j]; bits != 0; bits &= bits - 1) {
                keep(static_cast<std::size_t>(__builtin_ctz(bits)), rows[j]);
            }
        }
        for (std::size_t l = 0; l < count; ++l) {
            if (bound[l] == kInfinity) keep_all(l);
        }
    }
}

void Panel::run(std::size_t k, FusedTopkResult& result) {
    const std::size_t count = queries_.size();
    const std::size_t chunks = (block_count(n_) + kChunkBlocks - 1) / kChunkBlocks;
    const std::size_t threads = threads_for(points_);
    parallel_for(chunks, threads, [&](std::size_t chunk) {
        const std::size_t end = std::min(block_count(n_), (chunk + 1) * kChunkBlocks);
        for (std::size_t block = chunk * kChunkBlocks; block < end; ++block) score_block(block);
    });

    std::vector<Fusion> fusion(count);
    std::vector<Linear> linear(count);
    for (std::size_t l = 0; l < count; ++l) {
        fusion[l].cosine_weight = options_.cosine_weight;
        if (options_.norm == Norm::minmax) {
            if (options_.cosine_weight > 0.0) fusion[l].cos = exact_range(l, 0);
            if (options_.cosine_weight < 1.0) fusion[l].rie = exact_range(l, 1);
        }
        linear[l] = linear_of(l, fusion[l]);
    }

    std::vector<std::vector<LowerBounds>> lower(chunks);
    std::vector<std::vector<std::vector<std::pair<double, std::size_t>>>> kept(chunks);
    parallel_for(chunks, threads,
                 [&](std::size_t chunk) { select(k, linear, chunk, lower[chunk], kept[chunk]); });

    std::vector<Scored> scored;
    for (std::size_t l = 0; l < count; ++l) {
        if (!linear[l].representable()) {  // scores closer together than float32 can tell
            exact_topk(points_, all_queries_, options_, begin_ + l, begin_ + l + 1, k, result);
            continue;
        }
        LowerBounds all(k);
        for (std::size_t c = 0; c < chunks; ++c) {
            for (double value : lower[c][l].values()) all.offer(value);
        }
        scored.clear();
        for (std::size_t c = 0; c < chunks; ++c) {
            for (const auto& [upper, row] : kept[c][l]) {
                if (upper < all.threshold()) continue;
                scored.push_back({fusion[l](evaluate(kernels_, points_, queries_[l], row)),
                                  static_cast<std::int64_t>(row)});
            }
        }
        exact_rows_ += scored.size();
        write_result(scored, begin_ + l, k, result);
    }
    result.exact_rows += exact_rows_;
}

}  // namespace
}  // namespace fused

void fused_topk(const FusedPoints& points, const FusedQueries& queries, const FusedOptions& options,
                std::size_t k, FusedTopkResult& result) {
    using namespace fused;
    const std::size_t n = points.rows.rows;
    result.exact_rows = 0;
    if (n <= kExactRows || k > n / 4 || k == 0 || options.norm == Norm::zscore) {
        exact_topk(points, queries, options, 0, queries.count, k, result);
        return;
    }
    const std::vector<BlockScales> blocks = block_scales(points);
    const std::size_t lanes = fused_topk_kernels(options.isa).lanes;
    const bool panels = !options.mask_per_query && n * 2 * lanes * sizeof(float) <= kPanelBytes;
    std::vector<std::pair<std::size_t, std::size_t>> ranges;
    for (std::size_t b = 0; b < queries.count;) {
        const std::size_t rest = queries.count - b;
        const std::size_t step = panels && rest >= kPanelQueries ? std::min(lanes, rest) : 1;
        ranges.emplace_back(b, b + step);
        b += step;
    }
    // Large sets are split by rows inside each panel, small ones by panels.
    const bool by_rows = threads_for(points) > 1;
    const std::size_t work = n * points.rows.cols * sizeof(float) * ranges.size();
    const std::size_t threads = by_rows || work < kSerialBytes ? 1 : num_threads();
    std::vector<FusedTopkResult> parts(ranges.size(), result);
    parallel_for(ranges.size(), threads, [&](std::size_t i) {
        Panel(points, blocks, queries, options, ranges[i].first, ranges[i].second).run(k, parts[i]);
    });
    for (const FusedTopkResult& part : parts) result.exact_rows += part.exact_rows;
}

}  // namespace riemem
