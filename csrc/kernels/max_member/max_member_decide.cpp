// Which atom wins a chunk: float64 for what the bounds leave open.
#include <algorithm>
#include <limits>

#include "kernels/max_member/max_member_panel.hpp"

namespace riemem::max_member {

std::pair<double, std::int64_t> Panel::decide(std::size_t p) {
    if (s_.atom_count == 0) return {std::numeric_limits<double>::quiet_NaN(), -1};
    return route_ == Route::max_member ? decide_all(p) : decide_nearest(p);
}

template <typename Offer>
void Panel::offer_members(std::vector<Candidate>& candidates, std::size_t p, double& lower,
                          const Offer& offer, const Best& best) {
    if (coarse_) {
        std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
            return a.upper > b.upper || (a.upper == b.upper && a.row < b.row);
        });
        std::size_t kept = 0;
        for (const Candidate& c : candidates) {
            if (c.upper < lower) break;
            const double value = single(c.row, p);
            lower = std::max(lower, value - single_error_);
            candidates[kept++] = {c.row, value + single_error_};
        }
        candidates.resize(kept);
    }
    for (const Candidate& c : candidates) {
        if (c.upper < lower) continue;
        const std::size_t atom = atom_of(c.row);
        // Nothing is above 1, so an atom that has it needs no second look: copies are cheap.
        if (best.value == 1.0 &&
            std::find(best.atoms.begin(), best.atoms.end(), atom) != best.atoms.end()) {
            continue;
        }
        offer(exact_row(c.row, p), atom);
    }
}

std::pair<double, std::int64_t> Panel::decide_all(std::size_t p) {
    double lower = member_lower_[p];
    for (const Candidate& c : centres_[p]) {
        if (is_changed_[c.row] == 0) lower = std::max(lower, c.upper - 2.0 * panel_error_);
    }
    for (std::size_t q = 0; q < companions(p); ++q) {
        lower = std::max(lower, static_cast<double>(among_[q * lanes_ + p]) - panel_error_);
    }
    Best best;
    const auto offer = [&](double value, std::size_t atom) {
        best.offer(value, atom);
        lower = std::max(lower, value);
    };
    for (std::size_t atom : changed_) offer(exact_centre(atom, p), atom);
    for (const Candidate& c : centres_[p]) {
        if (is_changed_[c.row] == 0 && c.upper >= lower) {
            offer(exact_centre(c.row, p), c.row);
        }
    }
    for (std::size_t q = 0; q < companions(p); ++q) {
        if (static_cast<double>(among_[q * lanes_ + p]) + panel_error_ >= lower) {
            offer(exact_row(old_rows_ + q, p), atom_of(old_rows_ + q));
        }
    }
    offer_members(members_[p], p, lower, offer, best);
    return {best.value, winner(best, p)};
}

std::int64_t Panel::winner(const Best& best, std::size_t p) const {
    std::size_t first = best.atoms[0];
    if (best.atoms.size() > 1) {
        double highest = kMinusInfinity;
        for (std::size_t atom : best.atoms) {
            const double value = exact_centre(atom, p);
            if (value > highest || (value == highest && atom < first)) {
                highest = value;
                first = atom;
            }
        }
    }
    return static_cast<std::int64_t>(first);
}

std::pair<double, std::int64_t> Panel::decide_nearest(std::size_t p) {
    double lower = kMinusInfinity;
    for (std::size_t a = 0; a < old_atoms_; ++a) {
        if (is_changed_[a] == 0) {
            lower = std::max(lower, static_cast<double>(centre(a, p)) - panel_error_);
        }
    }
    Best best;
    for (std::size_t atom : changed_) {
        best.offer(exact_centre(atom, p), atom);
    }
    lower = std::max(lower, best.value);
    for (std::size_t a = 0; a < old_atoms_; ++a) {
        if (is_changed_[a] == 0 && static_cast<double>(centre(a, p)) + panel_error_ >= lower) {
            best.offer(exact_centre(a, p), a);
        }
    }
    const std::size_t nearest = *std::min_element(best.atoms.begin(), best.atoms.end());
    double value = best.value;
    if (route_ == Route::nearest_fallback) value = std::max(value, best_member(nearest, p));
    return {value, static_cast<std::int64_t>(nearest)};
}

double Panel::best_member(std::size_t atom, std::size_t p) {
    std::vector<Candidate>& candidates = members_[p];
    candidates.clear();
    double lower = kMinusInfinity;
    for (std::int64_t row = s_.newest[atom]; row >= 0; row = s_.next[row]) {
        const double value = single(static_cast<std::size_t>(row), p);
        lower = std::max(lower, value - single_error_);
        candidates.push_back({static_cast<std::size_t>(row), value + single_error_});
    }
    double best = kMinusInfinity;
    for (const Candidate& c : candidates) {
        if (c.upper >= lower && best < 1.0) best = std::max(best, exact_row(c.row, p));
    }
    return best;
}

}  // namespace riemem::max_member
