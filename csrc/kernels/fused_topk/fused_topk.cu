// The certified search on a GPU: approximate scores with proven bounds choose the few rows that may
// matter, float64 decides among them. Nothing is read back in between, so each step is a launch of
// its own and what it found stays in the workspace.
#include "kernels/fused_topk/fused_topk_device.hpp"

namespace riemem::cuda {
namespace {

__global__ void __launch_bounds__(kBlockThreads)
    prepare_parts(DevicePoints points, double* part_scales) {
    const std::size_t part = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    if (part >= part_count(points.count)) return;
    fused::BlockScales most;
    for (std::size_t row = part * kPartRows; row < (part + 1) * kPartRows; ++row) {
        if (row >= points.count) break;
        const double rest =
            points.residual == nullptr ? 0.0 : static_cast<double>(points.residual[row]);
        most.add(points.inv_norm[row], row_scale_of(points, row), row_bias_of(points, row), rest);
    }
    double* out = part_scales + part * kPartScales;
    out[0] = most.inv_norm;
    out[1] = most.norm;
    out[2] = most.scale;
    out[3] = most.scaled_norm;
    out[4] = most.bias;
    out[5] = most.cos_residual;
    out[6] = most.scaled_residual;
}

__device__ inline void raise(Key* at, Key value) {
    const Key most = warp_max(value);
    if (lane_of() == 0 && most != 0) atomicMax(at, most);
}

// Bounds of each part, below which no extreme can lie, and the largest scores. A thread for a part.
__global__ void __launch_bounds__(kBlockThreads) find_floors(DevicePoints points, Workspace work) {
    const std::size_t parts = part_count(points.count);
    const std::size_t part = blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x;
    QueryState& state = work.states[blockIdx.y];
    Key floor[4] = {};
    Key most[2] = {};
    if (part < parts) {
        const fused::Bounds e = fused::error_bounds(part_scales_of(points, part), state.scales);
        work.bounds[blockIdx.y * parts + part] = e;
        const float* extremes = work.extremes + (blockIdx.y * parts + part) * 4;
        const bool bounded = e.cos < fused::kInfinity;  // both are, or none
        if (bounded && extremes[0] <= extremes[1]) {
            for (int which = 0; which < 4; ++which) {
                const double value = static_cast<double>(extremes[which]);
                const double bound = which < 2 ? e.cos : e.rie;
                floor[which] = key_of((which % 2 == 0 ? -value : value) - bound);
                const Key size = key_of(fabs(value));
                if (size > most[which / 2]) most[which / 2] = size;
            }
        }
    }
    for (int which = 0; which < 4; ++which) raise(&state.floor[which], floor[which]);
    for (int score = 0; score < 2; ++score) raise(&state.most[score], most[score]);
}

// Evaluates every row that may be an extreme. A warp looks at 32 parts, and at rows where it must.
template <bool kSplit>
__global__ void __launch_bounds__(kBlockThreads, 4)
    find_extremes(DevicePoints points, DeviceQueries queries, DeviceOptions options, Workspace work,
                  std::size_t begin) {
    const std::size_t n = points.count;
    const std::size_t parts = part_count(n);
    const std::size_t c = blockIdx.y;
    const std::size_t first_part =
        (blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x) / kWarpLanes * kWarpLanes;
    const std::size_t own = first_part + lane_of();
    QueryState& state = work.states[c];
    double floor[4];
    for (int which = 0; which < 4; ++which) {
        floor[which] = state.floor[which] == 0 ? -fused::kInfinity : double_of(state.floor[which]);
    }
    const bool wanted[2] = {options.cosine_weight > 0.0, options.cosine_weight < 1.0};
    const auto reaches = [&](const float* values, std::size_t stride, fused::Bounds e) {
        bool any = !(e.cos < fused::kInfinity);
        for (int which = 0; which < 4; ++which) {
            if (!wanted[which / 2]) continue;
            const double value =
                static_cast<double>(values[static_cast<std::size_t>(which) * stride]);
            const double bound = which < 2 ? e.cos : e.rie;
            any |= !((which % 2 == 0 ? -value : value) + bound < floor[which]);
        }
        return any;
    };
    bool matters = false;
    if (own < parts) {
        const float* extremes = work.extremes + (c * parts + own) * 4;
        const fused::Bounds e = work.bounds[c * parts + own];
        const bool empty = extremes[0] > extremes[1] && e.cos < fused::kInfinity;
        matters = !empty && reaches(extremes, 1, e);
    }
    Key extreme[4] = {};
    const auto offer = [&](std::size_t, fused::Pair pair) {
        const double values[4] = {-pair.cos, pair.cos, -pair.rie, pair.rie};
        for (int which = 0; which < 4; ++which) {
            if (values[which] != values[which]) continue;
            const Key key = key_of(values[which]);
            if (key > extreme[which]) extreme[which] = key;
        }
    };
    unsigned bits = __ballot_sync(kFullWarp, matters ? 1 : 0);
    for (; bits != 0; bits &= bits - 1) {
        const std::size_t part = first_part + static_cast<std::size_t>(nth_bit(bits, 0));
        const fused::Bounds e = work.bounds[c * parts + part];
        for (std::size_t half = 0; half < kPartRows; half += kWarpLanes) {
            const std::size_t first = part * kPartRows + half;
            const std::size_t row = first + lane_of();
            bool marked = false;
            if (row < n && passes(options, n, begin + c, row)) {
                const float cos = work.scores[c * 2 * n + row];
                const float rie = work.scores[(c * 2 + 1) * n + row];
                const float values[4] = {cos, cos, rie, rie};
                marked = reaches(values, 1, e);
            }
            visit_marked<kSplit>(points, queries, begin + c, first, marked, offer);
        }
    }
    for (int which = 0; which < 4; ++which) raise(&state.extreme[which], extreme[which]);
}

__device__ fused::Normaliser range_of(const Key* extreme) {
    if (extreme[0] == 0 || extreme[1] == 0) return {0.0, 0.0};
    const double low = -double_of(extreme[0]);
    const double high = double_of(extreme[1]);
    if (high > low) return {low, high - low};
    return {0.0, 0.0};
}

// From the extremes to what orders the rows. One thread for each query.
__global__ void find_order(DeviceOptions options, Workspace work, std::size_t count) {
    const std::size_t c = threadIdx.x;
    if (c >= count) return;
    QueryState& state = work.states[c];
    const double weight = options.cosine_weight;
    if (options.norm == Norm::minmax) {
        if (weight > 0.0) state.fusion.cos = range_of(state.extreme);
        if (weight < 1.0) state.fusion.rie = range_of(state.extreme + 2);
    }
    fused::Linear linear;
    if (weight > 0.0 && state.fusion.cos.width > 0.0) linear.a = weight / state.fusion.cos.width;
    if (weight < 1.0 && state.fusion.rie.width > 0.0) {
        linear.b = (1.0 - weight) / state.fusion.rie.width;
    }
    const double most_cos = state.most[0] == 0 ? 0.0 : double_of(state.most[0]);
    const double most_rie = state.most[1] == 0 ? 0.0 : double_of(state.most[1]);
    linear.rounding =
        fused::kSlack * 6.0 * fused::kUnit * (linear.a * most_cos + linear.b * most_rie) +
        4.0 * fused::kSubnormal;
    state.linear = linear;
    if (!linear.representable()) {
        state.mode = Mode::everything;
    } else if (linear.a == 0.0 && linear.b == 0.0) {
        state.mode = Mode::flat;  // neither score has any spread: all are 0
    }
}

// The linear score in float32; Linear::rounding covers it.
__device__ inline float linear_score(const Workspace& work, const fused::Linear& linear,
                                     std::size_t n, std::size_t c, std::size_t row) {
    float sum = 0.0f;
    if (linear.a > 0.0) sum = static_cast<float>(linear.a) * work.scores[c * 2 * n + row];
    if (linear.b > 0.0) sum += static_cast<float>(linear.b) * work.scores[(c * 2 + 1) * n + row];
    return sum;
}

// The best linear score of each part. A warp for a part.
__global__ void __launch_bounds__(kBlockThreads)
    find_best(DevicePoints points, DeviceOptions options, Workspace work, std::size_t begin) {
    const std::size_t n = points.count;
    const std::size_t parts = part_count(n);
    const std::size_t c = blockIdx.y;
    const std::size_t part = blockIdx.x * std::size_t{kBlockThreads / kWarpLanes} + warp_of();
    if (part >= parts || work.states[c].mode != Mode::certified) return;
    const fused::Linear linear = work.states[c].linear;
    Key best = 0;
    for (unsigned local = lane_of(); local < kPartRows; local += kWarpLanes) {
        const std::size_t row = part * kPartRows + local;
        if (row >= n || !passes(options, n, begin + c, row)) continue;
        const float score = linear_score(work, linear, n, c, row);
        const Key key = key_of(score == score ? static_cast<double>(score) : fused::kInfinity);
        best = key > best ? key : best;
    }
    best = warp_max(best);
    if (lane_of() == 0) {
        work.best[c * parts + part] = best == 0 ? -INFINITY : static_cast<float>(double_of(best));
    }
}

// A linear score that at least k rows reach. One block for each query.
__global__ void __launch_bounds__(kBlockThreads)
    find_threshold(DevicePoints points, DeviceQueries queries, DeviceOptions options,
                   Workspace work, std::size_t begin, std::size_t k) {
    RIEMEM_SHARED(unsigned, histogram, 256);
    RIEMEM_SHARED(unsigned, found, 2);
    RIEMEM_SHARED(unsigned, usable, 1);
    const std::size_t n = points.count;
    const std::size_t parts = part_count(n);
    const std::size_t c = blockIdx.x;
    QueryState& state = work.states[c];
    if (state.mode != Mode::certified) return;
    const fused::Linear linear = state.linear;
    const bool by_part = 2 * k <= parts;  // the best row of each of k parts will do
    const std::size_t items = by_part ? parts : n;
    const auto lower = [&](std::size_t i, unsigned& key) {
        const std::size_t part = by_part ? i : i / kPartRows;
        const double bound = linear.bound(work.bounds[c * parts + part]);
        if (!(bound < fused::kInfinity)) return false;
        if (!by_part && !passes(options, n, begin + c, i)) return false;
        const double score = static_cast<double>(by_part ? work.best[c * parts + part]
                                                         : linear_score(work, linear, n, c, i));
        const float least = fused::round_down(score - bound);
        key = key_of(least);
        return least > -INFINITY;
    };
    if (threadIdx.x == 0) usable[0] = 0u;
    __syncthreads();
    unsigned own = 0;
    for (std::size_t i = threadIdx.x; i < items; i += blockDim.x) {
        unsigned key;
        own += lower(i, key) ? 1u : 0u;
    }
    atomicAdd(&usable[0], own);
    __syncthreads();
    const unsigned given = usable[0];
    if (given < k) return;  // the same for all: no threshold, every row is looked at
    const auto selected =
        select_largest<unsigned>(items, static_cast<unsigned>(k), lower, histogram, found);
    if (threadIdx.x != 0) return;
    double threshold = static_cast<double>(float_of(selected.key));
    // Scores beyond a limit are moved to it and tie there, so rows that reach it all matter.
    const double shift = linear.b > 0.0 ? linear.b * queries.bias[begin + c] : 0.0;
    const double slack = linear.rounding + 1e-12 * fabs(shift);
    if (threshold > options.greatest - shift - slack) {
        threshold = options.greatest - shift - slack - 1e-12 * fabs(options.greatest);
    }
    if (threshold <= options.least - shift + slack + 1e-12 * fabs(options.least)) {
        threshold = -fused::kInfinity;
    }
    state.threshold = threshold;
}

// Evaluates every row that may be among the best. A warp looks at 32 parts.
template <bool kSplit>
__global__ void __launch_bounds__(kBlockThreads)
    collect(DevicePoints points, DeviceQueries queries, DeviceOptions options, Workspace work,
            std::size_t begin) {
    const std::size_t n = points.count;
    const std::size_t parts = part_count(n);
    const std::size_t c = blockIdx.y;
    const std::size_t first_part =
        (blockIdx.x * std::size_t{kBlockThreads} + threadIdx.x) / kWarpLanes * kWarpLanes;
    const std::size_t own = first_part + lane_of();
    QueryState& state = work.states[c];
    if (state.mode == Mode::flat) return;
    const bool everything = state.mode == Mode::everything;
    const fused::Linear linear = state.linear;
    const fused::Fusion fusion = state.fusion;
    const double threshold = state.threshold;
    const auto reaches = [&](float score, double bound) {
        return everything || !(static_cast<double>(score) + bound < threshold);
    };
    const auto keep = [&](std::size_t row, fused::Pair pair) {
        if (threadIdx.x % 8 != 0) return;
        double score = fusion(pair);
        if (score != score) return;  // a NaN is never among the best
        score = score < options.least ? options.least : score;
        score = score > options.greatest ? options.greatest : score;
        const unsigned at = atomicAdd(&state.found, 1u);
        const bool negative_zero = score == 0.0 && __double_as_longlong(score) != 0;
        work.keys[c * n + at] = key_of(negative_zero ? 0.0 : score);
        work.rows[c * n + at] = static_cast<unsigned>(row) | (negative_zero ? 0x80000000u : 0u);
    };
    bool matters = false;
    if (own < parts) {
        matters = everything ||
                  reaches(work.best[c * parts + own], linear.bound(work.bounds[c * parts + own]));
    }
    unsigned bits = __ballot_sync(kFullWarp, matters ? 1 : 0);
    for (; bits != 0; bits &= bits - 1) {
        const std::size_t part = first_part + static_cast<std::size_t>(nth_bit(bits, 0));
        const double bound = linear.bound(work.bounds[c * parts + part]);
        for (std::size_t half = 0; half < kPartRows; half += kWarpLanes) {
            const std::size_t first = part * kPartRows + half;
            const std::size_t row = first + lane_of();
            const bool marked = row < n && passes(options, n, begin + c, row) &&
                                reaches(linear_score(work, linear, n, c, row), bound);
            visit_marked<kSplit>(points, queries, begin + c, first, marked, keep);
        }
    }
}

dim3 grid_of(std::size_t items, std::size_t each, std::size_t queries) {
    return {static_cast<unsigned>((items + each - 1) / each), static_cast<unsigned>(queries)};
}

template <bool kSplit>
Status search(const DevicePoints& points, const DeviceQueries& queries,
              const DeviceOptions& options, const Workspace& work, std::size_t begin,
              std::size_t count, std::size_t k, cudaStream_t stream) {
    const std::size_t parts = part_count(points.count);
    const dim3 block(kBlockThreads);
    const dim3 by_part = grid_of(parts, kBlockThreads, count);
    Status status = RIEMEM_LAUNCH(find_floors, by_part, block, stream, points, work);
    if (status == cudaSuccess && options.norm == Norm::minmax) {
        status = RIEMEM_LAUNCH((find_extremes<kSplit>), by_part, block, stream, points, queries,
                               options, work, begin);
    }
    if (status == cudaSuccess) {
        status = RIEMEM_LAUNCH(find_order, dim3(1), dim3(kTogether), stream, options, work, count);
    }
    if (status == cudaSuccess) {
        status = RIEMEM_LAUNCH(find_best, grid_of(parts, kBlockThreads / kWarpLanes, count), block,
                               stream, points, options, work, begin);
    }
    if (status == cudaSuccess) {
        status = RIEMEM_LAUNCH(find_threshold, dim3(static_cast<unsigned>(count)), block, stream,
                               points, queries, options, work, begin, k);
    }
    if (status == cudaSuccess) {
        status = RIEMEM_LAUNCH((collect<kSplit>), by_part, block, stream, points, queries, options,
                               work, begin);
    }
    return status;
}

class Carver {
 public:
    explicit Carver(void* base) : base_(static_cast<unsigned char*>(base)) {}
    template <typename T>
    T* take(std::size_t count) {
        constexpr std::size_t kAlign = 256;
        T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
        used_ += (count * sizeof(T) + kAlign - 1) / kAlign * kAlign;
        return at;
    }
    std::size_t used() const { return used_; }

 private:
    unsigned char* base_;
    std::size_t used_ = 0;
};

}  // namespace

Workspace workspace_of(const DevicePoints& points, std::size_t queries, bool exact, std::size_t k,
                       void* base) {
    const std::size_t n = points.count;
    const std::size_t parts = part_count(n);
    Workspace work{};
    const std::size_t each = 20 * n + (exact ? 16 * n : 0);
    std::size_t together = each == 0 ? kTogether : kScoreBytes / each;
    together = together > kTogether ? kTogether : together;
    together = together > queries ? queries : together;
    work.together = together == 0 ? 1 : together;
    const std::size_t c = work.together;
    work.padded_k = 1;
    while (work.padded_k < k) work.padded_k *= 2;
    Carver carver(base);
    work.states = carver.take<QueryState>(c);
    work.vectors = carver.take<float>(c * 2 * points.dim);
    const bool turns = points.storage == ScanStorage::int8;
    work.rotated = carver.take<double>(turns ? c * 2 * points.dim : 0);
    work.scores = carver.take<float>(c * 2 * n);
    work.extremes = carver.take<float>(c * parts * 4);
    work.bounds = carver.take<fused::Bounds>(c * parts);
    work.best = carver.take<float>(c * parts);
    work.exact = carver.take<double>(exact ? c * 2 * n : 0);
    work.sums = carver.take<double>(exact ? c * 2 * ((n + kSumRows - 1) / kSumRows) : 0);
    work.keys = carver.take<Key>(c * n);
    work.rows = carver.take<unsigned>(c * n);
    work.sorted = carver.take<Key>(c * work.padded_k);
    work.ties = carver.take<Key>(c * work.padded_k);
    work.bytes = carver.used();
    return work;
}

std::size_t fused_topk_workspace(const DevicePoints& points, std::size_t queries, Norm norm,
                                 std::size_t k) {
    return workspace_of(points, queries, norm == Norm::zscore || k == 0, k, nullptr).bytes;
}

Status fused_topk_prepare(const DevicePoints& points, double* part_scales, cudaStream_t stream) {
    if (points.count == 0) return cudaSuccess;
    return RIEMEM_LAUNCH(prepare_parts, grid_of(part_count(points.count), kBlockThreads, 1),
                         dim3(kBlockThreads), stream, points, part_scales);
}

Status fused_topk(const DevicePoints& given, const DeviceQueries& queries,
                  const DeviceOptions& options, std::size_t k, const DeviceTopk& result,
                  void* workspace, cudaStream_t stream) {
    const DevicePoints points = with_low(given);
    const bool exact = options.norm == Norm::zscore;
    const Workspace work = workspace_of(points, queries.count, exact, k, workspace);
    const bool split = points.storage == ScanStorage::bfloat16;
    for (std::size_t begin = 0; begin < queries.count; begin += work.together) {
        const std::size_t rest = queries.count - begin;
        const std::size_t count = rest < work.together ? rest : work.together;
        Status status = exact ? launch_states(points, queries, options, work, begin, count, stream)
                              : launch_scores(points, queries, options, work, begin, count, stream);
        if (status != cudaSuccess) return status;
        if (exact) {
            status = launch_exact(points, queries, options, work, begin, count, stream);
        } else if (split) {
            status = search<true>(points, queries, options, work, begin, count, k, stream);
        } else {
            status = search<false>(points, queries, options, work, begin, count, k, stream);
        }
        if (status != cudaSuccess) return status;
        status = launch_finish(points, queries, options, work, begin, count, k, result, stream);
        if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
}

}  // namespace riemem::cuda
