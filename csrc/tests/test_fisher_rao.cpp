// fisher_rao: every instruction set to the bit against the scalar one, odd sizes, guard pages; the
// bounded search against the exact one; the float32 exp within its bound.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/elementary.hpp"
#include "core/thread_pool.hpp"
#include "guarded.hpp"
#include "kernels/fisher_rao/fisher_rao.hpp"
#include "kernels/fisher_rao/fisher_rao_kernels.hpp"

using namespace riemem;

namespace {

struct Problem {
    std::size_t n, d, b;
    test::Guarded<float> rows, precision, queries;
    std::vector<double> inv_norm, query_inv_norm, ramp;
    FisherRaoPoints points;
    FisherRaoQueries asked;

    Problem(std::size_t n_, std::size_t d_, std::size_t b_, std::size_t gap, unsigned seed)
        : n(n_),
          d(d_),
          b(b_),
          rows((n - 1) * (d + gap) + d),
          precision((n - 1) * (d + gap) + d),
          queries(b * d),
          inv_norm(n),
          query_inv_norm(b),
          ramp(n) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        std::uniform_real_distribution<float> uniform(0.5f, 20.0f);
        for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = normal(generator);
        for (std::size_t i = 0; i < precision.size(); ++i) precision[i] = uniform(generator);
        for (std::size_t i = 0; i < queries.size(); ++i) queries[i] = normal(generator);
        const auto stride = static_cast<std::ptrdiff_t>(d + gap);
        points.rows = {rows.data(), n, d, stride};
        points.precision = {precision.data(), n, d, stride};
        asked.rows = {queries.data(), b, d, static_cast<std::ptrdiff_t>(d)};
        row_norms(points.rows, Isa::scalar, inv_norm.data());
        row_norms(asked.rows, Isa::scalar, query_inv_norm.data());
        for (double& x : inv_norm) x = 1.0 / x;
        for (double& x : query_inv_norm) x = 1.0 / x;
        for (double& x : ramp) x = static_cast<double>(uniform(generator)) / 20.0;
        points.inv_norm = inv_norm.data();
        asked.inv_norm = query_inv_norm.data();
        points.scannable = fisher_rao_scannable(points);
    }
};

struct Found {
    std::vector<std::int64_t> indices, counts;
    std::vector<double> scores;
    FusedTopkResult result;

    Found(const Problem& problem, const FisherRaoOptions& options, std::size_t k)
        : indices(problem.b * k), counts(problem.b), scores(problem.b * k) {
        result = {indices.data(), scores.data(), counts.data(), 0};
        fisher_rao_topk(problem.points, problem.asked, options, k, result);
    }
    bool same(const Found& other) const {
        return indices == other.indices && counts == other.counts &&
               std::memcmp(scores.data(), other.scores.data(), scores.size() * sizeof(double)) == 0;
    }
};

void check_size(std::size_t n, std::size_t d, std::size_t b, bool ramped) {
    Problem problem(n, d, b, d % 3, static_cast<unsigned>(n * 100 + d));
    if (ramped) problem.points.ramp = problem.ramp.data();
    FisherRaoOptions options;
    const std::size_t k = std::min<std::size_t>(n, 5);
    std::vector<double> expected(b * n), found(b * n);
    fisher_rao_scores(problem.points, problem.asked, options,
                      {expected.data(), b, n, static_cast<std::ptrdiff_t>(n)});
    // The whole pass in the same order of ranks is the answer that the search must give.
    Problem exact(n, d, b, d % 3, static_cast<unsigned>(n * 100 + d));
    if (ramped) exact.points.ramp = exact.ramp.data();
    exact.points.scannable = false;
    const Found answer(exact, options, k);
    for (const Isa isa : available_isas()) {
        options.isa = isa;
        fisher_rao_scores(problem.points, problem.asked, options,
                          {found.data(), b, n, static_cast<std::ptrdiff_t>(n)});
        CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(double)) == 0);
        CHECK(Found(problem, options, k).same(answer));
    }
}

}  // namespace

RIEMEM_TEST(fisher_rao_is_the_same_bits_everywhere_and_exact) {
    for (const std::size_t d : {1u, 3u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 33u, 64u, 65u}) {
        for (const std::size_t n : {1u, 63u, 64u, 65u, 200u}) {
            for (const std::size_t b : {1u, 4u, 6u}) check_size(n, d, b, (n + d) % 2 == 0);
        }
    }
    check_size(700, 384, 21, true);
}

RIEMEM_TEST(fisher_rao_does_not_depend_on_the_threads) {
    const Problem problem(4000, 96, 5, 0, 7);
    FisherRaoOptions options;
    options.isa = active_isa();
    options.temperature = 2000.0;  // at 15 all scores are nearly 0, and every row is evaluated
    const std::size_t before = num_threads();
    set_num_threads(1);
    const Found one(problem, options, 9);
    set_num_threads(4);
    const Found many(problem, options, 9);
    set_num_threads(before);
    CHECK(one.same(many));
    CHECK(one.result.exact_rows < 5 * 200);
}

RIEMEM_TEST(fisher_rao_exp_of_the_scan_is_within_its_bound) {
    std::vector<float> distance, found(1);
    const float zero = 0.0f;
    for (float x = 0.0f; x < 120.0f; x += 0.0037f) distance.push_back(x);
    distance.push_back(3.0e38f);
    found.resize(distance.size());
    const FisherTerms terms{&zero, nullptr, 0.0f, 1.0f};
    for (const Isa isa : available_isas()) {
        fisher_rao_kernels(isa).finish(distance.data(), distance.data(), distance.size(), terms,
                                       found.data());
        double worst = 0.0;
        for (std::size_t i = 0; i < distance.size(); ++i) {
            const double true_value = std::exp(-static_cast<double>(distance[i]));
            worst = std::max(worst, std::abs(static_cast<double>(found[i]) - true_value));
        }
        CHECK(worst < kFisherExpError / 2.0);
    }
}

RIEMEM_TEST(portable_functions_are_near_the_true_ones) {
    std::mt19937_64 generator(1);
    std::uniform_real_distribution<double> uniform(0.0, 1.0);
    for (int i = 0; i < 20000; ++i) {
        const double u = uniform(generator) + 0x1p-53;
        const double x = -700.0 * u * u;
        CHECK(std::abs(portable_exp(x) / std::exp(x) - 1.0) < 4.5e-16);
        CHECK(std::abs(portable_log(u) - std::log(u)) <= 4.5e-16 * std::abs(std::log(u)) + 1e-17);
        const double turn = u < 1.0 ? u : 0.5;
        const SineCosine both = portable_sine_cosine(turn);
        CHECK(std::abs(both.sine - std::sin(2.0 * 3.14159265358979323846 * turn)) < 2e-15);
        CHECK(std::abs(both.sine * both.sine + both.cosine * both.cosine - 1.0) < 1e-15);
    }
    CHECK(portable_exp(0.0) == 1.0);
    CHECK(portable_exp(-1e308) == 0.0);
    CHECK(portable_exp(-745.0) > 0.0);
    CHECK(portable_log(1.0) == 0.0);
}
