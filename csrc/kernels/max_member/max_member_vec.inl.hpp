// The kernels on vector types. Included once by each max_member_<isa>.cpp, which adds the table.
#pragma once

#include "kernels/max_member/max_member_kernels.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

constexpr std::size_t kPanel = 2 * kLanes;  // one broadcast of a row's element feeds two columns
static_assert(kPanel <= kMostPanel, "a panel holds at most kMostPanel chunks");

constexpr std::size_t kDepth = 128;      // dimensions per pass: the panel's slice stays in L1
constexpr std::size_t kLine = 16;        // floats of one cache line
constexpr std::size_t kBlockRows = 192;  // rows per pass: so do they

std::size_t single_roundings(std::size_t d) { return d / (2 * kLanes) + 3 + 5; }

std::size_t panel_roundings(std::size_t d) { return d; }  // one fused step per dimension

// R rows against one panel: 2 R accumulators stay in registers over one slice of the dimensions.
// Meanwhile the rows `ahead` floats further on are fetched, because the processor does not foresee
// several rows in lock-step.
template <std::size_t R>
RIEMEM_INLINE void multiply_tile(const float* rows, std::ptrdiff_t stride, std::size_t depth,
                                 const float* panel, bool first, std::ptrdiff_t ahead,
                                 float* tile) {
    VecF low[R];
    VecF high[R];
    for (std::size_t i = 0; i < R; ++i) {
        low[i] = first ? broadcast(0.0f) : load(tile + i * kPanel);
        high[i] = first ? broadcast(0.0f) : load(tile + i * kPanel + kLanes);
    }
    for (std::size_t line = 0; line < depth; line += kLine) {
        if (ahead != 0) {
            for (std::size_t i = 0; i < R; ++i) {
                __builtin_prefetch(rows + static_cast<std::ptrdiff_t>(i) * stride + ahead +
                                   static_cast<std::ptrdiff_t>(line));
            }
        }
        const std::size_t end = depth - line < kLine ? depth : line + kLine;
        for (std::size_t t = line; t < end; ++t) {
            const VecF a = load(panel + t * kPanel);
            const VecF b = load(panel + t * kPanel + kLanes);
            for (std::size_t i = 0; i < R; ++i) {
                const VecF x = broadcast(
                    rows[static_cast<std::ptrdiff_t>(i) * stride + static_cast<std::ptrdiff_t>(t)]);
                low[i] = fma(x, a, low[i]);
                high[i] = fma(x, b, high[i]);
            }
        }
    }
    for (std::size_t i = 0; i < R; ++i) {
        store(tile + i * kPanel, low[i]);
        store(tile + i * kPanel + kLanes, high[i]);
    }
}

void dot_panel(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
               const float* panel, const float* inverse, float* tile) {
    for (std::size_t begin = 0; begin < n; begin += kBlockRows) {
        const std::size_t end = n - begin < kBlockRows ? n : begin + kBlockRows;
        for (std::size_t t = 0; t < d; t += kDepth) {
            const std::size_t depth = d - t < kDepth ? d - t : kDepth;
            const float* slice = panel + t * kPanel;
            const float* row = rows + t;
            const std::ptrdiff_t next = static_cast<std::ptrdiff_t>(kTileRows) * stride;
            std::size_t i = begin;
            for (; i + kTileRows <= end; i += kTileRows) {
                const bool more = i + 2 * kTileRows <= end;
                multiply_tile<kTileRows>(row + static_cast<std::ptrdiff_t>(i) * stride, stride,
                                         depth, slice, t == 0, more ? next : 0, tile + i * kPanel);
            }
            for (; i < end; ++i) {
                multiply_tile<1>(row + static_cast<std::ptrdiff_t>(i) * stride, stride, depth,
                                 slice, t == 0, 0, tile + i * kPanel);
            }
        }
        if (inverse == nullptr) continue;
        for (std::size_t i = begin; i < end; ++i) {
            const VecF scale = broadcast(inverse[i]);
            store(tile + i * kPanel, load(tile + i * kPanel) * scale);
            store(tile + i * kPanel + kLanes, load(tile + i * kPanel + kLanes) * scale);
        }
    }
}

void dot_single(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                const float* q, const float* inverse, float* out) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        VecF a = broadcast(0.0f), b = a;
        std::size_t t = 0;
        for (; t + 2 * kLanes <= d; t += 2 * kLanes) {
            a = fma(load(row + t), load(q + t), a);
            b = fma(load(row + t + kLanes), load(q + t + kLanes), b);
        }
        for (; t < d; t += kLanes) {
            const VecF x = d - t < kLanes ? load_first(row + t, d - t) : load(row + t);
            a = fma(x, load(q + t), a);
        }
        const float dot = sum_lanes(a + b);
        out[i] = inverse == nullptr ? dot : dot * inverse[i];
    }
}

void max_panel(const float* tile, std::size_t n, float* out) {
    VecF low = load(out), high = load(out + kLanes);
    for (std::size_t i = 0; i < n; ++i) {
        low = vmax(low, load(tile + i * kPanel));
        high = vmax(high, load(tile + i * kPanel + kLanes));
    }
    store(out, low);
    store(out + kLanes, high);
}

std::size_t select_panel(const float* tile, std::size_t n, const float* thresholds,
                         std::uint32_t* out_rows, std::uint32_t* out_lanes) {
    const VecF low = load(thresholds), high = load(thresholds + kLanes);
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint32_t lanes = at_least(load(tile + i * kPanel), low) |
                                    (at_least(load(tile + i * kPanel + kLanes), high) << kLanes);
        if (lanes == 0) continue;
        out_rows[count] = static_cast<std::uint32_t>(i);
        out_lanes[count++] = lanes;
    }
    return count;
}

double dot(const float* row, const double* q, std::size_t d) {
    Vec8d sum = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) sum += load8_from_float(row + t) * load8(q + t);
    if (t < d) sum += load8_tail(row + t, d - t) * load8(q + t);
    return sum8(sum);
}

double square(const float* row, std::size_t d) { return canonical_square(row, d); }

double square_wide(const double* v, std::size_t padded) {
    Vec8d sum = {};
    for (std::size_t t = 0; t < padded; t += 8) {
        const Vec8d x = load8(v + t);
        sum += x * x;
    }
    return sum8(sum);
}

constexpr MaxMemberKernels kKernels = {
    kPanel,     panel_roundings, single_roundings, dot_panel,
    dot_single, nullptr,         max_panel,        select_panel,
    dot,        square,          square_wide,
};

}  // namespace
}  // namespace riemem
