// token_select.hpp on a GPU: the same bits. Device pointers and a stream; see csrc/cuda/README.md.
// largest_size stays with the processor: it decides one number from what has been copied anyway.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt.hpp"
#include "kernels/token_select/token_select.hpp"

namespace riemem::cuda {

// gradient and embedding (n, d) with their strides in elements; out (n,).
Status token_sensitivity(const float* gradient, std::size_t gradient_stride, const float* embedding,
                         std::size_t embedding_stride, std::size_t n, std::size_t d, double* out,
                         cudaStream_t stream);

Status token_smooth(const double* values, std::size_t n, std::size_t width, double* out,
                    cudaStream_t stream);

Status token_pool(const double* values, const std::int64_t* unit_of, std::size_t n, Pool pool,
                  std::size_t units, double* out, cudaStream_t stream);

Status fill_gaps(const std::int64_t* entry, const std::int64_t* segments, std::size_t units,
                 std::size_t gap, std::int64_t* out, cudaStream_t stream);

}  // namespace riemem::cuda
