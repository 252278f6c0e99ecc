// Scores of every row with a bound of their error, and the defining scores of a few rows: for a
// caller who adds something of his own to the scores before he takes the best.
#include "kernels/fused_topk/fused_topk_scan.hpp"

namespace riemem {
namespace {

// What a sum of the two scores in float64 may be off, as a share of the sum of their sizes: four
// roundings here and four in the defining scores.
constexpr double kSumError = 0x1p-49;

FusedOptions unscaled(const FusedOptions& options) {
    FusedOptions plain = options;
    plain.norm = Norm::none;
    plain.mask = nullptr;
    plain.mask_per_query = false;
    return plain;
}

}  // namespace

double fused_approximate(const PreparedPoints& prepared, const FusedQueries& queries,
                         const FusedOptions& options, double* out) {
    using namespace fused;
    const std::size_t n = prepared.points.rows.rows;
    const std::size_t blocks = block_count(n);
    const FusedOptions plain = unscaled(options);
    const Scan scan(prepared, queries, plain, 0, 1);
    Linear linear;
    linear.a = options.cosine_weight;
    linear.b = 1.0 - options.cosine_weight;
    const double bias = queries.bias[0];
    std::vector<double> bound(blocks);
    parallel_for(blocks, threads_for(prepared.points), [&](std::size_t block) {
        const std::unique_ptr<float[]> scores(new float[scan.width() * 2 * kBlockRows]);
        scan.score(block, scores.get());
        double most = 0.0;
        for (std::size_t i = 0; i < block_size(n, block); ++i) {
            const auto cos = static_cast<double>(scores[i]);
            const double rie = static_cast<double>(scores[kBlockRows + i]) + bias;
            out[block * kBlockRows + i] = linear.value(cos, rie);
            most = std::max(most, linear.value(std::abs(cos), std::abs(rie)));
        }
        const double off =
            linear.bound(error_bounds(prepared.tables().blocks[block], scan.scales(0)));
        bound[block] = (off + (most + off + linear.b * std::abs(bias)) * kSumError) * kSlack;
    });
    double most = 0.0;
    for (double b : bound) {
        if (!(b < kInfinity)) return kInfinity;  // a NaN is no bound either
        most = std::max(most, b);
    }
    return most;
}

void fused_some(const FusedPoints& points, const FusedQueries& queries, const FusedOptions& options,
                const std::int64_t* rows, std::size_t count, double* out) {
    const FusedTopkKernels& kernels = fused_topk_kernels(options.isa);
    const fused::PaddedQuery query(queries, 0, points.rows.cols);
    const fused::Fusion fusion{options.cosine_weight, {}, {}};
    // Times 0 the cosine adds a zero, which only a score of -0 would show. A score that begins with
    // scale (w . h + offset) + 0 is none.
    const bool no_cosine = options.cosine_weight == 0.0 && points.row_bias == nullptr;
    const double* q = no_cosine ? nullptr : query.q.data();
    std::vector<float> scratch[kDotRows];
    for (std::size_t first = 0; first < count; first += kDotRows) {
        const float* together[kDotRows];
        for (std::size_t i = 0; i < kDotRows; ++i) {  // past the end the last one again
            const auto row = static_cast<std::size_t>(rows[std::min(first + i, count - 1)]);
            together[i] = fused::fetch_row(points, row, scratch[i]);
        }
        double dots[kDotRows][2];
        kernels.dot_four(together, q, query.w.data(), points.rows.cols, dots);
        for (std::size_t j = first; j < std::min(first + kDotRows, count); ++j) {
            const double* own = dots[j - first];
            out[j] = fusion(fused::scores_of(points, query, static_cast<std::size_t>(rows[j]),
                                             {own[0], own[1]}));
        }
    }
}

}  // namespace riemem
