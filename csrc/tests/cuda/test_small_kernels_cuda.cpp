// scatter, svd_update and token_select on the SIMT shim.
#include "kernels/scatter/scatter.hpp"
#include "kernels/scatter/scatter_cuda.hpp"
#include "kernels/svd_update/svd_update_cuda.hpp"
#include "kernels/token_select/token_select_cuda.hpp"
#include "tests/cuda/device_problem.hpp"

using namespace riemem;
using namespace riemem::test;

namespace {

template <typename T>
std::vector<T> random_values(std::size_t size, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    std::vector<T> values(size);
    for (T& x : values) x = static_cast<T>(normal(generator));
    return values;
}

template <typename T>
void compare_scatter(std::size_t count, std::size_t d) {
    const auto values = random_values<T>(count * d, 1);
    const auto rows = device(values);
    const auto shift = random_values<double>(d, 2);
    auto total = random_values<double>(d, 3);
    auto scatter = random_values<double>(d * d, 4);
    const auto on_total = device(total);
    const auto on_scatter = device(scatter);
    for (double sign : {1.0, -1.0, 1.0}) {
        const MatrixView<const T> view{values.data(), count, d, static_cast<std::ptrdiff_t>(d)};
        scatter_add(view, shift.data(), sign, Isa::scalar, total.data(), scatter.data());
        CHECK(cuda::scatter_add(static_cast<const T*>(rows->data()), count, d, d, shift.data(),
                                sign, on_total->data(), on_scatter->data(), nullptr) == 0);
        CHECK(simt::take_fault().empty());
        CHECK(std::memcmp(total.data(), on_total->data(), d * 8) == 0);
        for (std::size_t i = 0; i < d; ++i) {
            CHECK(std::memcmp(&scatter[i * d], on_scatter->data() + i * d, (i + 1) * 8) == 0);
        }
    }
    std::vector<double> expected(d * d);
    const auto got = device<double>(d * d);
    scatter_covariance(total.data(), scatter.data(), d, 41.0, expected.data());
    CHECK(cuda::scatter_covariance(on_total->data(), on_scatter->data(), d, 41.0, got->data(),
                                   nullptr) == 0);
    CHECK(std::memcmp(expected.data(), got->data(), d * d * 8) == 0);
}

}  // namespace

RIEMEM_TEST(scatter_is_updated_and_downdated_to_the_bit) {
    for (std::size_t d : {1, 7, 24, 33, 65}) {
        for (std::size_t count : {1, 15, 16, 64, 65, 130}) {
            compare_scatter<float>(count, d);
            if (count % 2 != 0) compare_scatter<double>(count, d);
        }
    }
    CHECK(cuda::scatter_add<float>(nullptr, 0, 5, 5, nullptr, 1.0, nullptr, nullptr, nullptr) == 0);
}

RIEMEM_TEST(bfloat16_rows_are_added_for_what_they_are) {
    const Narrow cut(random_values<float>(70 * 9, 7));
    const auto rows = device(cut.narrow);
    const auto exact = device(cut.exact);
    std::vector<double> shift(9, 0.5), total(9, 1.0), square(81, 2.0), sum(9, 1.0),
        scatter(81, 2.0);
    CHECK(cuda::scatter_add(static_cast<const float*>(exact->data()), 70, 9, 9, shift.data(), 1.0,
                            total.data(), square.data(), nullptr) == 0);
    CHECK(cuda::scatter_add(static_cast<const cuda::Bfloat16*>(rows->data()), 70, 9, 9,
                            shift.data(), 1.0, sum.data(), scatter.data(), nullptr) == 0);
    CHECK(total == sum);
    CHECK(square == scatter);
}

RIEMEM_TEST(a_batch_with_a_bad_row_leaves_the_sums_alone) {
    const auto values = random_values<double>(40 * 5, 8);
    const auto rows = device(values);
    const std::vector<double> shift(5, 0.1);
    for (unsigned long long bad : {0ull, 39ull, 40ull, ~0ull}) {
        const bool good = bad >= 40;
        std::vector<double> total(5, 3.0), scatter(25, 4.0), found(5, -1.0);
        CHECK(cuda::scatter_add(static_cast<const double*>(rows->data()), 40, 5, 5, shift.data(),
                                1.0, total.data(), scatter.data(), nullptr, &bad) == 0);
        CHECK((total == std::vector<double>(5, 3.0)) != good);
        CHECK((scatter == std::vector<double>(25, 4.0)) != good);
        CHECK(cuda::scatter_shift(static_cast<const double*>(rows->data()), 40, 5, 5, &bad,
                                  found.data(), nullptr) == 0);
        for (std::size_t t = 0; t < 5; ++t) {
            double sum = 0.0;
            for (std::size_t i = 0; i < 40; ++i) sum += values[i * 5 + t] - values[t];
            CHECK(same_bits(found[t], good ? values[t] + sum / 40.0 : 0.0));
        }
    }
}

RIEMEM_TEST(lengths_beyond_a_limit_count_as_infinite) {
    const std::vector<double> values{1.0, 2.0, 1e200, 3.0, 1e151, 0.0};
    const auto out = device<double>(3);
    unsigned long long bad = 0;
    CHECK(cuda::row_norms(values.data(), 3, 2, 2, out->data(), &bad, nullptr, 1e150) == 0);
    CHECK(bad == 1);
    CHECK(cuda::row_norms(values.data() + 4, 1, 2, 2, out->data(), &bad, nullptr) == 0);
    CHECK(bad == ~0ull);
    CHECK((*out)[0] == 1e151);
}

RIEMEM_TEST(a_basis_is_turned_in_the_order_of_the_sum) {
    for (std::size_t d : {1, 16, 37}) {
        for (std::size_t m : {1, 5, 18}) {
            for (std::size_t k : {1, 4, 17}) {
                const auto space = device(random_values<double>(d * m, 1));
                const auto turn = device(random_values<double>(m * k, 2));
                const auto out = device<double>(d * k);
                CHECK(cuda::svd_rotate(space->data(), d, m, turn->data(), k, out->data(),
                                       nullptr) == 0);
                for (std::size_t i = 0; i < d; ++i) {
                    for (std::size_t j = 0; j < k; ++j) {
                        double sum = 0.0;
                        for (std::size_t t = 0; t < m; ++t) {
                            sum += (*space)[i * m + t] * (*turn)[t * k + j];
                        }
                        CHECK(same_bits(sum, (*out)[i * k + j]));
                    }
                }
            }
        }
    }
}

RIEMEM_TEST(one_newton_step_brings_a_basis_closer_to_orthonormal) {
    constexpr std::size_t kDim = 40, kCount = 9;
    auto basis = random_values<double>(kDim * kCount, 5);
    // Orthonormal by Gram-Schmidt, then disturbed by 1e-5.
    for (std::size_t j = 0; j < kCount; ++j) {
        for (std::size_t i = 0; i <= j; ++i) {
            double dot = 0.0;
            for (std::size_t t = 0; t < kDim; ++t)
                dot += basis[t * kCount + i] * basis[t * kCount + j];
            for (std::size_t t = 0; t < kDim; ++t) {
                if (i < j) basis[t * kCount + j] -= dot * basis[t * kCount + i];
                if (i == j) basis[t * kCount + j] /= std::sqrt(dot);
            }
        }
    }
    const auto noise = random_values<double>(kDim * kCount, 6);
    for (std::size_t i = 0; i < basis.size(); ++i) basis[i] += 1e-5 * noise[i];
    const auto step = device<double>(kCount * kCount), out = device<double>(kDim * kCount);
    CHECK(cuda::svd_newton_step(basis.data(), kDim, kCount, step->data(), nullptr) == 0);
    CHECK(cuda::svd_rotate(basis.data(), kDim, kCount, step->data(), kCount, out->data(),
                           nullptr) == 0);
    for (std::size_t i = 0; i < kCount; ++i) {
        for (std::size_t j = 0; j < kCount; ++j) {
            double dot = 0.0;
            for (std::size_t t = 0; t < kDim; ++t) {
                dot += (*out)[t * kCount + i] * (*out)[t * kCount + j];
            }
            CHECK(std::abs(dot - (i == j ? 1.0 : 0.0)) < 1e-8);
        }
    }
}

RIEMEM_TEST(tokens_are_weighed_as_on_the_processor) {
    for (std::size_t n : {1, 31, 33, 70}) {
        for (std::size_t d : {1, 9, 64}) {
            const auto g = random_values<float>(n * d, 1), h = random_values<float>(n * d, 2);
            const auto on_g = device(g), on_h = device(h);
            std::vector<double> expected(n);
            const auto out = device<double>(n);
            const auto stride = static_cast<std::ptrdiff_t>(d);
            token_sensitivity({g.data(), n, d, stride}, {h.data(), n, d, stride}, Isa::scalar,
                              expected.data());
            CHECK(cuda::token_sensitivity(on_g->data(), d, on_h->data(), d, n, d, out->data(),
                                          nullptr) == 0);
            CHECK(std::memcmp(expected.data(), out->data(), n * 8) == 0);
            for (std::size_t width : {1, 3, 9}) {
                const auto smooth = device<double>(n);
                std::vector<double> plain(n);
                token_smooth(expected.data(), n, width, plain.data());
                CHECK(cuda::token_smooth(out->data(), n, width, smooth->data(), nullptr) == 0);
                CHECK(std::memcmp(plain.data(), smooth->data(), n * 8) == 0);
            }
        }
    }
}

RIEMEM_TEST(units_are_pooled_and_gaps_filled_as_on_the_processor) {
    std::mt19937 generator(3);
    for (std::size_t units : {1, 2, 40, 300}) {
        const std::size_t n = 3 * units;
        const auto values = random_values<double>(n, 4);
        std::vector<std::int64_t> unit_of(n), entry(units), segments(units);
        for (auto& u : unit_of) u = static_cast<std::int64_t>(generator() % (units + 1)) - 1;
        for (auto& e : entry) e = generator() % 4 == 0 ? kNever : 1 + generator() % 50;
        for (std::size_t i = 0; i < units; ++i) segments[i] = static_cast<std::int64_t>(i / 11);
        for (Pool pool : {Pool::sum, Pool::mean, Pool::max}) {
            std::vector<double> expected(units);
            const auto out = device<double>(units);
            token_pool(values.data(), unit_of.data(), n, pool, units, expected.data());
            CHECK(cuda::token_pool(values.data(), unit_of.data(), n, pool, units, out->data(),
                                   nullptr) == 0);
            CHECK(std::memcmp(expected.data(), out->data(), units * 8) == 0);
        }
        for (std::size_t gap : {0, 1, 2, 5}) {
            std::vector<std::int64_t> expected(units);
            const auto out = device<std::int64_t>(units);
            fill_gaps(entry.data(), segments.data(), units, gap, expected.data());
            CHECK(cuda::fill_gaps(entry.data(), segments.data(), units, gap, out->data(),
                                  nullptr) == 0);
            CHECK(std::memcmp(expected.data(), out->data(), units * 8) == 0);
        }
    }
}
