// Chooses the kernels of an instruction set; the passes over rows that need no search.
#include <atomic>

#include "core/error.hpp"
#include "kernels/fused_topk/fused_topk_internal.hpp"

namespace riemem {

const FusedTopkKernels& fused_topk_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return fused_topk_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return fused_topk_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
#if defined(RIEMEM_HAVE_AVX512_VNNI)
            if (has_avx512_vnni()) return fused_topk_kernels_avx512_vnni();
#endif
            return fused_topk_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return fused_topk_kernels_neon();
#endif
        default:
            throw BackendUnavailable("fused_topk: no kernels for " + std::string(isa_name(isa)));
    }
}

std::int64_t row_norms(MatrixView<const float> rows, Isa isa, double* norms) {
    const FusedTopkKernels& kernels = fused_topk_kernels(isa);
    FusedPoints points;
    points.rows = rows;
    const std::size_t blocks = fused::block_count(rows.rows);
    std::atomic<std::size_t> first_bad{rows.rows};
    parallel_for(blocks, fused::threads_for(points), [&](std::size_t block) {
        const std::size_t first = block * kBlockRows;
        for (std::size_t i = first; i < first + fused::block_size(rows.rows, block); ++i) {
            // float32 squares neither overflow nor vanish in float64, so the sum is finite
            // exactly when every element is.
            norms[i] = std::sqrt(kernels.square_norm(rows.row(i), rows.cols));
            if (!std::isfinite(norms[i])) {
                std::size_t seen = first_bad.load();
                while (i < seen && !first_bad.compare_exchange_weak(seen, i)) {
                }
            }
        }
    });
    const std::size_t bad = first_bad.load();
    return bad == rows.rows ? -1 : static_cast<std::int64_t>(bad);
}

namespace {

constexpr std::size_t kQuadraticRows = 64;  // rows that meet one panel while it is in the cache

// The whitening matrix as panels (d, kQuadraticColumns) padded with zero columns, each with the
// rows that are not zero: half of the work for a triangular matrix.
struct Panels {
    std::size_t d, count;
    std::vector<double> values;
    std::vector<std::size_t> begin, end;

    Panels(const double* whitening, std::size_t dim, std::size_t rank)
        : d(dim),
          count((rank + kQuadraticColumns - 1) / kQuadraticColumns),
          values(count * dim * kQuadraticColumns),
          begin(count, dim),
          end(count, 0) {
        for (std::size_t p = 0; p < count; ++p) {
            const std::size_t first = p * kQuadraticColumns;
            const std::size_t width = std::min(kQuadraticColumns, rank - first);
            for (std::size_t t = 0; t < d; ++t) {
                const double* from = whitening + t * rank + first;
                std::copy_n(from, width, values.data() + (p * d + t) * kQuadraticColumns);
                if (std::all_of(from, from + width, [](double x) { return x == 0.0; })) continue;
                begin[p] = std::min(begin[p], t);
                end[p] = t + 1;
            }
        }
    }
};

void centre_four(MatrixView<const float> rows, std::size_t first, std::size_t count,
                 const double* mean, double* centred) {
    for (std::size_t j = 0; j < 4; ++j) {
        // Rows past the end repeat the last one and are not stored.
        const float* row = rows.row(first + std::min(j, count - 1));
        for (std::size_t t = 0; t < rows.cols; ++t) {
            centred[t * 4 + j] = static_cast<double>(row[t]) - mean[t];
        }
    }
}

}  // namespace

void unit_rows(MatrixView<const float> rows, const double* norms, Isa isa, float* out) {
    const FusedTopkKernels& kernels = fused_topk_kernels(isa);
    for (std::size_t i = 0; i < rows.rows; ++i) {
        const double norm = norms[i] > 0.0 ? norms[i] : 1.0;
        kernels.divide(rows.row(i), rows.cols, norm, out + i * rows.cols);
    }
}

void quadratic_rows(MatrixView<const float> rows, const double* mean, const double* whitening,
                    std::size_t rank, Isa isa, double* out) {
    const FusedTopkKernels& kernels = fused_topk_kernels(isa);
    const std::size_t n = rows.rows;
    const std::size_t d = rows.cols;
    const Panels panels(whitening, d, rank);
    FusedPoints points;
    points.rows = rows;
    const std::size_t groups = (n + kQuadraticRows - 1) / kQuadraticRows;
    parallel_for(groups, fused::threads_for(points), [&](std::size_t group) {
        const std::size_t first = group * kQuadraticRows;
        const std::size_t count = std::min(kQuadraticRows, n - first);
        const std::size_t fours = (count + 3) / 4;
        std::vector<double> centred(fours * d * 4);
        double lanes[kQuadraticRows][8] = {};
        for (std::size_t f = 0; f < fours; ++f) {
            const std::size_t left = std::min<std::size_t>(4, count - f * 4);
            centre_four(rows, first + f * 4, left, mean, centred.data() + f * d * 4);
        }
        for (std::size_t p = 0; p < panels.count; ++p) {
            const double* panel = panels.values.data() + p * d * kQuadraticColumns;
            for (std::size_t f = 0; f < fours; ++f) {
                kernels.quadratic_panel(centred.data() + f * d * 4, panel, panels.begin[p],
                                        panels.end[p], lanes + f * 4);
            }
        }
        for (std::size_t i = 0; i < count; ++i) {
            const double* l = lanes[i];
            out[first + i] = ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
        }
    });
}

void rows_times(const double* x, std::size_t count, const double* matrix, std::size_t d,
                Nonzero nonzero, Isa isa, double* out) {
    const FusedTopkKernels& kernels = fused_topk_kernels(isa);
    const std::size_t read = count * d * d * sizeof(double);
    const std::size_t threads = read < fused::kSerialBytes ? 1 : num_threads();
    parallel_for((count + 3) / 4, threads, [&](std::size_t group) {
        const std::size_t first = group * 4;
        const std::size_t own = std::min<std::size_t>(4, count - first);
        kernels.fold(x + first * d, own, matrix, d, nonzero, out + first * d);
    });
}

}  // namespace riemem
