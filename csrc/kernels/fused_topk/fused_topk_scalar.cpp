// The kernels as plain loops: the reading copy, and what runs where no vector unit is known.
#include <limits>

#include "kernels/fused_topk/fused_topk_kernels.hpp"

namespace riemem {
namespace {

constexpr std::size_t kScalarLanes = 4;

std::size_t roundings(std::size_t d) { return 2 * d; }  // a product and a sum per element

void score_single(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                  const float* q, const float* w, float offset, const BlockTerms& terms, float* cos,
                  float* rie) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        float dot_q = 0.0f;
        float dot_w = 0.0f;
        for (std::size_t t = 0; t < d; ++t) {
            dot_q += row[t] * q[t];
            dot_w += row[t] * w[t];
        }
        cos[i] = dot_q * terms.inv_norm[i];
        rie[i] = terms.scale[i] * (dot_w + offset) + terms.bias[i];
    }
}

void score_panel(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                 const float* panel, const float* offsets, const BlockTerms& terms, float* tile) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        float dot[2 * kScalarLanes] = {};
        for (std::size_t t = 0; t < d; ++t) {
            for (std::size_t c = 0; c < 2 * kScalarLanes; ++c) {
                dot[c] += row[t] * panel[t * 2 * kScalarLanes + c];
            }
        }
        float* out = tile + i * 2 * kScalarLanes;
        for (std::size_t b = 0; b < kScalarLanes; ++b) {
            out[b] = dot[b] * terms.inv_norm[i];
            out[kScalarLanes + b] =
                terms.scale[i] * (dot[kScalarLanes + b] + offsets[b]) + terms.bias[i];
        }
    }
}

void widen(float value, float& low, float& high) {
    if (value < low) low = value;
    if (value > high) high = value;
}

void extremes_single(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
                     float out[4]) {
    const float infinity = std::numeric_limits<float>::infinity();
    out[0] = out[2] = infinity;
    out[1] = out[3] = -infinity;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        widen(cos[i], out[0], out[1]);
        widen(rie[i], out[2], out[3]);
    }
}

void extremes_panel(const float* tile, const std::uint8_t* mask, std::size_t n, float* out) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (std::size_t b = 0; b < kScalarLanes; ++b) {
        out[b] = out[2 * kScalarLanes + b] = infinity;
        out[kScalarLanes + b] = out[3 * kScalarLanes + b] = -infinity;
    }
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        const float* row = tile + i * 2 * kScalarLanes;
        for (std::size_t b = 0; b < kScalarLanes; ++b) {
            widen(row[b], out[b], out[kScalarLanes + b]);
            widen(row[kScalarLanes + b], out[2 * kScalarLanes + b], out[3 * kScalarLanes + b]);
        }
    }
}

std::size_t select_single(const float* cos, const float* rie, const std::uint8_t* mask,
                          std::size_t n, float a, float b, float threshold, std::uint32_t* out) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        if (a * cos[i] + b * rie[i] >= threshold) out[count++] = static_cast<std::uint32_t>(i);
    }
    return count;
}

std::size_t select_panel(const float* tile, const std::uint8_t* mask, std::size_t n, const float* a,
                         const float* b, const float* thresholds, std::uint32_t* out_rows,
                         std::uint32_t* out_lanes) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        const float* row = tile + i * 2 * kScalarLanes;
        std::uint32_t lanes = 0;
        for (std::size_t l = 0; l < kScalarLanes; ++l) {
            if (a[l] * row[l] + b[l] * row[kScalarLanes + l] >= thresholds[l]) lanes |= 1u << l;
        }
        if (lanes != 0) {
            out_rows[count] = static_cast<std::uint32_t>(i);
            out_lanes[count++] = lanes;
        }
    }
    return count;
}

double sum8(const double* l) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

void dot_pair(const float* row, const double* q, const double* w, std::size_t d, double out[2]) {
    double lane_q[8] = {};
    double lane_w[8] = {};
    for (std::size_t t = 0; t < d; ++t) {
        const double x = static_cast<double>(row[t]);
        lane_q[t % 8] += x * q[t];
        lane_w[t % 8] += x * w[t];
    }
    out[0] = sum8(lane_q);
    out[1] = sum8(lane_w);
}

double square_norm(const float* row, std::size_t d) {
    double lane[8] = {};
    for (std::size_t t = 0; t < d; ++t) {
        const double x = static_cast<double>(row[t]);
        lane[t % 8] += x * x;
    }
    return sum8(lane);
}

void quadratic_four(const double* centred, const double* whitening, std::size_t d,
                    std::size_t padded_rank, double out[4]) {
    for (std::size_t i = 0; i < 4; ++i) {
        double lane[8] = {};
        for (std::size_t j = 0; j < padded_rank; ++j) {
            double projection = 0.0;
            for (std::size_t t = 0; t < d; ++t) {
                projection += centred[t * 4 + i] * whitening[t * padded_rank + j];
            }
            lane[j % 8] += projection * projection;
        }
        out[i] = sum8(lane);
    }
}

constexpr FusedTopkKernels kKernels = {
    kScalarLanes,   roundings,     roundings,    score_single, score_panel, extremes_single,
    extremes_panel, select_single, select_panel, dot_pair,     square_norm, quadratic_four,
};

}  // namespace

const FusedTopkKernels& fused_topk_kernels_scalar() { return kKernels; }

}  // namespace riemem
