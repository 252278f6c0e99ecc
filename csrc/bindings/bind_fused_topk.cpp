#include <pybind11/stl.h>

#include <algorithm>
#include <optional>

#include "bindings/bindings.hpp"
#include "kernels/fused_topk/fused_topk.hpp"

namespace riemem {
namespace {

using OptionalVector = std::optional<Array<double>>;
using OptionalMask = std::optional<Array<bool>>;

// The arrays of one call, checked, with the arrays themselves kept alive by the caller.
struct Call {
    FusedPoints points;
    FusedQueries queries;
    FusedOptions options;

    Call(const py::array_t<float>& rows, const Array<double>& inv_norms,
         const OptionalVector& row_scale, const OptionalVector& row_bias, const Array<double>& q,
         const Array<double>& w, const Array<double>& offsets, const Array<double>& query_bias,
         double cosine_weight, int norm, const OptionalMask& mask, const std::string& isa) {
        points.rows = float_rows(rows, "rows");
        const std::size_t n = points.rows.rows;
        points.inv_norm = vector_of(inv_norms, n, "inv_norms");
        if (row_scale) points.row_scale = vector_of(*row_scale, n, "row_scale");
        if (row_bias) points.row_bias = vector_of(*row_bias, n, "row_bias");
        if (q.ndim() != 2) throw InvalidArgument("q: expected a 2-d array");
        queries.count = static_cast<std::size_t>(q.shape(0));
        queries.q = matrix_of(q, queries.count, points.rows.cols, "q");
        queries.w = matrix_of(w, queries.count, points.rows.cols, "w");
        queries.offset = vector_of(offsets, queries.count, "offsets");
        queries.bias = vector_of(query_bias, queries.count, "query_bias");
        if (!(cosine_weight >= 0.0 && cosine_weight <= 1.0)) {
            throw InvalidArgument("cosine_weight: expected a number from 0 to 1");
        }
        if (norm < 0 || norm > 2) throw InvalidArgument("norm: expected 0, 1 or 2");
        options.cosine_weight = cosine_weight;
        options.norm = static_cast<Norm>(norm);
        options.isa = resolve_isa(isa);
        if (mask) {
            options.mask_per_query = mask->ndim() == 2;
            const bool* passes = options.mask_per_query ? matrix_of(*mask, queries.count, n, "mask")
                                                        : vector_of(*mask, n, "mask");
            options.mask = reinterpret_cast<const std::uint8_t*>(passes);
        }
    }
};

py::tuple topk(const py::array_t<float>& rows, const Array<double>& inv_norms,
               const OptionalVector& row_scale, const OptionalVector& row_bias,
               const Array<double>& q, const Array<double>& w, const Array<double>& offsets,
               const Array<double>& query_bias, double cosine_weight, int norm,
               const OptionalMask& mask, std::size_t k, const std::string& isa) {
    const Call call(rows, inv_norms, row_scale, row_bias, q, w, offsets, query_bias, cosine_weight,
                    norm, mask, isa);
    k = std::min(k, call.points.rows.rows);
    const auto count = static_cast<py::ssize_t>(call.queries.count);
    const auto width = static_cast<py::ssize_t>(k);
    Array<std::int64_t> indices({count, width});
    Array<double> scores({count, width});
    Array<std::int64_t> counts({count});
    FusedTopkResult result{indices.mutable_data(), scores.mutable_data(), counts.mutable_data()};
    {
        const py::gil_scoped_release release;
        fused_topk(call.points, call.queries, call.options, k, result);
    }
    return py::make_tuple(indices, scores, counts, result.exact_rows);
}

template <typename T>
void scores(const py::array_t<float>& rows, const Array<double>& inv_norms,
            const OptionalVector& row_scale, const OptionalVector& row_bias, const Array<double>& q,
            const Array<double>& w, const Array<double>& offsets, const Array<double>& query_bias,
            double cosine_weight, int norm, const OptionalMask& mask, const std::string& isa,
            py::array_t<T> out) {
    const Call call(rows, inv_norms, row_scale, row_bias, q, w, offsets, query_bias, cosine_weight,
                    norm, mask, isa);
    if (out.ndim() != 2 || static_cast<std::size_t>(out.shape(0)) != call.queries.count ||
        static_cast<std::size_t>(out.shape(1)) != call.points.rows.rows ||
        (out.shape(1) > 1 && out.strides(1) != static_cast<py::ssize_t>(sizeof(T))) ||
        (out.shape(0) > 1 && out.strides(0) % static_cast<py::ssize_t>(sizeof(T)) != 0)) {
        throw InvalidArgument("out: expected shape (B, N) with unit inner stride");
    }
    const MatrixView<T> view{out.mutable_data(), call.queries.count, call.points.rows.rows,
                             out.shape(0) > 1 ? out.strides(0) / static_cast<py::ssize_t>(sizeof(T))
                                              : static_cast<py::ssize_t>(call.points.rows.rows)};
    const py::gil_scoped_release release;
    fused_scores(call.points, call.queries, call.options, view);
}

py::tuple row_stats(const py::array_t<float>& rows, const std::string& isa) {
    const MatrixView<const float> view = float_rows(rows, "rows");
    Array<double> norms(static_cast<py::ssize_t>(view.rows));
    double* out = norms.mutable_data();
    const Isa chosen = resolve_isa(isa);
    std::int64_t bad = -1;
    {
        const py::gil_scoped_release release;
        bad = row_norms(view, chosen, out);
    }
    return py::make_tuple(norms, bad);
}

Array<double> quadratic(const py::array_t<float>& rows, const Array<double>& mean,
                        const Array<double>& whitening, const std::string& isa) {
    const MatrixView<const float> view = float_rows(rows, "rows");
    const double* centre = vector_of(mean, view.cols, "mean");
    if (whitening.ndim() != 2) throw InvalidArgument("whitening: expected a 2-d array");
    const auto rank = static_cast<std::size_t>(whitening.shape(1));
    const double* columns = matrix_of(whitening, view.cols, rank, "whitening");
    Array<double> out(static_cast<py::ssize_t>(view.rows));
    double* data = out.mutable_data();
    const Isa chosen = resolve_isa(isa);
    {
        const py::gil_scoped_release release;
        quadratic_rows(view, centre, columns, rank, chosen, data);
    }
    return out;
}

}  // namespace

// noconvert everywhere: a silent conversion would make every call copy its arrays.
void bind_fused_topk(py::module_& module) {
    using py::arg;
    const auto rows = arg("rows").noconvert();
    const auto out = arg("out").noconvert();
    module.def("fused_topk", &topk, rows, arg("inv_norms").noconvert(),
               arg("row_scale").noconvert().none(true), arg("row_bias").noconvert().none(true),
               arg("q").noconvert(), arg("w").noconvert(), arg("offsets").noconvert(),
               arg("query_bias").noconvert(), arg("cosine_weight"), arg("norm"),
               arg("mask").noconvert().none(true), arg("k"), arg("isa") = "auto");
    const auto bind_scores = [&](auto function) {
        module.def("fused_scores", function, rows, arg("inv_norms").noconvert(),
                   arg("row_scale").noconvert().none(true), arg("row_bias").noconvert().none(true),
                   arg("q").noconvert(), arg("w").noconvert(), arg("offsets").noconvert(),
                   arg("query_bias").noconvert(), arg("cosine_weight"), arg("norm"),
                   arg("mask").noconvert().none(true), arg("isa"), out);
    };
    bind_scores(&scores<float>);
    bind_scores(&scores<double>);
    module.def("row_stats", &row_stats, rows, arg("isa") = "auto");
    module.def("quadratic_rows", &quadratic, rows, arg("mean").noconvert(),
               arg("whitening").noconvert(), arg("isa") = "auto");
}

}  // namespace riemem
