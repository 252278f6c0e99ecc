// What is derived from rows and their atoms: norms, codes, sums, centres, reaches, member lists.
#include "kernels/max_member/max_member_internal.hpp"

namespace riemem {
namespace max_member {

void encode_row(const float* row, std::size_t d, double square, std::size_t stride,
                std::int8_t* codes, float& scale, float& error, std::int32_t& sum) {
    // Eight of everything side by side, so that the compiler may use vectors.
    constexpr std::size_t kSide = 8;
    float most_of[kSide] = {};
    std::size_t t = 0;
    for (; t + kSide <= d; t += kSide) {
        for (std::size_t l = 0; l < kSide; ++l) {
            const float size = std::fabs(row[t + l]);
            most_of[l] = most_of[l] > size ? most_of[l] : size;
        }
    }
    for (; t < d; ++t) most_of[0] = std::max(most_of[0], std::fabs(row[t]));
    const float most = *std::max_element(most_of, most_of + kSide);
    const double norm = std::sqrt(square);
    const double step = static_cast<double>(most) / 127.0;
    const double inverse = 1.0 / step;
    // Adding and taking away 1.5 * 2^52 rounds to an integer, to even where two are as near; no
    // code can be beyond 127, because none of the row is beyond `most`.
    constexpr double kRounder = 6755399441055744.0;
    double residuals[kSide] = {};
    std::int32_t sums[kSide] = {};
    const auto encode = [&](std::size_t at, std::size_t l) {
        const auto x = static_cast<double>(row[at]);
        const double code = (x * inverse + kRounder) - kRounder;
        const double rest = x - step * code;
        const auto whole = static_cast<std::int32_t>(code);
        codes[at] = static_cast<std::int8_t>(whole);
        sums[l] += whole;
        residuals[l] += rest * rest;
    };
    for (t = 0; t + kSide <= d; t += kSide) {
        for (std::size_t l = 0; l < kSide; ++l) encode(t + l, l);
    }
    for (; t < d; ++t) encode(t, 0);
    std::fill(codes + d, codes + stride, std::int8_t{0});
    double residual = 0.0;
    sum = 0;
    for (std::size_t l = 0; l < kSide; ++l) {
        residual += residuals[l];
        sum += sums[l];
    }
    scale = static_cast<float>(step / norm);
    // Rounded up, and room for the rounding of `scale`.
    error = static_cast<float>(std::sqrt(residual) / norm * 1.000001 + 1e-6);
}

void measure_row(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t row) {
    const float* values = state.rows + row * state.dim;
    const double square = kernels.square(values, state.dim);
    state.squares[row] = square;
    state.inverse[row] = static_cast<float>(1.0 / std::sqrt(square));
    RowCodes& c = state.codes;
    if (c.codes != nullptr) {
        encode_row(values, state.dim, square, c.stride, c.codes + row * c.stride, c.scale[row],
                   c.error[row], c.sum[row]);
    }
}

void add_to_sum(MaxMemberState& state, std::size_t atom, std::size_t row) {
    const double inverse = 1.0 / std::sqrt(state.squares[row]);
    const float* values = state.rows + row * state.dim;
    double* sum = state.sums + atom * state.padded;
    for (std::size_t t = 0; t < state.dim; ++t) {
        sum[t] += static_cast<double>(values[t]) * inverse;
    }
}

void refresh_centre(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t atom) {
    const double* sum = state.sums + atom * state.padded;
    float* centre = state.centres + atom * state.dim;
    const double square = kernels.square_wide(sum, state.padded);
    state.sum_squares[atom] = square;
    const double inverse = square > 0.0 ? 1.0 / std::sqrt(square) : 0.0;
    for (std::size_t t = 0; t < state.dim; ++t) {
        centre[t] = static_cast<float>(sum[t] * inverse);
    }
}

void set_reach(MaxMemberState& state, std::size_t atom, double angle) {
    double* reach = state.reach + 3 * atom;
    reach[0] = std::min(angle, kPi);
    reach[1] = std::cos(reach[0]);
    reach[2] = std::sin(reach[0]);
}

void measure_reach(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t atom) {
    if (!(state.sum_squares[atom] > 0.0)) {
        set_reach(state, atom, kPi);
        return;
    }
    std::vector<float> centre((state.dim + 63) / 64 * 64, 0.0f);
    std::copy_n(state.centres + atom * state.dim, state.dim, centre.begin());
    float least = 1.0f;
    for (std::int64_t row = state.newest[atom]; row >= 0; row = state.next[row]) {
        float value = 0.0f;
        const auto at = static_cast<std::size_t>(row);
        kernels.dot_single(state.rows + at * state.dim, 0, 1, state.dim, centre.data(),
                           state.inverse + at, &value);
        least = std::min(least, value);
    }
    const double error = cosine_error(kernels.single_roundings(state.dim));
    const double cosine = std::clamp(static_cast<double>(least) - error, -1.0, 1.0);
    set_reach(state, atom, std::acos(cosine) + 1e-9);
}

}  // namespace max_member

void max_member_rebuild(MaxMemberState& state, const std::uint8_t* dirty, bool all_rows, Isa isa) {
    using namespace max_member;
    const MaxMemberKernels& kernels = max_member_kernels(isa);
    for (std::size_t a = 0; a < state.atom_count; ++a) {
        state.newest[a] = -1;
        state.sizes[a] = 0;
        if (dirty[a] != 0) std::fill_n(state.sums + a * state.padded, state.padded, 0.0);
    }
    for (std::size_t row = 0; row < state.row_count; ++row) {
        if (all_rows) measure_row(state, kernels, row);
        const auto atom = static_cast<std::size_t>(state.atom[row]);
        state.next[row] = state.newest[atom];
        state.newest[atom] = static_cast<std::int64_t>(row);
        ++state.sizes[atom];
        if (dirty[atom] != 0) add_to_sum(state, atom, row);
    }
    for (std::size_t a = 0; a < state.atom_count; ++a) {
        if (dirty[a] == 0) continue;
        refresh_centre(state, kernels, a);
        measure_reach(state, kernels, a);
    }
}

}  // namespace riemem
