// Pieces shared by the assignment and the upkeep of a state.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/max_member/max_member.hpp"
#include "kernels/max_member/max_member_kernels.hpp"

namespace riemem::max_member {

constexpr double kPi = 3.14159265358979323846;

// Bound on |computed - exact| of a cosine from float32 dot products with n rounded operations on
// vectors whose elements were rounded once: rounding of both vectors, of the row's inverse norm and
// of the last product, with slack for the float64 side.
inline double cosine_error(std::size_t roundings) {
    const double n = static_cast<double>(roundings + 8) * 0x1p-24;
    return n < 0.5 ? 1.001 * n / (1.0 - n) + 1e-12 : 2.0;
}

// The defining value, from canonical sums.
inline double cosine(double dot, double square_a, double square_b) {
    const double product = square_a * square_b;
    if (!(product > 0.0)) return 0.0;
    return std::clamp(dot / std::sqrt(product), -1.0, 1.0);
}

inline void widen(const float* row, std::size_t d, std::size_t padded, double* out) {
    for (std::size_t t = 0; t < d; ++t) out[t] = static_cast<double>(row[t]);
    for (std::size_t t = d; t < padded; ++t) out[t] = 0.0;
}

// Constants of one row: norms and, where they are kept, codes.
void measure_row(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t row);

// Codes one row of values; returns nothing that depends on the instruction set.
void encode_row(const float* row, std::size_t d, double square, std::size_t stride,
                std::int8_t* codes, float& scale, float& error, std::int32_t& sum);

// Adds the row's unit vector to the sum of its atom.
void add_to_sum(MaxMemberState& state, std::size_t atom, std::size_t row);

// sum_squares and centre of an atom from its sum.
void refresh_centre(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t atom);

void set_reach(MaxMemberState& state, std::size_t atom, double angle);

// The reach of an atom from all its members.
void measure_reach(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t atom);

}  // namespace riemem::max_member
