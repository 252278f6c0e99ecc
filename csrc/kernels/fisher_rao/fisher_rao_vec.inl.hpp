// The kernels on vector types. Included once by each fisher_rao_<isa>.cpp.
#pragma once

#include "kernels/fisher_rao/fisher_rao_finish.inl.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

// Steps of one accumulator, its tail, the tree over lanes, and the four operations of a term.
std::size_t roundings(std::size_t d) { return d / kLanes + 2 + 5 + 4; }

RIEMEM_INLINE VecF minus(VecF a, VecF b) { return a - b; }

// Q queries against one row, U vectors at a time; the sums of each (query, u) are its own chain.
template <std::size_t Q, std::size_t U>
RIEMEM_INLINE void scan_row(const float* row, const float* precision, std::size_t d,
                            const float* queries, std::size_t padded, std::size_t at, float* out) {
    VecF distance[Q][U];
    VecF dot[Q][U];
    for (std::size_t b = 0; b < Q; ++b) {
        for (std::size_t u = 0; u < U; ++u) distance[b][u] = dot[b][u] = broadcast(0.0f);
    }
    std::size_t t = 0;
    for (; t + U * kLanes <= d; t += U * kLanes) {
        for (std::size_t u = 0; u < U; ++u) {
            const VecF h = load(row + t + u * kLanes);
            const VecF p = load(precision + t + u * kLanes);
            for (std::size_t b = 0; b < Q; ++b) {
                const VecF q = load(queries + b * padded + t + u * kLanes);
                const VecF difference = minus(q, h);
                distance[b][u] = fma(p * difference, difference, distance[b][u]);
                dot[b][u] = fma(q, h, dot[b][u]);
            }
        }
    }
    for (; t < d; t += kLanes) {
        const bool whole = d - t >= kLanes;
        const VecF h = whole ? load(row + t) : load_first(row + t, d - t);
        const VecF p = whole ? load(precision + t) : load_first(precision + t, d - t);
        for (std::size_t b = 0; b < Q; ++b) {
            const VecF q = load(queries + b * padded + t);
            const VecF difference = minus(q, h);
            distance[b][0] = fma(p * difference, difference, distance[b][0]);
            dot[b][0] = fma(q, h, dot[b][0]);
        }
    }
    for (std::size_t b = 0; b < Q; ++b) {
        for (std::size_t u = 1; u < U; ++u) {
            distance[b][0] = distance[b][0] + distance[b][u];
            dot[b][0] = dot[b][0] + dot[b][u];
        }
        out[b * 2 * kFisherRows + at] = sum_lanes(distance[b][0]);
        out[(b * 2 + 1) * kFisherRows + at] = sum_lanes(dot[b][0]);
    }
}

void scan(MatrixView<const float> rows, MatrixView<const float> precision, const float* queries,
          std::size_t padded, std::size_t count, float* out) {
    const std::size_t d = rows.cols;
    if (count == kFisherTogether) {
        for (std::size_t i = 0; i < rows.rows; ++i) {
            scan_row<kFisherTogether, 1>(rows.row(i), precision.row(i), d, queries, padded, i, out);
        }
        return;
    }
    for (std::size_t b = 0; b < count; ++b) {
        for (std::size_t i = 0; i < rows.rows; ++i) {
            scan_row<1, 2>(rows.row(i), precision.row(i), d, queries + b * padded, padded, i,
                           out + b * 2 * kFisherRows);
        }
    }
}

RIEMEM_INLINE void add_pair(const Vec8d& h, const Vec8d& p, const Vec8d& q, Vec8d& distance,
                            Vec8d& dot) {
    const Vec8d difference = q - h;
    distance += (difference * difference) * p;
    dot += q * h;
}

void pair(const float* row, const float* precision, const float* query, std::size_t d,
          double out[2]) {
    Vec8d distance = {};
    Vec8d dot = {};
    std::size_t t = 0;
    for (; t + 8 <= d; t += 8) {
        add_pair(load8_from_float(row + t), load8_from_float(precision + t),
                 load8_from_float(query + t), distance, dot);
    }
    if (t < d) {
        add_pair(load8_tail(row + t, d - t), load8_tail(precision + t, d - t),
                 load8_tail(query + t, d - t), distance, dot);
    }
    out[0] = sum8(distance);
    out[1] = sum8(dot);
}

constexpr FisherRaoKernels kKernels = {roundings, scan, finish, pair};

}  // namespace
}  // namespace riemem
