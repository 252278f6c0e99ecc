#include "bindings/bindings.hpp"
#include "core/cpu.hpp"
#include "kernels/scatter/scatter.hpp"

namespace riemem {
namespace {

template <typename T>
MatrixView<const T> rows_of(const Array<T>& array) {
    if (array.ndim() != 2) throw InvalidArgument("rows: expected a 2-d array");
    const auto cols = static_cast<std::size_t>(array.shape(1));
    return {array.data(), static_cast<std::size_t>(array.shape(0)), cols,
            static_cast<std::ptrdiff_t>(cols)};
}

template <typename T>
void add(const Array<T>& rows, const Array<double>& shift, double sign, Array<double> total,
         Array<double> scatter, const std::string& isa) {
    const MatrixView<const T> view = rows_of(rows);
    const std::size_t d = view.cols;
    if (sign != 1.0 && sign != -1.0) throw InvalidArgument("sign: expected 1 or -1");
    const double* centre = vector_of(shift, d, "shift");
    vector_of(total, d, "total");
    matrix_of(scatter, d, d, "scatter");
    double* sum = total.mutable_data();  // refuses what is read-only
    double* square = scatter.mutable_data();
    const Isa chosen = resolve_isa(isa);
    const py::gil_scoped_release release;
    scatter_add(view, centre, sign, chosen, sum, square);
}

Array<double> covariance(const Array<double>& total, const Array<double>& scatter, double n) {
    if (total.ndim() != 1) throw InvalidArgument("total: expected a 1-d array");
    if (!(n > 0.0)) throw InvalidArgument("n: expected a positive number");
    const auto d = static_cast<std::size_t>(total.shape(0));
    const double* square = matrix_of(scatter, d, d, "scatter");
    Array<double> out({total.shape(0), total.shape(0)});
    const double* sum = total.data();
    double* data = out.mutable_data();
    {
        const py::gil_scoped_release release;
        scatter_covariance(sum, square, d, n, data);
    }
    return out;
}

}  // namespace

void bind_scatter(py::module_& module) {
    using py::arg;
    const auto shift = arg("shift").noconvert();
    const auto total = arg("total").noconvert();
    const auto scatter = arg("scatter").noconvert();
    module.def("scatter_add", &add<float>, arg("rows").noconvert(), shift, arg("sign"), total,
               scatter, arg("isa") = "auto");
    module.def("scatter_add", &add<double>, arg("rows").noconvert(), shift, arg("sign"), total,
               scatter, arg("isa") = "auto");
    module.def("scatter_covariance", &covariance, total, scatter, arg("n"));
}

}  // namespace riemem
