// CUDA on a processor without a GPU: the same kernels, one fiber per thread, checked while they
// run.
//
// Threads of a block run one after the other and change over at synchronisation points alone, in an
// order that the test chooses. Shared memory knows for every element who wrote and who read it
// since which barrier, so a missing barrier is found whatever the order. ../README.md has the list
// of what is found and what is not. Names that CUDA defines keep CUDA's spelling.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

using cudaError_t = int;
constexpr cudaError_t cudaSuccess = 0;
constexpr cudaError_t cudaErrorInvalidValue = 1;
constexpr cudaError_t cudaErrorMemoryAllocation = 2;
constexpr cudaError_t cudaErrorInsufficientDriver = 35;
constexpr cudaError_t cudaErrorNoDevice = 100;
constexpr cudaError_t cudaErrorLaunchFailure = 719;

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

namespace simt {

struct Stream;

constexpr unsigned kWarp = 32;

enum class Order { forward, reverse, shuffled };

// How the next launches run.
struct Options {
    Order order = Order::forward;
    unsigned seed = 0;
    bool deferred = false;  // launches wait until their stream is synchronised
    std::string skip_file;  // the __syncthreads of this line does nothing: a planted fault
    int skip_line = 0;
};
void set_options(const Options& options);

// Every __syncthreads that was passed since the last call: its file and line.
std::set<std::pair<std::string, int>> take_barriers();

// What was found in the first faulty launch since the last call, empty when nothing was.
std::string take_fault();
// Forgets what deferred streams still hold.
void drop_waiting();
// Launches since the last call.
std::size_t take_launches();
// The next calls of the runtime return these, as a driver that fails would; 0 ends it. `driver` is
// the version that the driver claims, 0 for none: the runtime returns 35 for one that is missing as
// for one that is too old.
void fail_device_calls(cudaError_t code, int driver = 13000);
void fail_launch_after(int launches, cudaError_t code);

// A thread that is running: its place and how many barriers it has passed.
struct Thread {
    dim3 thread, block, block_dim, grid_dim;
    unsigned id = 0;           // in the block
    unsigned block_epoch = 0;  // __syncthreads passed
    unsigned warp_epoch = 0;   // __syncwarp passed
    unsigned warp() const { return id / kWarp; }
    unsigned lane() const { return id % kWarp; }
};
extern thread_local Thread* running;

[[noreturn]] void fault(const char* what);
void block_barrier(int line, const char* file);
// Waits for the lanes in `mask`; returns what each gave.
const std::uint64_t* warp_exchange(unsigned mask, std::uint64_t value, int line, const char* what);
void warp_barrier(unsigned mask, int line);

// Who touched an element of shared memory last.
struct Access {
    int thread = -1;  // -1 nobody, -2 several
    int warp = -1;    // -2 several
    unsigned block_epoch = 0;
    unsigned warp_epoch = 0;

    bool ordered_before(const Thread& now) const {
        if (thread == -1 || thread == static_cast<int>(now.id)) return true;
        if (block_epoch < now.block_epoch) return true;
        return warp == static_cast<int>(now.warp()) && warp_epoch < now.warp_epoch;
    }
    void set(const Thread& now) {
        *this = {static_cast<int>(now.id), static_cast<int>(now.warp()), now.block_epoch,
                 now.warp_epoch};
    }
    void add(const Thread& now) {
        if (thread == -1 || block_epoch < now.block_epoch) return set(now);
        if (thread != static_cast<int>(now.id)) thread = -2;
        if (warp != static_cast<int>(now.warp())) warp = -2;
        warp_epoch = now.warp_epoch > warp_epoch ? now.warp_epoch : warp_epoch;
    }
};

struct Cell {
    Access write, read;
    bool written = false;
    bool atomic = false;  // the last write was atomic
};

struct Cells {
    const char* name;
    unsigned char* bytes;
    Cell* cells;
    std::size_t count;
};

// The array of that name in the running block, made at the first call.
Cells& shared_cells_raw(const char* name, std::size_t count, std::size_t size);

template <typename T>
Cells& shared_cells(const char* name, std::size_t count) {
    static_assert(std::is_trivially_copyable_v<T>, "shared memory has no constructors");
    return shared_cells_raw(name, count, sizeof(T));
}

void check_read(Cells& cells, std::size_t index, bool atomic);
void check_write(Cells& cells, std::size_t index, bool atomic);

template <typename T>
struct SharedSlot {  // what & of a shared element gives; atomics take it
    Cells* cells;
    std::size_t index;

    T load() const {
        check_read(*cells, index, true);
        T value;
        std::memcpy(&value, cells->bytes + index * sizeof(T), sizeof(T));
        return value;
    }
    void store(T value) const {
        check_write(*cells, index, true);
        std::memcpy(cells->bytes + index * sizeof(T), &value, sizeof(T));
    }
};

template <typename T>
class SharedRef {
 public:
    SharedRef(Cells& cells, std::size_t index) : cells_(cells), index_(index) {}
    SharedRef(const SharedRef&) = default;
    operator T() const {
        check_read(cells_, index_, false);
        T value;
        std::memcpy(&value, cells_.bytes + index_ * sizeof(T), sizeof(T));
        return value;
    }
    const SharedRef& operator=(T value) const {
        check_write(cells_, index_, false);
        std::memcpy(cells_.bytes + index_ * sizeof(T), &value, sizeof(T));
        return *this;
    }
    const SharedRef& operator=(const SharedRef& other) const {
        return *this = static_cast<T>(other);
    }
    const SharedRef& operator+=(T value) const { return *this = static_cast<T>(*this) + value; }
    SharedSlot<T> operator&() const { return {&cells_, index_}; }

 private:
    Cells& cells_;
    std::size_t index_;
};

template <typename T>
class SharedArray {
 public:
    SharedArray(Cells& cells, std::size_t) : cells_(cells) {}
    template <typename I>
    SharedRef<T> operator[](I index) const {
        return {cells_, static_cast<std::size_t>(index)};
    }

 private:
    Cells& cells_;
};

cudaError_t run(const char* name, dim3 grid, dim3 block, Stream* stream,
                std::function<void()> kernel);

template <typename F, typename... Args>
std::function<void()> bind(F kernel, Args... args) {
    return [kernel, values = std::make_tuple(args...)] { std::apply(kernel, values); };
}

inline cudaError_t launch(const char* name, dim3 grid, dim3 block, Stream* stream,
                          std::function<void()> kernel) {
    return run(name, grid, block, stream, std::move(kernel));
}

template <typename T>
std::uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    return bits;
}
template <typename T>
T from_bits(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

}  // namespace simt

using cudaStream_t = simt::Stream*;

#define threadIdx (::simt::running->thread)
#define blockIdx (::simt::running->block)
#define blockDim (::simt::running->block_dim)
#define gridDim (::simt::running->grid_dim)

inline void __syncthreads(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    simt::block_barrier(line, file);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    simt::warp_barrier(mask, line);
}
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int line = __builtin_LINE()) {
    const std::uint64_t* given = simt::warp_exchange(mask, simt::to_bits(value), line, "shuffle");
    const unsigned lane = static_cast<unsigned>(source) % simt::kWarp;
    if ((mask >> lane & 1u) == 0) simt::fault("shuffle reads a lane that its mask leaves out");
    return simt::from_bits<T>(given[lane]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int line = __builtin_LINE()) {
    return __shfl_sync(mask, value, static_cast<int>(simt::running->lane()) ^ lanes, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int line = __builtin_LINE()) {
    const unsigned lane = simt::running->lane();
    const unsigned source = lane + delta < simt::kWarp ? lane + delta : lane;
    return __shfl_sync(mask, value, static_cast<int>(source), line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    const std::uint64_t* given = simt::warp_exchange(mask, predicate != 0, line, "ballot");
    unsigned bits = 0;
    for (unsigned lane = 0; lane < simt::kWarp; ++lane) {
        if ((mask >> lane & 1u) != 0 && given[lane] != 0) bits |= 1u << lane;
    }
    return bits;
}

template <typename T, typename U>
T atomicAdd(T* at, U value) {
    const T old = *at;
    *at = old + static_cast<T>(value);
    return old;
}
template <typename T, typename U>
T atomicAdd(simt::SharedSlot<T> at, U value) {
    const T old = at.load();
    at.store(old + static_cast<T>(value));
    return old;
}
template <typename T, typename U>
T atomicMax(T* at, U value) {
    const T old = *at;
    if (static_cast<T>(value) > old) *at = static_cast<T>(value);
    return old;
}
template <typename T, typename U>
T atomicMin(T* at, U value) {
    const T old = *at;
    if (static_cast<T>(value) < old) *at = static_cast<T>(value);
    return old;
}

inline unsigned __float_as_uint(float x) { return simt::from_bits<unsigned>(simt::to_bits(x)); }
inline float __uint_as_float(unsigned x) { return simt::from_bits<float>(x); }
inline long long __double_as_longlong(double x) {
    return simt::from_bits<long long>(simt::to_bits(x));
}
inline double __longlong_as_double(long long x) {
    return simt::from_bits<double>(simt::to_bits(x));
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __dp4a(int a, int b, int c) {
    for (int j = 0; j < 4; ++j) {
        c += static_cast<std::int8_t>(static_cast<unsigned>(a) >> (8 * j)) *
             static_cast<std::int8_t>(static_cast<unsigned>(b) >> (8 * j));
    }
    return c;
}

cudaError_t cudaGetLastError();
const char* cudaGetErrorName(cudaError_t code);
const char* cudaGetErrorString(cudaError_t code);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
