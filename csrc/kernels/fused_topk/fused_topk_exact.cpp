// Every row in float64: scores(), z-scores, large k, and the inputs that float32 cannot bound.
#include "kernels/fused_topk/fused_topk_internal.hpp"

namespace riemem {
namespace fused {
namespace {

constexpr std::size_t kGroup = 8;  // queries that share one reading of the rows

Normaliser minmax_of(const std::vector<double>& values, const std::uint8_t* mask) {
    double low = std::numeric_limits<double>::infinity();
    double high = -low;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        low = std::min(low, values[i]);
        high = std::max(high, values[i]);
    }
    return high > low ? Normaliser{low, high - low} : Normaliser{0.0, 0.0};
}

// Sums block by block, so that the rounding error grows with the block and not with N.
template <typename Term>
double blocked_sum(const std::vector<double>& values, const std::uint8_t* mask, Term term) {
    double total = 0.0;
    for (std::size_t b = 0; b < values.size(); b += kBlockRows) {
        double part = 0.0;
        const std::size_t end = std::min(values.size(), b + kBlockRows);
        for (std::size_t i = b; i < end; ++i) {
            if (mask == nullptr || mask[i] != 0) part += term(values[i]);
        }
        total += part;
    }
    return total;
}

Normaliser zscore_of(const std::vector<double>& values, const std::uint8_t* mask) {
    if (!(minmax_of(values, mask).width > 0.0)) return {0.0, 0.0};  // rounding is not spread
    const auto n = static_cast<double>(rows_passing(mask, values.size()));
    const double mean = blocked_sum(values, mask, [](double x) { return x; }) / n;
    const double variance =
        blocked_sum(values, mask, [mean](double x) { return (x - mean) * (x - mean); }) / n;
    return {mean, std::sqrt(variance)};
}

Normaliser normaliser_of(Norm norm, const std::vector<double>& values, const std::uint8_t* mask) {
    switch (norm) {
        case Norm::minmax:
            return minmax_of(values, mask);
        case Norm::zscore:
            return zscore_of(values, mask);
        default:
            return {};
    }
}

// Both scores of up to kGroup queries, and how to fuse them.
struct Group {
    std::vector<PaddedQuery> queries;
    std::vector<std::vector<double>> cos, rie;
    std::vector<Fusion> fusion;

    Group(const FusedPoints& points, const FusedQueries& all, const FusedOptions& options,
          std::size_t begin, std::size_t end) {
        const std::size_t n = points.rows.rows;
        for (std::size_t b = begin; b < end; ++b) queries.emplace_back(all, b, points.rows.cols);
        cos.assign(end - begin, std::vector<double>(n));
        rie.assign(end - begin, std::vector<double>(n));
        const FusedTopkKernels& kernels = fused_topk_kernels(options.isa);
        parallel_for(block_count(n), threads_for(points), [&](std::size_t block) {
            const std::size_t first = block * kBlockRows;
            std::vector<float> scratch;
            for (std::size_t g = 0; g < queries.size(); ++g) {
                for (std::size_t i = first; i < first + block_size(n, block); ++i) {
                    const Dots dots = dots_of(kernels, points, queries[g], i, scratch);
                    const Pair pair = scores_of(points, queries[g], i, dots);
                    cos[g][i] = pair.cos;
                    rie[g][i] = pair.rie;
                }
            }
        });
        for (std::size_t g = 0; g < queries.size(); ++g) {
            const std::uint8_t* mask = query_mask(options, begin + g, n);
            fusion.push_back({options.cosine_weight, normaliser_of(options.norm, cos[g], mask),
                              normaliser_of(options.norm, rie[g], mask)});
        }
    }

    double score(std::size_t g, std::size_t row) const {
        return fusion[g]({cos[g][row], rie[g][row]});
    }
};

}  // namespace

void write_result(std::vector<Scored>& scored, std::size_t query, std::size_t k,
                  FusedTopkResult& result) {
    const std::size_t found = std::min(k, scored.size());
    std::partial_sort(scored.begin(), scored.begin() + static_cast<std::ptrdiff_t>(found),
                      scored.end(), ranks_before);
    result.counts[query] = static_cast<std::int64_t>(found);
    for (std::size_t j = 0; j < k; ++j) {
        const bool present = j < found;
        result.indices[query * k + j] = present ? scored[j].row : -1;
        result.scores[query * k + j] =
            present ? scored[j].score : std::numeric_limits<double>::quiet_NaN();
    }
}

void exact_topk(const FusedPoints& points, const FusedQueries& queries, const FusedOptions& options,
                std::size_t begin, std::size_t end, std::size_t k, FusedTopkResult& result) {
    const std::size_t n = points.rows.rows;
    std::vector<Scored> scored;
    for (std::size_t b = begin; b < end; b += kGroup) {
        const std::size_t last = std::min(end, b + kGroup);
        const Group group(points, queries, options, b, last);
        for (std::size_t g = 0; g < last - b; ++g) {
            const std::uint8_t* mask = query_mask(options, b + g, n);
            scored.clear();
            for (std::size_t i = 0; i < n; ++i) {
                if (mask != nullptr && mask[i] == 0) continue;
                const double score = group.score(g, i);
                if (std::isnan(score)) continue;  // a NaN is never among the best
                scored.push_back({score, static_cast<std::int64_t>(i)});
            }
            write_result(scored, b + g, k, result);
        }
        result.exact_rows += n * (last - b);
    }
}

}  // namespace fused

template <typename T>
void fused_scores(const FusedPoints& points, const FusedQueries& queries,
                  const FusedOptions& options, MatrixView<T> out) {
    const std::size_t n = points.rows.rows;
    for (std::size_t b = 0; b < queries.count; b += fused::kGroup) {
        const std::size_t last = std::min(queries.count, b + fused::kGroup);
        const fused::Group group(points, queries, options, b, last);
        for (std::size_t g = 0; g < last - b; ++g) {
            const std::uint8_t* mask = fused::query_mask(options, b + g, n);
            T* row = out.row(b + g);
            for (std::size_t i = 0; i < n; ++i) {
                const bool passes = mask == nullptr || mask[i] != 0;
                row[i] = passes ? static_cast<T>(group.score(g, i))
                                : -std::numeric_limits<T>::infinity();
            }
        }
    }
}

template void fused_scores(const FusedPoints&, const FusedQueries&, const FusedOptions&,
                           MatrixView<float>);
template void fused_scores(const FusedPoints&, const FusedQueries&, const FusedOptions&,
                           MatrixView<double>);

}  // namespace riemem
