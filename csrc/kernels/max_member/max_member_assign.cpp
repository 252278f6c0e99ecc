// The assignment: panels of chunks are decided one after the other, and the atoms grow in between.
#include "kernels/max_member/max_member_panel.hpp"

namespace riemem {
namespace max_member {
namespace {

// Puts the row into the atom, which may be a new one, and moves the centre and the reach.
void join(MaxMemberState& state, const MaxMemberKernels& kernels, std::size_t row, std::size_t atom,
          std::vector<float>& before) {
    const std::size_t d = state.dim;
    const bool opened = atom == state.atom_count;
    if (opened) {
        std::fill_n(state.sums + atom * state.padded, state.padded, 0.0);
        state.newest[atom] = -1;
        state.sizes[atom] = 0;
        ++state.atom_count;
    } else {
        before.assign(state.centres + atom * d, state.centres + (atom + 1) * d);
    }
    state.atom[row] = static_cast<std::int64_t>(atom);
    state.next[row] = state.newest[atom];
    state.newest[atom] = static_cast<std::int64_t>(row);
    const std::int64_t size = ++state.sizes[atom];
    ++state.row_count;
    add_to_sum(state, atom, row);
    refresh_centre(state, kernels, atom);
    if (opened || (size & (size - 1)) == 0) {
        // The bound below loosens with every move; measuring it at each doubling keeps it useful.
        measure_reach(state, kernels, atom);
        return;
    }
    const float* after = state.centres + atom * d;
    double moved = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        const double step = static_cast<double>(after[t]) - static_cast<double>(before[t]);
        moved += step * step;
    }
    if (!(state.sum_squares[atom] > 0.0)) {
        set_reach(state, atom, kPi);
        return;
    }
    const double turn = 2.0 * std::asin(std::min(1.0, std::sqrt(moved) / 2.0)) + 1e-6;
    const double dot = kernels.dot(state.rows + row * d, state.sums + atom * state.padded, d);
    const double near = cosine(dot, state.squares[row], state.sum_squares[atom]);
    const double angle = std::acos(std::max(-1.0, near - 1e-12)) + 1e-6;
    set_reach(state, atom, std::max(state.reach[3 * atom] + turn, angle));
}

}  // namespace
}  // namespace max_member

void max_member_assign(MaxMemberState& state, const MaxMemberOptions& options, std::size_t count,
                       double* scores, std::uint8_t* created) {
    using namespace max_member;
    const MaxMemberKernels& kernels = max_member_kernels(options.isa);
    const std::size_t first = state.row_count;
    for (std::size_t row = first; row < first + count; ++row) measure_row(state, kernels, row);
    Panel panel(state, options);
    std::vector<float> before;
    for (std::size_t begin = 0; begin < count; begin += kernels.lanes) {
        const std::size_t width = std::min(kernels.lanes, count - begin);
        panel.load(state.rows + (first + begin) * state.dim, width);
        for (std::size_t p = 0; p < width; ++p) {
            const auto [best, atom] = panel.decide(p);
            const bool opens = !(best > options.threshold);
            const std::size_t joined = opens ? state.atom_count : static_cast<std::size_t>(atom);
            join(state, kernels, first + begin + p, joined, before);
            panel.atom_changed(joined);
            scores[begin + p] = best;
            created[begin + p] = opens ? 1 : 0;
        }
    }
}

void max_member_nearest(const MaxMemberState& state, const MaxMemberOptions& options,
                        const float* rows, std::size_t count, std::int64_t* atoms, double* scores) {
    using namespace max_member;
    // Chunks are not members of anything: each is a panel's lane that nothing is decided before.
    const std::size_t lanes = max_member_kernels(options.isa).lanes;
    Panel panel(state, options);
    panel.forget_each_other();
    for (std::size_t begin = 0; begin < count; begin += lanes) {
        const std::size_t width = std::min(lanes, count - begin);
        panel.load(rows + begin * state.dim, width);
        for (std::size_t p = 0; p < width; ++p) {
            const auto [best, atom] = panel.decide(p);
            atoms[begin + p] = atom;
            scores[begin + p] = best;
        }
    }
}

}  // namespace riemem
