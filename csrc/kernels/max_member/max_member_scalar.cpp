// The kernels as plain loops: the reading copy, and what runs where no vector unit is known.
#include "kernels/max_member/max_member_kernels.hpp"

namespace riemem {
namespace {

constexpr std::size_t kPanel = 4;

std::size_t roundings(std::size_t d) { return 2 * d; }  // a product and a sum per element

void dot_panel(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
               const float* panel, const float* inverse, float* tile) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        float* out = tile + i * kPanel;
        for (std::size_t l = 0; l < kPanel; ++l) out[l] = 0.0f;
        for (std::size_t t = 0; t < d; ++t) {
            for (std::size_t l = 0; l < kPanel; ++l) out[l] += row[t] * panel[t * kPanel + l];
        }
        if (inverse == nullptr) continue;
        for (std::size_t l = 0; l < kPanel; ++l) out[l] *= inverse[i];
    }
}

void dot_single(const float* rows, std::ptrdiff_t stride, std::size_t n, std::size_t d,
                const float* q, const float* inverse, float* out) {
    for (std::size_t i = 0; i < n; ++i) {
        const float* row = rows + static_cast<std::ptrdiff_t>(i) * stride;
        float dot = 0.0f;
        for (std::size_t t = 0; t < d; ++t) dot += row[t] * q[t];
        out[i] = inverse == nullptr ? dot : dot * inverse[i];
    }
}

void code_panel(const std::int8_t* codes, std::size_t stride, std::size_t n,
                const std::uint8_t* panel, const CodeTerms& terms, float* tile, float* lower) {
    for (std::size_t i = 0; i < n; ++i) {
        const std::int8_t* row = codes + i * stride;
        for (std::size_t l = 0; l < kPanel; ++l) {
            std::int32_t dot = 0;
            for (std::size_t t = 0; t < stride; ++t) {
                dot += row[t] * panel[(t / 4 * kPanel + l) * 4 + t % 4];
            }
            dot -= 128 * terms.sum[i];
            const float value = static_cast<float>(dot) * terms.scale[i] * terms.lane_scale[l];
            const float error = terms.error[i] * terms.lane_norm[l];
            tile[i * kPanel + l] = value + error;
            if (value - error > lower[l]) lower[l] = value - error;
        }
    }
}

void max_panel(const float* tile, std::size_t n, float* out) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t l = 0; l < kPanel; ++l) {
            if (tile[i * kPanel + l] > out[l]) out[l] = tile[i * kPanel + l];
        }
    }
}

std::size_t select_panel(const float* tile, std::size_t n, const float* thresholds,
                         std::uint32_t* out_rows, std::uint32_t* out_lanes) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::uint32_t lanes = 0;
        for (std::size_t l = 0; l < kPanel; ++l) {
            if (tile[i * kPanel + l] >= thresholds[l]) lanes |= 1u << l;
        }
        if (lanes == 0) continue;
        out_rows[count] = static_cast<std::uint32_t>(i);
        out_lanes[count++] = lanes;
    }
    return count;
}

double sum8(const double* l) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

double dot(const float* row, const double* q, std::size_t d) {
    double lane[8] = {};
    for (std::size_t t = 0; t < d; ++t) lane[t % 8] += static_cast<double>(row[t]) * q[t];
    return sum8(lane);
}

double square(const float* row, std::size_t d) {
    double lane[8] = {};
    for (std::size_t t = 0; t < d; ++t) {
        const double x = static_cast<double>(row[t]);
        lane[t % 8] += x * x;
    }
    return sum8(lane);
}

double square_wide(const double* v, std::size_t padded) {
    double lane[8] = {};
    for (std::size_t t = 0; t < padded; ++t) lane[t % 8] += v[t] * v[t];
    return sum8(lane);
}

constexpr MaxMemberKernels kKernels = {
    kPanel,    roundings,    roundings, dot_panel, dot_single,  code_panel,
    max_panel, select_panel, dot,       square,    square_wide,
};

}  // namespace

const MaxMemberKernels& max_member_kernels_scalar() { return kKernels; }

}  // namespace riemem
