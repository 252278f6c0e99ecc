#include <limits>

#include "bindings/bindings.hpp"
#include "kernels/fused_topk/twins.hpp"
#include "kernels/quantize/quantize.hpp"

namespace riemem {
namespace {

template <typename T>
T* writable(Array<T>& array, std::size_t least, const char* name) {
    if (array.ndim() != 1 || static_cast<std::size_t>(array.shape(0)) < least) {
        throw InvalidArgument(std::string(name) + ": expected at least " + std::to_string(least) +
                              " elements");
    }
    return array.mutable_data();
}

void int8(const py::array_t<float>& rows, std::size_t begin, Array<std::uint8_t> tiles,
          Array<float> scale, Array<float> residual, const std::string& isa) {
    const Isa chosen = resolve_isa(isa);
    const MatrixView<const float> view = float_rows(rows, "rows");
    const std::size_t end = begin + view.rows;
    const std::size_t bytes = (end + kTileRows64 - 1) / kTileRows64 * int8_tile_bytes(view.cols);
    std::uint8_t* tile_data = writable(tiles, bytes, "tiles");
    float* scale_data = writable(scale, end, "scale");
    float* residual_data = writable(residual, end, "residual");
    const py::gil_scoped_release release;
    quantize_int8(view, *rotation_of(view.cols), begin, chosen, tile_data, scale_data,
                  residual_data);
}

template <typename T>
Array<double> rotated(const Array<T>& rows, const std::string& isa) {
    const Isa chosen = resolve_isa(isa);
    if (rows.ndim() != 2) throw InvalidArgument("rows: expected a 2-d array");
    const auto d = static_cast<std::size_t>(rows.shape(1));
    const MatrixView<const T> view{rows.data(), static_cast<std::size_t>(rows.shape(0)), d,
                                   static_cast<std::ptrdiff_t>(d)};
    Array<double> out({rows.shape(0), rows.shape(1)});
    double* data = out.mutable_data();
    {
        const py::gil_scoped_release release;
        rotate_rows(view, *rotation_of(d), chosen, data);
    }
    return out;
}

py::tuple bfloat16(const py::array_t<float>& rows) {
    const MatrixView<const float> view = float_rows(rows, "rows");
    const auto n = static_cast<py::ssize_t>(view.rows);
    const auto d = static_cast<py::ssize_t>(view.cols);
    Array<std::uint16_t> high({n, d});
    Array<std::int16_t> low({n, d});
    Array<float> residual(n);
    split_bfloat16(view, high.mutable_data(), low.mutable_data(), residual.mutable_data());
    return py::make_tuple(high, low, residual);
}

Array<float> joined(const Array<std::uint16_t>& high, const Array<std::int16_t>& low) {
    if (high.ndim() != 2) throw InvalidArgument("high: expected a 2-d array");
    const auto n = static_cast<std::size_t>(high.shape(0));
    const auto d = static_cast<std::size_t>(high.shape(1));
    const std::int16_t* low_data = matrix_of(low, n, d, "low");
    Array<float> out({high.shape(0), high.shape(1)});
    join_bfloat16(high.data(), low_data, n * d, out.mutable_data());
    return out;
}

// Rows [begin, N) of `rows` become known; twin gets their entries.
void extend(Twins& self, const py::array_t<float>& rows, std::size_t begin,
            Array<std::int32_t> twin) {
    const MatrixView<const float> view = float_rows(rows, "rows");
    if (view.rows > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
        throw InvalidArgument("rows: expected fewer than 2^31 rows");
    }
    std::int32_t* data = writable(twin, view.rows, "twin");
    const py::gil_scoped_release release;
    for (std::size_t i = begin; i < view.rows; ++i) {
        self.add(
            static_cast<std::int32_t>(i), view.row(i), view.cols,
            [&view](std::int32_t j) { return view.row(static_cast<std::size_t>(j)); }, data);
    }
}

}  // namespace

void bind_quantize(py::module_& module) {
    using py::arg;
    module.attr("int8_tile_rows") = kTileRows64;
    module.def("int8_tile_bytes", &int8_tile_bytes, arg("d"));
    module.def("quantize_int8", &int8, arg("rows").noconvert(), arg("begin"),
               arg("tiles").noconvert(), arg("scale").noconvert(), arg("residual").noconvert(),
               arg("isa") = "auto");
    module.def("rotate", &rotated<float>, arg("rows").noconvert(), arg("isa") = "auto");
    module.def("rotate", &rotated<double>, arg("rows").noconvert(), arg("isa") = "auto");
    module.def("split_bfloat16", &bfloat16, arg("rows").noconvert());
    module.def("join_bfloat16", &joined, arg("high").noconvert(), arg("low").noconvert());
    py::class_<Twins>(module, "Twins")
        .def(py::init<>())
        .def("reserve", &Twins::reserve, arg("rows"))
        .def("extend", &extend, arg("rows").noconvert(), arg("begin"), arg("twin").noconvert());
}

}  // namespace riemem
