// Streaming assignment in float64 throughout: what a GPU spends on reading the rows hides it, and
// nothing has to be certified.
#include "cuda/warp.hpp"
#include "kernels/max_member/max_member_cuda.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kRowsPerBlock = kBlockThreads / 8;  // eight lanes to a row

// The defining value, from canonical sums.
__device__ inline double cosine(double dot, double square_a, double square_b) {
    const double product = square_a * square_b;
    if (!(product > 0.0)) return 0.0;
    const double value = dot / sqrt(product);
    return value < -1.0 ? -1.0 : (value > 1.0 ? 1.0 : value);
}

__device__ inline bool stopped(const unsigned long long* bad) {
    return bad != nullptr && *bad != ~0ull;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    inspect(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
            std::size_t first, double* norms, unsigned long long* bad) {
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < count ? row : count - 1;
    const double norm = sqrt(group_square(rows + safe * stride, dim));
    if (row >= count || threadIdx.x % 8 != 0) return;
    norms[row] = norm;
    if (!(norm > 0.0 && norm < INFINITY)) {
        atomicMin(bad, static_cast<unsigned long long>(first + row));
    }
}

// A thread for each element.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    place(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
          const double* norms, float* out, const unsigned long long* bad) {
    const std::size_t at = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    const std::size_t row = at / dim;
    if (row >= count || stopped(bad)) return;
    const double x = wide(rows[row * stride + at % dim]);
    int exponent = 0;
    if (norms[row] < 0.5 || norms[row] >= 2.0) frexp(norms[row], &exponent);
    out[at] = static_cast<float>(ldexp(x, -exponent));
}

__global__ void __launch_bounds__(kBlockThreads)
    name_rows(const std::int64_t* atom, std::size_t count, const std::int64_t* names,
              std::size_t known, std::int64_t next, std::int64_t* labels) {
    const std::size_t row = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (row >= count) return;
    const std::int64_t slot = atom[row];
    const auto old = static_cast<std::int64_t>(known);
    if (slot < 0) {
        labels[row] = -1;
    } else {
        labels[row] = slot < old ? names[slot] : next + (slot - old);
    }
}

__global__ void __launch_bounds__(kBlockThreads)
    measure(const float* rows, std::size_t dim, std::size_t count, const unsigned long long* bad,
            double* squares) {
    if (stopped(bad)) return;  // the rows are not there
    const std::size_t row = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const std::size_t safe = row < count ? row : count - 1;
    const double square = group_square(rows + safe * dim, dim);
    if (row < count && threadIdx.x % 8 == 0) squares[row] = square;
}

// values: the cosines of the chunk to the rows that are members, then to the centres.
__global__ void __launch_bounds__(kBlockThreads)
    find_cosines(DeviceAtoms state, const float* chunk, std::size_t members, double* values) {
    if (stopped(state.bad)) return;
    const std::size_t entries = members + static_cast<std::size_t>(*state.counts);
    const std::size_t entry = blockIdx.x * std::size_t{kRowsPerBlock} + threadIdx.x / 8;
    const double own = group_square(chunk, state.dim);
    double dot = 0.0;
    double other = 0.0;
    // A group that is past the end comes along: all lanes of a warp meet in the sums.
    if (entry >= members && entry < entries) {
        const std::size_t atom = entry - members;
        const double* sum = state.sums + atom * state.padded;
        for (std::size_t t = threadIdx.x % 8; t < state.dim; t += 8) {
            dot += static_cast<double>(chunk[t]) * sum[t];
        }
        other = state.sum_squares[atom];
    } else if (entry < members) {
        const float* row = state.rows + entry * state.dim;
        for (std::size_t t = threadIdx.x % 8; t < state.dim; t += 8) {
            dot += static_cast<double>(row[t]) * static_cast<double>(chunk[t]);
        }
        other = state.squares[entry];
    }
    dot = sum_eight(dot);
    if (entry < entries && threadIdx.x % 8 == 0) values[entry] = cosine(dot, other, own);
}

// The largest key over the block, the same in every thread. parts is 8 keys of shared memory.
template <typename Parts>
__device__ Key block_max(Key value, Parts& parts) {
    value = warp_max(value);
    __syncthreads();
    if (lane_of() == 0) parts[warp_of()] = value;
    __syncthreads();
    Key most = 0;
    for (unsigned i = 0; i < kBlockThreads / kWarpLanes; ++i) {
        const Key part = parts[i];
        most = part > most ? part : most;
    }
    return most;
}

// The winner among the cosines of one chunk. members: rows that count; 0 by centres alone.
struct Winner {
    double best;
    std::size_t atom;
};

template <typename Parts>
__device__ Winner decide(const DeviceAtoms& state, Route route, std::size_t members,
                         std::size_t atoms, const double* values, Parts& parts) {
    const double* centres = values + members;
    const bool all = route == Route::max_member;
    const std::size_t first = all ? 0 : members;
    const std::size_t end = members + atoms;
    Key own = 0;
    for (std::size_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        const Key key = key_of(values[i]);
        own = key > own ? key : own;
    }
    const double best = double_of(block_max(own, parts));
    // Among the atoms that reach it the one with the highest centre, then the oldest.
    const auto atom_of = [&](std::size_t i) {
        return i < members ? static_cast<std::size_t>(state.atom[i]) : i - members;
    };
    own = 0;
    for (std::size_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        if (values[i] != best) continue;
        const Key key = key_of(centres[atom_of(i)]);
        own = key > own ? key : own;
    }
    const double highest = double_of(block_max(own, parts));
    own = 0;
    for (std::size_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        if (values[i] != best || centres[atom_of(i)] != highest) continue;
        const Key key = ~static_cast<Key>(atom_of(i));
        own = key > own ? key : own;
    }
    const auto atom = static_cast<std::size_t>(~block_max(own, parts));
    if (route != Route::nearest_fallback) return {best, atom};
    own = key_of(best);
    for (std::size_t i = threadIdx.x; i < members; i += blockDim.x) {
        if (static_cast<std::size_t>(state.atom[i]) != atom) continue;
        const Key key = key_of(values[i]);
        own = key > own ? key : own;
    }
    return {double_of(block_max(own, parts)), atom};
}

// Decides for one row and puts it into its atom. One block.
__global__ void __launch_bounds__(kBlockThreads)
    join(DeviceAtoms state, double threshold, Route route, std::size_t row, const double* values,
         double* score, std::uint8_t* created) {
    RIEMEM_SHARED(Key, parts, kBlockThreads / kWarpLanes);
    if (stopped(state.bad)) {  // the same for all
        if (threadIdx.x != 0) return;
        state.atom[row] = -1;
        *score = NAN;
        *created = 0;
        return;
    }
    const auto atoms = static_cast<std::size_t>(*state.counts);
    Winner winner{NAN, 0};
    if (atoms > 0) winner = decide(state, route, row, atoms, values, parts);
    const bool opens = !(winner.best > threshold);
    const std::size_t atom = opens ? atoms : winner.atom;
    const float* x = state.rows + row * state.dim;
    double* sum = state.sums + atom * state.padded;
    const double inverse = 1.0 / sqrt(state.squares[row]);
    for (std::size_t t = threadIdx.x; t < state.padded; t += blockDim.x) {
        const double before = opens ? 0.0 : sum[t];
        sum[t] = t < state.dim ? before + static_cast<double>(x[t]) * inverse : before;
    }
    __syncthreads();
    const double square = group_square(sum, state.padded);
    const double length = square > 0.0 ? 1.0 / sqrt(square) : 0.0;
    float* centre = state.centres + atom * state.dim;
    for (std::size_t t = threadIdx.x; t < state.dim; t += blockDim.x) {
        centre[t] = static_cast<float>(sum[t] * length);
    }
    if (threadIdx.x != 0) return;
    state.sum_squares[atom] = square;
    state.atom[row] = static_cast<std::int64_t>(atom);
    state.sizes[atom] = opens ? 1 : state.sizes[atom] + 1;
    if (opens) *state.counts = atoms + 1;
    *score = winner.best;
    *created = opens ? 1 : 0;
}

// Decides for one chunk and leaves everything as it is. One block.
__global__ void __launch_bounds__(kBlockThreads)
    look(DeviceAtoms state, Route route, std::size_t members, const double* values,
         std::int64_t* atom, double* score) {
    RIEMEM_SHARED(Key, parts, kBlockThreads / kWarpLanes);
    const auto atoms = stopped(state.bad) ? 0 : static_cast<std::size_t>(*state.counts);
    Winner winner{NAN, 0};
    if (atoms > 0) winner = decide(state, route, members, atoms, values, parts);
    if (threadIdx.x != 0) return;
    *atom = atoms > 0 ? static_cast<std::int64_t>(winner.atom) : -1;
    *score = winner.best;
}

dim3 blocks_of(std::size_t items) {
    return {static_cast<unsigned>((items + kBlockThreads - 1) / kBlockThreads)};
}

dim3 groups_of(std::size_t entries) {
    return {static_cast<unsigned>((entries + kRowsPerBlock - 1) / kRowsPerBlock)};
}

}  // namespace

std::size_t max_member_workspace(std::size_t rows, std::size_t atoms) {
    return (rows + atoms) * sizeof(double);
}

template <typename T>
Status max_member_place(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                        std::size_t first, double* norms, float* out, unsigned long long* bad,
                        cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const Status status = RIEMEM_LAUNCH((inspect<T>), groups_of(count), dim3(kBlockThreads), stream,
                                        rows, count, dim, stride, first, norms, bad);
    if (status != cudaSuccess) return status;
    return RIEMEM_LAUNCH((place<T>), blocks_of(count * dim), dim3(kBlockThreads), stream, rows,
                         count, dim, stride, norms, out, bad);
}

template Status max_member_place(const float*, std::size_t, std::size_t, std::size_t, std::size_t,
                                 double*, float*, unsigned long long*, cudaStream_t);
template Status max_member_place(const Bfloat16*, std::size_t, std::size_t, std::size_t,
                                 std::size_t, double*, float*, unsigned long long*, cudaStream_t);

Status max_member_labels(const std::int64_t* atom, std::size_t count, const std::int64_t* names,
                         std::size_t known, std::int64_t next, std::int64_t* labels,
                         cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(name_rows, blocks_of(count), dim3(kBlockThreads), stream, atom, count,
                         names, known, next, labels);
}

Status max_member_assign(const DeviceAtoms& state, double threshold, Route route,
                         std::size_t row_count, std::size_t count, std::size_t atoms_before,
                         double* scores, std::uint8_t* created, void* workspace,
                         cudaStream_t stream) {
    if (count == 0) return cudaSuccess;
    const dim3 block(kBlockThreads);
    auto* values = static_cast<double*>(workspace);
    Status status =
        RIEMEM_LAUNCH(measure, groups_of(count), block, stream, state.rows + row_count * state.dim,
                      state.dim, count, state.bad, state.squares + row_count);
    for (std::size_t p = 0; p < count && status == cudaSuccess; ++p) {
        const std::size_t row = row_count + p;
        const std::size_t entries = row + atoms_before + p;
        if (entries > 0) {
            status = RIEMEM_LAUNCH(find_cosines, groups_of(entries), block, stream, state,
                                   state.rows + row * state.dim, row, values);
        }
        if (status != cudaSuccess) break;
        status = RIEMEM_LAUNCH(join, dim3(1), block, stream, state, threshold, route, row, values,
                               scores + p, created + p);
    }
    return status;
}

Status max_member_nearest(const DeviceAtoms& state, Route route, std::size_t row_count,
                          std::size_t atoms_before, const float* chunks, std::size_t count,
                          std::int64_t* atoms, double* scores, void* workspace,
                          cudaStream_t stream) {
    const dim3 block(kBlockThreads);
    auto* values = static_cast<double*>(workspace);
    Status status = cudaSuccess;
    for (std::size_t p = 0; p < count && status == cudaSuccess; ++p) {
        if (row_count + atoms_before > 0) {
            status = RIEMEM_LAUNCH(find_cosines, groups_of(row_count + atoms_before), block, stream,
                                   state, chunks + p * state.dim, row_count, values);
        }
        if (status != cudaSuccess) break;
        status = RIEMEM_LAUNCH(look, dim3(1), block, stream, state, route, row_count, values,
                               atoms + p, scores + p);
    }
    return status;
}

}  // namespace riemem::cuda
