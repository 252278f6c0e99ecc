// What each instruction set provides.
#pragma once

#include <cstddef>

#include "core/cpu.hpp"

namespace riemem {

constexpr std::size_t kScatterPanel = 24;  // columns packed together; tiles divide it

struct ScatterKernels {
    // out (kScatterPanel, kScatterPanel), rows `stride` apart: += sign * a' b, where the panels a
    // and b are (depth, kScatterPanel).
    void (*block)(const double* a, const double* b, std::size_t depth, double sign, double* out,
                  std::size_t stride);
};

const ScatterKernels& scatter_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const ScatterKernels& scatter_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const ScatterKernels& scatter_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
const ScatterKernels& scatter_kernels_neon();
#endif

const ScatterKernels& scatter_kernels(Isa isa);

}  // namespace riemem
