// scatter: every instruction set to the bit against the scalar one, and against plain sums.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/thread_pool.hpp"
#include "guarded.hpp"
#include "kernels/scatter/scatter.hpp"

using namespace riemem;

namespace {

template <typename T>
struct Problem {
    test::Guarded<T> memory;
    MatrixView<const T> view;
    std::vector<double> shift;

    Problem(std::size_t n, std::size_t d, std::size_t gap, unsigned seed)
        : memory((n - 1) * (d + gap) + d),
          view{memory.data(), n, d, static_cast<std::ptrdiff_t>(d + gap)},
          shift(d) {
        std::mt19937 generator(seed);
        std::normal_distribution<double> normal;
        for (std::size_t i = 0; i < memory.size(); ++i) {
            memory[i] = static_cast<T>(normal(generator));
        }
        for (double& x : shift) x = normal(generator);
    }
};

struct Sums {
    test::Guarded<double> total, scatter;
    explicit Sums(std::size_t d) : total(d), scatter(d * d) {}

    template <typename T>
    void add(const Problem<T>& problem, double sign, Isa isa) {
        scatter_add<T>(problem.view, problem.shift.data(), sign, isa, total.data(), scatter.data());
    }
    bool same_lower(const Sums& other) const {
        const std::size_t d = total.size();
        bool same = std::memcmp(total.data(), other.total.data(), d * sizeof(double)) == 0;
        for (std::size_t i = 0; i < d; ++i) {
            same = same && std::memcmp(scatter.data() + i * d, other.scatter.data() + i * d,
                                       (i + 1) * sizeof(double)) == 0;
        }
        return same;
    }
};

template <typename T>
void check_against_plain_sums(const Problem<T>& problem, Sums& sums) {
    const std::size_t d = problem.view.cols;
    for (std::size_t i = 0; i < d; ++i) {
        long double total = 0.0L;
        for (std::size_t r = 0; r < problem.view.rows; ++r) {
            total += static_cast<long double>(problem.view.row(r)[i]) - problem.shift[i];
        }
        CHECK(std::abs(static_cast<double>(total) - sums.total[i]) <= 1e-11);
        for (std::size_t j = 0; j <= i; ++j) {
            long double sum = 0.0L;
            for (std::size_t r = 0; r < problem.view.rows; ++r) {
                sum += (static_cast<long double>(problem.view.row(r)[i]) - problem.shift[i]) *
                       (static_cast<long double>(problem.view.row(r)[j]) - problem.shift[j]);
            }
            CHECK(std::abs(static_cast<double>(sum) - sums.scatter[i * d + j]) <= 1e-10);
        }
    }
}

template <typename T>
void check_size(std::size_t n, std::size_t d) {
    const Problem<T> problem(n, d, d % 3, static_cast<unsigned>(n * 1000 + d));
    Sums expected(d);
    expected.add(problem, 1.0, Isa::scalar);
    check_against_plain_sums(problem, expected);
    for (const Isa isa : available_isas()) {
        Sums found(d);
        found.add(problem, 1.0, isa);
        CHECK(found.same_lower(expected));
        found.add(problem, -1.0, isa);
        if (n > kScatterDepth) continue;
        // One chunk: the very numbers that were added are taken away.
        for (std::size_t i = 0; i < d * d; ++i) CHECK(found.scatter[i] == 0.0);
    }
}

}  // namespace

RIEMEM_TEST(scatter_is_the_same_bits_everywhere_and_right) {
    for (const std::size_t d : {1u, 2u, 7u, 8u, 23u, 24u, 25u, 47u, 48u, 65u}) {
        for (const std::size_t n : {1u, 2u, 5u, 64u, 65u, 130u}) check_size<float>(n, d);
        check_size<double>(3, d);
        check_size<double>(70, d);
    }
}

RIEMEM_TEST(scatter_does_not_depend_on_the_threads) {
    const Problem<float> problem(64, 600, 0, 3);
    const std::size_t before = num_threads();
    Sums one(600), many(600);
    set_num_threads(1);
    one.add(problem, 1.0, active_isa());
    set_num_threads(4);
    many.add(problem, 1.0, active_isa());
    set_num_threads(before);
    CHECK(one.same_lower(many));
}

RIEMEM_TEST(scatter_covariance_reads_the_lower_triangle) {
    for (const std::size_t d : {1u, 3u, 31u, 32u, 33u, 70u}) {
        test::Guarded<double> total(d), scatter(d * d), out(d * d);
        std::mt19937 generator(5);
        std::normal_distribution<double> normal;
        for (std::size_t i = 0; i < d; ++i) total[i] = normal(generator);
        for (std::size_t i = 0; i < d * d; ++i) scatter[i] = normal(generator);
        scatter_covariance(total.data(), scatter.data(), d, 7.0, out.data());
        for (std::size_t i = 0; i < d; ++i) {
            for (std::size_t j = 0; j <= i; ++j) {
                const double value = scatter[i * d + j] / 7.0 - total[i] / 7.0 * (total[j] / 7.0);
                CHECK(out[i * d + j] == value);
                CHECK(out[j * d + i] == value);
            }
        }
    }
}
