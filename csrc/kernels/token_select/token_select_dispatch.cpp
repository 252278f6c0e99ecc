// Chooses the kernels of an instruction set, and the steps that are too small to need one.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/thread_pool.hpp"
#include "kernels/token_select/token_select.hpp"
#include "kernels/token_select/token_select_kernels.hpp"

namespace riemem {

const TokenSelectKernels& token_select_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return token_select_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return token_select_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
            return token_select_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return token_select_kernels_neon();
#endif
        default:
            throw BackendUnavailable("token_select: no kernels for " + std::string(isa_name(isa)));
    }
}

void token_sensitivity(MatrixView<const float> gradient, MatrixView<const float> embedding, Isa isa,
                       double* out) {
    const TokenSelectKernels& kernels = token_select_kernels(isa);
    for (std::size_t i = 0; i < gradient.rows; ++i) {
        out[i] =
            std::sqrt(kernels.square_product(gradient.row(i), embedding.row(i), gradient.cols));
    }
}

// The sum of each window is taken afresh, so that a large value leaves nothing behind.
void token_smooth(const double* values, std::size_t n, std::size_t width, double* out) {
    const auto half = static_cast<std::ptrdiff_t>(width / 2);
    const auto last = static_cast<std::ptrdiff_t>(n) - 1;
    for (std::ptrdiff_t i = 0; i <= last; ++i) {
        double sum = 0.0;
        for (std::ptrdiff_t j = i - half; j <= i + half; ++j) {
            sum += values[std::clamp<std::ptrdiff_t>(j, 0, last)];
        }
        out[i] = sum / static_cast<double>(width);
    }
}

void token_pool(const double* values, const std::int64_t* unit_of, std::size_t n, Pool pool,
                std::size_t units, double* out) {
    std::fill_n(out, units, 0.0);
    std::vector<std::size_t> count(pool == Pool::mean ? units : 0);
    for (std::size_t i = 0; i < n; ++i) {
        if (unit_of[i] < 0) continue;
        const auto unit = static_cast<std::size_t>(unit_of[i]);
        if (pool == Pool::max) {
            out[unit] = std::max(out[unit], values[i]);
        } else {
            out[unit] += values[i];
            if (pool == Pool::mean) ++count[unit];
        }
    }
    for (std::size_t unit = 0; unit < count.size(); ++unit) {
        if (count[unit] > 1) out[unit] /= static_cast<double>(count[unit]);
    }
}

void fill_gaps(const std::int64_t* entry, const std::int64_t* segments, std::size_t units,
               std::size_t gap, std::int64_t* out) {
    std::copy_n(entry, units, out);
    for (std::size_t a = 0; a < units; ++a) {
        if (entry[a] == kNever) continue;
        for (std::size_t b = a + 2; b < units && b - a - 1 <= gap; ++b) {
            if (segments[b] != segments[a]) break;
            const std::int64_t both = std::max(entry[a], entry[b]);
            for (std::size_t j = a + 1; j < b; ++j) out[j] = std::min(out[j], both);
        }
    }
}

std::size_t largest_size(const std::int64_t* entry, const double* costs, std::size_t units,
                         std::size_t steps, double budget) {
    std::vector<double> added(steps, 0.0);
    for (std::size_t unit = 0; unit < units; ++unit) {
        if (entry[unit] != kNever) added[static_cast<std::size_t>(entry[unit]) - 1] += costs[unit];
    }
    double total = 0.0;
    for (std::size_t size = 0; size < steps; ++size) {
        total += added[size];
        if (total > budget) return size;
    }
    return steps;
}

}  // namespace riemem
