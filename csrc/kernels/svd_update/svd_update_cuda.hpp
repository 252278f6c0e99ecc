// What of a low-rank update grows with d, on a GPU: the turn of the basis, and the step that brings
// it back to orthonormality. The small dense core stays with the processor. Device pointers and a
// stream; see csrc/cuda/README.md.
#pragma once

#include <cstddef>

#include "cuda/simt.hpp"

namespace riemem::cuda {

// out (d, k) = space (d, m) turn (m, k), all float64 in C order; each sum runs in the order of m.
Status svd_rotate(const double* space, std::size_t dim, std::size_t m, const double* turn,
                  std::size_t k, double* out, cudaStream_t stream);

// step (k, k) = 1.5 I - 0.5 basis' basis: one Newton step towards orthonormality is
// svd_rotate(basis, step).
Status svd_newton_step(const double* basis, std::size_t dim, std::size_t k, double* step,
                       cudaStream_t stream);

}  // namespace riemem::cuda
