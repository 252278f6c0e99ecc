#include "core/elementary.hpp"
#include "kernels/fisher_rao/fisher_rao_cuda.hpp"
#include "kernels/fused_topk/fused_topk_device.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kRowsPerBlock = kBlockThreads / 8;  // eight lanes to a row

// The defining score of a row, by the eight lanes of a group, in the processor's order.
__device__ inline double score_of(const DeviceFisherPoints& points,
                                  const DeviceFisherQueries& queries, double temperature,
                                  std::size_t query, std::size_t row) {
    const float* h = points.rows + row * points.stride;
    const float* p = points.precision + row * points.precision_stride;
    const float* q = queries.rows + query * queries.stride;
    double distance = 0.0;
    double dot = 0.0;
    for (std::size_t t = threadIdx.x % 8; t < points.dim; t += 8) {
        const double x = static_cast<double>(q[t]);
        const double y = static_cast<double>(h[t]);
        const double difference = x - y;
        distance += (difference * difference) * static_cast<double>(p[t]);
        dot += x * y;
    }
    distance = sum_eight(distance);
    dot = sum_eight(dot);
    const double similarity = portable_exp(-(distance / temperature));
    if (points.ramp == nullptr) return similarity;
    const double cosine = (dot * points.inv_norm[row]) * queries.inv_norm[query];
    return (1.0 - points.ramp[row]) * (0.5 * (cosine + 1.0)) + points.ramp[row] * similarity;
}

__device__ inline bool fisher_passes(const DeviceFisherOptions& options, std::size_t rows,
                                     std::size_t query, std::size_t row) {
    if (options.mask == nullptr) return true;
    return options.mask[(options.mask_per_query ? query * rows : 0) + row] != 0;
}

__global__ void begin_search(Workspace work, std::size_t count) {
    if (threadIdx.x >= count) return;
    work.states[threadIdx.x].mode = Mode::everything;
    work.states[threadIdx.x].found = 0;
}

__global__ void __launch_bounds__(kBlockThreads)
    collect_fisher(DeviceFisherPoints points, DeviceFisherQueries queries,
                   DeviceFisherOptions options, Workspace work, std::size_t begin) {
    const std::size_t n = points.count;
    const std::size_t c = blockIdx.y;
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < n ? row : n - 1;
    const double score = score_of(points, queries, options.temperature, begin + c, safe);
    if (row >= n || threadIdx.x % 8 != 0 || !fisher_passes(options, n, begin + c, row)) return;
    if (queries.empty != nullptr && queries.empty[begin + c] != 0) return;
    if (score != score) return;
    const unsigned at = atomicAdd(&work.states[c].found, 1u);
    const bool negative_zero = score == 0.0 && __double_as_longlong(score) != 0;
    work.keys[c * n + at] = key_of(negative_zero ? 0.0 : score);
    work.rows[c * n + at] = static_cast<unsigned>(row) | (negative_zero ? 0x80000000u : 0u);
}

__global__ void __launch_bounds__(kBlockThreads)
    write_fisher(DeviceFisherPoints points, DeviceFisherQueries queries,
                 DeviceFisherOptions options, double* out) {
    const std::size_t n = points.count;
    const std::size_t query = blockIdx.y;
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < n ? row : n - 1;
    const double score = score_of(points, queries, options.temperature, query, safe);
    if (row >= n || threadIdx.x % 8 != 0) return;
    const bool empty = queries.empty != nullptr && queries.empty[query] != 0;
    const double given = fisher_passes(options, n, query, row) ? score : -fused::kInfinity;
    out[query * n + row] = empty ? NAN : given;
}

// A thread for each element; several may find the same fault.
__global__ void __launch_bounds__(kBlockThreads)
    invert_variances(const float* variances, std::size_t count, std::size_t dim, std::size_t stride,
                     float* precision, std::uint8_t* usable) {
    const std::size_t at = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    const std::size_t row = at / dim;
    if (row >= (stride == 0 ? 1 : count)) return;
    const float variance = variances[row * stride + at % dim];
    const auto inverse = static_cast<float>(1.0 / static_cast<double>(variance));
    precision[at] = inverse;
    if (variance > 0.0f && variance < INFINITY && inverse < INFINITY) return;
    const std::size_t last = stride == 0 ? count : row + 1;
    for (std::size_t i = row; i < last; ++i) usable[i] = 0;
}

__global__ void __launch_bounds__(kBlockThreads)
    check_ramps(const double* ramp, std::size_t count, std::uint8_t* usable) {
    const std::size_t row = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (row < count && !(ramp[row] >= 0.0 && ramp[row] <= 1.0)) usable[row] = 0;
}

__global__ void __launch_bounds__(kBlockThreads)
    mark_empty(const double* norms, std::size_t count, std::uint8_t* empty) {
    const std::size_t row = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (row < count) empty[row] = norms[row] > 0.0 && norms[row] < fused::kInfinity ? 0 : 1;
}

dim3 blocks_of(std::size_t items) {
    return {static_cast<unsigned>((items + kBlockThreads - 1) / kBlockThreads)};
}

dim3 groups_of(std::size_t rows, std::size_t queries) {
    return {static_cast<unsigned>((rows + kRowsPerBlock - 1) / kRowsPerBlock),
            static_cast<unsigned>(queries)};
}

DevicePoints plain(std::size_t rows, std::size_t dim, const std::int64_t* ids) {
    DevicePoints points;
    points.count = rows;
    points.dim = dim;
    points.ids = ids;
    return points;
}

}  // namespace

std::size_t fisher_rao_workspace(std::size_t rows, std::size_t dim, std::size_t queries,
                                 std::size_t k) {
    return workspace_of(plain(rows, dim, nullptr), queries, false, k, nullptr).bytes;
}

Status fisher_rao_topk(const DeviceFisherPoints& points, const DeviceFisherQueries& queries,
                       const DeviceFisherOptions& options, std::size_t k, const DeviceTopk& result,
                       void* workspace, cudaStream_t stream) {
    const DevicePoints named = plain(points.count, points.dim, points.ids);
    const Workspace work = workspace_of(named, queries.count, false, k, workspace);
    const dim3 block(kBlockThreads);
    for (std::size_t begin = 0; begin < queries.count; begin += work.together) {
        const std::size_t rest = queries.count - begin;
        const std::size_t count = rest < work.together ? rest : work.together;
        Status status = RIEMEM_LAUNCH(begin_search, dim3(1), dim3(kTogether), stream, work, count);
        if (status == cudaSuccess) {
            status = RIEMEM_LAUNCH(collect_fisher, groups_of(points.count, count), block, stream,
                                   points, queries, options, work, begin);
        }
        if (status == cudaSuccess) {
            status = launch_finish(named, {}, {}, work, begin, count, k, result, stream);
        }
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}

Status fisher_rao_scores(const DeviceFisherPoints& points, const DeviceFisherQueries& queries,
                         const DeviceFisherOptions& options, double* out, cudaStream_t stream) {
    if (points.count == 0 || queries.count == 0) return cudaSuccess;
    // A grid has at most 65535 blocks in this direction.
    constexpr std::size_t kMostQueries = 32768;
    for (std::size_t begin = 0; begin < queries.count; begin += kMostQueries) {
        DeviceFisherQueries part = queries;
        DeviceFisherOptions own = options;
        part.rows += begin * queries.stride;
        part.inv_norm += begin;
        part.count = queries.count - begin < kMostQueries ? queries.count - begin : kMostQueries;
        if (own.mask_per_query && own.mask != nullptr) own.mask += begin * points.count;
        if (part.empty != nullptr) part.empty += begin;
        const Status status =
            RIEMEM_LAUNCH(write_fisher, groups_of(points.count, part.count), dim3(kBlockThreads),
                          stream, points, part, own, out + begin * points.count);
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}

Status fisher_rao_precision(const float* variances, std::size_t count, std::size_t dim,
                            std::size_t stride, const double* ramp, float* precision,
                            std::uint8_t* usable, cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const std::size_t rows = stride == 0 ? 1 : count;
    const Status status =
        RIEMEM_LAUNCH(invert_variances, blocks_of(rows * dim), dim3(kBlockThreads), stream,
                      variances, count, dim, stride, precision, usable);
    if (status != cudaSuccess || ramp == nullptr) return status;
    return RIEMEM_LAUNCH(check_ramps, blocks_of(count), dim3(kBlockThreads), stream, ramp, count,
                         usable);
}

Status fisher_rao_empty(const double* norms, std::size_t count, std::uint8_t* empty,
                        cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(mark_empty, blocks_of(count), dim3(kBlockThreads), stream, norms, count,
                         empty);
}

}  // namespace riemem::cuda
