// From gradients to nested sets of kept units.
//
//   sensitivity_i = sqrt(sum_j (g_ij h_ij)^2)          the product in float32, the sum in float64
//   smooth_i      = mean of x over [i - w/2, i + w/2]  indices clamped to the ends
//   pool          = sum, mean or maximum of the tokens of each unit
//   filled_j      = min(entry_j, min over a < j < b of max(entry_a, entry_b)),
//                   b - a - 1 <= gap, a and b in one segment
//   largest_size  = the most steps whose units cost no more than the budget together
//
// entry_j is the number of steps that unit j needs to be kept; a unit never kept has kNever. The
// sets {j: entry_j <= m} contain each other as m grows, before filling and after it.
// Every result is the same bits on every instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"

namespace riemem {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

enum class Pool : int { sum = 0, mean = 1, max = 2 };

// gradient and embedding (n, d); out (n,).
void token_sensitivity(MatrixView<const float> gradient, MatrixView<const float> embedding, Isa isa,
                       double* out);

// width odd; 1 copies.
void token_smooth(const double* values, std::size_t n, std::size_t width, double* out);

// unit_of (n,): -1 for a token that belongs to none. out (units,): 0 for a unit without tokens.
void token_pool(const double* values, const std::int64_t* unit_of, std::size_t n, Pool pool,
                std::size_t units, double* out);

// segments (units,); out may not be entry.
void fill_gaps(const std::int64_t* entry, const std::int64_t* segments, std::size_t units,
               std::size_t gap, std::int64_t* out);

// entries lie in 1..steps or are kNever; costs (units,), none negative.
std::size_t largest_size(const std::int64_t* entry, const double* costs, std::size_t units,
                         std::size_t steps, double budget);

}  // namespace riemem
