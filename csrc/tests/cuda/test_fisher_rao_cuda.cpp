// fisher_rao on the SIMT shim against the processor: the same ids and the same bits.
#include "kernels/fisher_rao/fisher_rao.hpp"
#include "kernels/fisher_rao/fisher_rao_cuda.hpp"
#include "tests/cuda/device_problem.hpp"

using namespace riemem;
using namespace riemem::test;

namespace {

void compare(std::size_t n, std::size_t d, std::size_t b, std::size_t k, bool ramped, bool masked,
             unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> rows(n * d), precision(n * d), asked(b * d);
    for (float& x : rows) x = normal(generator);
    for (float& x : precision) x = 0.1f + std::abs(normal(generator));
    for (float& x : asked) x = normal(generator);
    if (n > 5) std::copy_n(rows.data(), d, rows.data() + 5 * d);  // a tie but for the precision
    std::vector<double> inv_norm(n), query_inv(b), ramp(n);
    const auto view = [](const std::vector<float>& x, std::size_t count, std::size_t dim) {
        return MatrixView<const float>{x.data(), count, dim, static_cast<std::ptrdiff_t>(dim)};
    };
    row_norms(view(rows, n, d), Isa::scalar, inv_norm.data());
    row_norms(view(asked, b, d), Isa::scalar, query_inv.data());
    for (double& x : inv_norm) x = 1.0 / x;
    for (double& x : query_inv) x = 1.0 / x;
    for (double& x : ramp) x = static_cast<double>(generator() % 100) / 99.0;
    std::vector<std::uint8_t> mask(b * n, 1);
    for (auto& m : mask) m = masked && generator() % 3 == 0 ? 0 : 1;

    FisherRaoPoints points{view(rows, n, d), view(precision, n, d), inv_norm.data(),
                           ramped ? ramp.data() : nullptr};
    points.scannable = fisher_rao_scannable(points);
    const FisherRaoQueries queries{view(asked, b, d), query_inv.data()};
    const FisherRaoOptions options{7.0, mask.data(), true, Isa::scalar};
    Answer expected{std::vector<std::int64_t>(b * k), std::vector<std::int64_t>(b),
                    std::vector<double>(b * k)};
    FusedTopkResult result{expected.indices.data(), expected.scores.data(), expected.counts.data()};
    fisher_rao_topk(points, queries, options, k, result);

    const auto on_rows = device(rows), on_precision = device(precision), on_asked = device(asked);
    cuda::DeviceFisherPoints there;
    there.count = n;
    there.dim = there.stride = there.precision_stride = d;
    there.rows = on_rows->data();
    there.precision = on_precision->data();
    there.inv_norm = inv_norm.data();
    there.ramp = ramped ? ramp.data() : nullptr;
    cuda::DeviceFisherQueries ask{on_asked->data(), d, query_inv.data(), b};
    const cuda::DeviceFisherOptions how{7.0, mask.data(), true};
    const auto indices = device<std::int64_t>(b * k), counts = device<std::int64_t>(b);
    const auto scores = device<double>(b * k), all = device<double>(b * n);
    const auto work = device<unsigned char>(cuda::fisher_rao_workspace(n, d, b, k));
    CHECK(cuda::fisher_rao_topk(there, ask, how, k,
                                {indices->data(), scores->data(), counts->data()}, work->data(),
                                nullptr) == 0);
    CHECK(simt::take_fault().empty());
    const Answer got{{indices->data(), indices->data() + b * k},
                     {counts->data(), counts->data() + b},
                     {scores->data(), scores->data() + b * k}};
    CHECK(same(expected, got));
    std::vector<double> plain(b * n);
    fisher_rao_scores(points, queries, options,
                      MatrixView<double>{plain.data(), b, n, static_cast<std::ptrdiff_t>(n)});
    CHECK(cuda::fisher_rao_scores(there, ask, how, all->data(), nullptr) == 0);
    CHECK(std::memcmp(plain.data(), all->data(), b * n * sizeof(double)) == 0);
    // A query that is empty has no hits, and the others keep theirs.
    std::vector<std::uint8_t> empty(b, 0);
    empty[b - 1] = 1;
    ask.empty = empty.data();
    CHECK(cuda::fisher_rao_topk(there, ask, how, k,
                                {indices->data(), scores->data(), counts->data()}, work->data(),
                                nullptr) == 0);
    CHECK((*counts)[b - 1] == 0 && (*indices)[(b - 1) * k] == -1);
    CHECK(b == 1 || (*counts)[0] == expected.counts[0]);
    CHECK(cuda::fisher_rao_scores(there, ask, how, all->data(), nullptr) == 0);
    CHECK(std::memcmp(plain.data(), all->data(), (b - 1) * n * sizeof(double)) == 0);
    for (std::size_t i = 0; i < n; ++i) CHECK(std::isnan((*all)[(b - 1) * n + i]));
}

}  // namespace

RIEMEM_TEST(variances_become_precisions_and_bad_rows_are_marked) {
    const std::vector<float> variances{0.5f, 2.0f, 1.0f,     0.0f, 1.0f, -1.0f,
                                       NAN,  1.0f, INFINITY, 1.0f, 3.0f, 1e-45f};
    const std::vector<double> ramp{0.0, 1.0, 0.5, 0.5, 0.5, 0.5};
    const auto on = device(variances);
    const auto precision = device<float>(12);
    std::vector<std::uint8_t> usable(6, 1);
    CHECK(cuda::fisher_rao_precision(on->data(), 6, 2, 2, ramp.data(), precision->data(),
                                     usable.data(), nullptr) == 0);
    CHECK((usable == std::vector<std::uint8_t>{1, 0, 0, 0, 0, 0}));
    CHECK((*precision)[0] == 2.0f && (*precision)[1] == 0.5f);
    CHECK((*precision)[10] == static_cast<float>(1.0 / 3.0));
    // One row of variances for all, and ramps that are none.
    const std::vector<double> odd{0.0, -0.1, 1.1, NAN, 1.0, 0.5};
    const auto one = device<float>(2);
    usable.assign(6, 1);
    CHECK(cuda::fisher_rao_precision(on->data(), 6, 2, 0, odd.data(), one->data(), usable.data(),
                                     nullptr) == 0);
    CHECK((usable == std::vector<std::uint8_t>{1, 0, 0, 0, 1, 1}));
    CHECK((*one)[0] == 2.0f && (*one)[1] == 0.5f);
    CHECK(cuda::fisher_rao_precision(on->data() + 2, 6, 2, 0, nullptr, one->data(), usable.data(),
                                     nullptr) == 0);
    CHECK((usable == std::vector<std::uint8_t>(6, 0)));
    const std::vector<double> norms{1.0, 0.0, NAN, INFINITY};
    std::vector<std::uint8_t> empty(4, 9);
    CHECK(cuda::fisher_rao_empty(norms.data(), 4, empty.data(), nullptr) == 0);
    CHECK((empty == std::vector<std::uint8_t>{0, 1, 1, 1}));
}

RIEMEM_TEST(memories_with_variances_rank_as_on_the_processor) {
    unsigned seed = 0;
    for (std::size_t n : {1, 31, 33, 100, 300}) {
        for (std::size_t d : {1, 7, 24}) {
            for (std::size_t b : {1, 3, 18}) {
                const std::size_t k = 1 + seed % 9 < n ? 1 + seed % 9 : n;
                compare(n, d, b, k, seed % 2 == 0, seed % 3 == 0, seed + 1);
                ++seed;
            }
        }
    }
}
