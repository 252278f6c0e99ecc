// Every row in float64: z-scores, all scores, lengths of rows, and queries folded with the metric.
#include "kernels/fused_topk/fused_topk_device.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kRowsPerBlock = kBlockThreads / 8;  // eight lanes to a row

// Both scores of each row, and their extremes over the rows that pass.
template <bool kSplit>
__global__ void __launch_bounds__(kBlockThreads)
    score_exactly(DevicePoints points, DeviceQueries queries, DeviceOptions options, Workspace work,
                  std::size_t begin) {
    const std::size_t n = points.count;
    const std::size_t c = blockIdx.y;
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t query = begin + c;
    const std::size_t safe = row < n ? row : n - 1;
    const fused::Dots dots = dots_of<kSplit>(points, safe, queries.q + query * points.dim,
                                             queries.w + query * points.dim);
    const fused::Pair pair = pair_of(points, queries, query, safe, dots);
    Key extreme[4] = {};
    if (row < n && threadIdx.x % 8 == 0) {
        work.exact[c * 2 * n + row] = pair.cos;
        work.exact[(c * 2 + 1) * n + row] = pair.rie;
        const double values[4] = {-pair.cos, pair.cos, -pair.rie, pair.rie};
        const bool counts = passes(options, n, query, row);
        for (int which = 0; which < 4; ++which) {
            if (counts && values[which] == values[which]) extreme[which] = key_of(values[which]);
        }
    }
    for (int which = 0; which < 4; ++which) {
        const Key most = warp_max(extreme[which]);
        if (lane_of() == 0 && most != 0) atomicMax(&work.states[c].extreme[which], most);
    }
}

// Sums block by block in the order of the rows, then over the blocks: the CPU's order. pass 0 gives
// the mean, pass 1 the deviation. A thread for each block and score.
__global__ void __launch_bounds__(kBlockThreads)
    sum_blocks(DevicePoints points, DeviceOptions options, Workspace work, std::size_t begin,
               int pass) {
    const std::size_t n = points.count;
    const std::size_t blocks = (n + kSumRows - 1) / kSumRows;
    const std::size_t c = blockIdx.y;
    const std::size_t score = blockIdx.z;
    const std::size_t block = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (block >= blocks) return;
    const fused::Fusion& fusion = work.states[c].fusion;
    const double mean = score == 0 ? fusion.cos.low : fusion.rie.low;
    double sum = 0.0;
    for (std::size_t row = block * kSumRows; row < n && row < (block + 1) * kSumRows; ++row) {
        if (!passes(options, n, begin + c, row)) continue;
        const double x = work.exact[(c * 2 + score) * n + row];
        sum += pass == 0 ? x : (x - mean) * (x - mean);
    }
    work.sums[(c * 2 + score) * blocks + block] = sum;
}

__device__ fused::Normaliser range_of(const Key* extreme) {
    const double low = extreme[0] == 0 ? 0.0 : -double_of(extreme[0]);
    const double high = extreme[1] == 0 ? 0.0 : double_of(extreme[1]);
    if (high > low) return {low, high - low};
    return {0.0, 0.0};
}

// One block for each query: thread 0 for cos, thread 1 for rie.
__global__ void normalise(DevicePoints points, DeviceOptions options, Workspace work,
                          std::size_t begin, int pass) {
    RIEMEM_SHARED(unsigned, passing, 1);
    const std::size_t n = points.count;
    const std::size_t blocks = (n + kSumRows - 1) / kSumRows;
    const std::size_t c = blockIdx.x;
    QueryState& state = work.states[c];
    if (threadIdx.x == 0) passing[0] = 0u;
    __syncthreads();
    unsigned own = 0;
    for (std::size_t row = threadIdx.x; row < n; row += blockDim.x) {
        own += passes(options, n, begin + c, row) ? 1u : 0u;
    }
    atomicAdd(&passing[0], own);
    __syncthreads();
    if (threadIdx.x > 1) return;
    const std::size_t score = threadIdx.x;
    fused::Normaliser& out = score == 0 ? state.fusion.cos : state.fusion.rie;
    const fused::Normaliser range = range_of(state.extreme + 2 * score);
    if (options.norm == Norm::none) return;
    if (options.norm == Norm::minmax || !(range.width > 0.0)) {  // rounding is not spread
        out = range.width > 0.0 ? range : fused::Normaliser{0.0, 0.0};
        return;
    }
    double total = 0.0;
    for (std::size_t b = 0; b < blocks; ++b) total += work.sums[(c * 2 + score) * blocks + b];
    const double average = total / static_cast<double>(static_cast<unsigned>(passing[0]));
    if (pass == 0) {
        out = {average, 1.0};
    } else {
        out.width = sqrt(average);
    }
}

// Puts every row that passes among the candidates.
__global__ void __launch_bounds__(kBlockThreads)
    collect_all(DevicePoints points, DeviceOptions options, Workspace work, std::size_t begin) {
    const std::size_t n = points.count;
    const std::size_t c = blockIdx.y;
    const std::size_t row = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (row >= n || !passes(options, n, begin + c, row)) return;
    QueryState& state = work.states[c];
    double score = state.fusion({work.exact[c * 2 * n + row], work.exact[(c * 2 + 1) * n + row]});
    if (score != score) return;
    score = score < options.least ? options.least : score;
    score = score > options.greatest ? options.greatest : score;
    const unsigned at = atomicAdd(&state.found, 1u);
    const bool negative_zero = score == 0.0 && __double_as_longlong(score) != 0;
    work.keys[c * n + at] = key_of(negative_zero ? 0.0 : score);
    work.rows[c * n + at] = static_cast<unsigned>(row) | (negative_zero ? 0x80000000u : 0u);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    write_all(DevicePoints points, DeviceQueries queries, DeviceOptions options, Workspace work,
              std::size_t begin, T* out) {
    const std::size_t n = points.count;
    const std::size_t c = blockIdx.y;
    const std::size_t row = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (row >= n) return;
    const std::size_t query = begin + c;
    double score = -fused::kInfinity;
    if (passes(options, n, query, row)) {
        score =
            work.states[c].fusion({work.exact[c * 2 * n + row], work.exact[(c * 2 + 1) * n + row]});
        score = score < options.least ? options.least : score;
        score = score > options.greatest ? options.greatest : score;
    }
    if (queries.empty != nullptr && queries.empty[query] != 0) score = NAN;
    out[query * n + row] = static_cast<T>(score);
}

// Eight lanes to a row, in the canonical order.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    measure_rows(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                 double* norms, unsigned long long* bad, double limit) {
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < count ? row : count - 1;
    const double norm = sqrt(group_square(rows + safe * stride, dim));
    if (row >= count || threadIdx.x % 8 != 0) return;
    norms[row] = norm;
    if (!(norm < limit)) atomicMin(bad, static_cast<unsigned long long>(row));
}

// Lane c % 8 of a row takes the columns c in turn, each product in the order of the dimensions.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    square_rows(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                const double* mean, const double* whitening, std::size_t rank, double* out) {
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < count ? row : count - 1;
    double part = 0.0;
    for (std::size_t column = threadIdx.x % 8; column < rank; column += 8) {
        double projection = 0.0;
        for (std::size_t t = 0; t < dim; ++t) {
            const double x = wide(rows[safe * stride + t]) - mean[t];
            projection += x * whitening[t * rank + column];
        }
        part += projection * projection;
    }
    const double sum = sum_eight(part);
    if (row < count && threadIdx.x % 8 == 0) out[row] = sum;
}

__device__ inline double group_dot(const double* x, const double* y, std::size_t d) {
    double part = 0.0;
    for (std::size_t t = threadIdx.x % 8; t < d; t += 8) part += x[t] * y[t];
    return sum_eight(part);
}

// An element of a query, or of the query at length 1 as float32.
__device__ inline double component(const float* given, double length, std::size_t t) {
    const double x = static_cast<double>(given[t]);
    return length > 0.0 ? static_cast<double>(static_cast<float>(x / length)) : x;
}

__device__ inline double group_norm(const float* given, double length, std::size_t d) {
    double part = 0.0;
    for (std::size_t t = threadIdx.x % 8; t < d; t += 8) {
        const double x = component(given, length, t);
        part += x * x;
    }
    return sqrt(sum_eight(part));
}

__global__ void __launch_bounds__(kBlockThreads)
    make_constants(const double* norms, const double* squared, std::size_t count, int form,
                   double at_mean, double* inv_norm, double* row_scale, double* row_bias,
                   std::uint8_t* usable) {
    const std::size_t row = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (row >= count) return;
    const bool finite = norms[row] < fused::kInfinity;
    inv_norm[row] = finite && norms[row] > 0.0 ? 1.0 / norms[row] : 0.0;
    if (form == 1) row_scale[row] = squared[row] > at_mean ? 1.0 / sqrt(squared[row]) : 0.0;
    if (form == 2) row_bias[row] = finite ? -squared[row] : 0.0;
    if (!finite) usable[row] = 0;
}

// One block for each query: unit length, then through the whitening and back.
__global__ void __launch_bounds__(kBlockThreads)
    fold(const float* queries, std::size_t dim, std::size_t stride, DeviceMetric metric, double* q,
         double* w, double* offset, double* bias, std::uint8_t* empty, double* scratch) {
    const std::size_t d = dim;
    const float* given = queries + blockIdx.x * stride;
    double* unit = q + blockIdx.x * d;
    double* weight = w + blockIdx.x * d;
    double* white = scratch + blockIdx.x * d;
    double norm = group_norm(given, 0.0, d);  // every group of eight finds the same
    const bool usable = norm > 0.0 && norm < fused::kInfinity;
    const double length = metric.unit && usable ? norm : 0.0;
    if (length > 0.0) norm = group_norm(given, length, d);
    const double inverse = usable ? 1.0 / norm : 0.0;
    for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) {
        unit[t] = usable ? component(given, length, t) * inverse : 0.0;
        weight[t] = 0.0;
    }
    __syncthreads();
    double squared = 0.0;
    double along = 0.0;
    if (metric.whitening != nullptr && usable) {
        for (std::size_t j = threadIdx.x; j < d; j += blockDim.x) {
            double sum = 0.0;
            for (std::size_t t = 0; t < d; ++t) {
                const double x = component(given, length, t) - metric.mean[t];
                sum += x * metric.whitening[t * d + j];
            }
            white[j] = sum;
        }
        __syncthreads();
        for (std::size_t first = 0; first < d; first += blockDim.x / 8) {
            const std::size_t t = first + threadIdx.x / 8;
            const std::size_t safe = t < d ? t : d - 1;  // every lane of a warp must come along
            const double sum = group_dot(white, metric.whitening + safe * d, d);
            if (t < d && threadIdx.x % 8 == 0) weight[t] = sum;
        }
        __syncthreads();
        squared = group_dot(white, white, d);
        along = group_dot(weight, metric.mean, d);
    }
    double factor = 1.0;
    if (metric.form == 2) factor = 2.0;
    if (metric.form == 1) factor = squared > metric.at_mean ? 1.0 / sqrt(squared) : 0.0;
    for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) weight[t] *= factor;
    if (threadIdx.x != 0) return;
    offset[blockIdx.x] = -along * factor;
    bias[blockIdx.x] = metric.form == 2 ? -squared : 0.0;
    empty[blockIdx.x] = usable ? 0 : 1;
}

dim3 grid_of(std::size_t items, std::size_t each, std::size_t y = 1, std::size_t z = 1) {
    return {static_cast<unsigned>((items + each - 1) / each), static_cast<unsigned>(y),
            static_cast<unsigned>(z)};
}

Status score_all(const DevicePoints& points, const DeviceQueries& queries,
                 const DeviceOptions& options, const Workspace& work, std::size_t begin,
                 std::size_t count, cudaStream_t stream) {
    const dim3 block(kBlockThreads);
    const dim3 grid = grid_of(points.count, kRowsPerBlock, count);
    Status status = points.storage == ScanStorage::bfloat16
                        ? RIEMEM_LAUNCH((score_exactly<true>), grid, block, stream, points, queries,
                                        options, work, begin)
                        : RIEMEM_LAUNCH((score_exactly<false>), grid, block, stream, points,
                                        queries, options, work, begin);
    const std::size_t blocks = (points.count + kSumRows - 1) / kSumRows;
    for (int pass = 0; pass < 2 && status == cudaSuccess; ++pass) {
        if (options.norm == Norm::zscore) {
            status = RIEMEM_LAUNCH(sum_blocks, grid_of(blocks, kBlockThreads, count, 2), block,
                                   stream, points, options, work, begin, pass);
            if (status != cudaSuccess) return status;
        } else if (pass == 1) {
            break;
        }
        status = RIEMEM_LAUNCH(normalise, dim3(static_cast<unsigned>(count)), block, stream, points,
                               options, work, begin, pass);
    }
    return status;
}

}  // namespace

Status launch_exact(const DevicePoints& points, const DeviceQueries& queries,
                    const DeviceOptions& options, const Workspace& work, std::size_t begin,
                    std::size_t count, cudaStream_t stream) {
    const Status status = score_all(points, queries, options, work, begin, count, stream);
    if (status != cudaSuccess) return status;
    return RIEMEM_LAUNCH(collect_all, grid_of(points.count, kBlockThreads, count),
                         dim3(kBlockThreads), stream, points, options, work, begin);
}

template <typename T>
Status fused_scores(const DevicePoints& given, const DeviceQueries& queries,
                    const DeviceOptions& options, T* out, void* workspace, cudaStream_t stream) {
    const DevicePoints points = with_low(given);
    const Workspace work = workspace_of(points, queries.count, true, 0, workspace);
    for (std::size_t begin = 0; begin < queries.count; begin += work.together) {
        const std::size_t rest = queries.count - begin;
        const std::size_t count = rest < work.together ? rest : work.together;
        Status status = launch_states(points, queries, options, work, begin, count, stream);
        if (status != cudaSuccess) return status;
        status = score_all(points, queries, options, work, begin, count, stream);
        if (status != cudaSuccess) return status;
        status =
            RIEMEM_LAUNCH((write_all<T>), grid_of(points.count, kBlockThreads, count),
                          dim3(kBlockThreads), stream, points, queries, options, work, begin, out);
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}

template Status fused_scores(const DevicePoints&, const DeviceQueries&, const DeviceOptions&,
                             float*, void*, cudaStream_t);
template Status fused_scores(const DevicePoints&, const DeviceQueries&, const DeviceOptions&,
                             double*, void*, cudaStream_t);

template <typename T>
Status row_norms(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                 double* norms, unsigned long long* bad, cudaStream_t stream, double limit) {
    // All bits set is above every row.
    const Status status = cudaMemsetAsync(bad, 0xff, sizeof(*bad), stream);
    if (status != cudaSuccess || count == 0) return status;
    return RIEMEM_LAUNCH((measure_rows<T>), grid_of(count, kRowsPerBlock), dim3(kBlockThreads),
                         stream, rows, count, dim, stride, norms, bad, limit);
}

template Status row_norms(const float*, std::size_t, std::size_t, std::size_t, double*,
                          unsigned long long*, cudaStream_t, double);
template Status row_norms(const double*, std::size_t, std::size_t, std::size_t, double*,
                          unsigned long long*, cudaStream_t, double);
template Status row_norms(const Bfloat16*, std::size_t, std::size_t, std::size_t, double*,
                          unsigned long long*, cudaStream_t, double);

template <typename T>
Status quadratic_rows(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                      const double* mean, const double* whitening, std::size_t rank, double* out,
                      cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    return RIEMEM_LAUNCH((square_rows<T>), grid_of(count, kRowsPerBlock), dim3(kBlockThreads),
                         stream, rows, count, dim, stride, mean, whitening, rank, out);
}

template Status quadratic_rows(const float*, std::size_t, std::size_t, std::size_t, const double*,
                               const double*, std::size_t, double*, cudaStream_t);
template Status quadratic_rows(const Bfloat16*, std::size_t, std::size_t, std::size_t,
                               const double*, const double*, std::size_t, double*, cudaStream_t);

Status row_constants(const double* norms, const double* squared, std::size_t count, int form,
                     double at_mean, double* inv_norm, double* row_scale, double* row_bias,
                     std::uint8_t* usable, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(make_constants, grid_of(count, kBlockThreads), dim3(kBlockThreads), stream,
                         norms, squared, count, form, at_mean, inv_norm, row_scale, row_bias,
                         usable);
}

Status fold_queries(const float* queries, std::size_t count, std::size_t dim, std::size_t stride,
                    const DeviceMetric& metric, double* q, double* w, double* offset, double* bias,
                    std::uint8_t* empty, double* scratch, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(fold, dim3(static_cast<unsigned>(count)), dim3(kBlockThreads), stream,
                         queries, dim, stride, metric, q, w, offset, bias, empty, scratch);
}

}  // namespace riemem::cuda
