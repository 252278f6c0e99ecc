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
    const float* precision = nullptr;  // (N, d), `precision_stride` elements apart
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

// All scores, (B, N); rows outside the mask get -infinity.
Status fisher_rao_scores(const DeviceFisherPoints& points, const DeviceFisherQueries& queries,
                         const DeviceFisherOptions& options, double* out, cudaStream_t stream);

}  // namespace riemem::cuda
