// The arithmetic that the search shares between processor and GPU: the defining scores of a row,
// how far a float32 score can lie from them, and how rows are ordered. docs/exactness.md derives
// each term.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "cuda/host_device.hpp"

namespace riemem::fused {

RIEMEM_HD inline double larger(double a, double b) { return b > a ? b : a; }

constexpr double kUnit = 0x1p-24;        // half a unit in the last place of float32
constexpr double kSlack = 1.01;          // covers second-order terms and float64's own rounding
constexpr double kSubnormal = 0x1p-148;  // what one product may lose to gradual underflow
constexpr double kFloatSafe = 0x1p120;   // magnitudes beyond this might overflow in a kernel
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr double kMostFloat = std::numeric_limits<float>::max();

// Largest values over one block of rows.
struct BlockScales {
    double inv_norm = 0.0;
    double norm = 0.0;
    double scale = 0.0;
    double scaled_norm = 0.0;  // scale * norm
    double bias = 0.0;
    double cos_residual = 0.0;     // residual * inv_norm
    double scaled_residual = 0.0;  // scale * residual

    RIEMEM_HD void add(double inv, double row_scale, double row_bias, double residual) {
        const double length = inv > 0.0 ? 1.0 / inv : 0.0;
        const double size = std::abs(row_scale);
        inv_norm = larger(inv_norm, inv);
        norm = larger(norm, length);
        scale = larger(scale, size);
        scaled_norm = larger(scaled_norm, size * length);
        bias = larger(bias, std::abs(row_bias));
        cos_residual = larger(cos_residual, residual * inv);
        scaled_residual = larger(scaled_residual, residual * size);
    }
};

// Lengths of one query's vectors, and how they were rounded.
struct QueryScales {
    double q_norm = 0.0, w_norm = 0.0;
    double q_residual = 0.0, w_residual = 0.0;  // |vector - its int8 form|
    double offset = 0.0;
    double bias = 0.0;
    double roundings = 0.0;  // of one dot product
    double subnormal = 0.0;
};

struct Bounds {
    double cos, rie;
};

// Infinite where float32 might overflow. The query's own bias is part of neither score, but the
// float64 value is rounded with it.
RIEMEM_HD inline Bounds error_bounds(const BlockScales& block, const QueryScales& query) {
    const double row = block.scaled_norm + block.scaled_residual;
    const double reach_w = block.norm * query.w_norm + query.offset;
    const double magnitudes[] = {block.norm * query.q_norm,
                                 reach_w,
                                 block.inv_norm,
                                 block.scale,
                                 block.bias,
                                 block.scale * reach_w + block.bias,
                                 row * query.w_norm,
                                 query.q_norm,
                                 query.w_norm,
                                 block.norm,
                                 block.cos_residual,
                                 block.scaled_residual};
    for (double magnitude : magnitudes) {
        if (!(magnitude < kFloatSafe)) return {kInfinity, kInfinity};
    }
    const double u = kUnit * (query.roundings + 6.0);
    const double cos_row = 1.0 + block.cos_residual;
    return {kSlack *
                (u * cos_row * query.q_norm + query.q_residual * cos_row +
                 query.q_norm * block.cos_residual + query.subnormal * block.inv_norm + kSubnormal),
            kSlack * (u * row * query.w_norm + query.w_residual * row +
                      query.w_norm * block.scaled_residual + query.subnormal * block.scale +
                      6.0 * kUnit * block.scale * query.offset + 4.0 * kUnit * block.bias +
                      kUnit * kUnit * query.bias + 2.0 * kSubnormal)};
}

RIEMEM_HD inline double times(double factor, double value) {
    return factor > 0.0 ? factor * value : 0.0;
}

// a cos + b rie orders rows as the fused score does.
struct Linear {
    double a = 0.0, b = 0.0;
    double rounding = 0.0;  // of evaluating it in float32, or the score in float64

    RIEMEM_HD bool representable() const { return a < kFloatSafe && b < kFloatSafe; }
    RIEMEM_HD double bound(Bounds e) const { return times(a, e.cos) + times(b, e.rie) + rounding; }
    RIEMEM_HD double value(double cos, double rie) const { return times(a, cos) + times(b, rie); }
};

// Largest float at or below x: a threshold must never be rounded up.
RIEMEM_HD inline float round_down(double x) {
    if (!(x > -kMostFloat)) return -kFloatInfinity;
    const auto nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) <= x) return nearest;
    return nextafterf(nearest, -kFloatInfinity);
}

struct Pair {
    double cos;
    double rie;
};

// The two canonical dot products of one row.
struct Dots {
    double q;
    double w;
};

// The defining scores of one row: float64, in this order of operations.
RIEMEM_HD inline Pair scores_from(Dots dots, double inv_norm, double scale, double bias,
                                  double offset, double query_bias) {
    return {dots.q * inv_norm, ((scale * (dots.w + offset)) + bias) + query_bias};
}

// norm() for one of the two scores of one query.
struct Normaliser {
    double low = 0.0;    // minimum, or mean
    double width = 1.0;  // range, or standard deviation; 0 = no spread

    RIEMEM_HD double operator()(double x) const { return width > 0.0 ? (x - low) / width : 0.0; }
};

struct Fusion {
    double cosine_weight = 0.0;
    Normaliser cos, rie;

    RIEMEM_HD double operator()(Pair p) const {
        return cosine_weight * cos(p.cos) + (1.0 - cosine_weight) * rie(p.rie);
    }
};

}  // namespace riemem::fused
