// What the kernels share: sums over lanes in a fixed order, ordered keys of floating point numbers,
// and the selection of the k-th largest key by one block.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt.hpp"

namespace riemem::cuda {

constexpr unsigned kBlockThreads = 256;
constexpr unsigned kWarpLanes = 32;

using Key = unsigned long long;

__device__ inline unsigned lane_of() { return threadIdx.x % kWarpLanes; }
__device__ inline unsigned warp_of() { return threadIdx.x / kWarpLanes; }

// An element of a row in float64, exactly.
__device__ inline double wide(float x) { return static_cast<double>(x); }
__device__ inline double wide(double x) { return x; }
__device__ inline double wide(Bfloat16 x) {
    return static_cast<double>(__uint_as_float(static_cast<unsigned>(x.bits) << 16));
}

// Keys order as the numbers do; 0 is below all of them and stands for "nothing yet".
__device__ inline Key key_of(double x) {
    const Key bits = static_cast<Key>(__double_as_longlong(x));
    return (bits >> 63) != 0 ? ~bits : bits | (Key{1} << 63);
}
__device__ inline double double_of(Key key) {
    const Key bits = (key >> 63) != 0 ? key & ~(Key{1} << 63) : ~key;
    return __longlong_as_double(static_cast<long long>(bits));
}
__device__ inline unsigned key_of(float x) {
    const unsigned bits = __float_as_uint(x);
    return (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ inline float float_of(unsigned key) {
    return __uint_as_float((key >> 31) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ inline Key warp_max(Key value) {
    for (int step = 16; step > 0; step /= 2) {
        const Key other = __shfl_xor_sync(kFullWarp, value, step);
        value = other > value ? other : value;
    }
    return value;
}

// The sum over the warp, the same in every lane.
template <typename T>
__device__ T warp_sum(T value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kFullWarp, value, step);
    return value;
}

// Eight partial sums, one in each lane of a group of eight: ((0+4)+(2+6)) + ((1+5)+(3+7)), the
// canonical order of kernels/fused_topk. Every lane of the group gets it.
__device__ inline double sum_eight(double part) {
    part += __shfl_xor_sync(kFullWarp, part, 4);
    part += __shfl_xor_sync(kFullWarp, part, 2);
    part += __shfl_xor_sync(kFullWarp, part, 1);
    return part;
}

// Sum of squares of a row by a group of eight lanes; every lane of the group gets it.
template <typename T>
__device__ inline double group_square(const T* x, std::size_t d) {
    double part = 0.0;
    for (std::size_t t = threadIdx.x % 8; t < d; t += 8) {
        const double value = wide(x[t]);
        part += value * value;
    }
    return sum_eight(part);
}

// Lane of the j-th set bit, or -1.
__device__ inline int nth_bit(unsigned bits, unsigned j) {
    for (unsigned skipped = 0; skipped < j; ++skipped) bits &= bits - 1;
    return bits == 0 ? -1 : __ffs(static_cast<int>(bits)) - 1;
}

// What select_largest found: the k-th largest key, and how many of those equal to it are among the
// k largest.
template <typename K>
struct Selected {
    K key;
    unsigned equal;
};

// The k-th largest of the keys that get(i, key) gives for i < count; at least k of them must be
// given. Called by a whole block; histogram is 256 unsigned of shared memory, found 2 of K.
template <typename K, typename Get, typename Histogram, typename Found>
__device__ Selected<K> select_largest(std::size_t count, unsigned k, const Get& get,
                                      Histogram& histogram, Found& found) {
    K prefix = 0;
    K fixed = 0;  // the bits that prefix decides
    unsigned rest = k;
    for (int shift = 8 * static_cast<int>(sizeof(K)) - 8; shift >= 0; shift -= 8) {
        for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) histogram[i] = 0u;
        __syncthreads();
        for (std::size_t i = threadIdx.x; i < count; i += blockDim.x) {
            K key;
            if (!get(i, key) || (key & fixed) != prefix) continue;
            atomicAdd(&histogram[(key >> shift) & K{255}], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned bin = 255;
            unsigned above = 0;
            for (; bin > 0; --bin) {
                const unsigned here = histogram[bin];
                if (above + here >= rest) break;
                above += here;
            }
            found[0] = static_cast<K>(bin);
            found[1] = static_cast<K>(rest - above);
        }
        __syncthreads();
        prefix |= static_cast<K>(found[0]) << shift;
        rest = static_cast<unsigned>(static_cast<K>(found[1]));
        fixed |= K{255} << shift;
    }
    return {prefix, rest};
}

}  // namespace riemem::cuda
