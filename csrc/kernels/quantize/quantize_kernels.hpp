// What each instruction set provides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"

namespace riemem {

constexpr std::size_t kRotatedTogether = 8;

// What a Rotation is made of, for kernels that instantiate nothing of the standard library.
struct RotationTables {
    std::size_t d;
    const double* first_signs;
    const double* second_signs;
    const std::uint32_t* order;
};

// Up to kRotatedTogether vectors at once. `x` and `scratch` hold d * kRotatedTogether numbers,
// strip after strip of `strip` vectors whose elements alternate: element t of vector j at
// x[(j / strip * d + t) * strip + j % strip]. Arrays per vector have kRotatedTogether elements.
// Sums over a vector are eight, of the elements t = j (mod 8), added up from j = 0: the same bits
// everywhere.
struct QuantizeKernels {
    std::size_t strip;
    // x = the rotated vectors. All kRotatedTogether pointers are valid, the first `count` matter.
    void (*rotate_floats)(const RotationTables& rotation, const float* const* vectors,
                          std::size_t count, double* x, double* scratch);
    void (*rotate_doubles)(const RotationTables& rotation, const double* const* vectors,
                           std::size_t count, double* x, double* scratch);
    // Largest size of an element of each vector, and its squared length.
    void (*measure)(const double* x, std::size_t d, std::size_t count, double* most,
                    double* square);
    // Elements as the nearest int8 of x * inverse, plus 128, four in one number: element t of
    // vector j in byte t % 4 of packed[t / 4 * kRotatedTogether + j], bytes past the end 128; and
    // the squared length of what is left. Where a vector's scale and inverse are 0, so are they.
    void (*round)(const double* x, std::size_t d, std::size_t count, const double* scale,
                  const double* inverse, std::uint32_t* packed, double* rest);
};

const QuantizeKernels& quantize_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const QuantizeKernels& quantize_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const QuantizeKernels& quantize_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
const QuantizeKernels& quantize_kernels_neon();
#endif

const QuantizeKernels& quantize_kernels(Isa isa);

}  // namespace riemem
