// Which rows and atoms may be the best of a chunk: bounds from float32 or int8.
#include <bit>
#include <cstring>

#include "core/thread_pool.hpp"
#include "kernels/max_member/max_member_panel.hpp"

namespace riemem::max_member {
namespace {

constexpr std::size_t kBlock = 192;        // rows packed or scored together
constexpr std::size_t kLeastPruned = 512;  // below this many rows, looking for less costs more
constexpr std::size_t kSerialRows = 2048;  // below this many rows one thread is faster
constexpr double kDenseShare = 0.5;        // above this share of rows all of them are scored
constexpr double kDenseCodeShare = 0.15;   // the same where codes make scoring all of them cheap
constexpr std::size_t kLongestPause = 15;  // panels
constexpr double kReachSlack = 2e-6;       // float32 evaluation of the reach test
constexpr double kCodeSlack = 2e-6;        // float32 evaluation of the int8 bounds

}  // namespace

void Panel::load(const float* chunks, std::size_t width) {
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

void Panel::score_block(const float* rows, const float* inverse, std::size_t n, float* tile) const {
    const auto stride = static_cast<std::ptrdiff_t>(d_);
    if (width_ == 1) {
        kernels_.dot_single(rows, stride, n, d_, unit_.data(), inverse, tile);
    } else {
        kernels_.dot_panel(rows, stride, n, d_, panel_.data(), inverse, tile);
    }
}

void Panel::score(const float* rows, const float* inverse, std::size_t n,
                  std::vector<float>& tile) {
    const std::size_t w = tile_width();
    if (tile.size() < n * w) tile.resize(std::max(n * w, 2 * tile.size()));
    const std::size_t blocks = (n + kBlock - 1) / kBlock;
    parallel_for(blocks, n < kSerialRows ? 1 : num_threads(), [&](std::size_t b) {
        const std::size_t first = b * kBlock;
        score_block(rows + first * d_, inverse == nullptr ? nullptr : inverse + first,
                    std::min(kBlock, n - first), tile.data() + first * w);
    });
}

void Panel::collect_members() {
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

void Panel::raise_lower(const std::vector<float>& tile, std::size_t n) {
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

template <typename Keep>
void Panel::each_reaching(const std::vector<float>& tile, std::size_t n, double margin, Keep keep) {
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
    const std::size_t found =
        kernels_.select_panel(tile.data(), n, thresholds, found_rows_.data(), found_lanes_.data());
    for (std::size_t j = 0; j < found; ++j) {
        for (std::uint32_t bits = found_lanes_[j]; bits != 0; bits &= bits - 1) {
            keep(found_rows_[j], static_cast<std::size_t>(std::countr_zero(bits)));
        }
    }
}

void Panel::select(const std::vector<float>& tile, std::size_t n, const std::int64_t* names,
                   double error, double margin) {
    const auto keep = [&](std::size_t i, std::size_t p) {
        const double upper = static_cast<double>(tile[i * tile_width() + p]) + error;
        const std::size_t row = names == nullptr ? i : static_cast<std::size_t>(names[i]);
        members_[p].push_back({row, upper});
    };
    each_reaching(tile, n, margin, keep);
}

void Panel::collect_from_codes() {
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
            encode_row(chunks_ + p * d_, d_, squares_[p], c.stride, code.data(), scale[p], bound,
                       sum);
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
            member_lower_[p] = std::max(
                member_lower_[p], static_cast<double>(code_lower_[b * kMostPanel + p]) - error[p]);
        }
    }
    const double widest = *std::max_element(error, error + kMostPanel);
    each_reaching(tile_, old_rows_, widest, [&](std::size_t i, std::size_t p) {
        const double upper = static_cast<double>(tile_[i * lanes_ + p]) + error[p];
        if (upper >= member_lower_[p]) members_[p].push_back({i, upper});
    });
}

bool Panel::try_pruning() {
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

bool Panel::collect_pruned() {
    const double share = use_codes_ && width_ > 1 ? kDenseCodeShare : kDenseShare;
    const auto limit = static_cast<std::size_t>(share * static_cast<double>(old_rows_));
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

bool Panel::mark_reachable(std::size_t rows, std::size_t limit) {
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

void Panel::gather(std::uint8_t mark, std::vector<std::int64_t>& rows) const {
    rows.clear();
    for (std::size_t a = 0; a < old_atoms_; ++a) {
        if (wanted_[a] != mark) continue;
        for (std::int64_t row = s_.newest[a]; row >= 0; row = s_.next[row]) {
            rows.push_back(row);
        }
    }
}

void Panel::score_gathered(const std::vector<std::int64_t>& rows, std::vector<float>& tile) {
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

void Panel::select_centres() {
    centres_.assign(width_, {});
    each_reaching(centre_tile_, old_atoms_, panel_error_, [&](std::size_t a, std::size_t p) {
        centres_[p].push_back({a, static_cast<double>(centre(a, p)) + panel_error_});
    });
}

}  // namespace riemem::max_member
