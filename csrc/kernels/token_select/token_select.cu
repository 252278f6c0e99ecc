#include "cuda/warp.hpp"
#include "kernels/token_select/token_select_cuda.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kRowsPerBlock = kBlockThreads / 8;  // eight lanes to a row

__global__ void __launch_bounds__(kBlockThreads)
    sensitivity(const float* gradient, std::size_t gradient_stride, const float* embedding,
                std::size_t embedding_stride, std::size_t n, std::size_t d, double* out) {
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < n ? row : n - 1;
    double part = 0.0;
    for (std::size_t t = threadIdx.x % 8; t < d; t += 8) {
        const float product =
            gradient[safe * gradient_stride + t] * embedding[safe * embedding_stride + t];
        const double wide = static_cast<double>(product);
        part += wide * wide;
    }
    const double sum = sum_eight(part);
    if (row < n && threadIdx.x % 8 == 0) out[row] = sqrt(sum);
}

// The sum of each window is taken afresh, in its order.
__global__ void __launch_bounds__(kBlockThreads)
    smooth(const double* values, std::size_t n, std::size_t width, double* out) {
    const std::size_t i = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (i >= n) return;
    const auto half = static_cast<long long>(width / 2);
    const auto last = static_cast<long long>(n) - 1;
    const auto at = static_cast<long long>(i);
    double sum = 0.0;
    for (long long j = at - half; j <= at + half; ++j) {
        sum += values[j < 0 ? 0 : (j > last ? last : j)];
    }
    out[i] = sum / static_cast<double>(width);
}

// A thread for each unit: all look at the same token at a time, and take it in the tokens' order.
__global__ void __launch_bounds__(kBlockThreads)
    pool_tokens(const double* values, const std::int64_t* unit_of, std::size_t n, Pool pool,
                std::size_t units, double* out) {
    const std::size_t unit = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (unit >= units) return;
    double result = 0.0;
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (unit_of[i] != static_cast<std::int64_t>(unit)) continue;
        if (pool == Pool::max) {
            result = values[i] > result ? values[i] : result;
        } else {
            result += values[i];
            ++count;
        }
    }
    if (pool == Pool::mean && count > 1) result /= static_cast<double>(count);
    out[unit] = result;
}

// A thread for each unit j: the pairs a < j < b at most gap + 1 apart, in one segment throughout.
__global__ void __launch_bounds__(kBlockThreads)
    fill(const std::int64_t* entry, const std::int64_t* segments, std::size_t units,
         std::size_t gap, std::int64_t* out) {
    const std::size_t j = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (j >= units) return;
    std::int64_t best = entry[j];
    for (std::size_t back = 1; back <= gap && back <= j; ++back) {
        const std::size_t a = j - back;
        if (entry[a] == kNever) continue;
        for (std::size_t b = a + 2; b < units && b - a - 1 <= gap; ++b) {
            if (segments[b] != segments[a]) break;
            const std::int64_t both = entry[a] > entry[b] ? entry[a] : entry[b];
            if (b > j && both < best) best = both;
        }
    }
    out[j] = best;
}

dim3 blocks_of(std::size_t items, std::size_t each) {
    return {static_cast<unsigned>((items + each - 1) / each)};
}

}  // namespace

Status token_sensitivity(const float* gradient, std::size_t gradient_stride, const float* embedding,
                         std::size_t embedding_stride, std::size_t n, std::size_t d, double* out,
                         cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(sensitivity, blocks_of(n, kRowsPerBlock), dim3(kBlockThreads), stream,
                         gradient, gradient_stride, embedding, embedding_stride, n, d, out);
}

Status token_smooth(const double* values, std::size_t n, std::size_t width, double* out,
                    cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(smooth, blocks_of(n, kBlockThreads), dim3(kBlockThreads), stream, values,
                         n, width, out);
}

Status token_pool(const double* values, const std::int64_t* unit_of, std::size_t n, Pool pool,
                  std::size_t units, double* out, cudaStream_t stream) {
    if (units == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(pool_tokens, blocks_of(units, kBlockThreads), dim3(kBlockThreads), stream,
                         values, unit_of, n, pool, units, out);
}

Status fill_gaps(const std::int64_t* entry, const std::int64_t* segments, std::size_t units,
                 std::size_t gap, std::int64_t* out, cudaStream_t stream) {
    if (units == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(fill, blocks_of(units, kBlockThreads), dim3(kBlockThreads), stream, entry,
                         segments, units, gap, out);
}

}  // namespace riemem::cuda
