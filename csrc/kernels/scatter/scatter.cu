// The rank-b update of the scatter matrix, chunk by chunk as the processor takes them.
#include "cuda/warp.hpp"
#include "kernels/scatter/scatter.hpp"
#include "kernels/scatter/scatter_cuda.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kTile = 32;            // lines and columns of the matrix in one block
constexpr unsigned kTileThreads = 256;    // 16 x 16, each with 2 x 2 elements
constexpr unsigned kStage = 16;           // rows in shared memory at a time
constexpr std::size_t kShiftRows = 4096;  // rows whose sum is taken alone

__device__ inline bool holds_bad(const unsigned long long* bad, std::size_t count) {
    return bad != nullptr && *bad < count;
}

// One tile of the lower triangle. The sum over a chunk of kScatterDepth rows starts at zero, runs
// in the order of the rows, and is then added to what was there.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    add_tile(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
             const double* shift, double sign, double* scatter, const unsigned long long* bad) {
    RIEMEM_SHARED(double, left, kStage* kTile);
    RIEMEM_SHARED(double, right, kStage* kTile);
    if (blockIdx.x > blockIdx.y) return;  // above the diagonal
    if (holds_bad(bad, count)) return;
    const std::size_t line0 = blockIdx.y * std::size_t{kTile};
    const std::size_t column0 = blockIdx.x * std::size_t{kTile};
    const unsigned y = threadIdx.x / 16 * 2;
    const unsigned x = threadIdx.x % 16 * 2;
    double sums[2][2] = {};
    for (std::size_t first = 0; first < count; first += kStage) {
        for (unsigned i = threadIdx.x; i < kStage * kTile; i += kTileThreads) {
            const std::size_t row = first + i / kTile;
            const std::size_t line = line0 + i % kTile;
            const std::size_t column = column0 + i % kTile;
            const bool inside = row < count;
            left[i] = inside && line < dim ? wide(rows[row * stride + line]) - shift[line] : 0.0;
            right[i] =
                inside && column < dim ? wide(rows[row * stride + column]) - shift[column] : 0.0;
        }
        __syncthreads();
        const std::size_t rest = count - first;
        const unsigned depth = rest < kStage ? static_cast<unsigned>(rest) : kStage;
        for (unsigned r = 0; r < depth; ++r) {
            const double a[2] = {left[r * kTile + y], left[r * kTile + y + 1]};
            const double b[2] = {right[r * kTile + x], right[r * kTile + x + 1]};
            for (unsigned i = 0; i < 2; ++i) {
                for (unsigned j = 0; j < 2; ++j) sums[i][j] += a[i] * b[j];
            }
        }
        const bool chunk_ends = (first + kStage) % kScatterDepth == 0 || first + kStage >= count;
        for (unsigned i = 0; i < 2 && chunk_ends; ++i) {
            for (unsigned j = 0; j < 2; ++j) {
                const std::size_t line = line0 + y + i;
                const std::size_t column = column0 + x + j;
                if (line < dim && column <= line) scatter[line * dim + column] += sign * sums[i][j];
                sums[i][j] = 0.0;
            }
        }
        __syncthreads();
    }
}

// A thread for each column.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    add_total(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
              const double* shift, double sign, double* total, const unsigned long long* bad) {
    const std::size_t column = blockIdx.x * std::size_t{kTileThreads} + threadIdx.x;
    if (column >= dim || holds_bad(bad, count)) return;
    double all = total[column];
    for (std::size_t first = 0; first < count; first += kScatterDepth) {
        double sum = 0.0;
        for (std::size_t row = first; row < count && row < first + kScatterDepth; ++row) {
            sum += wide(rows[row * stride + column]) - shift[column];
        }
        all += sign * sum;
    }
    total[column] = all;
}

// A thread for each column; the order is the processor's.
template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    find_shift(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
               const unsigned long long* bad, double* shift) {
    const std::size_t column = blockIdx.x * std::size_t{kTileThreads} + threadIdx.x;
    if (column >= dim) return;
    const double first = holds_bad(bad, count) ? 0.0 : wide(rows[column]);
    double total = 0.0;
    for (std::size_t begin = 0; begin < count && !holds_bad(bad, count); begin += kShiftRows) {
        double sum = 0.0;
        for (std::size_t row = begin; row < count && row < begin + kShiftRows; ++row) {
            sum += wide(rows[row * stride + column]) - first;
        }
        total += sum;
    }
    shift[column] = first + total / static_cast<double>(count);
}

__global__ void __launch_bounds__(kTileThreads)
    make_covariance(const double* total, const double* scatter, std::size_t dim, double n,
                    double* out) {
    const std::size_t at = blockIdx.x * std::size_t{kTileThreads} + threadIdx.x;
    if (at >= dim * dim) return;
    const std::size_t line = at / dim > at % dim ? at / dim : at % dim;
    const std::size_t column = at / dim > at % dim ? at % dim : at / dim;
    out[at] = scatter[line * dim + column] / n - (total[line] / n) * (total[column] / n);
}

}  // namespace

template <typename T>
Status scatter_add(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                   const double* shift, double sign, double* total, double* scatter,
                   cudaStream_t stream, const unsigned long long* bad) {
    if (count == 0 || dim == 0) return cudaSuccess;
    const auto tiles = static_cast<unsigned>((dim + kTile - 1) / kTile);
    const Status status =
        RIEMEM_LAUNCH((add_tile<T>), dim3(tiles, tiles), dim3(kTileThreads), stream, rows, count,
                      dim, stride, shift, sign, scatter, bad);
    if (status != cudaSuccess) return status;
    const auto blocks = static_cast<unsigned>((dim + kTileThreads - 1) / kTileThreads);
    return RIEMEM_LAUNCH((add_total<T>), dim3(blocks), dim3(kTileThreads), stream, rows, count, dim,
                         stride, shift, sign, total, bad);
}

template Status scatter_add(const float*, std::size_t, std::size_t, std::size_t, const double*,
                            double, double*, double*, cudaStream_t, const unsigned long long*);
template Status scatter_add(const double*, std::size_t, std::size_t, std::size_t, const double*,
                            double, double*, double*, cudaStream_t, const unsigned long long*);
template Status scatter_add(const Bfloat16*, std::size_t, std::size_t, std::size_t, const double*,
                            double, double*, double*, cudaStream_t, const unsigned long long*);

template <typename T>
Status scatter_shift(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                     const unsigned long long* bad, double* shift, cudaStream_t stream) {
    if (count == 0 || dim == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((dim + kTileThreads - 1) / kTileThreads);
    return RIEMEM_LAUNCH((find_shift<T>), dim3(blocks), dim3(kTileThreads), stream, rows, count,
                         dim, stride, bad, shift);
}

template Status scatter_shift(const float*, std::size_t, std::size_t, std::size_t,
                              const unsigned long long*, double*, cudaStream_t);
template Status scatter_shift(const double*, std::size_t, std::size_t, std::size_t,
                              const unsigned long long*, double*, cudaStream_t);
template Status scatter_shift(const Bfloat16*, std::size_t, std::size_t, std::size_t,
                              const unsigned long long*, double*, cudaStream_t);

Status scatter_covariance(const double* total, const double* scatter, std::size_t dim, double n,
                          double* out, cudaStream_t stream) {
    if (dim == 0) return cudaSuccess;
    const auto blocks = static_cast<unsigned>((dim * dim + kTileThreads - 1) / kTileThreads);
    return RIEMEM_LAUNCH(make_covariance, dim3(blocks), dim3(kTileThreads), stream, total, scatter,
                         dim, n, out);
}

}  // namespace riemem::cuda
