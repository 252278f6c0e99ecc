// Langevin dynamics of N independent points in the Poincare ball, one Euler-Maruyama step at a
// time.
//
//   r = |x|, l = (1 - r^2) / 2                      1 / conformal factor
//   rho = 2 artanh(r)                               hyperbolic distance to the centre
//   U(x) = stiffness / 2 * rho^2
//   x += (-stiffness rho / r + drift T (d - 2)) l dt x + sqrt(2 T dt) l eta,   eta ~ N(0, 1)^d
//
// with drift = 1 the stationary law has the density exp(-U / T) with respect to the hyperbolic
// volume (2 / (1 - r^2))^d dx. The stiffness of a point follows what happens to it:
//
//   strength += gain; base = event_base             at the steps of its events
//   stiffness = min(base + slope * strength, most)
//   strength *= decay                               after each step
//
// The noise of a point at a step is a function of (seed, id, step) alone: whatever else is moved
// with it, in whatever order, by however many threads, in one call or in several, a point goes the
// same way, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace riemem {

constexpr double kLangevinEdge = 1.0 - 1e-9;  // no point goes further out: rho = 21.4

struct LangevinOptions {
    std::size_t dim = 0;
    double temperature = 0.0;
    double dt = 0.0;
    double drift = 1.0;
    double slope = 0.0;
    double most = 0.0;
    double decay = 1.0;
    std::uint64_t seed = 0;
};

struct LangevinPoints {
    double* position = nullptr;                 // (N, dim), changed
    double* strength = nullptr;                 // (N,), changed
    double* base = nullptr;                     // (N,), changed
    const std::int64_t* id = nullptr;           // (N,)
    const std::int64_t* first = nullptr;        // (N,) number of the first step
    const std::int64_t* steps = nullptr;        // (N,) how many
    const std::int64_t* event_begin = nullptr;  // (N + 1,) into the two below, ascending by step
    const std::int64_t* event_step = nullptr;
    const double* event_gain = nullptr;
    const double* event_base = nullptr;  // NaN leaves the base as it is
    std::size_t count = 0;
};

void langevin(const LangevinPoints& points, const LangevinOptions& options);

// The noise of one point at one step: dim standard normal numbers.
void langevin_noise(std::uint64_t seed, std::int64_t id, std::int64_t step, std::size_t dim,
                    double* out);

}  // namespace riemem
