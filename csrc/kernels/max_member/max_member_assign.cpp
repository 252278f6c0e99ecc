// The assignment: panels of chunks against all rows in float32 or int8, bounds, then float64 for
// what the bounds leave open.
#include <limits>

#include "core/thread_pool.hpp"
#include "kernels/max_member/max_member_internal.hpp"

namespace riemem {
namespace max_member {
namespace {

constexpr std::size_t kBlock = 192;          // rows packed or scored together
constexpr std::size_t kLeastPruned = 512;    // below this many rows, looking for less costs more
constexpr std::size_t kSerialRows = 2048;    // below this many rows one thread is faster
constexpr double kDenseShare = 0.5;          // above this share of rows all of them are scored
constexpr std::size_t kMostCodeDim = 60000;  // int32 sums of 255 * 127 cannot overflow
constexpr std::size_t kLongestPause = 15;    // panels
constexpr double kReachSlack = 2e-6;         // float32 evaluation of the reach test
constexpr double kCodeSlack = 2e-6;          // float32 evaluation of the int8 bounds
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

// One panel of chunks against a state that may grow while the panel is decided.
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
    void load(const float* chunks, std::size_t width) {
        chunks_ = chunks;
        width_ = width;
        old_atoms_ = s_.atom_count;
        old_rows_ = s_.row_count;
        changed_.clear();
        is_changed_.assign(old_atoms_, 0);
        std::fill(panel_.begin(), panel_.end(), 0.0f);
        for (std::size_t p = 0; p < width; ++p) {
            const float* chunk = chunks + p * d_;
            widen(chunk, d_, s_.padded, wide_.data() + p * s_.padded);
            squares_[p] = kernels_.square(chunk, d_);
            const double inverse = 1.0 / std::sqrt(squares_[p]);
            for (std::size_t t = 0; t < d_; ++t) {
                const auto value = static_cast<float>(static_cast<double>(chunk[t]) * inverse);
                panel_[t * lanes_ + p] = value;
                unit_[p * row_pad_ + t] = value;
            }
        }
        score(s_.centres, nullptr, old_atoms_, centre_tile_);
        if (route_ != Route::max_member) return;
        if (width > 1) {
            among_inverse_.resize(width);
            for (std::size_t p = 0; p < width; ++p) {
                among_inverse_[p] = static_cast<float>(1.0 / std::sqrt(squares_[p]));
            }
            kernels_.dot_panel(chunks, static_cast<std::ptrdiff_t>(d_), width, d_, panel_.data(),
                               among_inverse_.data(), among_.data());
        }
        for (std::size_t p = 0; p < width; ++p) {
            members_[p].clear();
            member_lower_[p] = kMinusInfinity;
        }
        coarse_ = false;
        collect_members();
        select_centres();
    }

    // The winner of chunk p: its best and its atom; -1 when there is no atom.
    std::pair<double, std::int64_t> decide(std::size_t p) {
        if (s_.atom_count == 0) return {std::numeric_limits<double>::quiet_NaN(), -1};
        return route_ == Route::max_member ? decide_all(p) : decide_nearest(p);
    }

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

    // Contiguous rows against the panel, or against its one chunk.
    void score_block(const float* rows, const float* inverse, std::size_t n, float* tile) const {
        const auto stride = static_cast<std::ptrdiff_t>(d_);
        if (width_ == 1) {
            kernels_.dot_single(rows, stride, n, d_, unit_.data(), inverse, tile);
        } else {
            kernels_.dot_panel(rows, stride, n, d_, panel_.data(), inverse, tile);
        }
    }

    void score(const float* rows, const float* inverse, std::size_t n, std::vector<float>& tile) {
        const std::size_t w = tile_width();
        if (tile.size() < n * w) tile.resize(std::max(n * w, 2 * tile.size()));
        const std::size_t blocks = (n + kBlock - 1) / kBlock;
        parallel_for(blocks, n < kSerialRows ? 1 : num_threads(), [&](std::size_t b) {
            const std::size_t first = b * kBlock;
            score_block(rows + first * d_, inverse == nullptr ? nullptr : inverse + first,
                        std::min(kBlock, n - first), tile.data() + first * w);
        });
    }

    // Fills members_ and member_lower_: all old members that may be the best of a chunk.
    void collect_members() {
        if (old_rows_ == 0) return;
        if (!try_pruning()) {
            if (use_codes_ && width_ > 1) {
                collect_from_codes();
            } else {
                score(s_.rows, s_.inverse, old_rows_, tile_);
                raise_lower(tile_, old_rows_);
                select(tile_, old_rows_, nullptr, panel_error_, panel_error_);
            }
        }
    }

    // member_lower_ from a tile of float32 cosines.
    void raise_lower(const std::vector<float>& tile, std::size_t n) {
        float greatest[kMostPanel];
        std::fill_n(greatest, kMostPanel, -std::numeric_limits<float>::infinity());
        if (width_ == 1) {
            for (std::size_t i = 0; i < n; ++i) greatest[0] = std::max(greatest[0], tile[i]);
        } else {
            kernels_.max_panel(tile.data(), n, greatest);
        }
        for (std::size_t p = 0; p < width_; ++p) {
            member_lower_[p] =
                std::max(member_lower_[p], static_cast<double>(greatest[p]) - panel_error_);
        }
    }

    // Keeps the rows whose upper bound, tile + error, reaches the lower bound of the lane.
    void select(const std::vector<float>& tile, std::size_t n, const std::int64_t* names,
                double error, double margin) {
        const auto keep = [&](std::size_t i, std::size_t p) {
            const double upper = static_cast<double>(tile[i * tile_width() + p]) + error;
            const std::size_t row = names == nullptr ? i : static_cast<std::size_t>(names[i]);
            members_[p].push_back({row, upper});
        };
        each_reaching(tile, n, margin, keep);
    }

    // Calls keep(i, p) where tile + margin reaches member_lower_ of lane p.
    template <typename Keep>
    void each_reaching(const std::vector<float>& tile, std::size_t n, double margin, Keep keep) {
        float thresholds[kMostPanel];
        std::fill_n(thresholds, kMostPanel, std::numeric_limits<float>::infinity());
        for (std::size_t p = 0; p < width_; ++p) {
            // Rounded down by more than a float32 rounding.
            thresholds[p] = static_cast<float>(member_lower_[p] - margin - 1e-6);
        }
        if (width_ == 1) {
            for (std::size_t i = 0; i < n; ++i) {
                if (tile[i] >= thresholds[0]) keep(i, std::size_t{0});
            }
            return;
        }
        if (found_rows_.size() < n) {
            found_rows_.resize(n);
            found_lanes_.resize(n);
        }
        const std::size_t found = kernels_.select_panel(tile.data(), n, thresholds,
                                                        found_rows_.data(), found_lanes_.data());
        for (std::size_t j = 0; j < found; ++j) {
            for (std::uint32_t bits = found_lanes_[j]; bits != 0; bits &= bits - 1) {
                keep(found_rows_[j], static_cast<std::size_t>(__builtin_ctz(bits)));
            }
        }
    }

    void collect_from_codes() {
        const RowCodes& c = s_.codes;
        coarse_ = true;
        lane_codes_.assign(c.stride * lanes_, 128);
        std::vector<std::int8_t> code(c.stride);
        float scale[kMostPanel] = {}, norm[kMostPanel] = {};
        double error[kMostPanel] = {};
        for (std::size_t p = 0; p < width_; ++p) {
            const std::int8_t* codes = code.data();
            float bound = 0.0f;
            std::int32_t sum = 0;
            if (strangers_) {
                encode_row(chunks_ + p * d_, d_, squares_[p], c.stride, code.data(), scale[p],
                           bound, sum);
            } else {  // a row of the state, next in turn
                codes = c.codes + (old_rows_ + p) * c.stride;
                scale[p] = c.scale[old_rows_ + p];
                bound = c.error[old_rows_ + p];
            }
            // |x - x8| of the chunk, for rows of norm 1; the row's own error meets |x8|.
            error[p] = static_cast<double>(bound) + kCodeSlack;
            norm[p] = 1.0f + bound;
            for (std::size_t t = 0; t < c.stride; ++t) {
                lane_codes_[(t / 4 * lanes_ + p) * 4 + t % 4] =
                    static_cast<std::uint8_t>(codes[t] + 128);
            }
        }
        if (tile_.size() < old_rows_ * lanes_) tile_.resize(2 * old_rows_ * lanes_);
        const std::size_t blocks = (old_rows_ + kBlock - 1) / kBlock;
        code_lower_.assign(blocks * kMostPanel, -std::numeric_limits<float>::infinity());
        parallel_for(blocks, old_rows_ < kSerialRows ? 1 : num_threads(), [&](std::size_t b) {
            const std::size_t first = b * kBlock;
            const CodeTerms terms{c.scale + first, c.error + first, c.sum + first, scale, norm};
            kernels_.code_panel(c.codes + first * c.stride, c.stride,
                                std::min(kBlock, old_rows_ - first), lane_codes_.data(), terms,
                                tile_.data() + first * lanes_, code_lower_.data() + b * kMostPanel);
        });
        for (std::size_t b = 0; b < blocks; ++b) {
            for (std::size_t p = 0; p < width_; ++p) {
                member_lower_[p] =
                    std::max(member_lower_[p],
                             static_cast<double>(code_lower_[b * kMostPanel + p]) - error[p]);
            }
        }
        const double widest = *std::max_element(error, error + kMostPanel);
        each_reaching(tile_, old_rows_, widest, [&](std::size_t i, std::size_t p) {
            const double upper = static_cast<double>(tile_[i * lanes_ + p]) + error[p];
            if (upper >= member_lower_[p]) members_[p].push_back({i, upper});
        });
    }

    // Where pruning has just failed it will fail again: the next panels do without the attempt.
    bool try_pruning() {
        if (old_rows_ < kLeastPruned) return false;
        if (rest_ > 0) {
            --rest_;
            return false;
        }
        const bool pruned = collect_pruned();
        pause_ = pruned ? 0 : std::min<std::size_t>(2 * pause_ + 1, kLongestPause);
        rest_ = pause_;
        return pruned;
    }

    // First the members of each chunk's nearest atom, which give a lower bound; then the atoms
    // whose reach allows a better one. False, with nothing kept, when that is most rows.
    bool collect_pruned() {
        const auto limit = static_cast<std::size_t>(kDenseShare * static_cast<double>(old_rows_));
        wanted_.assign(old_atoms_, 0);
        std::size_t rows = 0;
        for (std::size_t p = 0; p < width_; ++p) {
            std::size_t nearest = 0;
            for (std::size_t a = 1; a < old_atoms_; ++a) {
                if (centre(a, p) > centre(nearest, p)) nearest = a;
            }
            if (wanted_[nearest] == 0) {
                wanted_[nearest] = 1;
                rows += static_cast<std::size_t>(s_.sizes[nearest]);
            }
        }
        if (rows > limit) return false;
        gather(1, near_rows_);
        score_gathered(near_rows_, near_tile_);
        raise_lower(near_tile_, near_rows_.size());
        if (!mark_reachable(rows, limit)) {
            std::fill(member_lower_.begin(), member_lower_.end(), kMinusInfinity);
            return false;
        }
        gather(2, far_rows_);
        score_gathered(far_rows_, tile_);
        raise_lower(tile_, far_rows_.size());
        select(near_tile_, near_rows_.size(), near_rows_.data(), panel_error_, panel_error_);
        select(tile_, far_rows_.size(), far_rows_.data(), panel_error_, panel_error_);
        return true;
    }

    // An atom may hold the best of a chunk when angle(chunk, centre) <= reach + arccos(lower), that
    // is cos(chunk, centre) >= lower cos(reach) - sqrt(1 - lower^2) sin(reach).
    bool mark_reachable(std::size_t rows, std::size_t limit) {
        float lower[kMostPanel], rest[kMostPanel];
        bool all = false;
        for (std::size_t p = 0; p < width_; ++p) {
            const double bound = std::min(member_lower_[p], 1.0);
            all = all || bound <= 0.0;
            lower[p] = static_cast<float>(bound);
            rest[p] = static_cast<float>(std::sqrt(std::max(0.0, 1.0 - bound * bound)));
        }
        if (all) return false;
        const auto slack = static_cast<float>(panel_error_ + kReachSlack);
        for (std::size_t a = 0; a < old_atoms_; ++a) {
            if (wanted_[a] != 0) continue;
            const auto cos_reach = static_cast<float>(s_.reach[3 * a + 1]);
            const auto sin_reach = static_cast<float>(s_.reach[3 * a + 2]);
            // Beyond a right angle the sum of angles may pass pi, where the cosine turns.
            bool reachable = cos_reach <= 1e-6f;
            for (std::size_t p = 0; p < width_; ++p) {
                reachable |= centre(a, p) + slack >= lower[p] * cos_reach - rest[p] * sin_reach;
            }
            if (!reachable) continue;
            wanted_[a] = 2;
            rows += static_cast<std::size_t>(s_.sizes[a]);
            if (rows > limit) return false;
        }
        return true;
    }

    float centre(std::size_t atom, std::size_t p) const {
        return centre_tile_[atom * tile_width() + p];
    }

    void gather(std::uint8_t mark, std::vector<std::int64_t>& rows) const {
        rows.clear();
        for (std::size_t a = 0; a < old_atoms_; ++a) {
            if (wanted_[a] != mark) continue;
            for (std::int64_t row = s_.newest[a]; row >= 0; row = s_.next[row]) {
                rows.push_back(row);
            }
        }
    }

    void score_gathered(const std::vector<std::int64_t>& rows, std::vector<float>& tile) {
        const std::size_t w = tile_width();
        if (tile.size() < rows.size() * w) tile.resize(2 * rows.size() * w);
        packed_.resize(kBlock * d_);
        packed_inverse_.resize(kBlock);
        for (std::size_t first = 0; first < rows.size(); first += kBlock) {
            const std::size_t n = std::min(kBlock, rows.size() - first);
            for (std::size_t i = 0; i < n; ++i) {
                const auto row = static_cast<std::size_t>(rows[first + i]);
                std::memcpy(packed_.data() + i * d_, s_.rows + row * d_, d_ * sizeof(float));
                packed_inverse_[i] = s_.inverse[row];
            }
            score_block(packed_.data(), packed_inverse_.data(), n, tile.data() + first * w);
        }
    }

    // The old centroids that may reach what a member has reached; later changes do not matter,
    // because members stay.
    void select_centres() {
        centres_.assign(width_, {});
        each_reaching(centre_tile_, old_atoms_, panel_error_, [&](std::size_t a, std::size_t p) {
            centres_[p].push_back({a, static_cast<double>(centre(a, p)) + panel_error_});
        });
    }

    std::pair<double, std::int64_t> decide_all(std::size_t p) {
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

    // From coarse bounds to float32 and from there to float64, only as far as needed.
    template <typename Offer>
    void offer_members(std::vector<Candidate>& candidates, std::size_t p, double& lower,
                       const Offer& offer, const Best& best) {
        if (coarse_) {
            std::sort(candidates.begin(), candidates.end(),
                      [](const Candidate& a, const Candidate& b) {
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

    std::size_t atom_of(std::size_t row) const { return static_cast<std::size_t>(s_.atom[row]); }

    std::int64_t winner(const Best& best, std::size_t p) const {
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

    std::pair<double, std::int64_t> decide_nearest(std::size_t p) {
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

    double best_member(std::size_t atom, std::size_t p) {
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
