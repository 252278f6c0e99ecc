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

void quadratic_rows(MatrixView<const float> rows, const double* mean, const double* whitening,
                    std::size_t rank, Isa isa, double* out) {
    const FusedTopkKernels& kernels = fused_topk_kernels(isa);
    const std::size_t n = rows.rows;
    const std::size_t d = rows.cols;
    const std::size_t padded = (rank + kQuadraticPad - 1) / kQuadraticPad * kQuadraticPad;
    std::vector<double> columns(d * padded, 0.0);
    for (std::size_t t = 0; t < d; ++t) {
        std::copy_n(whitening + t * rank, rank,
                    columns.begin() + static_cast<std::ptrdiff_t>(t * padded));
    }
    FusedPoints points;
    points.rows = rows;
    parallel_for(fused::block_count(n), fused::threads_for(points), [&](std::size_t block) {
        std::vector<double> centred(d * 4);
        const std::size_t end = block * kBlockRows + fused::block_size(n, block);
        for (std::size_t i = block * kBlockRows; i < end; i += 4) {
            const std::size_t count = std::min<std::size_t>(4, end - i);
            for (std::size_t j = 0; j < 4; ++j) {
                // Rows past the end repeat the last one and are not stored.
                const float* row = rows.row(i + std::min(j, count - 1));
                for (std::size_t t = 0; t < d; ++t) {
                    centred[t * 4 + j] = static_cast<double>(row[t]) - mean[t];
                }
            }
            double four[4];
            kernels.quadratic_four(centred.data(), columns.data(), d, padded, four);
            std::copy_n(four, count, out + i);
        }
    });
}

}  // namespace riemem
