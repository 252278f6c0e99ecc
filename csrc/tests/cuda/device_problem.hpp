// A set of points and queries for the processor and, on the SIMT shim, for the kernels of the GPU.
#pragma once

// clang counts the literals of `for (std::size_t n : {1, 31})` as conversions; gcc does not.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wsign-conversion"
#endif

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/fused_topk/fused_topk.hpp"
#include "kernels/fused_topk/fused_topk_cuda.hpp"
#include "kernels/quantize/quantize.hpp"
#include "tests/check.hpp"
#include "tests/guarded.hpp"

namespace riemem::test {

inline bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// "Device" memory: exactly as large as it must be, before an unreadable page, filled with 0xff so
// that what is never written is NaN or -1.
template <typename T>
std::unique_ptr<Guarded<T>> device(std::size_t count) {
    auto memory = std::make_unique<Guarded<T>>(count);
    if (count != 0) std::memset(static_cast<void*>(memory->data()), 0xff, count * sizeof(T));
    return memory;
}
template <typename T>
std::unique_ptr<Guarded<T>> device(const std::vector<T>& values) {
    auto memory = device<T>(values.size());
    if (!values.empty()) std::memcpy(memory->data(), values.data(), values.size() * sizeof(T));
    return memory;
}

// float32 values cut off to bfloat16, in both forms.
struct Narrow {
    std::vector<cuda::Bfloat16> narrow;
    std::vector<float> exact;

    explicit Narrow(const std::vector<float>& values) : narrow(values.size()), exact(values) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            std::uint32_t bits = 0;
            std::memcpy(&bits, &values[i], 4);
            narrow[i].bits = static_cast<std::uint16_t>(bits >> 16);
            bits &= 0xffff0000u;
            std::memcpy(&exact[i], &bits, 4);
        }
    }
};

struct Problem {
    std::size_t n, d, queries;
    ScanStorage storage;
    std::unique_ptr<Guarded<float>> rows;
    std::vector<double> inv_norm, scale, bias, q, w, offset, query_bias;
    std::vector<std::uint8_t> tiles;
    std::vector<float> tile_scale, residual;
    std::vector<std::uint16_t> high;
    std::vector<std::int16_t> low;
    std::vector<std::int8_t> signs;
    std::vector<std::int32_t> order;
    std::unique_ptr<Guarded<double>> part_scales;

    Problem(std::size_t n_, std::size_t d_, std::size_t queries_, ScanStorage storage_,
            unsigned seed, float (*shape)(float, std::size_t row) = nullptr)
        : n(n_), d(d_), queries(queries_), storage(storage_), rows(device<float>(n_ * d_)) {
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        for (std::size_t i = 0; i < n * d; ++i) {
            const float x = normal(generator);
            (*rows)[i] = shape == nullptr ? x : shape(x, i / d);
        }
        inv_norm.resize(n);
        CHECK(row_norms(view(), Isa::scalar, inv_norm.data()) == -1);
        for (double& v : inv_norm) v = v > 0.0 ? 1.0 / v : 0.0;
        const auto fill = [&](std::vector<double>& v, std::size_t size) {
            v.resize(size);
            for (double& x : v) x = static_cast<double>(normal(generator));
        };
        fill(scale, n);
        fill(bias, n);
        fill(q, queries * d);
        fill(w, queries * d);
        fill(offset, queries);
        fill(query_bias, queries);
        for (double& s : scale) s = std::abs(s);
        for (std::size_t b = 0; b < queries; ++b) {
            double norm = 0.0;
            for (std::size_t t = 0; t < d; ++t) norm += q[b * d + t] * q[b * d + t];
            for (std::size_t t = 0; t < d; ++t) q[b * d + t] /= std::sqrt(norm);
        }
        copies();
    }

    MatrixView<const float> view() const {
        return {rows->data(), n, d, static_cast<std::ptrdiff_t>(d)};
    }

    // What depends on the rows; call it again after changing them or their constants.
    void copies() {
        residual.assign(n, 0.0f);
        if (storage == ScanStorage::int8) {
            const Rotation rotation(d);
            tiles.assign((n + 63) / 64 * int8_tile_bytes(d), 128);
            tile_scale.assign(n, 0.0f);
            quantize_int8(view(), rotation, 0, active_isa(), tiles.data(), tile_scale.data(),
                          residual.data());
            signs.clear();
            for (double s : rotation.first_signs()) signs.push_back(s > 0 ? 1 : -1);
            for (double s : rotation.second_signs()) signs.push_back(s > 0 ? 1 : -1);
            order.assign(rotation.order().begin(), rotation.order().end());
        } else if (storage == ScanStorage::bfloat16) {
            high.resize(n * d);
            low.resize(n * d);
            split_bfloat16(view(), high.data(), low.data(), residual.data());
        }
        part_scales = device<double>(cuda::part_count(n) * cuda::kPartScales);
        CHECK(cuda::fused_topk_prepare(on_device(), part_scales->data(), nullptr) == 0);
    }

    FusedPoints points() const {
        FusedPoints p{view(), inv_norm.data(), scale.data(), bias.data()};
        p.storage = storage;
        if (storage == ScanStorage::int8) {
            p.tiles = tiles.data();
            p.tile_scale = tile_scale.data();
            p.residual = residual.data();
        } else if (storage == ScanStorage::bfloat16) {
            p.rows.data = nullptr;
            p.high = high.data();
            p.low = low.data();
            p.residual = residual.data();
        }
        return p;
    }
    FusedQueries all() const {
        return {q.data(), w.data(), offset.data(), query_bias.data(), queries};
    }

    cuda::DevicePoints on_device() const {
        cuda::DevicePoints p;
        p.count = n;
        p.dim = d;
        p.storage = storage;
        p.stride = d;
        p.inv_norm = inv_norm.data();
        p.row_scale = scale.data();
        p.row_bias = bias.data();
        p.part_scales = part_scales->data();
        if (storage != ScanStorage::float32) p.residual = residual.data();
        if (storage == ScanStorage::bfloat16) {
            p.high = high.data();
            p.low = low.data();
        } else {
            p.rows = rows->data();
        }
        if (storage == ScanStorage::int8) {
            p.tiles = tiles.data();
            p.tile_scale = tile_scale.data();
            p.signs = signs.data();
            p.order = order.data();
        }
        return p;
    }
    cuda::DeviceQueries asked() const {
        cuda::DeviceQueries a;
        a.q = q.data();
        a.w = w.data();
        a.offset = offset.data();
        a.bias = query_bias.data();
        a.count = queries;
        return a;
    }
};

struct Answer {
    std::vector<std::int64_t> indices, counts;
    std::vector<double> scores;
};

inline Answer on_processor(const Problem& problem, const FusedOptions& options, std::size_t k) {
    const std::size_t b = problem.queries;
    Answer answer{std::vector<std::int64_t>(b * k), std::vector<std::int64_t>(b),
                  std::vector<double>(b * k)};
    FusedTopkResult result{answer.indices.data(), answer.scores.data(), answer.counts.data()};
    const PreparedPoints prepared(problem.points());
    fused_topk(prepared, problem.all(), options, k, result);
    return answer;
}

inline Answer on_shim(const Problem& problem, const cuda::DeviceOptions& options, std::size_t k,
                      const cuda::DevicePoints& points, const cuda::DeviceQueries& asked) {
    const std::size_t b = problem.queries;
    const auto indices = device<std::int64_t>(b * k);
    const auto counts = device<std::int64_t>(b);
    const auto scores = device<double>(b * k);
    const std::size_t bytes = cuda::fused_topk_workspace(points, b, options.norm, k);
    const auto workspace = device<unsigned char>(bytes);
    const cuda::DeviceTopk result{indices->data(), scores->data(), counts->data()};
    const cuda::Status status =
        cuda::fused_topk(points, asked, options, k, result, workspace->data(), nullptr);
    const std::string fault = simt::take_fault();
    if (status != 0) std::fprintf(stderr, "fused_topk: status %d, %s\n", status, fault.c_str());
    CHECK(status == 0);
    return {{indices->data(), indices->data() + b * k},
            {counts->data(), counts->data() + b},
            {scores->data(), scores->data() + b * k}};
}

inline bool same(const Answer& a, const Answer& b) {
    bool equal = a.indices == b.indices && a.counts == b.counts;
    for (std::size_t i = 0; i < a.scores.size(); ++i) {
        equal = equal && (same_bits(a.scores[i], b.scores[i]) ||
                          (std::isnan(a.scores[i]) && std::isnan(b.scores[i])));
    }
    return equal;
}

}  // namespace riemem::test
