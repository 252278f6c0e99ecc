// Chooses the kernels of an instruction set, packs the rows, walks the lower triangle.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/thread_pool.hpp"
#include "kernels/scatter/scatter.hpp"
#include "kernels/scatter/scatter_kernels.hpp"

namespace riemem {
namespace {

// Below this many products a second thread costs more than it brings.
constexpr std::size_t kSerialProducts = std::size_t{1} << 23;

// One chunk of rows, shifted: panels (depth, kScatterPanel) one after the other.
struct Chunk {
    const double* panels;
    std::size_t depth;

    const double* panel(std::size_t line) const { return panels + line * depth * kScatterPanel; }
};

// z = row - shift, padded with zero columns.
template <typename T>
void pack(MatrixView<const T> rows, std::size_t first, std::size_t depth, const double* shift,
          double* panels) {
    const std::size_t d = rows.cols;
    for (std::size_t c = 0; c < d; c += kScatterPanel) {
        const std::size_t width = std::min(kScatterPanel, d - c);
        for (std::size_t r = 0; r < depth; ++r, panels += kScatterPanel) {
            const T* row = rows.row(first + r) + c;
            for (std::size_t t = 0; t < width; ++t) {
                panels[t] = static_cast<double>(row[t]) - shift[c + t];
            }
            for (std::size_t t = width; t < kScatterPanel; ++t) panels[t] = 0.0;
        }
    }
}

void add_total(const Chunk& chunk, std::size_t d, double sign, double* total) {
    double sum[kScatterPanel];
    const double* z = chunk.panels;
    for (std::size_t c = 0; c < d; c += kScatterPanel) {
        std::fill_n(sum, kScatterPanel, 0.0);
        for (std::size_t r = 0; r < chunk.depth; ++r, z += kScatterPanel) {
            for (std::size_t t = 0; t < kScatterPanel; ++t) sum[t] += z[t];
        }
        const std::size_t width = std::min(kScatterPanel, d - c);
        for (std::size_t t = 0; t < width; ++t) total[c + t] += sign * sum[t];
    }
}

// All blocks of the lower triangle in one line of blocks: along the rows of the matrix, whose
// pages are then left for good.
void add_line(const ScatterKernels& kernels, const Chunk& chunk, std::size_t line, std::size_t d,
              double sign, double* scatter) {
    const std::size_t i = line * kScatterPanel;
    const std::size_t height = std::min(kScatterPanel, d - i);
    const double* a = chunk.panel(line);
    for (std::size_t column = 0; column <= line; ++column) {
        const std::size_t j = column * kScatterPanel;
        const std::size_t width = std::min(kScatterPanel, d - j);
        const double* b = chunk.panel(column);
        double* out = scatter + i * d + j;
        if (height == kScatterPanel && width == kScatterPanel) {
            kernels.block(a, b, chunk.depth, sign, out, d);
            continue;
        }
        double edge[kScatterPanel * kScatterPanel] = {};
        for (std::size_t y = 0; y < height; ++y) {
            std::copy_n(out + y * d, width, edge + y * kScatterPanel);
        }
        kernels.block(a, b, chunk.depth, sign, edge, kScatterPanel);
        for (std::size_t y = 0; y < height; ++y) {
            std::copy_n(edge + y * kScatterPanel, width, out + y * d);
        }
    }
}

}  // namespace

const ScatterKernels& scatter_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return scatter_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return scatter_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
            return scatter_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return scatter_kernels_neon();
#endif
        default:
            throw BackendUnavailable("scatter: no kernels for " + std::string(isa_name(isa)));
    }
}

template <typename T>
void scatter_add(MatrixView<const T> rows, const double* shift, double sign, Isa isa, double* total,
                 double* scatter) {
    const ScatterKernels& kernels = scatter_kernels(isa);
    const std::size_t d = rows.cols;
    const std::size_t lines = (d + kScatterPanel - 1) / kScatterPanel;
    const std::size_t deepest = std::min(kScatterDepth, rows.rows);
    const std::unique_ptr<double[]> panels(new double[lines * deepest * kScatterPanel]);
    for (std::size_t first = 0; first < rows.rows; first += kScatterDepth) {
        const std::size_t depth = std::min(kScatterDepth, rows.rows - first);
        pack(rows, first, depth, shift, panels.get());
        const Chunk chunk{panels.get(), depth};
        add_total(chunk, d, sign, total);
        const std::size_t threads = depth * d * d / 2 < kSerialProducts ? 1 : num_threads();
        parallel_for(lines, threads, [&](std::size_t line) {
            // The longest first, so that no thread is left with it at the end.
            add_line(kernels, chunk, lines - 1 - line, d, sign, scatter);
        });
    }
}

template void scatter_add<float>(MatrixView<const float>, const double*, double, Isa, double*,
                                 double*);
template void scatter_add<double>(MatrixView<const double>, const double*, double, Isa, double*,
                                  double*);

void scatter_covariance(const double* total, const double* scatter, std::size_t d, double n,
                        double* out) {
    constexpr std::size_t kSquare = 32;  // transposed within L1
    std::vector<double> offset(d);
    for (std::size_t i = 0; i < d; ++i) offset[i] = total[i] / n;
    for (std::size_t i0 = 0; i0 < d; i0 += kSquare) {
        const std::size_t i1 = std::min(i0 + kSquare, d);
        for (std::size_t j0 = 0; j0 <= i0; j0 += kSquare) {
            for (std::size_t i = i0; i < i1; ++i) {
                const std::size_t j1 = std::min(j0 + kSquare, i + 1);
                for (std::size_t j = j0; j < j1; ++j) {
                    out[i * d + j] = scatter[i * d + j] / n - offset[i] * offset[j];
                }
            }
            for (std::size_t j = j0; j < std::min(j0 + kSquare, d); ++j) {
                for (std::size_t i = std::max(i0, j + 1); i < i1; ++i) {
                    out[j * d + i] = out[i * d + j];
                }
            }
        }
    }
}

}  // namespace riemem
