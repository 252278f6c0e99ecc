// The kernels on vector types. Included once by each quantize_<isa>.cpp.
//
// A vector register holds one element of kDoubles vectors; the vectors are worked on in strips of
// kDoubles, element t of a strip at x[t * kDoubles].
#pragma once

#include "kernels/quantize/quantize_kernels.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

typedef long long VecL __attribute__((vector_size(sizeof(VecD))));
typedef std::uint32_t VecU __attribute__((vector_size(sizeof(VecD) / 2)));

// As many elements as fit the registers beside their sums.
constexpr std::size_t kRadix = kDoubles == 4 ? 8 : 16;

template <std::size_t R>
RIEMEM_INLINE void butterflies(VecD* v) {
#pragma GCC unroll 4
    for (std::size_t half = 1; half < R; half *= 2) {
#pragma GCC unroll 16
        for (std::size_t i = 0; i < R / 2; ++i) {
            const std::size_t low = i / half * 2 * half + i % half;
            const VecD a = v[low];
            const VecD b = v[low + half];
            v[low] = a + b;
            v[low + half] = a - b;
        }
    }
}

// The levels from `half` to half * R / 2 of a block, each element read and written once.
template <std::size_t R>
RIEMEM_INLINE void levels(double* x, std::size_t size, std::size_t half, VecD factor) {
    for (std::size_t block = 0; block < size; block += R * half) {
        for (std::size_t i = block; i < block + half; ++i) {
            VecD v[R];
#pragma GCC unroll 16
            for (std::size_t k = 0; k < R; ++k) v[k] = load_doubles(x + (i + k * half) * kDoubles);
            butterflies<R>(v);
#pragma GCC unroll 16
            for (std::size_t k = 0; k < R; ++k) {
                store_doubles(x + (i + k * half) * kDoubles, v[k] * factor);
            }
        }
    }
}

// Blocks of the powers of two that make up d, largest first.
void hadamard_blocks(double* x, std::size_t d) {
    std::size_t size = 1;
    while (size * 2 <= d) size *= 2;
    for (; size > 0; size /= 2) {
        if ((d & size) == 0) continue;
        const VecD norm = broadcast_double(1.0 / __builtin_sqrt(static_cast<double>(size)));
        const VecD one = broadcast_double(1.0);
        std::size_t half = 1;
        for (; half * kRadix <= size; half *= kRadix) {
            levels<kRadix>(x, size, half, half * kRadix == size ? norm : one);
        }
        switch (size / half) {
            case 8:
                levels<8>(x, size, half, norm);
                break;
            case 4:
                levels<4>(x, size, half, norm);
                break;
            case 2:
                levels<2>(x, size, half, norm);
                break;
            default:
                break;
        }
        x += size * kDoubles;
    }
}

template <typename T>
RIEMEM_INLINE VecD gather(const T* const* vectors, std::size_t t) {
    VecD v;
    for (std::size_t j = 0; j < kDoubles; ++j) v[j] = static_cast<double>(vectors[j][t]);
    return v;
}

// Elements [0, the return) of the vectors into a strip, a square of them at a time.
RIEMEM_INLINE std::size_t load_strip(const float* const* vectors, std::size_t d,
                                     const double* signs, double* strip) {
    std::size_t t = 0;
    for (; t + kDoubles <= d; t += kDoubles) {
        VecD square[kDoubles];
        load_transposed(vectors, t, square);
        for (std::size_t k = 0; k < kDoubles; ++k) {
            store_doubles(strip + (t + k) * kDoubles, square[k] * broadcast_double(signs[t + k]));
        }
    }
    return t;
}
RIEMEM_INLINE std::size_t load_strip(const double* const*, std::size_t, const double*, double*) {
    return 0;  // a query or two: not worth it
}

template <typename T>
RIEMEM_INLINE void rotate(const RotationTables& rotation, const T* const* vectors,
                          std::size_t count, double* x, double* scratch) {
    const std::size_t d = rotation.d;
    for (std::size_t j = 0; j < count; j += kDoubles) {
        std::size_t t = load_strip(vectors + j, d, rotation.first_signs, scratch);
        for (; t < d; ++t) {
            const VecD sign = broadcast_double(rotation.first_signs[t]);
            store_doubles(scratch + t * kDoubles, gather(vectors + j, t) * sign);
        }
        hadamard_blocks(scratch, d);
        double* strip = x + j * d;
        for (t = 0; t < d; ++t) {
            const VecD sign = broadcast_double(rotation.second_signs[t]);
            store_doubles(strip + t * kDoubles,
                          load_doubles(scratch + rotation.order[t] * kDoubles) * sign);
        }
        hadamard_blocks(strip, d);
    }
}

void rotate_floats(const RotationTables& rotation, const float* const* vectors, std::size_t count,
                   double* x, double* scratch) {
    rotate(rotation, vectors, count, x, scratch);
}

void rotate_doubles(const RotationTables& rotation, const double* const* vectors, std::size_t count,
                    double* x, double* scratch) {
    rotate(rotation, vectors, count, x, scratch);
}

RIEMEM_INLINE VecD size_of(VecD v) { return (VecD)((VecL)v & 0x7fffffffffffffffll); }

void measure(const double* x, std::size_t d, std::size_t count, double* most, double* square) {
    for (std::size_t j = 0; j < count; j += kDoubles) {
        const double* strip = x + j * d;
        const VecD zero = broadcast_double(0.0);
        VecD largest = zero;
        VecD sum[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
        const auto add = [&](std::size_t t, VecD & own) __attribute__((always_inline)) {
            const VecD size = size_of(load_doubles(strip + t * kDoubles));
            largest = vmax(size, largest);
            own += size * size;
        };
        std::size_t t = 0;
        for (; t + 8 <= d; t += 8) {
#pragma GCC unroll 8
            for (std::size_t k = 0; k < 8; ++k) add(t + k, sum[k]);
        }
        for (std::size_t k = 0; t + k < d; ++k) add(t + k, sum[k]);
        for (std::size_t k = 1; k < 8; ++k) sum[0] += sum[k];
        store_doubles(most + j, largest);
        store_doubles(square + j, sum[0]);
    }
}

void round(const double* x, std::size_t d, std::size_t count, const double* scale,
           const double* inverse, std::uint32_t* packed, double* rest) {
    for (std::size_t j = 0; j < count; j += kDoubles) {
        const double* strip = x + j * d;
        const VecD factor = load_doubles(inverse + j);
        const VecD step = load_doubles(scale + j);
        const VecD most = broadcast_double(127.0);
        const VecD least = broadcast_double(-127.0);
        // Adding and taking away 1.5 * 2^52 rounds to the nearest integer, whose lowest byte is
        // that of the sum's bits.
        const VecD magic = broadcast_double(0x1.8p52);
        const VecD zero = broadcast_double(0.0);
        VecD sum[8] = {zero, zero, zero, zero, zero, zero, zero, zero};
        const auto byte = [&](std::size_t t, VecD & own) __attribute__((always_inline)) {
            const VecD value = load_doubles(strip + t * kDoubles);
            const VecD shifted = vmax(vmin(value * factor, most), least) + magic;
            const VecD difference = value - step * (shifted - magic);
            own += difference * difference;
            return (VecL)shifted & 0xff;
        };
        const auto put = [&](std::size_t t, VecL bytes) __attribute__((always_inline)) {
            const VecU four = __builtin_convertvector(bytes ^ 0x80808080ll, VecU);
            std::memcpy(packed + t / 4 * kRotatedTogether + j, &four, sizeof(four));
        };
        std::size_t t = 0;
        for (; t + 8 <= d; t += 8) {
#pragma GCC unroll 2
            for (std::size_t k = 0; k < 8; k += 4) {
                VecL bytes = byte(t + k, sum[k]);
                bytes |= byte(t + k + 1, sum[k + 1]) << 8;
                bytes |= byte(t + k + 2, sum[k + 2]) << 16;
                bytes |= byte(t + k + 3, sum[k + 3]) << 24;
                put(t + k, bytes);
            }
        }
        for (std::size_t k = 0; t + k < d; k += 4) {
            VecL bytes = (VecL)zero;
            for (std::size_t i = 0; i < 4 && t + k + i < d; ++i) {
                bytes |= byte(t + k + i, sum[k + i]) << static_cast<long long>(8 * i);
            }
            put(t + k, bytes);
        }
        for (std::size_t k = 1; k < 8; ++k) sum[0] += sum[k];
        store_doubles(rest + j, sum[0]);
    }
}

constexpr QuantizeKernels kKernels = {kDoubles, rotate_floats, rotate_doubles, measure, round};

}  // namespace
}  // namespace riemem
