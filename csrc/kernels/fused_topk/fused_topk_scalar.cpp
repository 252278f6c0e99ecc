// The kernels as plain loops: the reading copy, and what runs where no vector unit is known.
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/fused_topk/fused_topk_kernels.hpp"

namespace riemem {
namespace {

constexpr std::size_t kScalarLanes = 4;

std::size_t roundings(std::size_t d) { return 2 * d; }  // a product and a sum per element

void score_single(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                  const float* q, const float* w, float offset, const BlockTerms& terms,
                  float* out) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        float dot_q = 0.0f;
        float dot_w = 0.0f;
        for (std::size_t t = 0; t < d; ++t) {
            dot_q += row[t] * q[t];
            dot_w += row[t] * w[t];
        }
        out[i] = terms.cos_scale[i] * dot_q;
        out[kBlockRows + i] =
            terms.rie_scale[i] * dot_w + (terms.scale[i] * offset + terms.bias[i]);
    }
}

void score_panel(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                 const float* panel, const float* offsets, const BlockTerms& terms, float* out) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        float dot[2 * kScalarLanes] = {};
        for (std::size_t t = 0; t < d; ++t) {
            for (std::size_t c = 0; c < 2 * kScalarLanes; ++c) {
                dot[c] += row[t] * panel[t * 2 * kScalarLanes + c];
            }
        }
        for (std::size_t b = 0; b < kScalarLanes; ++b) {
            out[b * 2 * kBlockRows + i] = terms.cos_scale[i] * dot[b];
            out[(b * 2 + 1) * kBlockRows + i] = terms.rie_scale[i] * dot[kScalarLanes + b] +
                                                (terms.scale[i] * offsets[b] + terms.bias[i]);
        }
    }
}

void score_int8(const std::uint8_t* tiles, std::size_t n, std::size_t d, const Int8Pair* pairs,
                std::size_t count, const BlockTerms& terms, float* out) {
    const std::size_t groups = (d + 3) / 4;
    for (std::size_t b = 0; b < count; ++b) {
        const Int8Pair& pair = pairs[b];
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint8_t* tile = tiles + i / 64 * groups * 256 + i % 64 * 4;
            std::int32_t dot_q = -pair.q_correction;
            std::int32_t dot_w = -pair.w_correction;
            for (std::size_t t = 0; t < groups; ++t) {
                for (std::size_t j = 0; j < 4; ++j) {
                    const auto x = static_cast<std::int32_t>(tile[t * 256 + j]);
                    dot_q += x * static_cast<std::int8_t>(pair.q[t] >> (8 * j));
                    dot_w += x * static_cast<std::int8_t>(pair.w[t] >> (8 * j));
                }
            }
            out[b * 2 * kBlockRows + i] =
                terms.cos_scale[i] * (static_cast<float>(dot_q) * pair.q_scale);
            out[(b * 2 + 1) * kBlockRows + i] =
                terms.rie_scale[i] * (static_cast<float>(dot_w) * pair.w_scale) +
                (terms.scale[i] * pair.offset + terms.bias[i]);
        }
    }
}

void widen(const std::uint16_t* high, std::size_t count, float* out) {
    for (std::size_t t = 0; t < count; ++t) {
        out[t] = std::bit_cast<float>(static_cast<std::uint32_t>(high[t]) << 16);
    }
}

void stretch(float value, float& low, float& high) {
    if (value < low) low = value;
    if (value > high) high = value;
}

void extremes(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
              float out[4]) {
    const float infinity = std::numeric_limits<float>::infinity();
    out[0] = out[2] = infinity;
    out[1] = out[3] = -infinity;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        stretch(cos[i], out[0], out[1]);
        stretch(rie[i], out[2], out[3]);
    }
}

std::size_t select(const float* cos, const float* rie, const std::uint8_t* mask, std::size_t n,
                   float a, float b, float threshold, std::uint32_t* out) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (mask != nullptr && mask[i] == 0) continue;
        if (a * cos[i] + b * rie[i] >= threshold) out[count++] = static_cast<std::uint32_t>(i);
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

void dot_four(const float* const rows[kDotRows], const double* q, const double* w, std::size_t d,
              double out[kDotRows][2]) {
    for (std::size_t i = 0; i < kDotRows; ++i) {
        dot_pair(rows[i], q == nullptr ? w : q, w, d, out[i]);
        if (q == nullptr) out[i][0] = 0.0;
    }
}

double square_norm(const float* row, std::size_t d) {
    double lane[8] = {};
    for (std::size_t t = 0; t < d; ++t) {
        const double x = static_cast<double>(row[t]);
        lane[t % 8] += x * x;
    }
    return sum8(lane);
}

void divide(const float* row, std::size_t d, double norm, float* out) {
    for (std::size_t t = 0; t < d; ++t) {
        out[t] = static_cast<float>(static_cast<double>(row[t]) / norm);
    }
}

void quadratic_panel(const double* centred, const double* panel, std::size_t begin, std::size_t end,
                     double lanes[4][8]) {
    for (std::size_t i = 0; i < 4; ++i) {
        double projection[kQuadraticColumns] = {};
        for (std::size_t t = begin; t < end; ++t) {
            const double x = centred[t * 4 + i];
            for (std::size_t c = 0; c < kQuadraticColumns; ++c) {
                projection[c] += x * panel[t * kQuadraticColumns + c];
            }
        }
        for (std::size_t c = 0; c < kQuadraticColumns; ++c) {
            lanes[i][c % 8] += projection[c] * projection[c];
        }
    }
}

void fold(const double* x, std::size_t count, const double* matrix, std::size_t d, Nonzero nonzero,
          double* out) {
    for (std::size_t i = 0; i < count * d; ++i) out[i] = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        const std::size_t first = t / kFoldSteps * kFoldSteps;
        const std::size_t begin = nonzero == Nonzero::upper ? first : 0;
        const std::size_t end =
            nonzero == Nonzero::lower && d - first > kFoldSteps ? first + kFoldSteps : d;
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = begin; j < end; ++j) {
                out[i * d + j] = std::fma(x[i * d + t], matrix[t * d + j], out[i * d + j]);
            }
        }
    }
}

constexpr FusedTopkKernels kKernels = {
    kScalarLanes, roundings, roundings, score_single, score_panel, score_int8,      widen, extremes,
    select,       dot_pair,  dot_four,  square_norm,  divide,      quadratic_panel, fold,
};

}  // namespace

const FusedTopkKernels& fused_topk_kernels_scalar() { return kKernels; }

}  // namespace riemem
