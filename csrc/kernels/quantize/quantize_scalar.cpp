// The kernels as plain loops: the reading copy, and what runs where no vector unit is known.
#include <bit>
#include <cmath>

#include "kernels/quantize/quantize.hpp"
#include "kernels/quantize/quantize_kernels.hpp"

namespace riemem {
namespace {

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

template <std::size_t W>
void apply(const RotationTables& rotation, double* x, double* scratch) {
    const std::size_t d = rotation.d;
    for (std::size_t t = 0; t < d; ++t) {
        for (std::size_t j = 0; j < W; ++j) {
            scratch[t * W + j] = x[t * W + j] * rotation.first_signs[t];
        }
    }
    hadamard_blocks<W>(scratch, d);
    for (std::size_t t = 0; t < d; ++t) {
        const double* from = scratch + rotation.order[t] * W;
        for (std::size_t j = 0; j < W; ++j) x[t * W + j] = from[j] * rotation.second_signs[t];
    }
    hadamard_blocks<W>(x, d);
}

constexpr std::size_t kW = kRotatedTogether;

template <typename T>
void rotate(const RotationTables& rotation, const T* const* vectors, std::size_t, double* x,
            double* scratch) {
    for (std::size_t t = 0; t < rotation.d; ++t) {
        for (std::size_t j = 0; j < kW; ++j) x[t * kW + j] = static_cast<double>(vectors[j][t]);
    }
    apply<kW>(rotation, x, scratch);
}

// Eight sums of kW vectors each, element t in sum[t % 8], added up into out.
struct Sums {
    double sum[8][kW] = {};

    void total(double* out) const {
        for (std::size_t j = 0; j < kW; ++j) {
            out[j] = 0.0;
            for (std::size_t k = 0; k < 8; ++k) out[j] += sum[k][j];
        }
    }
};

void measure(const double* x, std::size_t d, std::size_t, double* most, double* square) {
    Sums squares;
    for (std::size_t j = 0; j < kW; ++j) most[j] = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        double* sum = squares.sum[t % 8];
        for (std::size_t j = 0; j < kW; ++j) {
            const double size = std::abs(x[t * kW + j]);
            most[j] = size > most[j] ? size : most[j];
            sum[j] += size * size;
        }
    }
    squares.total(square);
}

void round(const double* x, std::size_t d, std::size_t, const double* scale, const double* inverse,
           std::uint32_t* packed, double* rest) {
    Sums rests;
    for (std::size_t t = 0; t < d; ++t) {
        double* sum = rests.sum[t % 8];
        std::uint32_t* four = packed + t / 4 * kW;
        for (std::size_t j = 0; j < kW; ++j) {
            // Where the inverse is 0 the vector may hold a NaN, which no integer stands for.
            double value = inverse[j] == 0.0 ? 0.0 : x[t * kW + j] * inverse[j];
            value = value > 127.0 ? 127.0 : (value < -127.0 ? -127.0 : value);
            // Adding and taking away 1.5 * 2^52 rounds to the nearest integer.
            const double rounded = (value + 0x1.8p52) - 0x1.8p52;
            const double difference = x[t * kW + j] - scale[j] * rounded;
            sum[j] += difference * difference;
            if (t % 4 == 0) four[j] = 0x80808080u;
            const auto byte = static_cast<std::uint32_t>(static_cast<std::int32_t>(rounded)) & 255u;
            four[j] ^= byte << (8 * (t % 4));
        }
    }
    rests.total(rest);
}

constexpr QuantizeKernels kKernels = {kW, rotate<float>, rotate<double>, measure, round};

}  // namespace

void Rotation::apply(double* x, double* scratch) const { riemem::apply<1>(tables(), x, scratch); }

const QuantizeKernels& quantize_kernels_scalar() { return kKernels; }

}  // namespace riemem
