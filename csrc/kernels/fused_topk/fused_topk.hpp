// Cosine and Riemannian scores of B queries against N rows, fused and cut to the exact top k.
//
//   cos_i   = (q . h_i) * inv_norm_i
//   rie_i   = row_scale_i * (w . h_i + offset) + row_bias_i + query_bias
//   score_i = cosine_weight * norm(cos)_i + (1 - cosine_weight) * norm(rie)_i
//
// norm is taken per query over the rows that pass the mask; where it has no spread it is 0.
// Every returned score is evaluated with the canonical float64 dot product (README.md), so ids and
// scores are the same bits on every instruction set, thread count and batch size. Ties go to the
// lower row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"

namespace riemem {

enum class Norm : int { none = 0, minmax = 1, zscore = 2 };

// What the scan reads; the decision is always made on the float32 rows.
enum class ScanStorage { float32, int8, bfloat16 };

struct FusedPoints {
    MatrixView<const float> rows;       // data may be null for bfloat16: high and low hold the rows
    const double* inv_norm = nullptr;   // (N,), 0 for a zero row
    const double* row_scale = nullptr;  // (N,) or null: 1
    const double* row_bias = nullptr;   // (N,) or null: 0

    ScanStorage storage = ScanStorage::float32;
    const float* residual = nullptr;      // (N,) |row - its copy|, int8 and bfloat16
    const std::uint8_t* tiles = nullptr;  // int8: see kernels/quantize
    const float* tile_scale = nullptr;    // int8: (N,)
    const std::uint16_t* high = nullptr;  // bfloat16: (N, d)
    const std::int16_t* low = nullptr;    // bfloat16: (N, d)
    const std::int32_t* twin = nullptr;   // (N,) lowest row with the same bits, -1 = none; or null
};

// What depends on the points alone: float32 constants per row and error scales per block. Making it
// costs one pass over (N,) arrays; it must not outlive the arrays it was made of.
class PreparedPoints {
 public:
    explicit PreparedPoints(const FusedPoints& points);
    ~PreparedPoints();
    PreparedPoints(PreparedPoints&&) noexcept;

    // Rows in blocks that no float32 bound covers; each of them is evaluated for every query.
    std::size_t unbounded_rows() const;

    const FusedPoints points;
    struct Tables;
    const Tables& tables() const { return *tables_; }

 private:
    std::unique_ptr<Tables> tables_;
};

struct FusedQueries {
    const double* q = nullptr;       // (B, d), unit rows
    const double* w = nullptr;       // (B, d), Sigma^-1 (query - mean)
    const double* offset = nullptr;  // (B,), -w . mean
    const double* bias = nullptr;    // (B,)
    std::size_t count = 0;
};

struct FusedOptions {
    double cosine_weight = 0.0;
    Norm norm = Norm::minmax;
    const std::uint8_t* mask = nullptr;  // (N,) or (B, N), 0 = leave out; null = all pass
    bool mask_per_query = false;
    Isa isa = Isa::scalar;
};

struct FusedTopkResult {
    std::int64_t* indices = nullptr;  // (B, k), -1 where fewer than k rows pass
    double* scores = nullptr;         // (B, k), NaN there
    std::int64_t* counts = nullptr;   // (B,)
    std::size_t exact_rows = 0;       // rows that were evaluated in float64, over all queries
};

void fused_topk(const PreparedPoints& points, const FusedQueries& queries,
                const FusedOptions& options, std::size_t k, FusedTopkResult& result);

// All scores; rows outside the mask get -infinity. T is float or double.
template <typename T>
void fused_scores(const FusedPoints& points, const FusedQueries& queries,
                  const FusedOptions& options, MatrixView<T> out);

// Scores without norm() and mask of one query, from the scan: out (N,). Returns the most that one
// of them can be off its defining score; infinity where no bound is known.
double fused_approximate(const PreparedPoints& points, const FusedQueries& queries,
                         const FusedOptions& options, double* out);

// The defining scores, without norm() and mask, of one query for some rows: out (count,).
void fused_some(const FusedPoints& points, const FusedQueries& queries, const FusedOptions& options,
                const std::int64_t* rows, std::size_t count, double* out);

// Each row divided by its norm in float64; a row with norm 0 becomes zeros.
void unit_rows(MatrixView<const float> rows, const double* norms, Isa isa, float* out);

// Euclidean norm of each row in float64. Returns the first row that holds NaN or an infinity, or
// -1.
std::int64_t row_norms(MatrixView<const float> rows, Isa isa, double* norms);

// out_i = sum_j ((h_i - mean) . whitening[:, j])^2, whitening (d, r) in C order.
void quadratic_rows(MatrixView<const float> rows, const double* mean, const double* whitening,
                    std::size_t rank, Isa isa, double* out);

// out_ij = sum_t x_it matrix_tj, x (count, d) and matrix (d, d) in C order; each element is one
// chain of fused multiply-adds in the order of t, so it does not depend on the other rows.
void rows_times(const double* x, std::size_t count, const double* matrix, std::size_t d,
                Nonzero nonzero, Isa isa, double* out);

}  // namespace riemem
