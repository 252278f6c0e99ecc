// The kernels on vector types. Included once by each fused_topk_<isa>.cpp.
#pragma once

#include "kernels/fused_topk/fused_topk_kernels.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

static_assert(kLanes <= kMostLanes, "a panel holds at most kMostLanes queries");

constexpr std::size_t kDepth = 128;  // dimensions per pass: the panel's slice stays in L1

std::size_t single_roundings(std::size_t d) {
    return d / (2 * kLanes) + 3 + 5;  // fused steps of one accumulator, then the tree over lanes
}

std::size_t panel_roundings(std::size_t d) { return d; }  // one fused step per dimension

// A row is one contiguous stream, read once for both dot products: reading several rows in
// lock-step defeats the prefetcher.
void score_single(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                  const float* q, const float* w, float offset, const BlockTerms& terms, float* cos,
                  float* rie) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        VecF q0 = broadcast(0.0f), q1 = q0, w0 = q0, w1 = q0;
        std::size_t t = 0;
        for (; t + 2 * kLanes <= d; t += 2 * kLanes) {
            const VecF x0 = load(row + t);
            const VecF x1 = load(row + t + kLanes);
            q0 = fma(x0, load(q + t), q0);
            w0 = fma(x0, load(w + t), w0);
            q1 = fma(x1, load(q + t + kLanes), q1);
            w1 = fma(x1, load(w + t + kLanes), w1);
        }
        for (; t < d; t += kLanes) {
            const VecF x = d - t < kLanes ? load_first(row + t, d - t) : load(row + t);
            q0 = fma(x, load(q + t), q0);
            w0 = fma(x, load(w + t), w0);
        }
        cos[i] = sum_lanes(q0 + q1) * terms.inv_norm[i];
        rie[i] = terms.scale[i] * (sum_lanes(w0 + w1) + offset) + terms.bias[i];
    }
}

// R rows against one panel: 2 R accumulators stay in registers over one slice of the dimensions.
template <std::size_t R>
RIEMEM_INLINE void multiply_tile(const float* rows, std::ptrdiff_t stride, std::size_t depth,
                                 const float* panel, bool first, float* tile) {
    VecF acc_q[R];
    VecF acc_w[R];
    for (std::size_t i = 0; i < R; ++i) {
        acc_q[i] = first ? broadcast(0.0f) : load(tile + i * 2 * kLanes);
        acc_w[i] = first ? broadcast(0.0f) : load(tile + i * 2 * kLanes + kLanes);
    }
    for (std::size_t t = 0; t < depth; ++t) {
        const VecF q = load(panel + t * 2 * kLanes);
        const VecF w = load(panel + t * 2 * kLanes + kLanes);
        for (std::size_t i = 0; i < R; ++i) {
            const VecF x = broadcast(
                rows[static_cast<std::ptrdiff_t>(i) * stride + static_cast<std::ptrdiff_t>(t)]);
            acc_q[i] = fma(x, q, acc_q[i]);
            acc_w[i] = fma(x, w, acc_w[i]);
        }
    }
    for (std::size_t i = 0; i < R; ++i) {
        store(tile + i * 2 * kLanes, acc_q[i]);
        store(tile + i * 2 * kLanes + kLanes, acc_w[i]);
    }
}

void score_panel(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                 const float* panel, const float* offsets, const BlockTerms& terms, float* tile) {
    if (d == 0) std::memset(tile, 0, n * 2 * kLanes * sizeof(float));
    for (std::size_t t = 0; t < d; t += kDepth) {
        const std::size_t depth = d - t < kDepth ? d - t : kDepth;
        const float* slice = panel + t * 2 * kLanes;
        const float* row = rows + t;
        std::size_t i = 0;
        for (; i + kTileRows <= n; i += kTileRows) {
            multiply_tile<kTileRows>(row + static_cast<std::ptrdiff_t>(i) * stride, stride, depth,
                                     slice, t == 0, tile + i * 2 * kLanes);
        }
        for (; i < n; ++i) {
            multiply_tile<1>(row + static_cast<std::ptrdiff_t>(i) * stride, stride, depth, slice,
                             t == 0, tile + i * 2 * kLanes);
        }
    }
    const VecF offset = load(offsets);
    for (std::size_t i = 0; i < n; ++i) {
        float* out = tile + i * 2 * kLanes;
        store(out, load(out) * broadcast(terms.inv_norm[i]));
        store(out + kLanes, fma(broadcast(terms.scale[i]), load(out + kLanes) + offset,
                                broadcast(terms.bias[i])));
    }
}

void extremes_single(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
                     float out[4]) {
    const float infinity = __builtin_inff();
    VecF low_c = broadcast(infinity), low_r = low_c;
    VecF high_c = broadcast(-infinity), high_r = high_c;
    std::size_t i = 0;
    if (mask == nullptr) {
        for (; i + kLanes <= n; i += kLanes) {
            const VecF c = load(cos + i);
            const VecF r = load(rie + i);
            low_c = vmin(low_c, c);
            high_c = vmax(high_c, c);
            low_r = vmin(low_r, r);
            high_r = vmax(high_r, r);
        }
    }
    float lane[4][kLanes];
    store(lane[0], low_c);
    store(lane[1], high_c);
    store(lane[2], low_r);
    store(lane[3], high_r);
    out[0] = out[2] = infinity;
    out[1] = out[3] = -infinity;
    for (std::size_t l = 0; l < kLanes; ++l) {
        if (lane[0][l] < out[0]) out[0] = lane[0][l];
        if (lane[1][l] > out[1]) out[1] = lane[1][l];
        if (lane[2][l] < out[2]) out[2] = lane[2][l];
        if (lane[3][l] > out[3]) out[3] = lane[3][l];
    }
    for (; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        if (cos[i] < out[0]) out[0] = cos[i];
        if (cos[i] > out[1]) out[1] = cos[i];
        if (rie[i] < out[2]) out[2] = rie[i];
        if (rie[i] > out[3]) out[3] = rie[i];
    }
}

void extremes_panel(const float* tile, const std::uint8_t* mask, std::size_t n, float* out) {
    const float infinity = __builtin_inff();
    VecF low_c = broadcast(infinity), low_r = low_c;
    VecF high_c = broadcast(-infinity), high_r = high_c;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        const VecF c = load(tile + i * 2 * kLanes);
        const VecF r = load(tile + i * 2 * kLanes + kLanes);
        low_c = vmin(low_c, c);
        high_c = vmax(high_c, c);
        low_r = vmin(low_r, r);
        high_r = vmax(high_r, r);
    }
    store(out, low_c);
    store(out + kLanes, high_c);
    store(out + 2 * kLanes, low_r);
    store(out + 3 * kLanes, high_r);
}

std::size_t select_single(const float* cos, const float* rie, const std::uint8_t* mask,
                          std::size_t n, float a, float b, float threshold, std::uint32_t* out) {
    const VecF va = broadcast(a), vb = broadcast(b), vt = broadcast(threshold);
    std::size_t count = 0;
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        std::uint32_t bits = at_least(fma(va, load(cos + i), vb * load(rie + i)), vt);
        while (bits != 0) {
            const std::size_t row = i + static_cast<std::size_t>(__builtin_ctz(bits));
            bits &= bits - 1;
            if (mask == nullptr || mask[row] != 0) out[count++] = static_cast<std::uint32_t>(row);
        }
    }
    for (; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        if (a * cos[i] + b * rie[i] >= threshold) out[count++] = static_cast<std::uint32_t>(i);
    }
    return count;
}

std::size_t select_panel(const float* tile, const std::uint8_t* mask, std::size_t n, const float* a,
                         const float* b, const float* thresholds, std::uint32_t* out_rows,
                         std::uint32_t* out_lanes) {
    const VecF va = load(a), vb = load(b), vt = load(thresholds);
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const VecF c = load(tile + i * 2 * kLanes);
        const VecF r = load(tile + i * 2 * kLanes + kLanes);
        const std::uint32_t lanes = at_least(fma(va, c, vb * r), vt);
        if (lanes != 0 && (mask == nullptr || mask[i] != 0)) {
            out_rows[count] = static_cast<std::uint32_t>(i);
            out_lanes[count++] = lanes;
        }
    }
    return count;
}

// The last, incomplete group of eight, padded with zeros.
RIEMEM_INLINE Vec8d load8_tail(const float* p, std::size_t n) {
    float padded[8] = {};
    std::memcpy(padded, p, n * sizeof(float));
    return load8_from_float(padded);
}

void dot_pair(const float* row, const double* q, const double* w, std::size_t d, double out[2]) {
    Vec8d acc_q = {};
    Vec8d acc_w = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        const Vec8d x = load8_from_float(row + t);
        acc_q += x * load8(q + t);
        acc_w += x * load8(w + t);
    }
    if (t < d) {
        const Vec8d x = load8_tail(row + t, d - t);
        acc_q += x * load8(q + t);
        acc_w += x * load8(w + t);
    }
    out[0] = sum8(acc_q);
    out[1] = sum8(acc_w);
}

double square_norm(const float* row, std::size_t d) {
    Vec8d acc = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        const Vec8d x = load8_from_float(row + t);
        acc += x * x;
    }
    if (t < d) {
        const Vec8d x = load8_tail(row + t, d - t);
        acc += x * x;
    }
    return sum8(acc);
}

template <std::size_t C>
RIEMEM_INLINE void quadratic_columns(const double* centred, const double* whitening, std::size_t d,
                                     std::size_t padded_rank, Vec8d total[4]) {
    Vec8d acc[4][C] = {};
    for (std::size_t t = 0; t < d; ++t) {
        Vec8d column[C];
        for (std::size_t c = 0; c < C; ++c) column[c] = load8(whitening + t * padded_rank + 8 * c);
        for (std::size_t i = 0; i < 4; ++i) {
            const double x = centred[t * 4 + i];
            for (std::size_t c = 0; c < C; ++c) acc[i][c] += x * column[c];
        }
    }
    for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t c = 0; c < C; ++c) total[i] += acc[i][c] * acc[i][c];
    }
}

void quadratic_four(const double* centred, const double* whitening, std::size_t d,
                    std::size_t padded_rank, double out[4]) {
    Vec8d total[4] = {};
    std::size_t j = 0;
    for (; j + 32 <= padded_rank; j += 32) {
        quadratic_columns<4>(centred, whitening + j, d, padded_rank, total);
    }
    for (; j < padded_rank; j += 8) {
        quadratic_columns<1>(centred, whitening + j, d, padded_rank, total);
    }
    for (std::size_t i = 0; i < 4; ++i) out[i] = sum8(total[i]);
}

constexpr FusedTopkKernels kKernels = {
    kLanes,         single_roundings, panel_roundings, score_single, score_panel, extremes_single,
    extremes_panel, select_single,    select_panel,    dot_pair,     square_norm, quadratic_four,
};

}  // namespace
}  // namespace riemem
