// token_select: every instruction set against the scalar one, and the small steps against brute
// force.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "guarded.hpp"
#include "kernels/token_select/token_select.hpp"

using namespace riemem;

namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

struct Rows {
    test::Guarded<float> memory;
    MatrixView<const float> view;

    Rows(std::size_t n, std::size_t d, std::size_t gap, unsigned seed)
        : memory((n - 1) * (d + gap) + d),
          view{memory.data(), n, d, static_cast<std::ptrdiff_t>(d + gap)} {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = normal(generator);
    }
};

std::vector<std::int64_t> brute_fill(const std::vector<std::int64_t>& entry,
                                     const std::vector<std::int64_t>& segments, std::size_t gap,
                                     std::int64_t size) {
    // At this size: walk the kept units, fill what lies between two of them.
    std::vector<std::int64_t> kept(entry.size());
    std::ptrdiff_t last = -1;
    for (std::size_t j = 0; j < entry.size(); ++j) {
        if (entry[j] > size) continue;
        kept[j] = 1;
        if (last >= 0 && segments[static_cast<std::size_t>(last)] == segments[j] &&
            j - static_cast<std::size_t>(last) - 1 <= gap) {
            for (std::size_t i = static_cast<std::size_t>(last) + 1; i < j; ++i) kept[i] = 1;
        }
        last = static_cast<std::ptrdiff_t>(j);
    }
    return kept;
}

}  // namespace

RIEMEM_TEST(token_sensitivity_is_the_same_bits_everywhere) {
    for (const std::size_t d : {1u, 2u, 7u, 8u, 9u, 15u, 16u, 17u, 31u, 64u, 100u, 576u}) {
        const std::size_t n = 5;
        const Rows gradient(n, d, d % 3, 1), embedding(n, d, d % 2, 2);
        std::vector<double> expected(n), found(n);
        token_sensitivity(gradient.view, embedding.view, Isa::scalar, expected.data());
        for (std::size_t i = 0; i < n; ++i) {
            double sum = 0.0;
            for (std::size_t t = 0; t < d; ++t) {
                const double x = static_cast<double>(gradient.view.row(i)[t]) *
                                 static_cast<double>(embedding.view.row(i)[t]);
                sum += x * x;
            }
            CHECK(std::abs(expected[i] - std::sqrt(sum)) <= 1e-6 * std::sqrt(sum));
        }
        for (const Isa isa : available_isas()) {
            token_sensitivity(gradient.view, embedding.view, isa, found.data());
            for (std::size_t i = 0; i < n; ++i) CHECK(same_bits(found[i], expected[i]));
        }
    }
}

RIEMEM_TEST(token_smooth_replicates_the_edges) {
    const std::vector<double> values = {1.0, 2.0, 6.0};
    std::vector<double> out(3);
    token_smooth(values.data(), 3, 5, out.data());
    CHECK(out[0] == (1.0 + 1.0 + 1.0 + 2.0 + 6.0) / 5.0);
    CHECK(out[1] == (1.0 + 1.0 + 2.0 + 6.0 + 6.0) / 5.0);
    token_smooth(values.data(), 3, 1, out.data());
    CHECK(out == values);
    token_smooth(values.data(), 0, 5, out.data());
}

RIEMEM_TEST(token_pool_knows_three_ways) {
    const std::vector<double> values = {1.0, 3.0, 5.0, 7.0};
    const std::vector<std::int64_t> unit = {0, 0, -1, 2};
    std::vector<double> out(3);
    token_pool(values.data(), unit.data(), 4, Pool::sum, 3, out.data());
    CHECK((out == std::vector<double>{4.0, 0.0, 7.0}));
    token_pool(values.data(), unit.data(), 4, Pool::mean, 3, out.data());
    CHECK((out == std::vector<double>{2.0, 0.0, 7.0}));
    token_pool(values.data(), unit.data(), 4, Pool::max, 3, out.data());
    CHECK((out == std::vector<double>{3.0, 0.0, 7.0}));
}

RIEMEM_TEST(fill_gaps_is_what_filling_each_size_gives) {
    std::mt19937 generator(7);
    for (int round = 0; round < 300; ++round) {
        const std::size_t units = 1 + generator() % 24;
        const std::size_t gap = generator() % 5;
        std::vector<std::int64_t> entry(units), segments(units), filled(units);
        for (std::size_t j = 0; j < units; ++j) {
            entry[j] =
                generator() % 4 == 0 ? kNever : 1 + static_cast<std::int64_t>(generator() % 12);
            segments[j] = static_cast<std::int64_t>(j / 7);
        }
        fill_gaps(entry.data(), segments.data(), units, gap, filled.data());
        for (std::int64_t size = 0; size <= 13; ++size) {
            const auto expected = brute_fill(entry, segments, gap, size);
            for (std::size_t j = 0; j < units; ++j) {
                CHECK((filled[j] <= size) == (expected[j] == 1));
            }
        }
    }
}

RIEMEM_TEST(largest_size_counts_shared_units_once) {
    const std::vector<std::int64_t> entry = {1, 3, 1, kNever, 2};
    const std::vector<double> costs = {2.0, 4.0, 1.0, 9.0, 3.0};
    const auto size = [&](double budget) {
        return largest_size(entry.data(), costs.data(), entry.size(), 3, budget);
    };
    CHECK(size(2.9) == 0);
    CHECK(size(3.0) == 1);
    CHECK(size(6.0) == 2);
    CHECK(size(9.9) == 2);
    CHECK(size(10.0) == 3);
}
