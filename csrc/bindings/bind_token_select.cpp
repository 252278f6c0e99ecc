#include "bindings/bindings.hpp"
#include "kernels/token_select/token_select.hpp"

namespace riemem {
namespace {

using Integers = Array<std::int64_t>;

Array<double> sensitivity(const py::array_t<float>& gradient, const py::array_t<float>& embedding,
                          const std::string& isa) {
    const MatrixView<const float> g = float_rows(gradient, "gradient");
    const MatrixView<const float> h = float_rows(embedding, "embedding");
    if (g.rows != h.rows || g.cols != h.cols) {
        throw InvalidArgument("embedding: expected the shape of gradient");
    }
    Array<double> out(static_cast<py::ssize_t>(g.rows));
    double* data = out.mutable_data();
    const Isa chosen = resolve_isa(isa);
    {
        const py::gil_scoped_release release;
        token_sensitivity(g, h, chosen, data);
    }
    return out;
}

Array<double> smooth(const Array<double>& values, std::size_t width) {
    if (values.ndim() != 1) throw InvalidArgument("values: expected a 1-d array");
    if (width % 2 == 0) throw InvalidArgument("width: expected an odd number");
    const auto n = static_cast<std::size_t>(values.shape(0));
    Array<double> out(values.shape(0));
    token_smooth(values.data(), n, width, out.mutable_data());
    return out;
}

Array<double> pool(const Array<double>& values, const Integers& unit_of, std::size_t units,
                   int how) {
    if (values.ndim() != 1) throw InvalidArgument("values: expected a 1-d array");
    if (how < 0 || how > 2) throw InvalidArgument("how: expected 0, 1 or 2");
    const auto n = static_cast<std::size_t>(values.shape(0));
    const std::int64_t* owner = vector_of(unit_of, n, "unit_of");
    for (std::size_t i = 0; i < n; ++i) {
        if (owner[i] < -1 || (owner[i] >= 0 && static_cast<std::size_t>(owner[i]) >= units)) {
            throw InvalidArgument("unit_of: expected -1 or the number of a unit");
        }
    }
    Array<double> out(static_cast<py::ssize_t>(units));
    token_pool(values.data(), owner, n, static_cast<Pool>(how), units, out.mutable_data());
    return out;
}

Integers gaps(const Integers& entry, const Integers& segments, std::size_t gap) {
    if (entry.ndim() != 1) throw InvalidArgument("entry: expected a 1-d array");
    const auto units = static_cast<std::size_t>(entry.shape(0));
    const std::int64_t* segment = vector_of(segments, units, "segments");
    Integers out(entry.shape(0));
    fill_gaps(entry.data(), segment, units, gap, out.mutable_data());
    return out;
}

std::size_t largest(const Integers& entry, const Array<double>& costs, std::size_t steps,
                    double budget) {
    if (entry.ndim() != 1) throw InvalidArgument("entry: expected a 1-d array");
    const auto units = static_cast<std::size_t>(entry.shape(0));
    const double* cost = vector_of(costs, units, "costs");
    for (std::size_t i = 0; i < units; ++i) {
        const std::int64_t at = entry.data()[i];
        if (at != kNever && (at < 1 || static_cast<std::size_t>(at) > steps)) {
            throw InvalidArgument("entry: expected 1 to steps, or never");
        }
    }
    return largest_size(entry.data(), cost, units, steps, budget);
}

}  // namespace

void bind_token_select(py::module_& module) {
    using py::arg;
    module.def("token_sensitivity", &sensitivity, arg("gradient").noconvert(),
               arg("embedding").noconvert(), arg("isa") = "auto");
    module.def("token_smooth", &smooth, arg("values").noconvert(), arg("width"));
    module.def("token_pool", &pool, arg("values").noconvert(), arg("unit_of").noconvert(),
               arg("units"), arg("how"));
    module.def("fill_gaps", &gaps, arg("entry").noconvert(), arg("segments").noconvert(),
               arg("gap"));
    module.def("largest_size", &largest, arg("entry").noconvert(), arg("costs").noconvert(),
               arg("steps"), arg("budget"));
}

}  // namespace riemem
