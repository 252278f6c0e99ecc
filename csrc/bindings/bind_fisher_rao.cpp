#include <cmath>

#include "bindings/bindings.hpp"
#include "core/cpu.hpp"
#include "kernels/fisher_rao/fisher_rao.hpp"

namespace riemem {
namespace {

using Mask = Array<bool>;

// Keeps the arrays alive that the kernel reads.
struct Points {
    py::array_t<float> rows, precision;
    Array<double> inv_norms;
    py::object ramp;
    FisherRaoPoints points;
};

Points make_points(const py::array_t<float>& rows, const py::array_t<float>& precision,
                   const Array<double>& inv_norms, const py::object& ramp) {
    Points made{rows, precision, inv_norms, ramp, {}};
    made.points.rows = float_rows(rows, "rows");
    made.points.precision = float_rows(precision, "precision");
    const std::size_t n = made.points.rows.rows;
    if (made.points.precision.rows != n || made.points.precision.cols != made.points.rows.cols) {
        throw InvalidArgument("precision: expected the shape of rows");
    }
    made.points.inv_norm = vector_of(inv_norms, n, "inv_norms");
    if (!ramp.is_none()) {
        const auto values = ramp.cast<Array<double>>();
        made.ramp = values;
        made.points.ramp = vector_of(values, n, "ramp");
    }
    made.points.scannable = fisher_rao_scannable(made.points);
    return made;
}

struct Asked {
    FisherRaoQueries queries;
    FisherRaoOptions options;
};

Asked make_asked(const Points& held, const py::array_t<float>& queries,
                 const Array<double>& inv_norms, double temperature, const py::object& mask,
                 const std::string& isa) {
    Asked asked;
    asked.queries.rows = float_rows(queries, "queries");
    const std::size_t n = held.points.rows.rows;
    if (asked.queries.rows.cols != held.points.rows.cols) {
        throw InvalidArgument("queries: expected as many columns as rows");
    }
    asked.queries.inv_norm = vector_of(inv_norms, asked.queries.rows.rows, "query_inv_norms");
    if (!(temperature > 0.0) || !std::isfinite(temperature)) {
        throw InvalidArgument("temperature: expected a finite positive number");
    }
    asked.options.temperature = temperature;
    if (!mask.is_none()) {
        const auto passes = mask.cast<Mask>();
        asked.options.mask_per_query = passes.ndim() == 2;
        if (asked.options.mask_per_query) {
            matrix_of(passes, asked.queries.rows.rows, n, "mask");
        } else {
            vector_of(passes, n, "mask");
        }
        static_assert(sizeof(bool) == 1);
        asked.options.mask = reinterpret_cast<const std::uint8_t*>(passes.data());
    }
    asked.options.isa = resolve_isa(isa);
    return asked;
}

py::tuple topk(const Points& held, const py::array_t<float>& queries,
               const Array<double>& inv_norms, double temperature, const py::object& mask,
               std::size_t k, const std::string& isa) {
    const Asked asked = make_asked(held, queries, inv_norms, temperature, mask, isa);
    const auto b = static_cast<py::ssize_t>(asked.queries.rows.rows);
    const auto width = static_cast<py::ssize_t>(k);
    Array<std::int64_t> indices({b, width}), counts(b);
    Array<double> scores({b, width});
    FusedTopkResult result{indices.mutable_data(), scores.mutable_data(), counts.mutable_data(), 0};
    {
        const py::gil_scoped_release release;
        fisher_rao_topk(held.points, asked.queries, asked.options, k, result);
    }
    return py::make_tuple(indices, scores, counts, result.exact_rows);
}

Array<double> scores(const Points& held, const py::array_t<float>& queries,
                     const Array<double>& inv_norms, double temperature, const py::object& mask,
                     const std::string& isa) {
    const Asked asked = make_asked(held, queries, inv_norms, temperature, mask, isa);
    const std::size_t b = asked.queries.rows.rows;
    const std::size_t n = held.points.rows.rows;
    Array<double> out({static_cast<py::ssize_t>(b), static_cast<py::ssize_t>(n)});
    const MatrixView<double> view{out.mutable_data(), b, n, static_cast<std::ptrdiff_t>(n)};
    {
        const py::gil_scoped_release release;
        fisher_rao_scores(held.points, asked.queries, asked.options, view);
    }
    return out;
}

}  // namespace

void bind_fisher_rao(py::module_& module) {
    using py::arg;
    const auto queries = arg("queries").noconvert();
    const auto norms = arg("query_inv_norms").noconvert();
    py::class_<Points>(module, "FisherRaoPoints")
        .def(py::init(&make_points), arg("rows").noconvert(), arg("precision").noconvert(),
             arg("inv_norms").noconvert(), arg("ramp").none(true))
        .def_property_readonly("scannable",
                               [](const Points& held) { return held.points.scannable; })
        .def("topk", &topk, queries, norms, arg("temperature"), arg("mask").none(true), arg("k"),
             arg("isa") = "auto")
        .def("scores", &scores, queries, norms, arg("temperature"), arg("mask").none(true),
             arg("isa") = "auto");
}

}  // namespace riemem
