#include <cmath>

#include "bindings/bindings.hpp"
#include "kernels/langevin/langevin.hpp"

namespace riemem {
namespace {

using Integers = Array<std::int64_t>;

void move(Array<double> position, Array<double> strength, Array<double> base, const Integers& id,
          const Integers& first, const Integers& steps, const Integers& event_begin,
          const Integers& event_step, const Array<double>& event_gain,
          const Array<double>& event_base, double temperature, double dt, double drift,
          double slope, double most, double decay, std::uint64_t seed) {
    if (position.ndim() != 2) throw InvalidArgument("position: expected a 2-d array");
    const auto n = static_cast<std::size_t>(position.shape(0));
    LangevinOptions options;
    options.dim = static_cast<std::size_t>(position.shape(1));
    options.temperature = temperature;
    options.dt = dt;
    options.drift = drift;
    options.slope = slope;
    options.most = most;
    options.decay = decay;
    options.seed = seed;
    if (options.dim == 0) throw InvalidArgument("position: expected at least one column");
    if (!(temperature >= 0.0) || !(dt >= 0.0)) {
        throw InvalidArgument("temperature, dt: expected numbers that are not negative");
    }
    LangevinPoints points;
    points.count = n;
    vector_of(strength, n, "strength");
    points.position = position.mutable_data();
    points.strength = strength.mutable_data();
    vector_of(base, n, "base");
    points.base = base.mutable_data();
    points.id = vector_of(id, n, "id");
    points.first = vector_of(first, n, "first");
    points.steps = vector_of(steps, n, "steps");
    points.event_begin = vector_of(event_begin, n + 1, "event_begin");
    if (event_step.ndim() != 1) throw InvalidArgument("event_step: expected a 1-d array");
    const auto events = static_cast<std::size_t>(event_step.shape(0));
    points.event_step = event_step.data();
    points.event_gain = vector_of(event_gain, events, "event_gain");
    points.event_base = vector_of(event_base, events, "event_base");
    if (points.event_begin[0] < 0)
        throw InvalidArgument("event_begin: expected no negative number");
    for (std::size_t i = 0; i < n; ++i) {
        const std::int64_t end = points.event_begin[i + 1];
        if (end < points.event_begin[i] || static_cast<std::size_t>(end) > events) {
            throw InvalidArgument("event_begin: expected ascending numbers up to the events");
        }
        for (std::size_t j = 0; j < options.dim; ++j) {
            if (!std::isfinite(points.position[i * options.dim + j])) {
                throw InvalidArgument("position: expected finite numbers");
            }
        }
    }
    const py::gil_scoped_release release;
    langevin(points, options);
}

Array<double> noise(std::uint64_t seed, std::int64_t id, std::int64_t step, std::size_t dim) {
    Array<double> out(static_cast<py::ssize_t>(dim));
    langevin_noise(seed, id, step, dim, out.mutable_data());
    return out;
}

}  // namespace

void bind_langevin(py::module_& module) {
    using py::arg;
    module.def("langevin", &move, arg("position").noconvert(), arg("strength").noconvert(),
               arg("base").noconvert(), arg("id").noconvert(), arg("first").noconvert(),
               arg("steps").noconvert(), arg("event_begin").noconvert(),
               arg("event_step").noconvert(), arg("event_gain").noconvert(),
               arg("event_base").noconvert(), py::kw_only(), arg("temperature"), arg("dt"),
               arg("drift"), arg("slope"), arg("most"), arg("decay"), arg("seed"));
    module.def("langevin_noise", &noise, arg("seed"), arg("id"), arg("step"), arg("dim"));
}

}  // namespace riemem
