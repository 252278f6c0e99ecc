#include "kernels/svd_update/svd_update_cuda.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kTile = 16;
constexpr unsigned kTileThreads = kTile * kTile;

// One tile of a product: out = left right, or 1.5 I - 0.5 left' right when kGram.
template <bool kGram>
__global__ void __launch_bounds__(kTileThreads)
    multiply(const double* left, const double* right, std::size_t lines, std::size_t depth,
             std::size_t columns, double* out) {
    RIEMEM_SHARED(double, a, kTile*(kTile + 1));
    RIEMEM_SHARED(double, b, kTile* kTile);
    const unsigned y = threadIdx.x / kTile;
    const unsigned x = threadIdx.x % kTile;
    const std::size_t line0 = blockIdx.y * std::size_t{kTile};
    const std::size_t column = blockIdx.x * std::size_t{kTile} + x;
    const std::size_t line = line0 + y;
    double sum = 0.0;
    for (std::size_t first = 0; first < depth; first += kTile) {
        if (kGram) {  // left is (depth, lines): read along its rows
            const bool inside = first + y < depth && line0 + x < lines;
            a[x * (kTile + 1) + y] = inside ? left[(first + y) * lines + line0 + x] : 0.0;
        } else {
            const bool inside = line < lines && first + x < depth;
            a[y * (kTile + 1) + x] = inside ? left[line * depth + first + x] : 0.0;
        }
        const bool inside = first + y < depth && column < columns;
        b[y * kTile + x] = inside ? right[(first + y) * columns + column] : 0.0;
        __syncthreads();
        for (unsigned t = 0; t < kTile && first + t < depth; ++t) {
            sum += a[y * (kTile + 1) + t] * b[t * kTile + x];
        }
        __syncthreads();
    }
    if (line >= lines || column >= columns) return;
    if (kGram) sum = (line == column ? 1.5 : 0.0) - 0.5 * sum;
    out[line * columns + column] = sum;
}

dim3 tiles_of(std::size_t lines, std::size_t columns) {
    return {static_cast<unsigned>((columns + kTile - 1) / kTile),
            static_cast<unsigned>((lines + kTile - 1) / kTile)};
}

}  // namespace

Status svd_rotate(const double* space, std::size_t dim, std::size_t m, const double* turn,
                  std::size_t k, double* out, cudaStream_t stream) {
    if (dim == 0 || k == 0) return cudaSuccess;
    return RIEMEM_LAUNCH((multiply<false>), tiles_of(dim, k), dim3(kTileThreads), stream, space,
                         turn, dim, m, k, out);
}

Status svd_newton_step(const double* basis, std::size_t dim, std::size_t k, double* step,
                       cudaStream_t stream) {
    if (k == 0) return cudaSuccess;
    return RIEMEM_LAUNCH((multiply<true>), tiles_of(k, k), dim3(kTileThreads), stream, basis, basis,
                         k, dim, k, step);
}

}  // namespace riemem::cuda
