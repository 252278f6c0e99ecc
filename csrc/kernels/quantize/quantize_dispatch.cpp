// Chooses the kernels of an instruction set, takes vectors through them, and writes the copies.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>

#include "core/error.hpp"
#include "core/thread_pool.hpp"
#include "kernels/quantize/quantize.hpp"
#include "kernels/quantize/quantize_kernels.hpp"

namespace riemem {
namespace {

constexpr std::uint64_t kSeed = 0x9e3779b97f4a7c15ull;

std::uint64_t next_random(std::uint64_t& state) {  // splitmix64
    std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// The relative error of a rotation computed in float64: a few additions per element and level.
constexpr double kRotationError = 0x1p-44;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr std::size_t kW = kRotatedTogether;

// Up to kRotatedTogether vectors as int8: what the kernels give, with a scale and a residual.
class Quantiser {
 public:
    Quantiser(const Rotation& rotation, Isa isa)
        : kernels_(quantize_kernels(isa)),
          tables_(rotation.tables()),
          x_(tables_.d * kW),
          scratch_(tables_.d * kW),
          packed_((tables_.d + 3) / 4 * kW) {}

    void run(const float* const* vectors, std::size_t count) {
        kernels_.rotate_floats(tables_, vectors, count, x_.data(), scratch_.data());
        quantise(count);
    }
    void run(const double* const* vectors, std::size_t count) {
        kernels_.rotate_doubles(tables_, vectors, count, x_.data(), scratch_.data());
        quantise(count);
    }

    // Four elements of vector j per number, each plus 128, at [group * kRotatedTogether + j].
    const std::uint32_t* packed() const { return packed_.data(); }
    std::size_t groups() const { return packed_.size() / kW; }
    double scale(std::size_t j) const { return scale_[j]; }
    double residual(std::size_t j) const { return residual_[j]; }

 private:
    void quantise(std::size_t count) {
        double most[kW] = {}, square[kW] = {}, rest[kW] = {}, inverse[kW] = {};
        bool finite[kW] = {};
        kernels_.measure(x_.data(), tables_.d, count, most, square);
        for (std::size_t j = 0; j < count; ++j) {
            // The scale is a float32, so that what is measured here is what the search will use.
            scale_[j] = static_cast<double>(static_cast<float>(most[j] / 127.0));
            finite[j] = std::isfinite(scale_[j]) && std::isfinite(square[j]);
            if (!finite[j]) scale_[j] = 0.0;
            inverse[j] = scale_[j] > 0.0 ? 1.0 / scale_[j] : 0.0;
        }
        kernels_.round(x_.data(), tables_.d, count, scale_, inverse, packed_.data(), rest);
        const double margin = 1.0 + 1e-12 * static_cast<double>((tables_.d + 7) / 8 * 8);
        for (std::size_t j = 0; j < count; ++j) {
            residual_[j] =
                std::sqrt(rest[j]) * margin + kRotationError * std::sqrt(square[j]) * margin;
            if (finite[j]) continue;
            residual_[j] = kInfinity;
            for (std::size_t g = 0; g < groups(); ++g) packed_[g * kW + j] = 0x80808080u;
        }
    }

    const QuantizeKernels& kernels_;
    RotationTables tables_;
    std::vector<double> x_, scratch_;
    std::vector<std::uint32_t> packed_;
    double scale_[kW] = {}, residual_[kW] = {};
};

// Writes vectors [0, count) to rows from `at` of the tiles: whole where they lie in one tile.
void write_tiles(const Quantiser& from, std::size_t count, std::size_t at, std::uint8_t* tiles) {
    const std::size_t bytes = from.groups() * 4 * kTileRows64;
    for (std::size_t j = 0; j < count;) {
        const std::size_t row = (at + j) % kTileRows64;
        const std::size_t run = std::min(count - j, kTileRows64 - row);
        std::uint8_t* tile = tiles + (at + j) / kTileRows64 * bytes + row * 4;
        const std::uint32_t* packed = from.packed() + j;
        for (std::size_t g = 0; g < from.groups(); ++g) {
            if (run == kW) {
                std::memcpy(tile, packed, kW * 4);
            } else {
                std::memcpy(tile, packed, run * 4);
            }
            tile += 4 * kTileRows64;
            packed += kW;
        }
        j += run;
    }
}

}  // namespace

const QuantizeKernels& quantize_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return quantize_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return quantize_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
            return quantize_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return quantize_kernels_neon();
#endif
        default:
            throw BackendUnavailable("quantize: no kernels for " + std::string(isa_name(isa)));
    }
}

float round_up(double x) {
    const auto nearest = static_cast<float>(x);
    if (static_cast<double>(nearest) >= x) return nearest;
    return std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

Rotation::Rotation(std::size_t d) : dim_(d), first_signs_(d), second_signs_(d), order_(d) {
    std::uint64_t state = kSeed ^ d;
    for (double& sign : first_signs_) sign = (next_random(state) & 1) != 0 ? 1.0 : -1.0;
    for (double& sign : second_signs_) sign = (next_random(state) & 1) != 0 ? 1.0 : -1.0;
    std::iota(order_.begin(), order_.end(), 0u);
    for (std::size_t i = d; i > 1; --i) {
        std::swap(order_[i - 1], order_[static_cast<std::size_t>(next_random(state) % i)]);
    }
}

std::shared_ptr<const Rotation> rotation_of(std::size_t d) {
    constexpr std::size_t kKept = 4;  // more than the models of one process
    static std::mutex guard;
    static std::shared_ptr<const Rotation> kept[kKept];
    static std::size_t next = 0;
    const std::lock_guard<std::mutex> lock(guard);
    for (const auto& rotation : kept) {
        if (rotation != nullptr && rotation->dim() == d) return rotation;
    }
    kept[next] = std::make_shared<const Rotation>(d);
    const auto made = kept[next];
    next = (next + 1) % kKept;
    return made;
}

namespace {

void rotate_some(const QuantizeKernels& kernels, const RotationTables& tables,
                 const float* const* vectors, std::size_t count, double* x, double* scratch) {
    kernels.rotate_floats(tables, vectors, count, x, scratch);
}
void rotate_some(const QuantizeKernels& kernels, const RotationTables& tables,
                 const double* const* vectors, std::size_t count, double* x, double* scratch) {
    kernels.rotate_doubles(tables, vectors, count, x, scratch);
}

template <typename T>
void rotate_all(MatrixView<const T> rows, const Rotation& rotation, Isa isa, double* out) {
    const QuantizeKernels& kernels = quantize_kernels(isa);
    const std::size_t d = rotation.dim();
    std::vector<double> x(d * kW), scratch(d * kW);
    for (std::size_t first = 0; first < rows.rows; first += kW) {
        const std::size_t count = std::min(kW, rows.rows - first);
        const T* vectors[kW];
        for (std::size_t j = 0; j < kW; ++j) vectors[j] = rows.row(first + std::min(j, count - 1));
        rotate_some(kernels, rotation.tables(), vectors, count, x.data(), scratch.data());
        for (std::size_t j = 0; j < count; ++j) {
            const double* strip = x.data() + j / kernels.strip * kernels.strip * d;
            for (std::size_t t = 0; t < d; ++t) {
                out[(first + j) * d + t] = strip[t * kernels.strip + j % kernels.strip];
            }
        }
    }
}

}  // namespace

void rotate_rows(MatrixView<const float> rows, const Rotation& rotation, Isa isa, double* out) {
    rotate_all(rows, rotation, isa, out);
}

void rotate_rows(MatrixView<const double> rows, const Rotation& rotation, Isa isa, double* out) {
    rotate_all(rows, rotation, isa, out);
}

void quantize_int8(MatrixView<const float> rows, const Rotation& rotation, std::size_t begin,
                   Isa isa, std::uint8_t* tiles, float* scale, float* residual) {
    constexpr std::size_t kChunk = 32 * kW;
    const std::size_t bytes = rows.rows * rows.cols * sizeof(float);
    const std::size_t threads = bytes < (std::size_t{1} << 20) ? 1 : num_threads();
    parallel_for((rows.rows + kChunk - 1) / kChunk, threads, [&](std::size_t chunk) {
        Quantiser quantiser(rotation, isa);
        const std::size_t end = std::min(rows.rows, (chunk + 1) * kChunk);
        for (std::size_t first = chunk * kChunk; first < end; first += kW) {
            const std::size_t count = std::min(kW, end - first);
            const float* vectors[kW];
            for (std::size_t j = 0; j < kW; ++j) {
                vectors[j] = rows.row(first + std::min(j, count - 1));
            }
            quantiser.run(vectors, count);
            write_tiles(quantiser, count, begin + first, tiles);
            for (std::size_t j = 0; j < count; ++j) {
                scale[begin + first + j] = static_cast<float>(quantiser.scale(j));
                residual[begin + first + j] = round_up(quantiser.residual(j));
            }
        }
    });
}

std::vector<Int8Query> quantize_queries(const double* first, const double* second,
                                        std::size_t count, const Rotation& rotation, Isa isa) {
    const std::size_t d = rotation.dim();
    std::vector<Int8Query> queries(2 * count);
    Quantiser quantiser(rotation, isa);
    for (std::size_t begin = 0; begin < 2 * count; begin += kW) {
        const std::size_t together = std::min(kW, 2 * count - begin);
        const double* vectors[kW];
        for (std::size_t j = 0; j < kW; ++j) {
            const std::size_t at = begin + std::min(j, together - 1);
            vectors[j] = (at % 2 == 0 ? first : second) + at / 2 * d;
        }
        quantiser.run(vectors, together);
        for (std::size_t j = 0; j < together; ++j) {
            Int8Query& query = queries[begin + j];
            query.packed.resize(quantiser.groups());
            for (std::size_t g = 0; g < query.packed.size(); ++g) {
                const std::uint32_t four = quantiser.packed()[g * kW + j];
                query.packed[g] = static_cast<std::int32_t>(four ^ 0x80808080u);
                for (int shift = 0; shift < 32; shift += 8) {
                    const auto offset = static_cast<std::int32_t>(four >> shift & 255u);
                    query.correction += 128 * (offset - 128);
                }
            }
            query.scale = quantiser.scale(j);
            query.residual = quantiser.residual(j);
        }
    }
    return queries;
}

}  // namespace riemem
