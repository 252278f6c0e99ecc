// fisher_rao.hpp on a GPU: the same ids and the same bits of each score. Device pointers and a
// stream; see csrc/cuda/README.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt.hpp"
#include "kernels/fused_topk/fused_topk_cuda.hpp"

namespace riemem::cuda {

struct DeviceFisherPoints {
    std::size_t count = 0, dim = 0;
    const float* rows = nullptr;       // (N, d), `stride` elements apart
    const float* precision = nullptr;  // (N, d), `precision_stride` elements apart; 0: (d,)
    std::size_t stride = 0, precision_stride = 0;
    const double* inv_norm = nullptr;   // (N,), 0 for a zero row
    const double* ramp = nullptr;       // (N,) in [0, 1], or null: 1
    const std::int64_t* ids = nullptr;  // (N,) or null: the rows' own numbers
};

struct DeviceFisherQueries {
    const float* rows = nullptr;  // (B, d), `stride` elements apart
    std::size_t stride = 0;
    const double* inv_norm = nullptr;  // (B,), 0 for a zero query
    std::size_t count = 0;
    const std::uint8_t* empty = nullptr;  // (B,) or null: 1 for a query that has no hits
};

struct DeviceFisherOptions {
    double temperature = 15.0;
    const std::uint8_t* mask = nullptr;  // (N,) or (B, N), 0 = leave out; null = all pass
    bool mask_per_query = false;
};

std::size_t fisher_rao_workspace(std::size_t rows, std::size_t dim, std::size_t queries,
                                 std::size_t k);

// Every row is evaluated in float64: reading rows and precisions hides it on a GPU for data
// centres. k is at most N and at least 1.
Status fisher_rao_topk(const DeviceFisherPoints& points, const DeviceFisherQueries& queries,
                       const DeviceFisherOptions& options, std::size_t k, const DeviceTopk& result,
                       void* workspace, cudaStream_t stream);

// All scores, (B, N); rows outside the mask get -infinity, empty queries NaN.
Status fisher_rao_scores(const DeviceFisherPoints& points, const DeviceFisherQueries& queries,
                         const DeviceFisherOptions& options, double* out, cudaStream_t stream);

// The inverse of each variance, rounded once to float32. usable (N,) becomes 0 for a row that has a
// variance that is not positive, or whose inverse does not fit, or a ramp outside [0, 1]. With
// stride 0 the variances are (d,), and so is precision. ramp may be null.
Status fisher_rao_precision(const float* variances, std::size_t count, std::size_t dim,
                            std::size_t stride, const double* ramp, float* precision,
                            std::uint8_t* usable, cudaStream_t stream);

// 1 in empty (B,) for a query of norm 0, or without a finite one.
Status fisher_rao_empty(const double* norms, std::size_t count, std::uint8_t* empty,
                        cudaStream_t stream);

}  // namespace riemem::cuda
