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

// int8 values of a vector of `padded` elements, zeros past its end, with one scale, and the length
// of what is left. Eight partial results each, so that the loops are vectors.
Quantised quantise(const double* x, std::size_t padded, std::int8_t* out) {
    double most[8] = {}, square[8] = {}, rest[8] = {};
    for (std::size_t t = 0; t < padded; t += 8) {
        for (std::size_t j = 0; j < 8; ++j) {
            const double size = std::abs(x[t + j]);
            most[j] = size > most[j] ? size : most[j];
            square[j] += size * size;
        }
    }
    const double length = std::sqrt(std::accumulate(square, square + 8, 0.0));
    // The scale is a float32, so that what is measured here is what the kernels will use.
    const auto scale =
        static_cast<double>(static_cast<float>(*std::max_element(most, most + 8) / 127.0));
    if (!std::isfinite(scale) || !std::isfinite(length)) {
        std::fill_n(out, padded, std::int8_t{0});
        return {0.0, std::numeric_limits<double>::infinity()};
    }
    const double inverse = scale > 0.0 ? 1.0 / scale : 0.0;
    for (std::size_t t = 0; t < padded; t += 8) {
        for (std::size_t j = 0; j < 8; ++j) {
            double value = x[t + j] * inverse;
            value = value > 127.0 ? 127.0 : (value < -127.0 ? -127.0 : value);
            // Adding and taking away 1.5 * 2^52 rounds to the nearest integer.
            const double rounded = (value + 0x1.8p52) - 0x1.8p52;
            const double difference = x[t + j] - scale * rounded;
            rest[j] += difference * difference;
            out[t + j] = static_cast<std::int8_t>(static_cast<std::int32_t>(rounded));
        }
    }
    const double margin = 1.0 + 1e-12 * static_cast<double>(padded);
    return {scale, std::sqrt(std::accumulate(rest, rest + 8, 0.0)) * margin +
                       kRotationError * length * margin};
}

constexpr std::size_t padded_dim(std::size_t d) { return (d + 7) / 8 * 8; }

// Rotates up to kRotatedTogether vectors and hands each, padded with zeros, to use(j, vector).
class Rotator {
 public:
    explicit Rotator(const Rotation& rotation)
        : rotation_(rotation),
          d_(rotation.dim()),
          together_(d_ * kRotatedTogether),
          scratch_(together_.size()),
          one_(padded_dim(d_), 0.0) {}

    template <typename Get, typename Use>
    void run(std::size_t count, Get get, Use use) {
        if (count <= 2) {  // the two vectors of a single query
            run_width<2>(count, get, use);
        } else {
            run_width<kRotatedTogether>(count, get, use);
        }
    }

 private:
    template <std::size_t kW, typename Get, typename Use>
    void run_width(std::size_t count, Get get, Use use) {
        for (std::size_t j = 0; j < kW; ++j) {
            const auto* vector = get(std::min(j, count - 1));
            for (std::size_t t = 0; t < d_; ++t) {
                together_[t * kW + j] = static_cast<double>(vector[t]);
            }
        }
        rotation_.apply<kW>(together_.data(), scratch_.data());
        for (std::size_t j = 0; j < count; ++j) {
            for (std::size_t t = 0; t < d_; ++t) one_[t] = together_[t * kW + j];
            use(j, one_);
        }
    }

 private:
    const Rotation& rotation_;
    std::size_t d_;
    std::vector<double> together_, scratch_, one_;
};

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
template void Rotation::apply<2>(double*, double*) const;
template void Rotation::apply<kRotatedTogether>(double*, double*) const;

void quantize_int8(MatrixView<const float> rows, const Rotation& rotation, std::size_t begin,
                   std::uint8_t* tiles, float* scale, float* residual) {
    constexpr std::size_t kChunk = 32 * kRotatedTogether;
    const std::size_t d = rows.cols;
    const std::size_t bytes = rows.rows * d * sizeof(float);
    const std::size_t threads = bytes < (std::size_t{1} << 20) ? 1 : num_threads();
    parallel_for((rows.rows + kChunk - 1) / kChunk, threads, [&](std::size_t chunk) {
        Rotator rotator(rotation);
        std::vector<std::int8_t> values(padded_dim(d));
        const std::size_t end = std::min(rows.rows, (chunk + 1) * kChunk);
        for (std::size_t first = chunk * kChunk; first < end; first += kRotatedTogether) {
            const auto use = [&](std::size_t j, const std::vector<double>& vector) {
                const Quantised q = quantise(vector.data(), vector.size(), values.data());
                const std::size_t at = begin + first + j;
                std::uint8_t* tile =
                    tiles + at / kTileRows64 * int8_tile_bytes(d) + at % kTileRows64 * 4;
                for (std::size_t t = 0; t < d; ++t) {
                    tile[t / 4 * 4 * kTileRows64 + t % 4] =
                        static_cast<std::uint8_t>(values[t] + 128);
                }
                scale[at] = static_cast<float>(q.scale);
                residual[at] = round_up(q.residual);
            };
            rotator.run(
                std::min(kRotatedTogether, end - first),
                [&](std::size_t j) { return rows.row(first + j); }, use);
        }
    });
}

std::vector<Int8Query> quantize_queries(const double* first, const double* second,
                                        std::size_t count, const Rotation& rotation) {
    const std::size_t d = rotation.dim();
    std::vector<Int8Query> queries(2 * count);
    Rotator rotator(rotation);
    std::vector<std::int8_t> values(padded_dim(d));
    for (std::size_t begin = 0; begin < 2 * count; begin += kRotatedTogether) {
        const auto get = [&](std::size_t j) {
            const std::size_t at = begin + j;
            return (at % 2 == 0 ? first : second) + at / 2 * d;
        };
        const auto use = [&](std::size_t j, const std::vector<double>& vector) {
            const Quantised q = quantise(vector.data(), vector.size(), values.data());
            Int8Query& query = queries[begin + j];
            query.packed.resize((d + 3) / 4);
            std::memcpy(query.packed.data(), values.data(), query.packed.size() * 4);
            query.scale = q.scale;
            query.residual = q.residual;
            for (std::int8_t value : values) query.correction += 128 * value;
        };
        rotator.run(std::min(kRotatedTogether, 2 * count - begin), get, use);
    }
    return queries;
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
