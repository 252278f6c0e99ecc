#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/svd_update/svd_update.hpp"

namespace riemem {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kGone = 1e-13;  // share of a direction that a downdate leaves by rounding alone
constexpr int kMostSweeps = 40;  // quadratic convergence needs less than ten

// Four partial sums: they overlap, and the result is the same bits everywhere.
double dot(const double* x, const double* y, std::size_t n) {
    double sum[4] = {};
    std::size_t t = 0;
    for (; t + 4 <= n; t += 4) {
        for (std::size_t l = 0; l < 4; ++l) sum[l] += x[t + l] * y[t + l];
    }
    for (; t < n; ++t) sum[t % 4] += x[t] * y[t];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

void rotate(double* x, double* y, std::size_t n, double c, double s) {
    for (std::size_t t = 0; t < n; ++t) {
        const double a = x[t];
        const double b = y[t];
        x[t] = c * a - s * b;
        y[t] = s * a + c * b;
    }
}

// Makes the `count` columns (each of `length`, contiguous) orthogonal; `turned` (count, count)
// takes the same rotations.
void orthogonalise(double* columns, std::size_t length, std::size_t count, double* turned) {
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
        bool done = true;
        for (std::size_t p = 0; p + 1 < count; ++p) {
            for (std::size_t q = p + 1; q < count; ++q) {
                double* x = columns + p * length;
                double* y = columns + q * length;
                const double xx = dot(x, x, length);
                const double yy = dot(y, y, length);
                const double xy = dot(x, y, length);
                if (!(std::abs(xy) > kEps * std::sqrt(xx) * std::sqrt(yy))) continue;
                done = false;
                const double ratio = (yy - xx) / (2.0 * xy);
                const double t =
                    std::copysign(1.0, ratio) / (std::abs(ratio) + std::sqrt(1.0 + ratio * ratio));
                const double c = 1.0 / std::sqrt(1.0 + t * t);
                rotate(x, y, length, c, c * t);
                rotate(turned + p * count, turned + q * count, count, c, c * t);
            }
        }
        if (done) break;
    }
}

// A unit vector orthogonal to the first `have` rows of `basis` (each of `length`), as its next.
void complete(double* basis, std::size_t have, std::size_t length) {
    double* next = basis + have * length;
    double best = -1.0;
    std::vector<double> trial(length);
    for (std::size_t axis = 0; axis < length && best < 0.5; ++axis) {
        std::fill(trial.begin(), trial.end(), 0.0);
        trial[axis] = 1.0;
        for (int pass = 0; pass < 2; ++pass) {
            for (std::size_t i = 0; i < have; ++i) {
                const double along = dot(basis + i * length, trial.data(), length);
                for (std::size_t t = 0; t < length; ++t) trial[t] -= along * basis[i * length + t];
            }
        }
        const double norm = std::sqrt(dot(trial.data(), trial.data(), length));
        if (norm > best) {
            best = norm;
            for (std::size_t t = 0; t < length; ++t) next[t] = trial[t] / norm;
        }
    }
}

// Columns of a tall matrix (length >= count), scaled to a largest element of 1, as rows.
struct Tall {
    std::size_t length, count;
    double scale = 0.0;
    std::vector<double> columns, turned;

    Tall(const double* a, std::size_t m, std::size_t n)
        : length(std::max(m, n)), count(std::min(m, n)), columns(m * n), turned(count * count) {
        for (std::size_t i = 0; i < m * n; ++i) scale = std::max(scale, std::abs(a[i]));
        const double factor = scale > 0.0 ? scale : 1.0;
        for (std::size_t i = 0; i < m; ++i) {
            for (std::size_t j = 0; j < n; ++j) {
                const std::size_t at = m >= n ? j * length + i : i * length + j;
                columns[at] = a[i * n + j] / factor;
            }
        }
        for (std::size_t i = 0; i < count; ++i) turned[i * count + i] = 1.0;
    }
};

}  // namespace

void small_svd(const double* a, std::size_t m, std::size_t n, double* u, double* s, double* vt) {
    Tall tall(a, m, n);
    const std::size_t length = tall.length;
    const std::size_t count = tall.count;
    orthogonalise(tall.columns.data(), length, count, tall.turned.data());
    std::vector<double> norm(count);
    for (std::size_t i = 0; i < count; ++i) {
        const double* column = tall.columns.data() + i * length;
        norm[i] = std::sqrt(dot(column, column, length));
    }
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t x, std::size_t y) { return norm[x] > norm[y]; });
    // What is below this is rounding: its direction is not orthogonal to the others.
    const double least = count == 0 ? 0.0 : kEps * norm[order[0]];
    std::vector<double> wide(count * length);
    for (std::size_t i = 0; i < count; ++i) {
        const double size = norm[order[i]];
        s[i] = size * tall.scale;
        if (size > least) {
            for (std::size_t t = 0; t < length; ++t) {
                wide[i * length + t] = tall.columns[order[i] * length + t] / size;
            }
        } else {
            complete(wide.data(), i, length);
        }
    }
    for (std::size_t i = 0; i < count; ++i) {
        const double* narrow = tall.turned.data() + order[i] * count;
        const double* left = m >= n ? wide.data() + i * length : narrow;
        const double* right = m >= n ? narrow : wide.data() + i * length;
        for (std::size_t t = 0; t < m; ++t) u[t * count + i] = left[t];
        std::copy_n(right, n, vt + i * n);
    }
}

bool downdate_core(const double* s, const double* p, std::size_t b, std::size_t r, double slack,
                   double* out) {
    // diag(s)^2 - p'p = diag(s) (I - a'a) diag(s) with a = p diag(s)^-1 = u diag(c) w', and a root
    // of the middle is I - w (1 - sqrt(1 - c^2)) w': nothing is squared and subtracted.
    std::vector<double> scaled(b * r);
    for (std::size_t i = 0; i < b; ++i) {
        for (std::size_t j = 0; j < r; ++j) scaled[i * r + j] = p[i * r + j] / s[j];
    }
    const std::size_t k = std::min(b, r);
    std::vector<double> u(b * k), c(k), wt(k * r);
    small_svd(scaled.data(), b, r, u.data(), c.data(), wt.data());
    std::fill_n(out, r * r, 0.0);
    for (std::size_t j = 0; j < r; ++j) out[j * r + j] = 1.0;
    for (std::size_t i = 0; i < k; ++i) {
        if (!(c[i] <= 1.0 + slack)) return false;
        double left = (1.0 - c[i]) * (1.0 + c[i]);
        if (left < kGone) left = 0.0;  // a direction that goes away leaves no trace
        const double taken = 1.0 - std::sqrt(left);
        for (std::size_t x = 0; x < r; ++x) {
            for (std::size_t y = 0; y < r; ++y) {
                out[x * r + y] -= taken * wt[i * r + x] * wt[i * r + y];
            }
        }
    }
    for (std::size_t x = 0; x < r; ++x) {
        for (std::size_t y = 0; y < r; ++y) out[x * r + y] *= s[y];
    }
    return true;
}

}  // namespace riemem
