// Queries as the scan takes them, and the approximate scores of every row with the extremes of each
// part of 64.
#include "kernels/fused_topk/fused_topk_device.hpp"

namespace riemem::cuda {
namespace {

constexpr unsigned kRowsTogether = 4;  // rows that a warp reads at once
constexpr unsigned kFewQueries = 4;    // up to here a warp takes whole rows
constexpr unsigned kPairs = 8;         // int8 queries that share one reading of the tiles
constexpr unsigned kTileQueries = 16;
constexpr unsigned kTileColumns = 2 * kTileQueries;
constexpr unsigned kTileDepth = 16;
constexpr unsigned kTileThreads = 128;  // 16 x 8, each with 4 rows and 4 columns

// Of one float32 dot product: fused steps in one lane, then the tree; or one step per dimension.
std::size_t roundings_of(const DevicePoints& points, std::size_t together) {
    if (points.storage == ScanStorage::int8) return 4;
    return together > kFewQueries ? points.dim : points.dim / kWarpLanes + 8;
}

// The sum over a block, the same in every thread. parts is 8 doubles of shared memory.
template <typename Parts>
__device__ double block_sum(double value, Parts& parts) {
    value = warp_sum(value);
    __syncthreads();
    if (lane_of() == 0) parts[warp_of()] = value;
    __syncthreads();
    double sum = 0.0;
    for (unsigned i = 0; i < kBlockThreads / kWarpLanes; ++i) sum += parts[i];
    return sum;
}

// A barrier must lie between this and the last reading of parts.
template <typename Parts>
__device__ double block_max(double value, Parts& parts) {
    value = double_of(warp_max(key_of(value)));
    if (lane_of() == 0) parts[warp_of()] = value;
    __syncthreads();
    double most = parts[0];
    for (unsigned i = 1; i < kBlockThreads / kWarpLanes; ++i) most = fused::larger(most, parts[i]);
    return most;
}

// Hadamard transforms of the powers of two that make up d, largest first, each with norm 1.
__device__ void hadamard_blocks(double* x, std::size_t d) {
    while (d > 0) {
        std::size_t size = 1;
        while (size * 2 <= d) size *= 2;
        for (std::size_t half = 1; half < size; half *= 2) {
            for (std::size_t i = threadIdx.x; i < size / 2; i += blockDim.x) {
                const std::size_t low = i / half * 2 * half + i % half;
                const double a = x[low];
                const double b = x[low + half];
                x[low] = a + b;
                x[low + half] = a - b;
            }
            __syncthreads();
        }
        const double norm = 1.0 / sqrt(static_cast<double>(size));
        for (std::size_t i = threadIdx.x; i < size; i += blockDim.x) x[i] *= norm;
        __syncthreads();
        x += size;
        d -= size;
    }
}

struct Quantised {
    double scale, residual;
};

// One vector turned and as int8, four to a word; kernels/quantize has the same on the processor.
template <typename Parts>
__device__ Quantised quantise(const DevicePoints& points, const double* v, double* first,
                              double* second, std::int32_t* packed, Parts& parts) {
    const std::size_t d = points.dim;
    for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) {
        first[t] = v[t] * static_cast<double>(points.signs[t]);
    }
    __syncthreads();
    hadamard_blocks(first, d);
    for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) {
        second[t] = first[points.order[t]] * static_cast<double>(points.signs[d + t]);
    }
    __syncthreads();
    hadamard_blocks(second, d);
    double most = 0.0;
    double square = 0.0;
    for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) {
        most = fused::larger(most, fabs(second[t]));
        square += second[t] * second[t];
    }
    most = block_max(most, parts);
    const double length = sqrt(block_sum(square, parts));
    const double scale = static_cast<double>(static_cast<float>(most / 127.0));
    const bool usable = scale < fused::kInfinity && length < fused::kInfinity;
    const double inverse = usable && scale > 0.0 ? 1.0 / scale : 0.0;
    double rest = 0.0;
    const std::size_t groups = (d + 3) / 4;
    for (std::size_t g = threadIdx.x; g < groups; g += blockDim.x) {
        unsigned word = 0;
        for (std::size_t j = 0; j < 4 && 4 * g + j < d && usable; ++j) {
            const double x = second[4 * g + j];
            double value = x * inverse;
            value = value > 127.0 ? 127.0 : (value < -127.0 ? -127.0 : value);
            const double rounded = rint(value);
            rest += (x - scale * rounded) * (x - scale * rounded);
            const unsigned byte = static_cast<unsigned>(static_cast<int>(rounded)) & 0xffu;
            word |= byte << (8 * j);
        }
        packed[g] = static_cast<std::int32_t>(word);
    }
    rest = sqrt(block_sum(rest, parts));
    const double margin = 1.0 + 1e-12 * static_cast<double>(d);
    if (!usable) return {0.0, fused::kInfinity};
    return {scale, rest * margin + 0x1p-44 * length * margin};
}

// One block for each query of the pass.
__global__ void __launch_bounds__(kBlockThreads)
    set_up(DevicePoints points, DeviceQueries queries, double cosine_weight, double roundings,
           Workspace work, std::size_t begin) {
    RIEMEM_SHARED(double, parts, kBlockThreads / kWarpLanes);
    const std::size_t d = points.dim;
    const std::size_t c = blockIdx.x;
    const double* given[2] = {queries.q + (begin + c) * d, queries.w + (begin + c) * d};
    double norms[2];
    Quantised codes[2] = {};
    for (int v = 0; v < 2; ++v) {
        double square = 0.0;
        for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) {
            square += given[v][t] * given[v][t];
        }
        norms[v] = sqrt(block_sum(square, parts)) * (1.0 + 1e-12);
        if (points.storage == ScanStorage::int8) {
            const std::size_t groups = (d + 3) / 4;
            double* scratch = work.rotated + c * 2 * d;
            auto* packed = reinterpret_cast<std::int32_t*>(work.vectors) +
                           (c * 2 + static_cast<std::size_t>(v)) * groups;
            codes[v] = quantise(points, given[v], scratch, scratch + d, packed, parts);
        } else {
            float* out = work.vectors + (c * 2 + static_cast<std::size_t>(v)) * d;
            for (std::size_t t = threadIdx.x; t < d; t += blockDim.x) {
                out[t] = static_cast<float>(given[v][t]);
            }
        }
    }
    if (threadIdx.x != 0) return;
    QueryState& state = work.states[c];
    const double offset = queries.offset[begin + c];
    state.scales = {norms[0],          norms[1],
                    codes[0].residual, codes[1].residual,
                    fabs(offset),      fabs(queries.bias[begin + c]),
                    roundings,         fused::kSubnormal * static_cast<double>(2 * d + 4)};
    state.offset = static_cast<float>(offset);
    state.q_scale = static_cast<float>(codes[0].scale);
    state.w_scale = static_cast<float>(codes[1].scale);
    for (int i = 0; i < 4; ++i) state.floor[i] = state.extreme[i] = 0;
    state.most[0] = state.most[1] = 0;
    state.fusion = {cosine_weight, {}, {}};
    state.linear = {};
    state.mode = Mode::certified;
    state.threshold = -fused::kInfinity;
    state.found = 0;
}

// Per-row constants of the scan as float32: cos = cos_scale * dot, rie = rie_scale * dot_w + shift.
struct RowTerms {
    float cos_scale, rie_scale, scale, bias;
};

__device__ inline RowTerms terms_of(const DevicePoints& points, std::size_t row) {
    const double tile =
        points.storage == ScanStorage::int8 ? static_cast<double>(points.tile_scale[row]) : 1.0;
    const double scale = row_scale_of(points, row);
    return {static_cast<float>(points.inv_norm[row] * tile), static_cast<float>(scale * tile),
            static_cast<float>(scale), static_cast<float>(row_bias_of(points, row))};
}

// Writes both scores of a row to the workspace and to the block's copy of the part.
template <typename Part>
__device__ void put(const Workspace& work, std::size_t n, std::size_t c, unsigned local,
                    std::size_t row, float cos, float rie, unsigned column, Part& part) {
    work.scores[(c * 2) * n + row] = cos;
    work.scores[(c * 2 + 1) * n + row] = rie;
    part[column * kPartRows + local] = cos;
    part[(column + 1) * kPartRows + local] = rie;
}

// Least and greatest of each column of the part, over the rows that pass; one warp for a column.
template <typename Part>
__device__ void part_extremes(const Workspace& work, const DeviceOptions& options, std::size_t n,
                              std::size_t parts, std::size_t begin, std::size_t first_query,
                              std::size_t queries, Part& part) {
    const std::size_t index = blockIdx.x;
    for (unsigned column = warp_of(); column < 2 * queries; column += blockDim.x / kWarpLanes) {
        const std::size_t c = first_query + column / 2;
        Key least = 0;  // of the negated scores
        Key greatest = 0;
        for (unsigned local = lane_of(); local < kPartRows; local += kWarpLanes) {
            const std::size_t row = index * kPartRows + local;
            if (row >= n || !passes(options, n, begin + c, row)) continue;
            const float score = part[column * kPartRows + local];
            if (score != score) continue;
            const Key low = key_of(-static_cast<double>(score));
            const Key high = key_of(static_cast<double>(score));
            least = low > least ? low : least;
            greatest = high > greatest ? high : greatest;
        }
        least = warp_max(least);
        greatest = warp_max(greatest);
        if (lane_of() != 0) continue;
        float* out = work.extremes + (c * parts + index) * 4 + column % 2 * 2;
        // Without a row that passes, the least is above the greatest: an empty part.
        out[0] = least == 0 ? INFINITY : -static_cast<float>(double_of(least));
        out[1] = greatest == 0 ? -INFINITY : static_cast<float>(double_of(greatest));
    }
}

// A warp reads whole rows, a few at once; Q queries. One block for each part. Left to itself the
// compiler spills for one query on some architectures; for more it does best without a bound.
template <bool kSplit, unsigned Q>
__global__ void __launch_bounds__(kBlockThreads, Q == 1 ? 4 : 0)
    score_rows(DevicePoints points, DeviceOptions options, Workspace work, std::size_t begin,
               std::size_t count) {
    RIEMEM_SHARED(float, part, 2 * Q * kPartRows);
    const std::size_t n = points.count;
    const std::size_t d = points.dim;
    const std::size_t first_query = static_cast<std::size_t>(blockIdx.y) * Q;
    const std::size_t queries = count - first_query < Q ? count - first_query : Q;
    const float* vectors = work.vectors + first_query * 2 * d;
    for (unsigned base = warp_of() * kRowsTogether; base < kPartRows;
         base += kBlockThreads / kWarpLanes * kRowsTogether) {
        const std::size_t first = blockIdx.x * kPartRows + base;
        if (first >= n) continue;
        float sums[kRowsTogether][2 * Q] = {};
        for (std::size_t t = lane_of(); t < d; t += kWarpLanes) {
            float x[kRowsTogether];
            RIEMEM_UNROLL
            for (unsigned i = 0; i < kRowsTogether; ++i) {
                const std::size_t row = first + i < n ? first + i : n - 1;
                x[i] = kSplit
                           ? __uint_as_float(
                                 static_cast<unsigned>(points.high[row * points.stride + t]) << 16)
                           : points.rows[row * points.stride + t];
            }
            RIEMEM_UNROLL
            for (unsigned j = 0; j < 2 * Q; ++j) {
                if (j >= 2 * queries) break;
                const float v = vectors[j * d + t];
                RIEMEM_UNROLL
                for (unsigned i = 0; i < kRowsTogether; ++i) sums[i][j] = fmaf(x[i], v, sums[i][j]);
            }
        }
        RIEMEM_UNROLL
        for (unsigned i = 0; i < kRowsTogether; ++i) {
            RIEMEM_UNROLL
            for (unsigned j = 0; j < 2 * Q; ++j) sums[i][j] = warp_sum(sums[i][j]);
        }
        if (lane_of() != 0) continue;
        RIEMEM_UNROLL
        for (unsigned i = 0; i < kRowsTogether && first + i < n; ++i) {
            const RowTerms terms = terms_of(points, first + i);
            RIEMEM_UNROLL
            for (unsigned c = 0; c < Q; ++c) {
                if (c >= queries) break;
                const float shift = terms.scale * work.states[first_query + c].offset + terms.bias;
                put(work, n, first_query + c, base + i, first + i, terms.cos_scale * sums[i][2 * c],
                    terms.rie_scale * sums[i][2 * c + 1] + shift, 2 * c, part);
            }
        }
    }
    __syncthreads();
    part_extremes(work, options, n, part_count(n), begin, first_query, queries, part);
}

// 64 rows against 16 queries: slices of both in shared memory, 4 x 4 sums in each thread.
template <bool kSplit>
__global__ void __launch_bounds__(kTileThreads)
    score_tile(DevicePoints points, DeviceOptions options, Workspace work, std::size_t begin,
               std::size_t count) {
    RIEMEM_SHARED(float, left, kTileDepth*(kPartRows + 4));
    RIEMEM_SHARED(float, right, kTileDepth* kTileColumns);
    RIEMEM_SHARED(float, part, kTileColumns* kPartRows);
    constexpr unsigned kPitch = kPartRows + 4;  // fewer threads meet in one bank
    const std::size_t n = points.count;
    const std::size_t d = points.dim;
    const std::size_t first = blockIdx.x * kPartRows;
    const std::size_t first_query = static_cast<std::size_t>(blockIdx.y) * kTileQueries;
    const std::size_t rest = count - first_query;
    const std::size_t queries = rest < kTileQueries ? rest : kTileQueries;
    const unsigned row0 = threadIdx.x / 8 * 4;
    const unsigned column0 = threadIdx.x % 8 * 4;
    float sums[4][4] = {};
    for (std::size_t slice = 0; slice < d; slice += kTileDepth) {
        for (unsigned i = threadIdx.x; i < kTileDepth * kPartRows; i += kTileThreads) {
            const std::size_t t = slice + i % kTileDepth;
            const std::size_t row = first + i / kTileDepth;
            float x = 0.0f;
            if (t < d && row < n) {
                x = kSplit ? __uint_as_float(
                                 static_cast<unsigned>(points.high[row * points.stride + t]) << 16)
                           : points.rows[row * points.stride + t];
            }
            left[i % kTileDepth * kPitch + i / kTileDepth] = x;
        }
        for (unsigned i = threadIdx.x; i < kTileDepth * kTileColumns; i += kTileThreads) {
            const std::size_t t = slice + i % kTileDepth;
            const unsigned column = i / kTileDepth;
            const bool inside = t < d && column < 2 * queries;
            right[i % kTileDepth * kTileColumns + column] =
                inside ? work.vectors[(first_query * 2 + column) * d + t] : 0.0f;
        }
        __syncthreads();
        for (unsigned t = 0; t < kTileDepth; ++t) {
            float x[4];
            float v[4];
            RIEMEM_UNROLL
            for (unsigned i = 0; i < 4; ++i) x[i] = left[t * kPitch + row0 + i];
            RIEMEM_UNROLL
            for (unsigned j = 0; j < 4; ++j) v[j] = right[t * kTileColumns + column0 + j];
            RIEMEM_UNROLL
            for (unsigned i = 0; i < 4; ++i) {
                RIEMEM_UNROLL
                for (unsigned j = 0; j < 4; ++j) sums[i][j] = fmaf(x[i], v[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
    RIEMEM_UNROLL
    for (unsigned i = 0; i < 4; ++i) {
        const std::size_t row = first + row0 + i;
        if (row >= n) break;
        const RowTerms terms = terms_of(points, row);
        RIEMEM_UNROLL
        for (unsigned j = 0; j < 4; j += 2) {
            const std::size_t c = first_query + (column0 + j) / 2;
            if (column0 + j >= 2 * queries) break;
            const float shift = terms.scale * work.states[c].offset + terms.bias;
            put(work, n, c, row0 + i, row, terms.cos_scale * sums[i][j],
                terms.rie_scale * sums[i][j + 1] + shift, column0 + j, part);
        }
    }
    __syncthreads();
    part_extremes(work, options, n, part_count(n), begin, first_query, queries, part);
}

// One thread for each row of a tile; a load is four dimensions, and a warp's loads are adjacent.
template <unsigned Q>
__global__ void __launch_bounds__(kPartRows)
    score_int8(DevicePoints points, DeviceOptions options, Workspace work, std::size_t begin,
               std::size_t count) {
    RIEMEM_SHARED(float, part, 2 * Q * kPartRows);
    const std::size_t n = points.count;
    const std::size_t groups = (points.dim + 3) / 4;
    const std::size_t first_query = static_cast<std::size_t>(blockIdx.y) * Q;
    const std::size_t queries = count - first_query < Q ? count - first_query : Q;
    const std::size_t row = blockIdx.x * kPartRows + threadIdx.x;
    const auto* tile = reinterpret_cast<const unsigned*>(points.tiles) +
                       blockIdx.x * groups * kPartRows + threadIdx.x;
    const auto* packed =
        reinterpret_cast<const std::int32_t*>(work.vectors) + first_query * 2 * groups;
    int sums[2 * Q] = {};
    RIEMEM_UNROLL_4
    for (std::size_t t = 0; t < groups; ++t) {
        // value + 128 as an unsigned byte is value with its top bit turned.
        const int x = static_cast<int>(tile[t * kPartRows] ^ 0x80808080u);
        RIEMEM_UNROLL
        for (unsigned j = 0; j < 2 * Q; ++j) {
            if (j >= 2 * queries) break;
            sums[j] = __dp4a(x, packed[j * groups + t], sums[j]);
        }
    }
    if (row < n) {
        const RowTerms terms = terms_of(points, row);
        RIEMEM_UNROLL
        for (unsigned c = 0; c < Q; ++c) {
            if (c >= queries) break;
            const QueryState& state = work.states[first_query + c];
            const float shift = terms.scale * state.offset + terms.bias;
            put(work, n, first_query + c, threadIdx.x, row,
                terms.cos_scale * (static_cast<float>(sums[2 * c]) * state.q_scale),
                terms.rie_scale * (static_cast<float>(sums[2 * c + 1]) * state.w_scale) + shift,
                2 * c, part);
        }
    }
    __syncthreads();
    part_extremes(work, options, n, part_count(n), begin, first_query, queries, part);
}

template <bool kSplit>
Status launch_float(const DevicePoints& points, const DeviceOptions& options, const Workspace& work,
                    std::size_t begin, std::size_t count, cudaStream_t stream) {
    const auto parts = static_cast<unsigned>(part_count(points.count));
    const auto groups = [count](unsigned width) {
        return static_cast<unsigned>((count + width - 1) / width);
    };
    if (count == 1) {
        return RIEMEM_LAUNCH((score_rows<kSplit, 1>), dim3(parts), dim3(kBlockThreads), stream,
                             points, options, work, begin, count);
    }
    if (count <= kFewQueries) {
        return RIEMEM_LAUNCH((score_rows<kSplit, kFewQueries>), dim3(parts, groups(kFewQueries)),
                             dim3(kBlockThreads), stream, points, options, work, begin, count);
    }
    return RIEMEM_LAUNCH((score_tile<kSplit>), dim3(parts, groups(kTileQueries)),
                         dim3(kTileThreads), stream, points, options, work, begin, count);
}

}  // namespace

Status launch_states(const DevicePoints& points, const DeviceQueries& queries,
                     const DeviceOptions& options, const Workspace& work, std::size_t begin,
                     std::size_t count, cudaStream_t stream) {
    const auto roundings = static_cast<double>(roundings_of(points, count));
    return RIEMEM_LAUNCH(set_up, dim3(static_cast<unsigned>(count)), dim3(kBlockThreads), stream,
                         points, queries, options.cosine_weight, roundings, work, begin);
}

Status launch_scores(const DevicePoints& points, const DeviceQueries& queries,
                     const DeviceOptions& options, const Workspace& work, std::size_t begin,
                     std::size_t count, cudaStream_t stream) {
    const Status status = launch_states(points, queries, options, work, begin, count, stream);
    if (status != cudaSuccess) return status;
    if (points.storage == ScanStorage::bfloat16) {
        return launch_float<true>(points, options, work, begin, count, stream);
    }
    if (points.storage == ScanStorage::float32) {
        return launch_float<false>(points, options, work, begin, count, stream);
    }
    const auto parts = static_cast<unsigned>(part_count(points.count));
    if (count == 1) {
        return RIEMEM_LAUNCH((score_int8<1>), dim3(parts), dim3(kPartRows), stream, points, options,
                             work, begin, count);
    }
    return RIEMEM_LAUNCH((score_int8<kPairs>),
                         dim3(parts, static_cast<unsigned>((count + kPairs - 1) / kPairs)),
                         dim3(kPartRows), stream, points, options, work, begin, count);
}

}  // namespace riemem::cuda
