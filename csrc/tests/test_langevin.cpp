// langevin: a point's way depends on nothing but its own numbers; the noise is standard normal.
#include <cmath>
#include <cstring>
#include <vector>

#include "check.hpp"
#include "core/thread_pool.hpp"
#include "guarded.hpp"
#include "kernels/langevin/langevin.hpp"

using namespace riemem;

namespace {

struct Run {
    test::Guarded<double> position, strength;
    std::vector<double> base, gain, lift;
    std::vector<std::int64_t> id, first, steps, begin, at;
    LangevinPoints points;

    Run(std::size_t n, std::size_t d, std::int64_t count, std::int64_t start = 0)
        : position(n * d),
          strength(n),
          base(n),
          id(n),
          first(n, start),
          steps(n, count),
          begin(n + 1) {
        for (std::size_t i = 0; i < n; ++i) {
            id[i] = static_cast<std::int64_t>(7 * i + 3);
            base[i] = 0.1 + 0.01 * static_cast<double>(i % 9);
            strength[i] = 1.0;
            for (std::size_t j = 0; j < d; ++j) position[i * d + j] = 0.0;
            begin[i] = static_cast<std::int64_t>(at.size());
            if (i % 2 == 0) {
                at.push_back(5);
                gain.push_back(2.0);
                lift.push_back(i % 4 == 0 ? 0.3 : std::nan(""));
            }
        }
        begin[n] = static_cast<std::int64_t>(at.size());
        points = {position.data(),
                  strength.data(),
                  base.data(),
                  id.data(),
                  first.data(),
                  steps.data(),
                  begin.data(),
                  at.data(),
                  gain.data(),
                  lift.data(),
                  n};
    }
};

LangevinOptions options_of(std::size_t d) {
    LangevinOptions options;
    options.dim = d;
    options.temperature = 0.05;
    options.dt = 1.0;
    options.slope = 0.2;
    options.most = 0.9;
    options.decay = 0.97;
    options.seed = 11;
    return options;
}

bool same(const Run& a, const Run& b) {
    return std::memcmp(a.position.data(), b.position.data(), a.position.size() * 8) == 0 &&
           std::memcmp(a.strength.data(), b.strength.data(), a.strength.size() * 8) == 0;
}

}  // namespace

RIEMEM_TEST(langevin_in_one_call_or_in_several_goes_the_same_way) {
    for (const std::size_t d : {1u, 2u, 3u, 8u}) {
        Run whole(200, d, 30), parts(200, d, 12);
        langevin(whole.points, options_of(d));
        langevin(parts.points, options_of(d));
        // The event of step 5 is behind the first part.
        std::vector<std::int64_t> none(201, 0), first(200, 12), steps(200, 18);
        parts.points.event_begin = none.data();
        parts.points.first = first.data();
        parts.points.steps = steps.data();
        langevin(parts.points, options_of(d));
        CHECK(same(whole, parts));
    }
}

RIEMEM_TEST(langevin_does_not_depend_on_the_threads) {
    Run one(500, 8, 20), many(500, 8, 20);
    const std::size_t before = num_threads();
    set_num_threads(1);
    langevin(one.points, options_of(8));
    set_num_threads(4);
    langevin(many.points, options_of(8));
    set_num_threads(before);
    CHECK(same(one, many));
}

RIEMEM_TEST(langevin_never_leaves_the_ball) {
    Run run(100, 3, 300);
    LangevinOptions options = options_of(3);
    options.temperature = 50.0;
    langevin(run.points, options);
    for (std::size_t i = 0; i < 100; ++i) {
        double sum = 0.0;
        for (std::size_t j = 0; j < 3; ++j) {
            sum += run.position[i * 3 + j] * run.position[i * 3 + j];
        }
        CHECK(std::sqrt(sum) < 1.0);
    }
}

RIEMEM_TEST(langevin_noise_is_standard_normal) {
    double mean = 0.0, square = 0.0, fourth = 0.0;
    std::vector<double> noise(5);
    constexpr int kPoints = 40000;
    for (int i = 0; i < kPoints; ++i) {
        langevin_noise(3, i, 17, 5, noise.data());
        for (const double x : noise) {
            mean += x;
            square += x * x;
            fourth += x * x * x * x;
        }
    }
    const double n = 5.0 * kPoints;
    CHECK(std::abs(mean / n) < 0.01);
    CHECK(std::abs(square / n - 1.0) < 0.015);
    CHECK(std::abs(fourth / n - 3.0) < 0.1);
}
