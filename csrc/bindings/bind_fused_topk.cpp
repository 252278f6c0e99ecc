#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "bindings/bindings.hpp"
#include "kernels/fused_topk/fused_topk.hpp"
#include "kernels/quantize/quantize.hpp"

namespace riemem {
namespace {

using OptionalVector = std::optional<Array<double>>;
using OptionalMask = std::optional<Array<bool>>;

template <typename T>
const T* optional_vector(const std::optional<Array<T>>& array, std::size_t size, const char* name) {
    return array ? vector_of(*array, size, name) : nullptr;
}

// PreparedPoints and the arrays it points into.
class Points {
 public:
    static std::unique_ptr<Points> make(const py::array_t<float>& rows,
                                        const Array<double>& inv_norms,
                                        const OptionalVector& row_scale,
                                        const OptionalVector& row_bias,
                                        const std::optional<Array<std::int32_t>>& twin) {
        FusedPoints points;
        points.rows = float_rows(rows, "rows");
        set_terms(points, inv_norms, row_scale, row_bias, twin);
        return wrap(points, py::make_tuple(rows, inv_norms, row_scale, row_bias, twin));
    }

    static std::unique_ptr<Points> make_int8(
        const py::array_t<float>& rows, const Array<double>& inv_norms,
        const OptionalVector& row_scale, const OptionalVector& row_bias,
        const std::optional<Array<std::int32_t>>& twin, const Array<std::uint8_t>& tiles,
        const Array<float>& tile_scale, const Array<float>& residual) {
        FusedPoints points;
        points.rows = float_rows(rows, "rows");
        set_terms(points, inv_norms, row_scale, row_bias, twin);
        const std::size_t n = points.rows.rows;
        points.storage = ScanStorage::int8;
        points.tile_scale = vector_of(tile_scale, n, "tile_scale");
        points.residual = vector_of(residual, n, "residual");
        points.tiles = vector_of(
            tiles, (n + kTileRows64 - 1) / kTileRows64 * int8_tile_bytes(points.rows.cols),
            "tiles");
        return wrap(points, py::make_tuple(rows, inv_norms, row_scale, row_bias, twin, tiles,
                                           tile_scale, residual));
    }

    static std::unique_ptr<Points> make_bfloat16(const Array<std::uint16_t>& high,
                                                 const Array<std::int16_t>& low,
                                                 const Array<double>& inv_norms,
                                                 const OptionalVector& row_scale,
                                                 const OptionalVector& row_bias,
                                                 const std::optional<Array<std::int32_t>>& twin,
                                                 const Array<float>& residual) {
        if (high.ndim() != 2) throw InvalidArgument("high: expected a 2-d array");
        FusedPoints points;
        const auto n = static_cast<std::size_t>(high.shape(0));
        const auto d = static_cast<std::size_t>(high.shape(1));
        points.rows = {nullptr, n, d, static_cast<std::ptrdiff_t>(d)};
        points.storage = ScanStorage::bfloat16;
        points.high = high.data();
        points.low = matrix_of(low, n, d, "low");
        points.residual = vector_of(residual, n, "residual");
        set_terms(points, inv_norms, row_scale, row_bias, twin);
        return wrap(points,
                    py::make_tuple(high, low, inv_norms, row_scale, row_bias, twin, residual));
    }

    const PreparedPoints& prepared() const { return prepared_; }

 private:
    Points(const FusedPoints& points, py::tuple arrays)
        : prepared_(points), arrays_(std::move(arrays)) {}

    static std::unique_ptr<Points> wrap(const FusedPoints& points, py::tuple arrays) {
        return std::unique_ptr<Points>(new Points(points, std::move(arrays)));
    }

    static void set_terms(FusedPoints& points, const Array<double>& inv_norms,
                          const OptionalVector& row_scale, const OptionalVector& row_bias,
                          const std::optional<Array<std::int32_t>>& twin) {
        const std::size_t n = points.rows.rows;
        points.inv_norm = vector_of(inv_norms, n, "inv_norms");
        points.row_scale = optional_vector(row_scale, n, "row_scale");
        points.row_bias = optional_vector(row_bias, n, "row_bias");
        points.twin = optional_vector(twin, n, "twin");
        for (std::size_t i = 0; points.twin != nullptr && i < n; ++i) {
            if (points.twin[i] >= static_cast<std::int64_t>(n)) {
                throw InvalidArgument("twin: expected row numbers below " + std::to_string(n));
            }
        }
    }

    PreparedPoints prepared_;
    py::tuple arrays_;
};

// The queries and options of one call, checked; the arrays are kept alive by the caller.
struct Call {
    FusedQueries queries;
    FusedOptions options;

    Call(const FusedPoints& points, const Array<double>& q, const Array<double>& w,
         const Array<double>& offsets, const Array<double>& query_bias, double cosine_weight,
         int norm, const OptionalMask& mask, const std::string& isa) {
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
            const std::size_t n = points.rows.rows;
            options.mask_per_query = mask->ndim() == 2;
            const bool* passes = options.mask_per_query ? matrix_of(*mask, queries.count, n, "mask")
                                                        : vector_of(*mask, n, "mask");
            options.mask = reinterpret_cast<const std::uint8_t*>(passes);
        }
    }
};

py::tuple topk(const Points& points, const Array<double>& q, const Array<double>& w,
               const Array<double>& offsets, const Array<double>& query_bias, double cosine_weight,
               int norm, const OptionalMask& mask, std::size_t k, const std::string& isa) {
    const Call call(points.prepared().points, q, w, offsets, query_bias, cosine_weight, norm, mask,
                    isa);
    k = std::min(k, points.prepared().points.rows.rows);
    const auto count = static_cast<py::ssize_t>(call.queries.count);
    const auto width = static_cast<py::ssize_t>(k);
    Array<std::int64_t> indices({count, width});
    Array<double> scores({count, width});
    Array<std::int64_t> counts(count);
    FusedTopkResult result{indices.mutable_data(), scores.mutable_data(), counts.mutable_data()};
    {
        const py::gil_scoped_release release;
        fused_topk(points.prepared(), call.queries, call.options, k, result);
    }
    return py::make_tuple(indices, scores, counts, result.exact_rows);
}

template <typename T>
void scores(const Points& points, const Array<double>& q, const Array<double>& w,
            const Array<double>& offsets, const Array<double>& query_bias, double cosine_weight,
            int norm, const OptionalMask& mask, const std::string& isa, py::array_t<T> out) {
    const Call call(points.prepared().points, q, w, offsets, query_bias, cosine_weight, norm, mask,
                    isa);
    const std::size_t n = points.prepared().points.rows.rows;
    const auto item = static_cast<py::ssize_t>(sizeof(T));
    if (out.ndim() != 2 || static_cast<std::size_t>(out.shape(0)) != call.queries.count ||
        static_cast<std::size_t>(out.shape(1)) != n ||
        (out.shape(1) > 1 && out.strides(1) != item) ||
        (out.shape(0) > 1 && out.strides(0) % item != 0)) {
        throw InvalidArgument("out: expected shape (B, N) with unit inner stride");
    }
    const py::ssize_t stride =
        out.shape(0) > 1 ? out.strides(0) / item : static_cast<py::ssize_t>(n);
    const MatrixView<T> view{out.mutable_data(), call.queries.count, n, stride};
    const py::gil_scoped_release release;
    fused_scores(points.prepared().points, call.queries, call.options, view);
}

// Approximate scores of one query for every row, and the bound of their error.
py::tuple approximate(const Points& points, const Array<double>& q, const Array<double>& w,
                      const Array<double>& offsets, const Array<double>& query_bias,
                      double cosine_weight, const std::string& isa) {
    const PreparedPoints& prepared = points.prepared();
    const Call call(prepared.points, q, w, offsets, query_bias, cosine_weight, 0, std::nullopt,
                    isa);
    if (call.queries.count != 1) throw InvalidArgument("q: expected one query");
    Array<double> out(static_cast<py::ssize_t>(prepared.points.rows.rows));
    double* data = out.mutable_data();
    double bound = 0.0;
    {
        const py::gil_scoped_release release;
        bound = fused_approximate(prepared, call.queries, call.options, data);
    }
    return py::make_tuple(out, bound);
}

// Scores of one query for some rows, the same bits as scores() without norm and mask.
Array<double> some(const Points& points, const Array<double>& q, const Array<double>& w,
                   const Array<double>& offsets, const Array<double>& query_bias,
                   double cosine_weight, const Array<std::int64_t>& rows, const std::string& isa) {
    const FusedPoints& all = points.prepared().points;
    const Call call(all, q, w, offsets, query_bias, cosine_weight, 0, std::nullopt, isa);
    if (call.queries.count != 1) throw InvalidArgument("q: expected one query");
    if (rows.ndim() != 1) throw InvalidArgument("rows: expected a 1-d array");
    const auto count = static_cast<std::size_t>(rows.shape(0));
    const std::int64_t* wanted = rows.data();
    for (std::size_t j = 0; j < count; ++j) {
        if (wanted[j] < 0 || static_cast<std::size_t>(wanted[j]) >= all.rows.rows) {
            throw InvalidArgument("rows: expected row numbers below " +
                                  std::to_string(all.rows.rows));
        }
    }
    Array<double> out(rows.shape(0));
    double* data = out.mutable_data();
    {
        const py::gil_scoped_release release;
        fused_some(all, call.queries, call.options, wanted, count, data);
    }
    return out;
}

void unit(const py::array_t<float>& rows, const Array<double>& norms, Array<float> out,
          const std::string& isa) {
    const MatrixView<const float> view = float_rows(rows, "rows");
    const double* lengths = vector_of(norms, view.rows, "norms");
    matrix_of(out, view.rows, view.cols, "out");
    float* data = out.mutable_data();
    const Isa chosen = resolve_isa(isa);
    const py::gil_scoped_release release;
    unit_rows(view, lengths, chosen, data);
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

Array<double> times(const Array<double>& rows, const Array<double>& matrix,
                    const std::string& nonzero, const std::string& isa) {
    if (rows.ndim() != 2) throw InvalidArgument("rows: expected a 2-d array");
    const auto count = static_cast<std::size_t>(rows.shape(0));
    const auto d = static_cast<std::size_t>(rows.shape(1));
    const double* values = matrix_of(matrix, d, d, "matrix");
    if (nonzero != "all" && nonzero != "upper" && nonzero != "lower") {
        throw InvalidArgument("nonzero: expected 'all', 'upper' or 'lower', got '" + nonzero + "'");
    }
    const Nonzero part = nonzero == "upper"   ? Nonzero::upper
                         : nonzero == "lower" ? Nonzero::lower
                                              : Nonzero::all;
    Array<double> out({rows.shape(0), rows.shape(1)});
    double* data = out.mutable_data();
    const Isa chosen = resolve_isa(isa);
    {
        const py::gil_scoped_release release;
        rows_times(rows.data(), count, values, d, part, chosen, data);
    }
    return out;
}

}  // namespace

// noconvert everywhere: a silent conversion would make every call copy its arrays.
void bind_fused_topk(py::module_& module) {
    using py::arg;
    const auto rows = arg("rows").noconvert();
    const auto inv_norms = arg("inv_norms").noconvert();
    const auto row_scale = arg("row_scale").noconvert().none(true);
    const auto row_bias = arg("row_bias").noconvert().none(true);
    const auto twin = arg("twin").noconvert().none(true);
    const auto q = arg("q").noconvert();
    const auto w = arg("w").noconvert();
    const auto offsets = arg("offsets").noconvert();
    const auto query_bias = arg("query_bias").noconvert();
    const auto mask = arg("mask").noconvert().none(true);
    py::class_<Points>(module, "Points")
        .def_static("float32", &Points::make, rows, inv_norms, row_scale, row_bias, twin)
        .def_static("int8", &Points::make_int8, rows, inv_norms, row_scale, row_bias, twin,
                    arg("tiles").noconvert(), arg("tile_scale").noconvert(),
                    arg("residual").noconvert())
        .def_static("bfloat16", &Points::make_bfloat16, arg("high").noconvert(),
                    arg("low").noconvert(), inv_norms, row_scale, row_bias, twin,
                    arg("residual").noconvert())
        .def_property_readonly("unbounded_rows",
                               [](const Points& self) { return self.prepared().unbounded_rows(); })
        .def("topk", &topk, q, w, offsets, query_bias, arg("cosine_weight"), arg("norm"), mask,
             arg("k"), arg("isa") = "auto")
        .def("scores", &scores<float>, q, w, offsets, query_bias, arg("cosine_weight"), arg("norm"),
             mask, arg("isa"), arg("out").noconvert())
        .def("scores", &scores<double>, q, w, offsets, query_bias, arg("cosine_weight"),
             arg("norm"), mask, arg("isa"), arg("out").noconvert())
        .def("approximate", &approximate, q, w, offsets, query_bias, arg("cosine_weight"),
             arg("isa") = "auto")
        .def("some", &some, q, w, offsets, query_bias, arg("cosine_weight"),
             arg("rows").noconvert(), arg("isa") = "auto");
    module.def("unit_rows", &unit, rows, arg("norms").noconvert(), arg("out").noconvert(),
               arg("isa") = "auto");
    module.def("row_stats", &row_stats, rows, arg("isa") = "auto");
    module.def("quadratic_rows", &quadratic, rows, arg("mean").noconvert(),
               arg("whitening").noconvert(), arg("isa") = "auto");
    module.def("rows_times", &times, rows, arg("matrix").noconvert(), arg("nonzero") = "all",
               arg("isa") = "auto");
}

}  // namespace riemem
