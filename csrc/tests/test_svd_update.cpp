// svd_update: the definition of a decomposition, on matrices with and without full rank.
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "guarded.hpp"
#include "kernels/svd_update/svd_update.hpp"

using namespace riemem;

namespace {

struct Svd {
    std::size_t m, n, k;
    test::Guarded<double> u, s, vt;

    Svd(const std::vector<double>& a, std::size_t rows, std::size_t cols)
        : m(rows), n(cols), k(rows < cols ? rows : cols), u(m * k), s(k), vt(k * n) {
        small_svd(a.data(), m, n, u.data(), s.data(), vt.data());
    }
};

void check_svd(const std::vector<double>& a, std::size_t m, std::size_t n) {
    Svd svd(a, m, n);
    double scale = 0.0;
    for (const double x : a) scale = std::max(scale, std::abs(x));
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
            double value = 0.0;
            for (std::size_t t = 0; t < svd.k; ++t) {
                value += svd.u[i * svd.k + t] * svd.s[t] * svd.vt[t * n + j];
            }
            CHECK(std::abs(value - a[i * n + j]) <= 1e-13 * static_cast<double>(m + n) * scale);
        }
    }
    for (std::size_t x = 0; x < svd.k; ++x) {
        CHECK(svd.s[x] >= 0.0);
        if (x > 0) CHECK(svd.s[x] <= svd.s[x - 1]);
        for (std::size_t y = 0; y < svd.k; ++y) {
            double left = 0.0, right = 0.0;
            for (std::size_t t = 0; t < m; ++t) left += svd.u[t * svd.k + x] * svd.u[t * svd.k + y];
            for (std::size_t t = 0; t < n; ++t) right += svd.vt[x * n + t] * svd.vt[y * n + t];
            CHECK(std::abs(left - (x == y ? 1.0 : 0.0)) <= 1e-13);
            CHECK(std::abs(right - (x == y ? 1.0 : 0.0)) <= 1e-13);
        }
    }
}

std::vector<double> random_matrix(std::size_t m, std::size_t n, std::size_t rank, double scale,
                                  unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal;
    std::vector<double> left(m * rank), right(rank * n), a(m * n, 0.0);
    for (double& x : left) x = normal(generator);
    for (double& x : right) x = scale * normal(generator);
    for (std::size_t i = 0; i < m; ++i) {
        for (std::size_t t = 0; t < rank; ++t) {
            for (std::size_t j = 0; j < n; ++j)
                a[i * n + j] += left[i * rank + t] * right[t * n + j];
        }
    }
    return a;
}

}  // namespace

RIEMEM_TEST(small_svd_is_a_decomposition) {
    unsigned seed = 0;
    for (const std::size_t m : {1u, 2u, 5u, 17u, 64u}) {
        for (const std::size_t n : {1u, 3u, 17u, 40u}) {
            for (const std::size_t rank : {1u, 2u, 20u}) {
                for (const double scale : {1.0, 1e-150, 1e150}) {
                    check_svd(random_matrix(m, n, rank, scale, ++seed), m, n);
                }
            }
            check_svd(std::vector<double>(m * n, 0.0), m, n);
            check_svd(std::vector<double>(m * n, -3.5), m, n);
        }
    }
}

RIEMEM_TEST(small_svd_finds_small_values_exactly) {
    // Graded columns: a relative error per value, not one of the largest.
    const std::vector<double> a = {1.0, 0.0, 0.0, 0.0, 1e-12, 0.0, 0.0, 0.0, 1e-24};
    Svd svd(a, 3, 3);
    CHECK(std::abs(svd.s[0] - 1.0) <= 1e-15);
    CHECK(std::abs(svd.s[1] - 1e-12) <= 1e-27);
    CHECK(std::abs(svd.s[2] - 1e-24) <= 1e-39);
}

RIEMEM_TEST(downdate_core_is_the_root_of_what_is_left) {
    const std::size_t r = 4;
    const std::vector<double> s = {5.0, 3.0, 2.0, 0.5};
    const std::vector<double> p = {1.0, 0.5, -0.25, 0.1, 0.0, 1.0, 0.5, -0.2};
    test::Guarded<double> out(r * r);
    CHECK(downdate_core(s.data(), p.data(), 2, r, 1e-9, out.data()));
    for (std::size_t x = 0; x < r; ++x) {
        for (std::size_t y = 0; y < r; ++y) {
            double found = 0.0;
            for (std::size_t t = 0; t < r; ++t) found += out[t * r + x] * out[t * r + y];
            double expected = x == y ? s[x] * s[x] : 0.0;
            for (std::size_t i = 0; i < 2; ++i) expected -= p[i * r + x] * p[i * r + y];
            CHECK(std::abs(found - expected) <= 1e-14);
        }
    }
    const std::vector<double> foreign = {6.0, 0.0, 0.0, 0.0};
    CHECK(!downdate_core(s.data(), foreign.data(), 1, r, 1e-9, out.data()));
    const std::vector<double> all = {5.0, 0.0, 0.0, 0.0};
    CHECK(downdate_core(s.data(), all.data(), 1, r, 1e-9, out.data()));
    CHECK(out[0] == 0.0);
}
