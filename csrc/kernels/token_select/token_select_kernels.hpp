// What each instruction set provides.
#pragma once

#include <cstddef>

#include "core/cpu.hpp"

namespace riemem {

struct TokenSelectKernels {
    // Sum over j of (g_j h_j)^2 in the canonical order: lane j % 8, then the fixed tree.
    double (*square_product)(const float* gradient, const float* embedding, std::size_t d);
};

const TokenSelectKernels& token_select_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const TokenSelectKernels& token_select_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const TokenSelectKernels& token_select_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
const TokenSelectKernels& token_select_kernels_neon();
#endif

const TokenSelectKernels& token_select_kernels(Isa isa);

}  // namespace riemem
