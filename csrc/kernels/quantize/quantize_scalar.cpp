#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/thread_pool.hpp"
#include "kernels/quantize/quantize.hpp"

namespace riemem {
namespace {

constexpr std::uint64_t kSeed = 0x9e3779b97f4a7c15ull;

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
    std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// W vectors at once, element t of vector j at x[t * W + j], so that every step is one long loop.
template <std::size_t W>
void hadamard(double* x, std::size_t size) {
    for (std::size_t half = 1; half < size; half *= 2) {
        for (std::size_t block = 0; block < size; block += 2 * half) {
            double* low = x + block * W;
            double* high = low + half * W;
            for (std::size_t i = 0; i < half * W; ++i) {
                const double a = low[i];
                const double b = high[i];
                low[i] = a + b;
                high[i] = a - b;
            }
        }
    }
    const double norm = 1.0 / std::sqrt(static_cast<double>(size));
    for (std::size_t i = 0; i < size * W; ++i) x[i] *= norm;
}

// Blocks of the powers of two that make up d, largest first.
template <std::size_t W>
void hadamard_blocks(double* x, std::size_t d) {
    while (d > 0) {
        const std::size_t size = std::bit_floor(d);
        hadamard<W>(x, size);
        x += size * W;
        d -= size;
    }
}

// The relative error of a rotation computed in float64: a few additions per element and level.
constexpr double kRotationError = 0x1p-44;

float round_up(double x) {
    const auto nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) >= x) return nearest;
    return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

struct Quantised {
    double scale;
    double residual;
};

// int8 values of the vector x[0], x[step], ... with one scale, and the length of what is left.
Quantised quantise(const double* x, std::size_t step, std::size_t d, std::int8_t* out) {
    double most = 0.0;
    double length = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        const double value = x[t * step];
        most = std::max(most, std::abs(value));
        length += value * value;
    }
    // The scale is a float32, so that what is measured here is what the kernels will use.
    const auto scale = static_cast<double>(static_cast<float>(most / 127.0));
    if (!std::isfinite(scale)) {
        std::fill_n(out, d, std::int8_t{0});
        return {0.0, std::numeric_limits<double>::infinity()};
    }
    const double inverse = scale > 0.0 ? 1.0 / scale : 0.0;
    double rest = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        const double value = std::clamp(x[t * step] * inverse, -127.0, 127.0);
        const auto rounded = static_cast<std::int8_t>(value + (value < 0.0 ? -0.5 : 0.5));
        const double difference = x[t * step] - scale * static_cast<double>(rounded);
        rest += difference * difference;
        out[t] = rounded;
    }
    const double margin = 1.0 + 1e-12 * static_cast<double>(d);
    return {scale, std::sqrt(rest) * margin + kRotationError * std::sqrt(length) * margin};
}

}  // namespace

Rotation::Rotation(std::size_t d) : dim_(d), first_signs_(d), second_signs_(d), order_(d) {
    std::uint64_t state = kSeed ^ d;
    for (double& sign : first_signs_) sign = (next_random(state) & 1) != 0 ? 1.0 : -1.0;
    for (double& sign : second_signs_) sign = (next_random(state) & 1) != 0 ? 1.0 : -1.0;
    std::iota(order_.begin(), order_.end(), 0u);
    for (std::size_t i = d; i > 1; --i) {
        std::swap(order_[i - 1], order_[static_cast<std::size_t>(next_random(state) % i)]);
    }
}

template <std::size_t W>
void Rotation::apply(double* x, double* scratch) const {
    for (std::size_t t = 0; t < dim_; ++t) {
        for (std::size_t j = 0; j < W; ++j) scratch[t * W + j] = x[t * W + j] * first_signs_[t];
    }
    hadamard_blocks<W>(scratch, dim_);
    for (std::size_t t = 0; t < dim_; ++t) {
        const double* from = scratch + order_[t] * W;
        for (std::size_t j = 0; j < W; ++j) x[t * W + j] = from[j] * second_signs_[t];
    }
    hadamard_blocks<W>(x, dim_);
}

template void Rotation::apply<1>(double*, double*) const;
template void Rotation::apply<kRotatedTogether>(double*, double*) const;

void quantize_int8(MatrixView<const float> rows, const Rotation& rotation, std::size_t begin,
                   std::uint8_t* tiles, float* scale, float* residual) {
    constexpr std::size_t kW = kRotatedTogether;
    const std::size_t d = rows.cols;
    const std::size_t bytes = rows.rows * d * sizeof(float);
    const std::size_t threads = bytes < (std::size_t{1} << 20) ? 1 : num_threads();
    parallel_for((rows.rows + kW * 32 - 1) / (kW * 32), threads, [&](std::size_t chunk) {
        std::vector<double> rotated(d * kW), scratch(d * kW);
        std::vector<std::int8_t> values(d);
        const std::size_t end = std::min(rows.rows, (chunk + 1) * kW * 32);
        for (std::size_t first = chunk * kW * 32; first < end; first += kW) {
            const std::size_t count = std::min(kW, end - first);
            for (std::size_t j = 0; j < kW; ++j) {
                const float* row = rows.row(first + std::min(j, count - 1));
                for (std::size_t t = 0; t < d; ++t) {
                    rotated[t * kW + j] = static_cast<double>(row[t]);
                }
            }
            rotation.apply<kW>(rotated.data(), scratch.data());
            for (std::size_t j = 0; j < count; ++j) {
                const Quantised q = quantise(rotated.data() + j, kW, d, values.data());
                const std::size_t at = begin + first + j;
                std::uint8_t* tile =
                    tiles + at / kTileRows64 * int8_tile_bytes(d) + at % kTileRows64 * 4;
                for (std::size_t t = 0; t < d; ++t) {
                    tile[t / 4 * 4 * kTileRows64 + t % 4] =
                        static_cast<std::uint8_t>(values[t] + 128);
                }
                scale[at] = static_cast<float>(q.scale);
                residual[at] = round_up(q.residual);
            }
        }
    });
}

Int8Query quantize_query(const double* vector, const Rotation& rotation) {
    const std::size_t d = rotation.dim();
    std::vector<double> rotated(vector, vector + d), scratch(d);
    rotation.apply<1>(rotated.data(), scratch.data());
    std::vector<std::int8_t> values((d + 3) / 4 * 4, 0);
    const Quantised q = quantise(rotated.data(), 1, d, values.data());
    Int8Query query;
    query.packed.resize(values.size() / 4);
    std::memcpy(query.packed.data(), values.data(), values.size());
    query.scale = q.scale;
    query.residual = q.residual;
    for (std::int8_t value : values) query.correction += 128 * value;
    return query;
}

void split_bfloat16(MatrixView<const float> rows, std::uint16_t* high, std::int16_t* low,
                    float* residual) {
    for (std::size_t i = 0; i < rows.rows; ++i) {
        const float* row = rows.row(i);
        double rest = 0.0;
        for (std::size_t t = 0; t < rows.cols; ++t) {
            const auto bits = std::bit_cast<std::uint32_t>(row[t]);
            // The largest finite values round to infinity: their residual is infinite too, and
            // the difference of the bits still joins back to the row.
            const std::uint32_t top = (bits + 0x8000u) >> 16;
            const std::size_t at = i * rows.cols + t;
            high[at] = static_cast<std::uint16_t>(top);
            low[at] = static_cast<std::int16_t>(static_cast<std::uint16_t>(bits - (top << 16)));
            const double difference =
                static_cast<double>(row[t]) - static_cast<double>(std::bit_cast<float>(top << 16));
            rest += difference * difference;
        }
        const double margin = 1.0 + 1e-12 * static_cast<double>(rows.cols);
        residual[i] = round_up(std::sqrt(rest) * margin);
    }
}

void join_bfloat16(const std::uint16_t* high, const std::int16_t* low, std::size_t count,
                   float* out) {
    for (std::size_t t = 0; t < count; ++t) {
        const std::uint32_t bits = (static_cast<std::uint32_t>(high[t]) << 16) +
                                   static_cast<std::uint32_t>(static_cast<std::int32_t>(low[t]));
        out[t] = std::bit_cast<float>(bits);
    }
}

}  // namespace riemem
