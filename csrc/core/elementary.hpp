// exp, log, and sine with cosine in plain float64 arithmetic: the same bits on every machine, which
// no libm promises. Within two units in the last place; riemem.reference holds the same in numpy.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cuda/host_device.hpp"

namespace riemem {

constexpr double kLn2High =
    0x1.62e42feep-1;  // 32 bits of ln 2: a product with an exponent is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr double kLog2E = 0x1.71547652b82fep0;
constexpr double kHalfPi = 0x1.921fb54442d18p0;

RIEMEM_HD inline double power_of_two(int n) {
    const auto bits = static_cast<std::uint64_t>(n + 1023) << 52;
    double value;  // a kernel of CUDA cannot call bit_cast
    memcpy(&value, &bits, sizeof(value));
    return value;
}

// x <= 0; 0 below the smallest number, NaN of NaN.
RIEMEM_HD inline double portable_exp(double x) {
    if (x < -746.0) return 0.0;
    if (x != x) return x;
    const double n = std::floor(x * kLog2E + 0.5);
    const double r = (x - n * kLn2High) - n * kLn2Low;
    // Taylor: the first term left out is below 4e-18.
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const int exponent = static_cast<int>(n);
    if (exponent >= -1000) return p * power_of_two(exponent);
    return (p * power_of_two(exponent + 100)) * 0x1p-100;  // rounded once, by the second product
}

// x positive, finite and normal.
inline double portable_log(double x) {
    const auto bits = std::bit_cast<std::uint64_t>(x);
    int exponent = static_cast<int>(bits >> 52) - 1022;
    double m = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3fe0000000000000ULL);
    if (m < 0x1.6a09e667f3bcdp-1) {  // below sqrt(1/2)
        m *= 2.0;
        exponent -= 1;
    }
    const double z = (m - 1.0) / (m + 1.0);
    const double w = z * z;
    double p = 1.0 / 21.0;
    p = p * w + 1.0 / 19.0;
    p = p * w + 1.0 / 17.0;
    p = p * w + 1.0 / 15.0;
    p = p * w + 1.0 / 13.0;
    p = p * w + 1.0 / 11.0;
    p = p * w + 1.0 / 9.0;
    p = p * w + 1.0 / 7.0;
    p = p * w + 1.0 / 5.0;
    p = p * w + 1.0 / 3.0;
    p = p * w;
    const double n = static_cast<double>(exponent);
    const double twice = z + z;
    return n * kLn2High + (twice + (twice * p + n * kLn2Low));
}

struct SineCosine {
    double sine;
    double cosine;
};

// Of the angle 2 pi u, 0 <= u < 1.
inline SineCosine portable_sine_cosine(double u) {
    const double quarters = 4.0 * u;
    const double n = std::floor(quarters + 0.5);
    const double x = (quarters - n) * kHalfPi;
    const double w = x * x;
    double s = -1.0 / 1307674368000.0;
    s = s * w + 1.0 / 6227020800.0;
    s = s * w - 1.0 / 39916800.0;
    s = s * w + 1.0 / 362880.0;
    s = s * w - 1.0 / 5040.0;
    s = s * w + 1.0 / 120.0;
    s = s * w - 1.0 / 6.0;
    s = x + x * (w * s);
    double c = 1.0 / 20922789888000.0;
    c = c * w - 1.0 / 87178291200.0;
    c = c * w + 1.0 / 479001600.0;
    c = c * w - 1.0 / 3628800.0;
    c = c * w + 1.0 / 40320.0;
    c = c * w - 1.0 / 720.0;
    c = c * w + 1.0 / 24.0;
    c = c * w - 0.5;
    c = 1.0 + c * w;
    switch (static_cast<int>(n) & 3) {
        case 0:
            return {s, c};
        case 1:
            return {c, -s};
        case 2:
            return {-s, -c};
        default:
            return {-c, s};
    }
}

}  // namespace riemem
