// Similarity of B queries to N memories that know how sure they are of each dimension.
//
//   distance_i = sum_k (q_k - h_ik)^2 p_ik                    p = 1 / variance
//   cosine_i   = (q . h_i) * inv_norm_i * query_inv_norm
//   score_i    = (1 - ramp_i) (cosine_i + 1) / 2 + ramp_i exp(-distance_i / temperature)
//
// Every returned score is evaluated in float64 in the canonical order of fused_topk (lane k % 8,
// then the fixed tree) and with the exp of core/elementary.hpp, so ids and scores are the same bits
// on every instruction set, thread count and batch size. Ties go to the lower row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"
#include "kernels/fused_topk/fused_topk.hpp"

namespace riemem {

struct FisherRaoPoints {
    MatrixView<const float> rows;
    MatrixView<const float> precision;  // (N, d), finite and positive
    const double* inv_norm = nullptr;   // (N,), 0 for a zero row
    const double* ramp = nullptr;       // (N,) in [0, 1]; null: 1

    // Whether float32 can bound the scores: see fisher_rao_scannable.
    bool scannable = false;
};

struct FisherRaoQueries {
    MatrixView<const float> rows;
    const double* inv_norm = nullptr;  // (B,), 0 for a zero query
};

struct FisherRaoOptions {
    double temperature = 15.0;
    const std::uint8_t* mask = nullptr;  // (N,) or (B, N), 0 = leave out; null = all pass
    bool mask_per_query = false;
    Isa isa = Isa::scalar;
};

// Whether no product of the float32 pass can overflow, or vanish beside what it is added to.
bool fisher_rao_scannable(const FisherRaoPoints& points);

// The result is that of fused_topk.
void fisher_rao_topk(const FisherRaoPoints& points, const FisherRaoQueries& queries,
                     const FisherRaoOptions& options, std::size_t k, FusedTopkResult& result);

// All scores; rows outside the mask get -infinity.
void fisher_rao_scores(const FisherRaoPoints& points, const FisherRaoQueries& queries,
                       const FisherRaoOptions& options, MatrixView<double> out);

}  // namespace riemem
