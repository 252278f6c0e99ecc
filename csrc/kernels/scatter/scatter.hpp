// The sums that a covariance is made of, kept exactly alive.
//
//   z_r      = row_r - shift
//   total   += sign * sum_r z_r
//   scatter += sign * sum_r z_r z_r'          the lower triangle; see below
//
// Rows are taken in chunks of kScatterDepth. The sum over one chunk starts at zero, runs in the
// order of the rows, product and sum rounded separately, and is then added to what was there. So
// taking the same chunk away again subtracts the very number that was added, and the result is the
// same bits on every instruction set and for every number of threads.
#pragma once

#include <cstddef>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"

namespace riemem {

constexpr std::size_t kScatterDepth = 64;

// scatter is (d, d) in C order. Its lower triangle is what is kept; above the diagonal only the
// blocks that the diagonal crosses are touched, and what stands there means nothing.
// T is float or double. sign is 1 or -1.
template <typename T>
void scatter_add(MatrixView<const T> rows, const double* shift, double sign, Isa isa, double* total,
                 double* scatter);

// out = scatter / n - (total / n)(total / n)', both triangles; reads the lower triangle alone.
void scatter_covariance(const double* total, const double* scatter, std::size_t d, double n,
                        double* out);

}  // namespace riemem
