// Eight int32, one for each row of the question: what AVX2 and AVX-512 share.
#pragma once

#include "simd/vec.hpp"

namespace riemem {
namespace {

using Sums = __m256i;
RIEMEM_INLINE Sums plus(Sums a, Sums b) { return _mm256_add_epi32(a, b); }
RIEMEM_INLINE Sums larger(Sums a, Sums b) { return _mm256_max_epi32(a, b); }

}  // namespace
}  // namespace riemem
