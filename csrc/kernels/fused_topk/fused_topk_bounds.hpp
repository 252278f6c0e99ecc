// How far a float32 score can lie from its float64 value. docs/exactness.md derives each term.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/fused_topk/fused_topk_internal.hpp"

namespace riemem::fused {

constexpr double kUnit = 0x1p-24;        // half a unit in the last place of float32
constexpr double kSlack = 1.01;          // covers second-order terms and float64's own rounding
constexpr double kSubnormal = 0x1p-148;  // what one product may lose to gradual underflow
constexpr double kFloatSafe = 0x1p120;   // magnitudes beyond this might overflow in a kernel
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Largest values over one block of rows.
struct BlockScales {
    double inv_norm = 0.0;
    double norm = 0.0;
    double scale = 0.0;
    double scaled_norm = 0.0;  // scale * norm
    double bias = 0.0;
    double cos_residual = 0.0;     // residual * inv_norm
    double scaled_residual = 0.0;  // scale * residual
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
inline Bounds error_bounds(const BlockScales& block, const QueryScales& query) {
    const double row = block.scaled_norm + block.scaled_residual;
    const double reach_w = block.norm * query.w_norm + query.offset;
    const double most =
        std::max({block.norm * query.q_norm, reach_w, block.inv_norm, block.scale, block.bias,
                  block.scale * reach_w + block.bias, row * query.w_norm, query.q_norm,
                  query.w_norm, block.norm, block.cos_residual, block.scaled_residual});
    if (!(most < kFloatSafe)) return {kInfinity, kInfinity};
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

inline double times(double factor, double value) { return factor > 0.0 ? factor * value : 0.0; }

// a cos + b rie orders rows as the fused score does.
struct Linear {
    double a = 0.0, b = 0.0;
    double rounding = 0.0;  // of evaluating it in float32, or the score in float64

    bool representable() const { return a < kFloatSafe && b < kFloatSafe; }
    double bound(Bounds e) const { return times(a, e.cos) + times(b, e.rie) + rounding; }
    double value(double cos, double rie) const { return times(a, cos) + times(b, rie); }
};

// Largest float at or below x: a threshold must never be rounded up.
inline float round_down(double x) {
    if (!(x > -static_cast<double>(std::numeric_limits<float>::max()))) {
        return -std::numeric_limits<float>::infinity();
    }
    const auto nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) <= x) return nearest;
    return std::nextafter(nearest, -std::numeric_limits<float>::infinity());
}

}  // namespace riemem::fused

namespace riemem {

// float32 constants per row, padded to whole blocks, and error scales per block.
struct PreparedPoints::Tables {
    std::vector<float> cos_scale, rie_scale, scale, bias;  // empty: shared constants serve
    std::vector<fused::BlockScales> blocks;
    std::unique_ptr<Rotation> rotation;  // int8 only

    BlockTerms terms(std::size_t block) const;
};

}  // namespace riemem
