// Each point is a chain of its own, so the work is shared out by points; within one there is
// nothing to vectorise but a handful of coordinates.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/elementary.hpp"
#include "core/thread_pool.hpp"
#include "kernels/langevin/langevin.hpp"

namespace riemem {
namespace {

constexpr std::size_t kBlock = 64;  // points in one task
constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

// A bijection of 64 bits in which each bit of the input moves half of the output (splitmix64).
std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

std::uint64_t key_of(std::uint64_t seed, std::int64_t id, std::int64_t step) {
    std::uint64_t key = mix(seed + kGolden);
    key = mix(key ^ (static_cast<std::uint64_t>(id) + kGolden));
    return mix(key ^ (static_cast<std::uint64_t>(step) + kGolden));
}

// rho / r, which is 2 at the centre.
double distance_ratio(double r) {
    if (r < 1e-4) return 2.0 * (1.0 + r * r / 3.0);
    return portable_log((1.0 + r) / (1.0 - r)) / r;
}

double length(const double* x, std::size_t d) {
    double sum = 0.0;
    for (std::size_t j = 0; j < d; ++j) sum += x[j] * x[j];
    return std::sqrt(sum);
}

void move(const LangevinPoints& points, const LangevinOptions& options, std::size_t i,
          std::vector<double>& noise) {
    const std::size_t d = options.dim;
    double* x = points.position + i * d;
    const double spread = std::sqrt(2.0 * options.temperature * options.dt);
    const double outward = options.drift * options.temperature * (static_cast<double>(d) - 2.0);
    auto event = static_cast<std::size_t>(points.event_begin[i]);
    const auto end = static_cast<std::size_t>(points.event_begin[i + 1]);
    for (std::int64_t n = points.first[i]; n < points.first[i] + points.steps[i]; ++n) {
        for (; event < end && points.event_step[event] <= n; ++event) {
            points.strength[i] += points.event_gain[event];
            const double base = points.event_base[event];
            if (base == base) points.base[i] = base;
        }
        const double stiffness =
            std::min(points.base[i] + options.slope * points.strength[i], options.most);
        const double r = length(x, d);
        const double l = (1.0 - r * r) * 0.5;
        const double pull = (outward - stiffness * distance_ratio(r)) * (l * options.dt);
        langevin_noise(options.seed, points.id[i], n, d, noise.data());
        for (std::size_t j = 0; j < d; ++j) x[j] = (x[j] + pull * x[j]) + (spread * l) * noise[j];
        const double out = length(x, d);
        if (out > kLangevinEdge) {
            for (std::size_t j = 0; j < d; ++j) x[j] *= kLangevinEdge / out;
        }
        points.strength[i] *= options.decay;
    }
}

}  // namespace

void langevin_noise(std::uint64_t seed, std::int64_t id, std::int64_t step, std::size_t dim,
                    double* out) {
    std::uint64_t counter = key_of(seed, id, step);
    for (std::size_t j = 0; j < dim; j += 2) {
        // (0, 1] and [0, 1): Box and Muller's transform of two uniform numbers.
        const double u = static_cast<double>((mix(counter += kGolden) >> 11) + 1) * 0x1p-53;
        const double v = static_cast<double>(mix(counter += kGolden) >> 11) * 0x1p-53;
        const double radius = std::sqrt(-2.0 * portable_log(u));
        const SineCosine turn = portable_sine_cosine(v);
        out[j] = radius * turn.cosine;
        if (j + 1 < dim) out[j + 1] = radius * turn.sine;
    }
}

void langevin(const LangevinPoints& points, const LangevinOptions& options) {
    const std::size_t blocks = (points.count + kBlock - 1) / kBlock;
    parallel_for(blocks, num_threads(), [&](std::size_t block) {
        std::vector<double> noise(options.dim);
        const std::size_t last = std::min(points.count, (block + 1) * kBlock);
        for (std::size_t i = block * kBlock; i < last; ++i) move(points, options, i, noise);
    });
}

}  // namespace riemem
