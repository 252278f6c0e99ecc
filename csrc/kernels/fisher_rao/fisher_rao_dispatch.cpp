// Chooses the kernels of an instruction set; the certified search and the exact pass.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/elementary.hpp"
#include "core/error.hpp"
#include "core/thread_pool.hpp"
#include "kernels/fisher_rao/fisher_rao.hpp"
#include "kernels/fisher_rao/fisher_rao_kernels.hpp"
#include "kernels/fused_topk/fused_topk_internal.hpp"

namespace riemem {

const FisherRaoKernels& fisher_rao_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return fisher_rao_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return fisher_rao_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
            return fisher_rao_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return fisher_rao_kernels_neon();
#endif
        default:
            throw BackendUnavailable("fisher_rao: no kernels for " + std::string(isa_name(isa)));
    }
}

namespace {

constexpr double kUnit = 0x1p-24;   // rounding of one float32 operation
constexpr std::size_t kGroup = 16;  // queries that share one reading of the rows
constexpr std::size_t kSmall = 64;  // rows below which nothing is gained by a bound
constexpr std::size_t kMostKept = std::size_t{1} << 24;  // approximate scores held at once

std::size_t blocks_of(std::size_t rows) { return (rows + kFisherRows - 1) / kFisherRows; }

std::size_t threads_for(const FisherRaoPoints& points) {
    const std::size_t bytes = 2 * points.rows.rows * points.rows.cols * sizeof(float);
    return bytes < fused::kSerialBytes ? 1 : num_threads();
}

const std::uint8_t* mask_of(const FisherRaoOptions& options, std::size_t query, std::size_t rows) {
    if (options.mask == nullptr || !options.mask_per_query) return options.mask;
    return options.mask + query * rows;
}

// The defining score of one row: float64, in this order of operations.
double score_of(const FisherRaoKernels& kernels, const FisherRaoPoints& points,
                const FisherRaoQueries& queries, double temperature, std::size_t b, std::size_t i) {
    double sums[2];
    kernels.pair(points.rows.row(i), points.precision.row(i), queries.rows.row(b), points.rows.cols,
                 sums);
    const double similarity = portable_exp(-(sums[0] / temperature));
    if (points.ramp == nullptr) return similarity;
    const double cosine = (sums[1] * points.inv_norm[i]) * queries.inv_norm[b];
    return (1.0 - points.ramp[i]) * (0.5 * (cosine + 1.0)) + points.ramp[i] * similarity;
}

// Most that an approximate score is off. The distance is a sum of terms that are not negative, so
// its relative error is that of one term; x e^-x <= 1/e makes that an absolute error of the score.
double error_of(const FisherRaoKernels& kernels, std::size_t d, double temperature) {
    const double relative = (static_cast<double>(kernels.roundings(d)) + 16.0) * kUnit;
    const double vanished = static_cast<double>(d) * 0x1p-85 / temperature;
    return relative / (1.0 - std::min(relative, 0.5)) + kFisherExpError + vanished;
}

// Approximate scores of some queries: (queries, N).
class Approximate {
 public:
    Approximate(const FisherRaoKernels& kernels, const FisherRaoPoints& points,
                const FisherRaoQueries& queries, double temperature)
        : kernels_(kernels),
          points_(points),
          queries_(queries),
          temperature_(temperature),
          padded_((points.rows.cols + 63) / 64 * 64),
          inv_norm_(points.rows.rows),
          ramp_(points.ramp == nullptr ? 0 : points.rows.rows) {
        for (std::size_t i = 0; i < inv_norm_.size(); ++i) {
            inv_norm_[i] = static_cast<float>(points.inv_norm[i]);
        }
        for (std::size_t i = 0; i < ramp_.size(); ++i) {
            ramp_[i] = static_cast<float>(points.ramp[i]);
        }
    }

    void score(std::size_t begin, std::size_t end, std::vector<float>& out) {
        const std::size_t n = points_.rows.rows;
        const std::size_t count = end - begin;
        std::vector<float> panel(count * padded_);
        for (std::size_t b = 0; b < count; ++b) {
            std::copy_n(queries_.rows.row(begin + b), points_.rows.cols,
                        panel.data() + b * padded_);
        }
        out.resize(count * n);
        parallel_for(blocks_of(n), threads_for(points_), [&](std::size_t block) {
            score_block(block * kFisherRows, begin, count, panel.data(), out.data());
        });
    }

 private:
    void score_block(std::size_t first, std::size_t begin, std::size_t count, const float* panel,
                     float* out) const {
        const std::size_t n = points_.rows.rows;
        const std::size_t own = std::min(kFisherRows, n - first);
        const MatrixView<const float> rows{points_.rows.row(first), own, points_.rows.cols,
                                           points_.rows.row_stride};
        const MatrixView<const float> precision{points_.precision.row(first), own,
                                                points_.rows.cols, points_.precision.row_stride};
        float sums[kFisherTogether * 2 * kFisherRows];
        for (std::size_t b = 0; b < count; b += kFisherTogether) {
            const std::size_t together = std::min(kFisherTogether, count - b);
            kernels_.scan(rows, precision, panel + b * padded_, padded_, together, sums);
            for (std::size_t j = 0; j < together; ++j) {
                const FisherTerms terms{inv_norm_.data() + first,
                                        ramp_.empty() ? nullptr : ramp_.data() + first,
                                        static_cast<float>(queries_.inv_norm[begin + b + j]),
                                        static_cast<float>(1.0 / temperature_)};
                const float* pair = sums + j * 2 * kFisherRows;
                kernels_.finish(pair, pair + kFisherRows, own, terms, out + (b + j) * n + first);
            }
        }
    }

    const FisherRaoKernels& kernels_;
    const FisherRaoPoints& points_;
    const FisherRaoQueries& queries_;
    double temperature_;
    std::size_t padded_;
    std::vector<float> inv_norm_, ramp_;
};

// Rows that can be among the k best: all whose approximate score is within twice the error of the
// k-th best approximate score.
std::vector<std::size_t> candidates(const float* approximate, std::size_t n,
                                    const std::uint8_t* mask, std::size_t k, double error) {
    std::vector<float> passing;
    passing.reserve(n);
    for (std::size_t i = 0; i < n; ++i) {
        if (mask == nullptr || mask[i] != 0) passing.push_back(approximate[i]);
    }
    double edge = -std::numeric_limits<double>::infinity();
    if (passing.size() > k) {
        const auto kth = passing.begin() + static_cast<std::ptrdiff_t>(k - 1);
        std::nth_element(passing.begin(), kth, passing.end(), std::greater<float>());
        edge = static_cast<double>(*kth) - 2.0 * error;
    }
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        if (static_cast<double>(approximate[i]) >= edge) found.push_back(i);
    }
    return found;
}

}  // namespace

bool fisher_rao_scannable(const FisherRaoPoints& points) {
    constexpr double kMost = 1e9, kLeast = 1e-9, kMostPrecision = 0x1p60;
    for (std::size_t i = 0; i < points.rows.rows; ++i) {
        const double inverse = points.inv_norm[i];
        if (inverse != 0.0 && (inverse < 1.0 / kMost || inverse > 1.0 / kLeast)) return false;
        const float* p = points.precision.row(i);
        float most = 0.0f;
        for (std::size_t t = 0; t < points.rows.cols; ++t) most = p[t] > most ? p[t] : most;
        if (static_cast<double>(most) > kMostPrecision) return false;
    }
    return true;
}

namespace {

bool query_scannable(double inverse_norm) {
    return inverse_norm == 0.0 || (inverse_norm >= 1e-9 && inverse_norm <= 1e9);
}

// Exact scores of the given rows (all that pass when `rows` is null), sorted into the result.
void answer(const FisherRaoKernels& kernels, const FisherRaoPoints& points,
            const FisherRaoQueries& queries, const FisherRaoOptions& options, std::size_t b,
            const std::vector<std::size_t>* rows, std::size_t k, FusedTopkResult& result) {
    const std::size_t n = points.rows.rows;
    const std::uint8_t* mask = mask_of(options, b, n);
    const std::size_t count = rows == nullptr ? n : rows->size();
    std::vector<double> score(count);
    const bool few = count * points.rows.cols < fused::kSerialBytes / 8;
    parallel_for(blocks_of(count), few ? 1 : num_threads(), [&](std::size_t block) {
        const std::size_t last = std::min(count, (block + 1) * kFisherRows);
        for (std::size_t j = block * kFisherRows; j < last; ++j) {
            const std::size_t i = rows == nullptr ? j : (*rows)[j];
            if (mask == nullptr || mask[i] != 0) {
                score[j] = score_of(kernels, points, queries, options.temperature, b, i);
            }
        }
    });
    std::vector<fused::Scored> scored;
    for (std::size_t j = 0; j < count; ++j) {
        const std::size_t i = rows == nullptr ? j : (*rows)[j];
        if (mask != nullptr && mask[i] == 0) continue;
        scored.push_back({score[j], static_cast<std::int64_t>(i)});
    }
    result.exact_rows += scored.size();
    fused::write_result(scored, b, k, result);
}

}  // namespace

void fisher_rao_topk(const FisherRaoPoints& points, const FisherRaoQueries& queries,
                     const FisherRaoOptions& options, std::size_t k, FusedTopkResult& result) {
    const FisherRaoKernels& kernels = fisher_rao_kernels(options.isa);
    const std::size_t n = points.rows.rows;
    const double error = error_of(kernels, points.rows.cols, options.temperature);
    const bool bounded = points.scannable && n >= kSmall && k > 0 && 4 * k <= n && error < 1e-2 &&
                         options.temperature < 1e30 && options.temperature > 1e-30;
    const std::size_t group =
        std::clamp<std::size_t>(kMostKept / std::max<std::size_t>(n, 1), std::size_t{1}, kGroup);
    std::vector<float> approximate;
    for (std::size_t begin = 0; begin < queries.rows.rows; begin += group) {
        const std::size_t end = std::min(queries.rows.rows, begin + group);
        if (bounded) {
            Approximate(kernels, points, queries, options.temperature)
                .score(begin, end, approximate);
        }
        for (std::size_t b = begin; b < end; ++b) {
            if (!bounded || !query_scannable(queries.inv_norm[b])) {
                answer(kernels, points, queries, options, b, nullptr, k, result);
                continue;
            }
            const std::vector<std::size_t> rows = candidates(approximate.data() + (b - begin) * n,
                                                             n, mask_of(options, b, n), k, error);
            answer(kernels, points, queries, options, b, &rows, k, result);
        }
    }
}

void fisher_rao_scores(const FisherRaoPoints& points, const FisherRaoQueries& queries,
                       const FisherRaoOptions& options, MatrixView<double> out) {
    const FisherRaoKernels& kernels = fisher_rao_kernels(options.isa);
    const std::size_t n = points.rows.rows;
    parallel_for(blocks_of(n), threads_for(points), [&](std::size_t block) {
        const std::size_t last = std::min(n, (block + 1) * kFisherRows);
        for (std::size_t b = 0; b < queries.rows.rows; ++b) {
            const std::uint8_t* mask = mask_of(options, b, n);
            for (std::size_t i = block * kFisherRows; i < last; ++i) {
                const bool passes = mask == nullptr || mask[i] != 0;
                out.row(b)[i] = passes
                                    ? score_of(kernels, points, queries, options.temperature, b, i)
                                    : -std::numeric_limits<double>::infinity();
            }
        }
    });
}

}  // namespace riemem
