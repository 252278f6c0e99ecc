// scatter.hpp on a GPU: the same bits. Device pointers and a stream; see csrc/cuda/README.md.
#pragma once

#include <cstddef>

#include "cuda/simt.hpp"

namespace riemem::cuda {

// As riemem::scatter_add; rows are C-ordered with `stride` elements between them, and above the
// diagonal of scatter nothing is touched. T is float, double or Bfloat16. Where `bad` is given and
// a row of these, as row_norms leaves it, nothing at all is added.
template <typename T>
Status scatter_add(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                   const double* shift, double sign, double* total, double* scatter,
                   cudaStream_t stream, const unsigned long long* bad = nullptr);

// The mean of a first batch, about which the sums are taken: equal rows give it exactly. Zeros
// where *bad is a row of these.
template <typename T>
Status scatter_shift(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                     const unsigned long long* bad, double* shift, cudaStream_t stream);

// As riemem::scatter_covariance.
Status scatter_covariance(const double* total, const double* scatter, std::size_t dim, double n,
                          double* out, cudaStream_t stream);

}  // namespace riemem::cuda
