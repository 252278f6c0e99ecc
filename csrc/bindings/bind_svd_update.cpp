#include "bindings/bindings.hpp"
#include "kernels/svd_update/svd_update.hpp"

namespace riemem {
namespace {

py::tuple svd(const Array<double>& a) {
    if (a.ndim() != 2) throw InvalidArgument("a: expected a 2-d array");
    const py::ssize_t m = a.shape(0);
    const py::ssize_t n = a.shape(1);
    const py::ssize_t k = std::min(m, n);
    Array<double> u({m, k});
    Array<double> s(k);
    Array<double> vt({k, n});
    const double* in = a.data();
    double* left = u.mutable_data();
    double* values = s.mutable_data();
    double* right = vt.mutable_data();
    {
        const py::gil_scoped_release release;
        small_svd(in, static_cast<std::size_t>(m), static_cast<std::size_t>(n), left, values,
                  right);
    }
    return py::make_tuple(u, s, vt);
}

py::object downdate(const Array<double>& s, const Array<double>& p, double slack) {
    if (s.ndim() != 1) throw InvalidArgument("s: expected a 1-d array");
    if (p.ndim() != 2) throw InvalidArgument("p: expected a 2-d array");
    const auto r = static_cast<std::size_t>(s.shape(0));
    const auto b = static_cast<std::size_t>(p.shape(0));
    const double* rows = matrix_of(p, b, r, "p");
    for (std::size_t j = 0; j < r; ++j) {
        if (!(s.data()[j] > 0.0)) throw InvalidArgument("s: expected positive numbers");
    }
    Array<double> out({s.shape(0), s.shape(0)});
    const double* values = s.data();
    double* data = out.mutable_data();
    bool fits = false;
    {
        const py::gil_scoped_release release;
        fits = downdate_core(values, rows, b, r, slack, data);
    }
    if (!fits) return py::none();
    return out;
}

}  // namespace

void bind_svd_update(py::module_& module) {
    using py::arg;
    module.attr("small_svd_limit") = kSmallSvd;
    module.def("small_svd", &svd, arg("a").noconvert());
    module.def("downdate_core", &downdate, arg("s").noconvert(), arg("p").noconvert(),
               arg("slack"));
}

}  // namespace riemem
