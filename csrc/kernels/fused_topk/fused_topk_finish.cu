// From the evaluated rows to the sorted answer.
#include "kernels/fused_topk/fused_topk_device.hpp"

namespace riemem::cuda {
namespace {

// What breaks ties: the id or the row, doubled, with the sign of a zero score in the last bit.
__device__ inline Key tie_of(const DevicePoints& points, unsigned row) {
    const unsigned plain = row & 0x7fffffffu;
    const Key id = points.ids == nullptr ? Key{plain} : static_cast<Key>(points.ids[plain]);
    return 2 * id + (row >> 31);
}

// Bitonic sort by (key descending, tie ascending); length is a power of two.
__device__ void sort_pairs(Key* keys, Key* ties, std::size_t length) {
    for (std::size_t size = 2; size <= length; size *= 2) {
        for (std::size_t step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (std::size_t i = threadIdx.x; i < length; i += blockDim.x) {
                const std::size_t j = i ^ step;
                if (j <= i) continue;
                const bool before = keys[i] > keys[j] || (keys[i] == keys[j] && ties[i] < ties[j]);
                const bool ascending = (i & size) == 0;
                if (before == ascending) continue;
                const Key key = keys[i];
                const Key tie = ties[i];
                keys[i] = keys[j];
                ties[i] = ties[j];
                keys[j] = key;
                ties[j] = tie;
            }
        }
    }
    __syncthreads();
}

// All scores are 0: the rows with the lowest ids are the best. Lists every row that passes.
__device__ void list_passing(const DevicePoints& points, const DeviceOptions& options,
                             const Workspace& work, std::size_t c, std::size_t query) {
    const std::size_t n = points.count;
    for (std::size_t row = threadIdx.x; row < n; row += blockDim.x) {
        if (!passes(options, n, query, row)) continue;
        const unsigned at = atomicAdd(&work.states[c].found, 1u);
        work.keys[c * n + at] = key_of(0.0);
        work.rows[c * n + at] = static_cast<unsigned>(row);
    }
    __syncthreads();
}

// One block for each query.
__global__ void __launch_bounds__(kBlockThreads)
    finish(DevicePoints points, DeviceQueries queries, DeviceOptions options, Workspace work,
           std::size_t begin, std::size_t k, DeviceTopk result) {
    RIEMEM_SHARED(unsigned, histogram, 256);
    RIEMEM_SHARED(Key, chosen, 2);
    RIEMEM_SHARED(unsigned, kept, 1);
    const std::size_t n = points.count;
    const std::size_t c = blockIdx.x;
    const std::size_t query = begin + c;
    if (work.states[c].mode == Mode::flat) list_passing(points, options, work, c, query);
    const Key* keys = work.keys + c * n;
    const unsigned* rows = work.rows + c * n;
    const bool empty = queries.empty != nullptr && queries.empty[query] != 0;
    const std::size_t found = empty ? 0 : work.states[c].found;
    const std::size_t width = found < k ? found : k;
    Key* sorted = work.sorted + c * work.padded_k;
    Key* ties = work.ties + c * work.padded_k;
    if (threadIdx.x == 0) kept[0] = 0u;
    Key least = 0;
    Key last_tie = ~Key{0};
    if (found > k) {
        const auto by_key = [&](std::size_t i, Key& key) {
            key = keys[i];
            return true;
        };
        const auto best =
            select_largest<Key>(found, static_cast<unsigned>(k), by_key, histogram, chosen);
        least = best.key;
        const auto by_tie = [&](std::size_t i, Key& key) {
            key = ~tie_of(points, rows[i]);
            return keys[i] == best.key;
        };
        const auto tied = select_largest<Key>(found, best.equal, by_tie, histogram, chosen);
        last_tie = ~tied.key;
    }
    __syncthreads();
    for (std::size_t i = threadIdx.x; i < found; i += blockDim.x) {
        const Key tie = tie_of(points, rows[i]);
        if (keys[i] < least || (keys[i] == least && tie > last_tie)) continue;
        const unsigned at = atomicAdd(&kept[0], 1u);
        sorted[at] = keys[i];
        ties[at] = tie;
    }
    std::size_t length = 1;
    while (length < width) length *= 2;
    for (std::size_t i = width + threadIdx.x; i < length; i += blockDim.x) {
        sorted[i] = 0;
        ties[i] = ~Key{0};
    }
    sort_pairs(sorted, ties, length);
    for (std::size_t i = threadIdx.x; i < k; i += blockDim.x) {
        const bool present = i < width;
        const double score = present ? double_of(sorted[i]) : 0.0;
        result.indices[query * k + i] = present ? static_cast<std::int64_t>(ties[i] / 2) : -1;
        result.scores[query * k + i] = !present ? NAN : (ties[i] % 2 != 0 ? -0.0 : score);
    }
    if (threadIdx.x == 0) result.counts[query] = static_cast<std::int64_t>(width);
}

}  // namespace

Status launch_finish(const DevicePoints& points, const DeviceQueries& queries,
                     const DeviceOptions& options, const Workspace& work, std::size_t begin,
                     std::size_t count, std::size_t k, const DeviceTopk& result,
                     cudaStream_t stream) {
    return RIEMEM_LAUNCH(finish, dim3(static_cast<unsigned>(count)), dim3(kBlockThreads), stream,
                         points, queries, options, work, begin, k, result);
}

}  // namespace riemem::cuda
