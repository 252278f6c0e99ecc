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

void scatter(const Span& rows, int kind, std::size_t count, std::size_t dim, std::size_t stride,
             const Span& shift, double sign, const Span& total, const Span& square,
             const MaybeSpan& bad, std::uintptr_t stream) {
    if (sign != 1.0 && sign != -1.0) throw InvalidArgument("sign: expected 1 or -1");
    const auto* centre = at<double>(shift, dim, "shift");
    auto* sum = at<double>(total, dim, "total");
    auto* squares = at<double>(square, dim * dim, "scatter");
    const auto* found = at<unsigned long long>(bad, 1, "bad");
    const auto run = [&](const auto* values) {
        const py::gil_scoped_release release;
        return cuda::scatter_add(values, count, dim, stride, centre, sign, sum, squares,
                                 stream_of(stream), found);
    };
    check(with_rows(kind, rows, reach_of(count, dim, stride), run), "scatter_add");
}

void shift_of(const Span& rows, int kind, std::size_t count, std::size_t dim, std::size_t stride,
              const MaybeSpan& bad, const Span& shift, std::uintptr_t stream) {
    const auto* found = at<unsigned long long>(bad, 1, "bad");
    auto* to = at<double>(shift, dim, "shift");
    const auto run = [&](const auto* values) {
        const py::gil_scoped_release release;
        return cuda::scatter_shift(values, count, dim, stride, found, to, stream_of(stream));
    };
    check(with_rows(kind, rows, reach_of(count, dim, stride), run), "scatter_shift");
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
    state.bad = at<unsigned long long>(span("bad"), 1, "bad");
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

void place(const Span& rows, int kind, std::size_t count, std::size_t dim, std::size_t stride,
           std::size_t first, const Span& norms, const Span& out, const Span& bad,
           std::uintptr_t stream) {
    auto* lengths = at<double>(norms, count, "norms");
    auto* to = at<float>(out, (first + count) * dim, "out");
    auto* lowest = at<unsigned long long>(bad, 1, "bad");
    const auto run = [&](const auto* values) {
        const py::gil_scoped_release release;
        return cuda::max_member_place(values, count, dim, stride, first, lengths, to + first * dim,
                                      lowest, stream_of(stream));
    };
    check(with_narrow_rows(kind, rows, reach_of(count, dim, stride), run), "max_member_place");
}

void labels(const Span& atom, std::size_t first, std::size_t count, const Span& names,
            std::size_t known, std::int64_t next, const Span& out, std::uintptr_t stream) {
    const auto* slots = at<std::int64_t>(atom, first + count, "atom");
    const auto* named = at<std::int64_t>(names, known, "names");
    auto* to = at<std::int64_t>(out, count, "labels");
    check(cuda::max_member_labels(slots + first, count, named, known, next, to, stream_of(stream)),
          "max_member_labels");
}

void nearest(const py::dict& arrays, std::size_t dim, std::size_t row_count,
             std::size_t atoms_before, const Span& chunks, std::size_t count, int route,
             const Span& atoms, const Span& scores, const Span& workspace, std::uintptr_t stream) {
    const cuda::DeviceAtoms state = atoms_of(arrays, dim, row_count, atoms_before);
    const auto* asked = at<float>(chunks, count * dim, "chunks");
    auto* slots = at<std::int64_t>(atoms, count, "atoms");
    auto* best = at<double>(scores, count, "scores");
    auto* room = at<double>(workspace, row_count + atoms_before, "workspace");
    const Route by = route_of(route);
    const py::gil_scoped_release release;
    check(cuda::max_member_nearest(state, by, row_count, atoms_before, asked, count, slots, best,
                                   room, stream_of(stream)),
          "max_member_nearest");
}

// Rows with variances and queries of one call, checked.
struct Fisher {
    cuda::DeviceFisherPoints points;
    cuda::DeviceFisherQueries queries;
    cuda::DeviceFisherOptions options;

    Fisher(const Span& rows, std::size_t stride, const Span& precision, bool one_precision,
           std::size_t count, std::size_t dim, const Span& inv_norm, const MaybeSpan& ramp,
           const Span& asked, std::size_t asked_stride, const Span& query_inv_norm,
           const MaybeSpan& empty, std::size_t batch, double temperature, const MaybeSpan& mask,
           bool mask_per_query) {
        if (!(temperature > 0.0)) throw InvalidArgument("temperature: expected a positive number");
        points.count = count;
        points.dim = dim;
        points.stride = stride;
        points.precision_stride = one_precision ? 0 : dim;
        points.rows = at<float>(rows, reach_of(count, dim, stride), "rows");
        points.precision = at<float>(precision, (one_precision ? 1 : count) * dim, "precision");
        points.inv_norm = at<double>(inv_norm, count, "inv_norm");
        points.ramp = at<double>(ramp, count, "ramp");
        queries.rows = at<float>(asked, reach_of(batch, dim, asked_stride), "queries");
        queries.stride = asked_stride;
        queries.inv_norm = at<double>(query_inv_norm, batch, "query_inv_norm");
        queries.count = batch;
        queries.empty = at<std::uint8_t>(empty, batch, "empty");
        options.temperature = temperature;
        options.mask = at<std::uint8_t>(mask, (mask_per_query ? batch : 1) * count, "mask");
        options.mask_per_query = mask_per_query;
    }
};

void fisher_topk(const Fisher& call, std::size_t k, const Span& indices, const Span& scores,
                 const Span& counts, const Span& workspace, std::uintptr_t stream) {
    const std::size_t batch = call.queries.count;
    if (k < 1 || k > call.points.count) throw InvalidArgument("k: expected 1 to the rows");
    const cuda::DeviceTopk result{at<std::int64_t>(indices, batch * k, "indices"),
                                  at<double>(scores, batch * k, "scores"),
                                  at<std::int64_t>(counts, batch, "counts")};
    const std::size_t bytes =
        cuda::fisher_rao_workspace(call.points.count, call.points.dim, batch, k);
    auto* room = at<unsigned char>(workspace, bytes, "workspace");
    const py::gil_scoped_release release;
    check(cuda::fisher_rao_topk(call.points, call.queries, call.options, k, result, room,
                                stream_of(stream)),
          "fisher_rao_topk");
}

void fisher_scores(const Fisher& call, const Span& out, std::uintptr_t stream) {
    auto* to = at<double>(out, call.queries.count * call.points.count, "out");
    const py::gil_scoped_release release;
    check(cuda::fisher_rao_scores(call.points, call.queries, call.options, to, stream_of(stream)),
          "fisher_rao_scores");
}

void precision(const Span& variances, std::size_t count, std::size_t dim, std::size_t stride,
               const MaybeSpan& ramp, const Span& out, const Span& usable, std::uintptr_t stream) {
    const std::size_t reach = stride == 0 ? dim : reach_of(count, dim, stride);
    const auto* from = at<float>(variances, reach, "variances");
    const auto* ramps = at<double>(ramp, count, "ramp");
    auto* to = at<float>(out, (stride == 0 ? 1 : count) * dim, "precision");
    auto* use = at<std::uint8_t>(usable, count, "usable");
    check(cuda::fisher_rao_precision(from, count, dim, stride, ramps, to, use, stream_of(stream)),
          "fisher_rao_precision");
}

void empty_queries(const Span& norms, std::size_t count, const Span& empty, std::uintptr_t stream) {
    const auto* lengths = at<double>(norms, count, "norms");
    auto* to = at<std::uint8_t>(empty, count, "empty");
    check(cuda::fisher_rao_empty(lengths, count, to, stream_of(stream)), "fisher_rao_empty");
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
    module.def("scatter_add", &scatter, arg("rows"), arg("kind"), arg("count"), arg("dim"),
               arg("stride"), arg("shift"), arg("sign"), arg("total"), arg("scatter"), arg("bad"),
               arg("stream"));
    module.def("scatter_shift", &shift_of, arg("rows"), arg("kind"), arg("count"), arg("dim"),
               arg("stride"), arg("bad"), arg("shift"), arg("stream"));
    module.def("scatter_covariance", &covariance, arg("total"), arg("scatter"), arg("dim"),
               arg("n"), arg("out"), arg("stream"));
    module.def("svd_rotate", &rotate, arg("space"), arg("dim"), arg("m"), arg("turn"), arg("k"),
               arg("out"), arg("stream"));
    module.def("svd_newton_step", &newton, arg("basis"), arg("dim"), arg("k"), arg("step"),
               arg("stream"));
    module.def("fisher_rao_workspace", &cuda::fisher_rao_workspace, arg("rows"), arg("dim"),
               arg("queries"), arg("k"));
    py::class_<Fisher>(module, "FisherRao", py::module_local())
        .def(py::init<const Span&, std::size_t, const Span&, bool, std::size_t, std::size_t,
                      const Span&, const MaybeSpan&, const Span&, std::size_t, const Span&,
                      const MaybeSpan&, std::size_t, double, const MaybeSpan&, bool>(),
             arg("rows"), arg("stride"), arg("precision"), arg("one_precision"), arg("count"),
             arg("dim"), arg("inv_norm"), arg("ramp"), arg("queries"), arg("query_stride"),
             arg("query_inv_norm"), arg("empty"), arg("batch"), arg("temperature"), arg("mask"),
             arg("mask_per_query"))
        .def("topk", &fisher_topk, arg("k"), arg("indices"), arg("scores"), arg("counts"),
             arg("workspace"), arg("stream"))
        .def("scores", &fisher_scores, arg("out"), arg("stream"));
    module.def("fisher_rao_precision", &precision, arg("variances"), arg("count"), arg("dim"),
               arg("stride"), arg("ramp"), arg("precision"), arg("usable"), arg("stream"));
    module.def("fisher_rao_empty", &empty_queries, arg("norms"), arg("count"), arg("empty"),
               arg("stream"));
    module.def("max_member_place", &place, arg("rows"), arg("kind"), arg("count"), arg("dim"),
               arg("stride"), arg("first"), arg("norms"), arg("out"), arg("bad"), arg("stream"));
    module.def("max_member_labels", &labels, arg("atom"), arg("first"), arg("count"), arg("names"),
               arg("known"), arg("next"), arg("labels"), arg("stream"));
    module.def("max_member_nearest", &nearest, arg("arrays"), arg("dim"), arg("row_count"),
               arg("atoms_before"), arg("chunks"), arg("count"), arg("route"), arg("atoms"),
               arg("scores"), arg("workspace"), arg("stream"));
    module.def("max_member_assign", &assign, arg("arrays"), arg("dim"), arg("row_count"),
               arg("atoms_before"), arg("count"), arg("threshold"), arg("route"), arg("scores"),
               arg("created"), arg("workspace"), arg("stream"));
}

}  // namespace riemem
