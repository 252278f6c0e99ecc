// The small dense core of a low-rank update: a thin singular value decomposition by one-sided
// Jacobi rotations, and the factor of a downdate.
//
//   small_svd       a = u diag(s) vt           k = min(m, n), s descending and >= 0
//   downdate_core   out' out = diag(s)^2 - p' p, where p (b, r) are rows in the basis of s
//
// Plain loops on one instruction set: some ten thousand numbers, the same bits on every machine.
#pragma once

#include <cstddef>

namespace riemem {

// Above this size a blocked library routine is faster (measured; it works for any size).
constexpr std::size_t kSmallSvd = 32;

// a (m, n), u (m, k), s (k,), vt (k, n), all in C order. Directions without energy get vectors
// too, so that u and vt are orthonormal whatever a is.
void small_svd(const double* a, std::size_t m, std::size_t n, double* u, double* s, double* vt);

// s (r,) positive, p (b, r), out (r, r). False when what would be left is not positive
// semidefinite by more than `slack` (a share of one): then those rows were never part of it.
bool downdate_core(const double* s, const double* p, std::size_t b, std::size_t r, double slack,
                   double* out);

}  // namespace riemem
