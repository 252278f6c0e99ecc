// What each instruction set provides to the search in fisher_rao_dispatch.cpp.
#pragma once

#include <cstddef>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"

namespace riemem {

constexpr std::size_t kFisherRows = 64;  // rows that meet all queries while they are in the cache
constexpr std::size_t kFisherTogether = 4;  // queries that share one reading of a row

// What turns the two sums of a row into its approximate score, as float32.
struct FisherTerms {
    const float* inv_norm;  // (n,)
    const float* ramp;      // (n,) or null: 1
    float query_inv_norm;
    float inverse_temperature;
};

struct FisherRaoKernels {
    // Most rounded operations between an input and either sum.
    std::size_t (*roundings)(std::size_t d);

    // `count` <= kFisherTogether queries, (count, padded) with zeros after d, against n <=
    // kFisherRows rows: out (count, 2, kFisherRows) gets the distance, then the dot product.
    void (*scan)(MatrixView<const float> rows, MatrixView<const float> precision,
                 const float* queries, std::size_t padded, std::size_t count, float* out);
    // Approximate scores, within kFisherExpError + the error of the sums.
    void (*finish)(const float* distance, const float* dot, std::size_t n, const FisherTerms& terms,
                   float* out);

    // The canonical sums: distance, then dot product.
    void (*pair)(const float* row, const float* precision, const float* query, std::size_t d,
                 double out[2]);
};

// Most that the float32 exp of `finish` is off for a given argument.
constexpr double kFisherExpError = 1e-6;

const FisherRaoKernels& fisher_rao_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const FisherRaoKernels& fisher_rao_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const FisherRaoKernels& fisher_rao_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
const FisherRaoKernels& fisher_rao_kernels_neon();
#endif

const FisherRaoKernels& fisher_rao_kernels(Isa isa);

}  // namespace riemem
