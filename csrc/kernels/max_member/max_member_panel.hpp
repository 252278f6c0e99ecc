// One panel of chunks against a state that may grow while the panel is decided: float32 or int8
// bounds say what cannot win (max_member_collect.cpp), float64 decides the rest
// (max_member_decide.cpp).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/max_member/max_member_internal.hpp"

namespace riemem::max_member {

constexpr std::size_t kMostCodeDim = 60000;  // int32 sums of 255 * 127 cannot overflow
constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Candidate {
    std::size_t row;
    double upper;
};

// The best found so far for one chunk, and which atoms share it.
struct Best {
    double value = kMinusInfinity;
    std::vector<std::size_t> atoms;

    void offer(double cosine, std::size_t atom) {
        if (cosine < value) return;
        if (cosine > value) atoms.clear();
        value = cosine;
        if (std::find(atoms.begin(), atoms.end(), atom) == atoms.end()) atoms.push_back(atom);
    }
};

class Panel {
 public:
    Panel(const MaxMemberState& state, const MaxMemberOptions& options)
        : s_(state),
          route_(options.route),
          kernels_(max_member_kernels(options.isa)),
          lanes_(kernels_.lanes),
          d_(state.dim),
          panel_error_(
              cosine_error(std::max(kernels_.panel_roundings(d_), kernels_.single_roundings(d_)))),
          single_error_(cosine_error(kernels_.single_roundings(d_))),
          use_codes_(state.codes.codes != nullptr && kernels_.code_panel != nullptr &&
                     d_ <= kMostCodeDim),
          row_pad_((d_ + 63) / 64 * 64),
          panel_(d_ * lanes_),
          unit_(lanes_ * row_pad_),
          wide_(lanes_ * state.padded),
          squares_(lanes_),
          among_(lanes_ * lanes_),
          member_lower_(lanes_),
          members_(lanes_) {}

    // Chunks may be rows of the state that are not counted yet, or anybody's.
    void load(const float* chunks, std::size_t width);

    // The winner of chunk p: its best and its atom; -1 when there is no atom.
    std::pair<double, std::int64_t> decide(std::size_t p);

    // The chunks of this panel are not members of the state and never will be.
    void forget_each_other() { strangers_ = true; }

    // Tells the panel that `atom` has a new member, or is new.
    void atom_changed(std::size_t atom) {
        if (atom < old_atoms_) {
            if (is_changed_[atom] != 0) return;
            is_changed_[atom] = 1;
        } else if (std::find(changed_.begin(), changed_.end(), atom) != changed_.end()) {
            return;
        }
        changed_.push_back(atom);
    }

 private:
    // Canonical cosines in float64, and one in float32 with its error `single_error_`.
    double exact_row(std::size_t row, std::size_t p) const {
        const double dot = kernels_.dot(s_.rows + row * d_, wide_.data() + p * s_.padded, d_);
        return cosine(dot, s_.squares[row], squares_[p]);
    }
    double exact_centre(std::size_t atom, std::size_t p) const {
        const double dot = kernels_.dot(chunks_ + p * d_, s_.sums + atom * s_.padded, d_);
        return cosine(dot, s_.sum_squares[atom], squares_[p]);
    }
    double single(std::size_t row, std::size_t p) const {
        float value = 0.0f;
        kernels_.dot_single(s_.rows + row * d_, 0, 1, d_, unit_.data() + p * row_pad_,
                            s_.inverse + row, &value);
        return static_cast<double>(value);
    }

    // Chunks of the panel that came before chunk p and are members by now.
    std::size_t companions(std::size_t p) const { return strangers_ ? 0 : p; }

    std::size_t tile_width() const { return width_ == 1 ? 1 : lanes_; }

    float centre(std::size_t atom, std::size_t p) const {
        return centre_tile_[atom * tile_width() + p];
    }
    std::size_t atom_of(std::size_t row) const { return static_cast<std::size_t>(s_.atom[row]); }

    // Contiguous rows against the panel, or against its one chunk.
    void score_block(const float* rows, const float* inverse, std::size_t n, float* tile) const;
    void score(const float* rows, const float* inverse, std::size_t n, std::vector<float>& tile);
    // Fills members_ and member_lower_: all old members that may be the best of a chunk.
    void collect_members();
    // member_lower_ from a tile of float32 cosines.
    void raise_lower(const std::vector<float>& tile, std::size_t n);
    // Keeps the rows whose upper bound, tile + error, reaches the lower bound of the lane.
    void select(const std::vector<float>& tile, std::size_t n, const std::int64_t* names,
                double error, double margin);

    // Calls keep(i, p) where tile + margin reaches member_lower_ of lane p.
    template <typename Keep>
    void each_reaching(const std::vector<float>& tile, std::size_t n, double margin, Keep keep);
    void collect_from_codes();
    // Where pruning has just failed it will fail again: the next panels do without the attempt.
    bool try_pruning();
    // First the members of each chunk's nearest atom, which give a lower bound; then the atoms
    // whose reach allows a better one. False, with nothing kept, when that is most rows.
    bool collect_pruned();
    // An atom may hold the best of a chunk when angle(chunk, centre) <= reach + arccos(lower), that
    // is cos(chunk, centre) >= lower cos(reach) - sqrt(1 - lower^2) sin(reach).
    bool mark_reachable(std::size_t rows, std::size_t limit);
    void gather(std::uint8_t mark, std::vector<std::int64_t>& rows) const;
    void score_gathered(const std::vector<std::int64_t>& rows, std::vector<float>& tile);
    // The old centroids that may reach what a member has reached; later changes do not matter,
    // because members stay.
    void select_centres();

    std::pair<double, std::int64_t> decide_all(std::size_t p);
    // From coarse bounds to float32 and from there to float64, only as far as needed.
    template <typename Offer>
    void offer_members(std::vector<Candidate>& candidates, std::size_t p, double& lower,
                       const Offer& offer, const Best& best);
    std::int64_t winner(const Best& best, std::size_t p) const;
    std::pair<double, std::int64_t> decide_nearest(std::size_t p);
    double best_member(std::size_t atom, std::size_t p);

    const MaxMemberState& s_;
    const Route route_;
    const MaxMemberKernels& kernels_;
    const std::size_t lanes_, d_;
    const double panel_error_, single_error_;
    const bool use_codes_;
    const std::size_t row_pad_;

    const float* chunks_ = nullptr;
    std::size_t width_ = 0, old_atoms_ = 0, old_rows_ = 0;
    std::size_t pause_ = 0, rest_ = 0;  // see try_pruning()
    bool strangers_ = false;
    bool coarse_ = false;  // members_ carries int8 bounds

    std::vector<float> panel_, unit_;
    std::vector<double> wide_, squares_;
    std::vector<float> among_, among_inverse_;  // chunks of the panel with each other
    std::vector<double> member_lower_;          // of the best cosine to an old member
    std::vector<std::vector<Candidate>> members_, centres_;

    std::vector<std::size_t> changed_;  // atoms with a new centroid since load()
    std::vector<std::uint8_t> is_changed_, wanted_;
    std::vector<float> centre_tile_, tile_, near_tile_, packed_, packed_inverse_, code_lower_;
    std::vector<std::uint8_t> lane_codes_;
    std::vector<std::int64_t> near_rows_, far_rows_;
    std::vector<std::uint32_t> found_rows_, found_lanes_;
};

}  // namespace riemem::max_member
