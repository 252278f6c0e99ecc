#include "bindings/cuda_bindings.hpp"
#include "kernels/fisher_rao/fisher_rao_cuda.hpp"
#include "kernels/max_member/max_member_cuda.hpp"
#include "kernels/scatter/scatter_cuda.hpp"
#include "kernels/svd_update/svd_update_cuda.hpp"
#include "kernels/token_select/token_select_cuda.hpp"

namespace riemem {
namespace {

void sensitivity(const Span& gradient, std::size_t gradient_stride, const Span& embedding,
                 std::size_t embedding_stride, std::size_t n, std::size_t d, const Span& out,
                 std::uintptr_t stream) {
    const auto* g = at<float>(gradient, reach_of(n, d, gradient_stride), "gradient");
    const auto* h = at<float>(embedding, reach_of(n, d, embedding_stride), "embedding");
    auto* to = at<double>(out, n, "out");
    const py::gil_scoped_release release;
    check(cuda::token_sensitivity(g, gradient_stride, h, embedding_stride, n, d, to,
                                  stream_of(stream)),
          "token_sensitivity");
}

void smooth(const Span& values, std::size_t n, std::size_t width, const Span& out,
            std::uintptr_t stream) {
    if (width % 2 == 0) throw InvalidArgument("width: expected an odd number");
    const auto* from = at<double>(values, n, "values");
    auto* to = at<double>(out, n, "out");
    check(cuda::token_smooth(from, n, width, to, stream_of(stream)), "token_smooth");
}

void pool(const Span& values, const Span& unit_of, std::size_t n, int how, std::size_t units,
          const Span& out, std::uintptr_t stream) {
    if (how < 0 || how > 2) throw InvalidArgument("how: expected 0, 1 or 2");
    const auto* from = at<double>(values, n, "values");
    const auto* owner = at<std::int64_t>(unit_of, n, "unit_of");
    auto* to = at<double>(out, units, "out");
    check(cuda::token_pool(from, owner, n, static_cast<Pool>(how), units, to, stream_of(stream)),
          "token_pool");
}

void gaps(const Span& entry, const Span& segments, std::size_t units, std::size_t gap,
          const Span& out, std::uintptr_t stream) {
    const auto* from = at<std::int64_t>(entry, units, "entry");
    const auto* segment = at<std::int64_t>(segments, units, "segments");
    auto* to = at<std::int64_t>(out, units, "out");
    check(cuda::fill_gaps(from, segment, units, gap, to, stream_of(stream)), "fill_gaps");
}

void scatter(const Span& rows, bool wide, std::size_t count, std::size_t dim, std::size_t stride,
             const Span& shift, double sign, const Span& total, const Span& square,
             std::uintptr_t stream) {
    if (sign != 1.0 && sign != -1.0) throw InvalidArgument("sign: expected 1 or -1");
    const std::size_t reach = reach_of(count, dim, stride);
    const auto* centre = at<double>(shift, dim, "shift");
    auto* sum = at<double>(total, dim, "total");
    auto* squares = at<double>(square, dim * dim, "scatter");
    const auto* doubles = wide ? at<double>(rows, reach, "rows") : nullptr;
    const auto* floats = wide ? nullptr : at<float>(rows, reach, "rows");
    const py::gil_scoped_release release;
    check(wide ? cuda::scatter_add(doubles, count, dim, stride, centre, sign, sum, squares,
                                   stream_of(stream))
               : cuda::scatter_add(floats, count, dim, stride, centre, sign, sum, squares,
                                   stream_of(stream)),
          "scatter_add");
}

void covariance(const Span& total, const Span& square, std::size_t dim, double n, const Span& out,
                std::uintptr_t stream) {
    if (!(n > 0.0)) throw InvalidArgument("n: expected a positive number");
    const auto* sum = at<double>(total, dim, "total");
    const auto* squares = at<double>(square, dim * dim, "scatter");
    auto* to = at<double>(out, dim * dim, "out");
    check(cuda::scatter_covariance(sum, squares, dim, n, to, stream_of(stream)),
          "scatter_covariance");
}

void rotate(const Span& space, std::size_t dim, std::size_t m, const Span& turn, std::size_t k,
            const Span& out, std::uintptr_t stream) {
    const auto* left = at<double>(space, dim * m, "space");
    const auto* right = at<double>(turn, m * k, "turn");
    auto* to = at<double>(out, dim * k, "out");
    check(cuda::svd_rotate(left, dim, m, right, k, to, stream_of(stream)), "svd_rotate");
}

void newton(const Span& basis, std::size_t dim, std::size_t k, const Span& step,
            std::uintptr_t stream) {
    const auto* from = at<double>(basis, dim * k, "basis");
    auto* to = at<double>(step, k * k, "step");
    check(cuda::svd_newton_step(from, dim, k, to, stream_of(stream)), "svd_newton_step");
}

cuda::DeviceAtoms atoms_of(const py::dict& arrays, std::size_t dim, std::size_t rows,
                           std::size_t atoms) {
    const auto span = [&](const char* name) { return arrays[name].cast<Span>(); };
    cuda::DeviceAtoms state;
    state.dim = dim;
    state.padded = (dim + 7) / 8 * 8;
    state.rows = at<float>(span("rows"), rows * dim, "rows");
    state.squares = at<double>(span("squares"), rows, "squares");
    state.atom = at<std::int64_t>(span("atom"), rows, "atom");
    state.sums = at<double>(span("sums"), atoms * state.padded, "sums");
    state.sum_squares = at<double>(span("sum_squares"), atoms, "sum_squares");
    state.centres = at<float>(span("centres"), atoms * dim, "centres");
    state.sizes = at<std::int64_t>(span("sizes"), atoms, "sizes");
    state.counts = at<unsigned long long>(span("counts"), 1, "counts");
    return state;
}

Route route_of(int route) {
    if (route < 0 || route > 2) throw InvalidArgument("route: expected 0, 1 or 2");
    return static_cast<Route>(route);
}

void assign(const py::dict& arrays, std::size_t dim, std::size_t row_count,
            std::size_t atoms_before, std::size_t count, double threshold, int route,
            const Span& scores, const Span& created, const Span& workspace, std::uintptr_t stream) {
    const std::size_t rows = row_count + count;
    const std::size_t atoms = atoms_before + count;
    const cuda::DeviceAtoms state = atoms_of(arrays, dim, rows, atoms);
    auto* best = at<double>(scores, count, "scores");
    auto* opened = at<std::uint8_t>(created, count, "created");
    auto* room = at<double>(workspace, rows + atoms, "workspace");
    const Route by = route_of(route);
    const py::gil_scoped_release release;
    check(cuda::max_member_assign(state, threshold, by, row_count, count, atoms_before, best,
                                  opened, room, stream_of(stream)),
          "max_member_assign");
}

void fisher(const Span& rows, const Span& precision, std::size_t count, std::size_t dim,
            const Span& inv_norm, const MaybeSpan& ramp, const Span& queries,
            const Span& query_inv_norm, std::size_t batch, double temperature,
            const MaybeSpan& mask, bool mask_per_query, std::size_t k, const Span& indices,
            const Span& scores, const Span& counts, const Span& workspace, std::uintptr_t stream) {
    if (!(temperature > 0.0)) throw InvalidArgument("temperature: expected a positive number");
    if (k < 1 || k > count) throw InvalidArgument("k: expected 1 to the rows");
    cuda::DeviceFisherPoints points;
    points.count = count;
    points.dim = points.stride = points.precision_stride = dim;
    points.rows = at<float>(rows, count * dim, "rows");
    points.precision = at<float>(precision, count * dim, "precision");
    points.inv_norm = at<double>(inv_norm, count, "inv_norm");
    points.ramp = at<double>(ramp, count, "ramp");
    const cuda::DeviceFisherQueries asked{at<float>(queries, batch * dim, "queries"), dim,
                                          at<double>(query_inv_norm, batch, "query_inv_norm"),
                                          batch};
    const cuda::DeviceFisherOptions options{
        temperature, at<std::uint8_t>(mask, (mask_per_query ? batch : 1) * count, "mask"),
        mask_per_query};
    const cuda::DeviceTopk result{at<std::int64_t>(indices, batch * k, "indices"),
                                  at<double>(scores, batch * k, "scores"),
                                  at<std::int64_t>(counts, batch, "counts")};
    auto* room =
        at<unsigned char>(workspace, cuda::fisher_rao_workspace(count, dim, batch, k), "workspace");
    const py::gil_scoped_release release;
    check(cuda::fisher_rao_topk(points, asked, options, k, result, room, stream_of(stream)),
          "fisher_rao_topk");
}

}  // namespace

void bind_cuda_others(py::module_& module) {
    using py::arg;
    module.def("token_sensitivity", &sensitivity, arg("gradient"), arg("gradient_stride"),
               arg("embedding"), arg("embedding_stride"), arg("n"), arg("d"), arg("out"),
               arg("stream"));
    module.def("token_smooth", &smooth, arg("values"), arg("n"), arg("width"), arg("out"),
               arg("stream"));
    module.def("token_pool", &pool, arg("values"), arg("unit_of"), arg("n"), arg("how"),
               arg("units"), arg("out"), arg("stream"));
    module.def("fill_gaps", &gaps, arg("entry"), arg("segments"), arg("units"), arg("gap"),
               arg("out"), arg("stream"));
    module.def("scatter_add", &scatter, arg("rows"), arg("wide"), arg("count"), arg("dim"),
               arg("stride"), arg("shift"), arg("sign"), arg("total"), arg("scatter"),
               arg("stream"));
    module.def("scatter_covariance", &covariance, arg("total"), arg("scatter"), arg("dim"),
               arg("n"), arg("out"), arg("stream"));
    module.def("svd_rotate", &rotate, arg("space"), arg("dim"), arg("m"), arg("turn"), arg("k"),
               arg("out"), arg("stream"));
    module.def("svd_newton_step", &newton, arg("basis"), arg("dim"), arg("k"), arg("step"),
               arg("stream"));
    module.def("fisher_rao_workspace", &cuda::fisher_rao_workspace, arg("rows"), arg("dim"),
               arg("queries"), arg("k"));
    module.def("fisher_rao_topk", &fisher, arg("rows"), arg("precision"), arg("count"), arg("dim"),
               arg("inv_norm"), arg("ramp"), arg("queries"), arg("query_inv_norm"), arg("batch"),
               arg("temperature"), arg("mask"), arg("mask_per_query"), arg("k"), arg("indices"),
               arg("scores"), arg("counts"), arg("workspace"), arg("stream"));
    module.def("max_member_assign", &assign, arg("arrays"), arg("dim"), arg("row_count"),
               arg("atoms_before"), arg("count"), arg("threshold"), arg("route"), arg("scores"),
               arg("created"), arg("workspace"), arg("stream"));
}

}  // namespace riemem
