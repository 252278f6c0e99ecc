// What a .cu file includes: the CUDA runtime under nvcc, the SIMT shim under a C++ compiler.
//
// Kernels keep to what both understand: RIEMEM_SHARED for shared memory, RIEMEM_LAUNCH for
// launches, __syncthreads, __syncwarp, width-32 _sync shuffles and ballots, atomics. README.md says
// what the shim checks and what it cannot.
#pragma once

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define RIEMEM_UNROLL _Pragma("unroll")
#define RIEMEM_UNROLL_4 _Pragma("unroll 4")
#define RIEMEM_SHARED(T, name, count) __shared__ T name[count]
#define RIEMEM_LAUNCH(kernel, grid, block, stream, ...) \
    (kernel<<<(grid), (block), 0, (stream)>>>(__VA_ARGS__), cudaGetLastError())

#elif defined(RIEMEM_CUDA_HOST)

#include <cuda_runtime_api.h>  // host code beside kernels of nvcc

#else

#include "cuda/shim/simt_shim.hpp"

#define RIEMEM_UNROLL
#define RIEMEM_UNROLL_4
#define RIEMEM_SHARED(T, name, count) \
    ::simt::SharedArray<T> name(::simt::shared_cells<T>(#name, count), (count))
#define RIEMEM_LAUNCH(kernel, grid, block, stream, ...) \
    ::simt::launch(#kernel, (grid), (block), (stream),  \
                   ::simt::bind([](auto... args) { kernel(args...); }, __VA_ARGS__))

#endif

#include <cstdint>

namespace riemem::cuda {

// An element of rows that their owner holds as bfloat16.
struct Bfloat16 {
    std::uint16_t bits;
};

constexpr unsigned kFullWarp = 0xffffffffu;

// The error code of the CUDA runtime; 0 is success.
using Status = int;

}  // namespace riemem::cuda
