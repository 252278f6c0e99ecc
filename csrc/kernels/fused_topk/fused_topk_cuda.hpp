// fused_topk.hpp on a GPU: the same ids and the same bits of each score.
//
// Pointers are to device memory, work is queued on the stream, nothing is allocated and nothing
// waited for. A Status is the error code of the CUDA runtime, 0 for success. Rows number fewer than
// 2^31, int8 rows at most 32768 dimensions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/host_device.hpp"
#include "cuda/simt.hpp"
#include "kernels/fused_topk/fused_topk.hpp"

namespace riemem::cuda {

struct DevicePoints {
    std::size_t count = 0, dim = 0;
    ScanStorage storage = ScanStorage::float32;
    const float* rows = nullptr;          // float32 and int8
    std::size_t stride = 0;               // elements between rows; of high and low too
    const std::uint16_t* high = nullptr;  // bfloat16: (N, d)
    const std::int16_t* low = nullptr;    // bfloat16: (N, d), or null: the rows are bfloat16
    const std::uint8_t* tiles = nullptr;  // int8: see kernels/quantize
    const float* tile_scale = nullptr;    // int8: (N,)
    int low_mask = -1;                    // set by the functions below: 0 without low
    const float* residual = nullptr;      // int8 and bfloat16: (N,); null without low
    const double* inv_norm = nullptr;     // (N,), 0 for a zero row
    const double* row_scale = nullptr;    // (N,) or null: 1
    const double* row_bias = nullptr;     // (N,) or null: 0
    const double* part_scales = nullptr;  // (parts, kPartScales), made by fused_topk_prepare
    const std::int8_t* signs = nullptr;   // int8: (2, d), 1 or -1: see Rotation
    const std::int32_t* order = nullptr;  // int8: (d,)
    const std::int64_t* ids = nullptr;    // (N,) or null: the rows' own numbers
};

constexpr std::size_t kPartRows = 64;   // rows with their own extremes and bounds
constexpr std::size_t kPartScales = 7;  // doubles per part

RIEMEM_HD constexpr std::size_t part_count(std::size_t rows) {
    return (rows + kPartRows - 1) / kPartRows;
}

struct DeviceQueries {
    const double* q = nullptr;            // (B, d), unit rows
    const double* w = nullptr;            // (B, d)
    const double* offset = nullptr;       // (B,)
    const double* bias = nullptr;         // (B,)
    const std::uint8_t* empty = nullptr;  // (B,) or null: 1 for a query that has no hits
    std::size_t count = 0;
};

struct DeviceOptions {
    double cosine_weight = 0.0;
    Norm norm = Norm::minmax;
    const std::uint8_t* mask = nullptr;  // (N,) or (B, N), 0 = leave out; null = all pass
    bool mask_per_query = false;
    double least = -__builtin_inf();  // scores beyond these are moved to them, then ordered
    double greatest = __builtin_inf();
};

struct DeviceTopk {
    std::int64_t* indices = nullptr;  // (B, k): ids, or rows; -1 where fewer than k pass
    double* scores = nullptr;         // (B, k), NaN there
    std::int64_t* counts = nullptr;   // (B,)
};

// Fills part_scales; the arrays of `points` that it is made of must be there.
Status fused_topk_prepare(const DevicePoints& points, double* part_scales, cudaStream_t stream);

// Bytes that fused_topk needs beside its arguments, at most a fixed sum plus 44 N + 16 k.
std::size_t fused_topk_workspace(const DevicePoints& points, std::size_t queries, Norm norm,
                                 std::size_t k);

// k is at most N and at least 1. Ties go to the lower id.
Status fused_topk(const DevicePoints& points, const DeviceQueries& queries,
                  const DeviceOptions& options, std::size_t k, const DeviceTopk& result,
                  void* workspace, cudaStream_t stream);

// All scores, (B, N): -infinity outside the mask, NaN for an empty query. T is float or double.
template <typename T>
Status fused_scores(const DevicePoints& points, const DeviceQueries& queries,
                    const DeviceOptions& options, T* out, void* workspace, cudaStream_t stream);

// Euclidean norm of each row; *bad becomes the lowest row whose norm is not below `limit`, as that
// of a row with NaN or an infinity never is, or ~0. T is float, double or Bfloat16.
template <typename T>
Status row_norms(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                 double* norms, unsigned long long* bad, cudaStream_t stream,
                 double limit = __builtin_inf());

// quadratic_rows of fused_topk.hpp. T is float or Bfloat16.
template <typename T>
Status quadratic_rows(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                      const double* mean, const double* whitening, std::size_t rank, double* out,
                      cudaStream_t stream);

// The constants of each row from its norm and, for forms 1 and 2, its squared length in the metric:
// inv_norm, row_scale (form 1) and row_bias (form 2). usable (N,) becomes 0 for rows with NaN or an
// infinity; where it is given as a mask already, those stay 0.
Status row_constants(const double* norms, const double* squared, std::size_t count, int form,
                     double at_mean, double* inv_norm, double* row_scale, double* row_bias,
                     std::uint8_t* usable, cudaStream_t stream);

// Queries as a caller has them to q, w, offset, bias and empty. whitening (d, d) is the metric's,
// null for the plain cosine; form is 0 inner, 1 cosine, 2 mahalanobis. A query no longer than
// sqrt(at_mean) in the metric has no direction in it; one with NaN or an infinity is empty. With
// unit, queries are first rounded to float32 at length 1. scratch is (B, d).
struct DeviceMetric {
    const double* mean = nullptr;
    const double* whitening = nullptr;
    double at_mean = 0.0;
    int form = 0;
    bool unit = false;
};
Status fold_queries(const float* queries, std::size_t count, std::size_t dim, std::size_t stride,
                    const DeviceMetric& metric, double* q, double* w, double* offset, double* bias,
                    std::uint8_t* empty, double* scratch, cudaStream_t stream);

}  // namespace riemem::cuda
