// The kernels on vector types. Included once by each fused_topk_<isa>.cpp.
#pragma once

#include "kernels/fused_topk/fused_topk_fold.inl.hpp"
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
                  const float* q, const float* w, float offset, const BlockTerms& terms,
                  float* out) {
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
        out[i] = terms.cos_scale[i] * sum_lanes(q0 + q1);
        out[kBlockRows + i] =
            terms.rie_scale[i] * sum_lanes(w0 + w1) + (terms.scale[i] * offset + terms.bias[i]);
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
                 const float* panel, const float* offsets, const BlockTerms& terms, float* out) {
    float tile[kBlockRows * 2 * kLanes];  // (rows, 2, lanes)
    if (d == 0) std::memset(tile, 0, sizeof(tile));
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
        float* row = tile + i * 2 * kLanes;
        store(row, load(row) * broadcast(terms.cos_scale[i]));
        const VecF constant = fma(broadcast(terms.scale[i]), offset, broadcast(terms.bias[i]));
        store(row + kLanes, fma(broadcast(terms.rie_scale[i]), load(row + kLanes), constant));
    }
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t b = 0; b < kLanes; ++b) {
            out[b * 2 * kBlockRows + i] = tile[i * 2 * kLanes + b];
            out[(b * 2 + 1) * kBlockRows + i] = tile[(i * 2 + 1) * kLanes + b];
        }
    }
}

// G vectors of rows against P queries of one 64-row tile: 2 G P sums stay in registers.
template <std::size_t G, std::size_t P>
RIEMEM_INLINE void int8_rows(const std::uint8_t* tile, std::size_t groups, const Int8Pair* pairs,
                             const BlockTerms& terms, std::size_t first, float* out) {
    VecI acc_q[G][P];
    VecI acc_w[G][P];
    for (std::size_t g = 0; g < G; ++g) {
        for (std::size_t p = 0; p < P; ++p) acc_q[g][p] = acc_w[g][p] = broadcast_int(0);
    }
    for (std::size_t t = 0; t < groups; ++t) {
        VecI rows[G];
        for (std::size_t g = 0; g < G; ++g) rows[g] = load_bytes(tile + t * 256 + g * 4 * kLanes);
        for (std::size_t p = 0; p < P; ++p) {
            const VecI q = broadcast_int(pairs[p].q[t]);
            const VecI w = broadcast_int(pairs[p].w[t]);
            for (std::size_t g = 0; g < G; ++g) {
                acc_q[g][p] = add_dot4(acc_q[g][p], rows[g], q);
                acc_w[g][p] = add_dot4(acc_w[g][p], rows[g], w);
            }
        }
    }
    for (std::size_t g = 0; g < G; ++g) {
        const std::size_t at = first + g * kLanes;
        const VecF cos_scale = load(terms.cos_scale + at);
        const VecF rie_scale = load(terms.rie_scale + at);
        const VecF scale = load(terms.scale + at);
        const VecF bias = load(terms.bias + at);
        for (std::size_t p = 0; p < P; ++p) {
            const Int8Pair& pair = pairs[p];
            const VecF dot_q = to_float(subtract(acc_q[g][p], broadcast_int(pair.q_correction))) *
                               broadcast(pair.q_scale);
            const VecF dot_w = to_float(subtract(acc_w[g][p], broadcast_int(pair.w_correction))) *
                               broadcast(pair.w_scale);
            store(out + p * 2 * kBlockRows + at, cos_scale * dot_q);
            store(out + (p * 2 + 1) * kBlockRows + at,
                  fma(rie_scale, dot_w, fma(scale, broadcast(pair.offset), bias)));
        }
    }
}

template <std::size_t P>
RIEMEM_INLINE void int8_tile(const std::uint8_t* tile, std::size_t groups, const Int8Pair* pairs,
                             const BlockTerms& terms, std::size_t first, float* out) {
    constexpr std::size_t kG = kInt8Rows < 64 / kLanes ? kInt8Rows : 64 / kLanes;
    for (std::size_t g = 0; g < 64 / kLanes; g += kG) {
        int8_rows<kG, P>(tile + g * 4 * kLanes, groups, pairs, terms, first + g * kLanes, out);
    }
}

void score_int8(const std::uint8_t* tiles, std::size_t n, std::size_t d, const Int8Pair* pairs,
                std::size_t count, const BlockTerms& terms, float* out) {
    const std::size_t groups = (d + 3) / 4;
    for (std::size_t first = 0; first < n; first += 64) {
        const std::uint8_t* tile = tiles + first * groups * 4;
        std::size_t b = 0;
        for (; b + kInt8Pairs <= count; b += kInt8Pairs) {
            int8_tile<kInt8Pairs>(tile, groups, pairs + b, terms, first, out + b * 2 * kBlockRows);
        }
        for (; b < count; ++b) {
            int8_tile<1>(tile, groups, pairs + b, terms, first, out + b * 2 * kBlockRows);
        }
    }
}

void widen(const std::uint16_t* high, std::size_t count, float* out) {
    std::size_t t = 0;
    for (; t + kLanes <= count; t += kLanes) store(out + t, load_bfloat16(high + t));
    for (; t < count; ++t) {
        const std::uint32_t bits = static_cast<std::uint32_t>(high[t]) << 16;
        std::memcpy(out + t, &bits, sizeof(bits));
    }
}

void extremes(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
              float out[4]) {
    const float infinity = __builtin_inff();
    VecF low_c = broadcast(infinity), low_r = low_c;
    VecF high_c = broadcast(-infinity), high_r = high_c;
    std::size_t i = 0;
    if (mask == nullptr) {  // a NaN as the first operand leaves the second
        for (; i + kLanes <= n; i += kLanes) {
            const VecF c = load(cos + i);
            const VecF r = load(rie + i);
            low_c = vmin(c, low_c);
            high_c = vmax(c, high_c);
            low_r = vmin(r, low_r);
            high_r = vmax(r, high_r);
        }
    }
    out[0] = min_lanes(low_c);
    out[1] = max_lanes(high_c);
    out[2] = min_lanes(low_r);
    out[3] = max_lanes(high_r);
    for (; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        if (cos[i] < out[0]) out[0] = cos[i];
        if (cos[i] > out[1]) out[1] = cos[i];
        if (rie[i] < out[2]) out[2] = rie[i];
        if (rie[i] > out[3]) out[3] = rie[i];
    }
}

std::size_t select(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
                   float a, float b, float threshold, std::uint32_t* out) {
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

template <bool kBoth>
RIEMEM_INLINE void dot_rows(const float* const rows[kDotRows], const double* q, const double* w,
                            std::size_t d, double out[kDotRows][2]) {
    Vec8d acc_q[kDotRows] = {};
    Vec8d acc_w[kDotRows] = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        const Vec8d by_w = load8(w + t);
        const Vec8d by_q = kBoth ? load8(q + t) : by_w;
        for (std::size_t i = 0; i < kDotRows; ++i) {
            const Vec8d x = load8_from_float(rows[i] + t);
            if (kBoth) acc_q[i] += x * by_q;
            acc_w[i] += x * by_w;
        }
    }
    for (std::size_t i = 0; i < kDotRows; ++i) {
        if (t < d) {
            const Vec8d x = load8_tail(rows[i] + t, d - t);
            if (kBoth) acc_q[i] += x * load8(q + t);
            acc_w[i] += x * load8(w + t);
        }
        out[i][0] = kBoth ? sum8(acc_q[i]) : 0.0;
        out[i][1] = sum8(acc_w[i]);
    }
}

void dot_four(const float* const rows[kDotRows], const double* q, const double* w, std::size_t d,
              double out[kDotRows][2]) {
    if (q == nullptr) {
        dot_rows<false>(rows, q, w, d, out);
    } else {
        dot_rows<true>(rows, q, w, d, out);
    }
}

double square_norm(const float* row, std::size_t d) { return canonical_square(row, d); }

// A product with 1 / norm is off by less than 2^-51 of the quotient. Where numbers 2^-50 below and
// above it round to the same float32, that is the quotient's; a row in which they do not (one
// number in 2^25) is divided.
void divide(const float* row, std::size_t d, double norm, float* out) {
    const double inverse = 1.0 / norm;
    decltype(Vec8f{} != Vec8f{}) apart = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        const Vec8d product = load8_from_float(row + t) * inverse;
        const Vec8f low = __builtin_convertvector(product * (1.0 - 0x1p-50), Vec8f);
        const Vec8f high = __builtin_convertvector(product * (1.0 + 0x1p-50), Vec8f);
        __builtin_memcpy(out + t, &low, sizeof(low));
        apart |= low != high;
    }
    bool same = true;
    for (std::size_t j = 0; j < 8; ++j) same = same && apart[j] == 0;
    for (std::size_t u = same ? t : 0; u < d; ++u) {
        out[u] = static_cast<float>(static_cast<double>(row[u]) / norm);
    }
}

void quadratic_panel(const double* centred, const double* panel, std::size_t begin, std::size_t end,
                     double lanes[4][8]) {
    constexpr std::size_t kC = kQuadraticColumns / 8;
    Vec8d acc[4][kC] = {};
    for (std::size_t t = begin; t < end; ++t) {
        Vec8d column[kC];
        for (std::size_t c = 0; c < kC; ++c) {
            column[c] = load8(panel + t * kQuadraticColumns + 8 * c);
        }
        for (std::size_t i = 0; i < 4; ++i) {
            const double x = centred[t * 4 + i];
            for (std::size_t c = 0; c < kC; ++c) acc[i][c] += x * column[c];
        }
    }
    for (std::size_t i = 0; i < 4; ++i) {
        Vec8d total = load8(lanes[i]);
        for (std::size_t c = 0; c < kC; ++c) total += acc[i][c] * acc[i][c];
        store8(lanes[i], total);
    }
}

constexpr FusedTopkKernels kKernels = {
    kLanes,       single_roundings, panel_roundings,
    score_single, score_panel,      score_int8,
    widen,        extremes,         select,
    dot_pair,     dot_four,         square_norm,
    divide,       quadratic_panel,  fold,
};

}  // namespace
}  // namespace riemem
