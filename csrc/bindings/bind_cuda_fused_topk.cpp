#include <limits>

#include "bindings/cuda_bindings.hpp"
#include "kernels/fused_topk/fused_topk_cuda.hpp"

namespace riemem {
namespace {

using cuda::DevicePoints;

// Rows on the device, checked once. Whoever makes it keeps their memory.
struct Points {
    DevicePoints points;
};

Points make_points(std::size_t count, std::size_t dim, int storage, std::size_t stride,
                   const MaybeSpan& rows, const MaybeSpan& high, const MaybeSpan& low,
                   const MaybeSpan& tiles, const MaybeSpan& tile_scale, const MaybeSpan& residual,
                   const Span& inv_norm, const MaybeSpan& row_scale, const MaybeSpan& row_bias,
                   const Span& part_scales, const MaybeSpan& signs, const MaybeSpan& order,
                   const MaybeSpan& ids) {
    if (storage < 0 || storage > 2) throw InvalidArgument("storage: expected 0, 1 or 2");
    if (count >= (std::size_t{1} << 31)) throw InvalidArgument("count: expected less than 2^31");
    Points made;
    DevicePoints& p = made.points;
    p.count = count;
    p.dim = dim;
    p.storage = static_cast<ScanStorage>(storage);
    p.stride = stride;
    const auto needs = [](const MaybeSpan& span, const char* name) {
        if (!span) throw InvalidArgument(std::string(name) + ": expected memory, got None");
    };
    if (p.storage == ScanStorage::bfloat16) {
        needs(high, "high");
        p.high = at<std::uint16_t>(high, reach_of(count, dim, stride), "high");
        p.low = at<std::int16_t>(low, reach_of(count, dim, stride), "low");
    } else {
        needs(rows, "rows");
        p.rows = at<float>(rows, reach_of(count, dim, stride), "rows");
    }
    if (p.storage == ScanStorage::int8) {
        if (dim > 32768) throw InvalidArgument("dim: expected at most 32768 for int8");
        needs(tiles, "tiles");
        needs(tile_scale, "tile_scale");
        needs(signs, "signs");
        needs(order, "order");
        const std::size_t bytes = cuda::part_count(count) * ((dim + 3) / 4) * 256;
        // The kernel reads whole words.
        p.tiles = reinterpret_cast<const std::uint8_t*>(at<unsigned>(tiles, bytes / 4, "tiles"));
        p.tile_scale = at<float>(tile_scale, count, "tile_scale");
        p.signs = at<std::int8_t>(signs, 2 * dim, "signs");
        p.order = at<std::int32_t>(order, dim, "order");
    }
    if (p.storage == ScanStorage::int8 || p.low != nullptr) {
        needs(residual, "residual");
        p.residual = at<float>(residual, count, "residual");
    }
    p.inv_norm = at<double>(inv_norm, count, "inv_norm");
    p.row_scale = at<double>(row_scale, count, "row_scale");
    p.row_bias = at<double>(row_bias, count, "row_bias");
    p.part_scales =
        at<double>(part_scales, cuda::part_count(count) * cuda::kPartScales, "part_scales");
    p.ids = at<std::int64_t>(ids, count, "ids");
    return made;
}

// The queries and options of one call, checked.
struct Call {
    cuda::DeviceQueries queries;
    cuda::DeviceOptions options;

    Call(const DevicePoints& points, std::size_t count, const Span& q, const Span& w,
         const Span& offset, const Span& bias, const MaybeSpan& empty, double cosine_weight,
         int norm, const MaybeSpan& mask, bool mask_per_query, double least, double greatest) {
        queries.count = count;
        queries.q = at<double>(q, count * points.dim, "q");
        queries.w = at<double>(w, count * points.dim, "w");
        queries.offset = at<double>(offset, count, "offset");
        queries.bias = at<double>(bias, count, "bias");
        queries.empty = at<std::uint8_t>(empty, count, "empty");
        if (!(cosine_weight >= 0.0 && cosine_weight <= 1.0)) {
            throw InvalidArgument("cosine_weight: expected a number from 0 to 1");
        }
        if (norm < 0 || norm > 2) throw InvalidArgument("norm: expected 0, 1 or 2");
        options.cosine_weight = cosine_weight;
        options.norm = static_cast<Norm>(norm);
        options.mask = at<std::uint8_t>(mask, (mask_per_query ? count : 1) * points.count, "mask");
        options.mask_per_query = mask_per_query;
        options.least = least;
        options.greatest = greatest;
    }
};

std::size_t workspace_bytes(const Points& self, std::size_t queries, int norm, std::size_t k) {
    return cuda::fused_topk_workspace(self.points, queries, static_cast<Norm>(norm), k);
}

void prepare(const Points& self, std::uintptr_t stream) {
    // The one who made the points owns part_scales and lets them be written here.
    auto* scales = const_cast<double*>(self.points.part_scales);
    const py::gil_scoped_release release;
    check(cuda::fused_topk_prepare(self.points, scales, stream_of(stream)), "prepare");
}

void topk(const Points& self, std::size_t count, const Span& q, const Span& w, const Span& offset,
          const Span& bias, const MaybeSpan& empty, double cosine_weight, int norm,
          const MaybeSpan& mask, bool mask_per_query, double least, double greatest, std::size_t k,
          const Span& indices, const Span& scores, const Span& counts, const Span& workspace,
          std::uintptr_t stream) {
    const Call call(self.points, count, q, w, offset, bias, empty, cosine_weight, norm, mask,
                    mask_per_query, least, greatest);
    if (k < 1 || k > self.points.count) throw InvalidArgument("k: expected 1 to the rows");
    const cuda::DeviceTopk result{at<std::int64_t>(indices, count * k, "indices"),
                                  at<double>(scores, count * k, "scores"),
                                  at<std::int64_t>(counts, count, "counts")};
    auto* room = at<unsigned char>(workspace, workspace_bytes(self, count, norm, k), "workspace");
    const py::gil_scoped_release release;
    check(cuda::fused_topk(self.points, call.queries, call.options, k, result, room,
                           stream_of(stream)),
          "fused_topk");
}

void all_scores(const Points& self, std::size_t count, const Span& q, const Span& w,
                const Span& offset, const Span& bias, const MaybeSpan& empty, double cosine_weight,
                int norm, const MaybeSpan& mask, bool mask_per_query, double least, double greatest,
                const Span& out, bool wide, const Span& workspace, std::uintptr_t stream) {
    const Call call(self.points, count, q, w, offset, bias, empty, cosine_weight, norm, mask,
                    mask_per_query, least, greatest);
    if (self.points.count == 0) return;
    auto* room = at<unsigned char>(workspace, workspace_bytes(self, count, norm, 0), "workspace");
    const std::size_t size = count * self.points.count;
    double* doubles = wide ? at<double>(out, size, "out") : nullptr;
    float* floats = wide ? nullptr : at<float>(out, size, "out");
    const py::gil_scoped_release release;
    check(wide ? cuda::fused_scores(self.points, call.queries, call.options, doubles, room,
                                    stream_of(stream))
               : cuda::fused_scores(self.points, call.queries, call.options, floats, room,
                                    stream_of(stream)),
          "fused_scores");
}

void norms(const Span& rows, int kind, std::size_t count, std::size_t dim, std::size_t stride,
           const Span& out, const Span& bad, std::uintptr_t stream, double limit) {
    auto* lengths = at<double>(out, count, "out");
    auto* first = at<unsigned long long>(bad, 1, "bad");
    const auto run = [&](const auto* values) {
        const py::gil_scoped_release release;
        return cuda::row_norms(values, count, dim, stride, lengths, first, stream_of(stream),
                               limit);
    };
    check(with_rows(kind, rows, reach_of(count, dim, stride), run), "row_norms");
}

void squared(const Span& rows, int kind, std::size_t count, std::size_t dim, std::size_t stride,
             const Span& mean, const Span& whitening, std::size_t rank, const Span& out,
             std::uintptr_t stream) {
    const auto* centre = at<double>(mean, dim, "mean");
    const auto* columns = at<double>(whitening, dim * rank, "whitening");
    auto* lengths = at<double>(out, count, "out");
    const auto run = [&](const auto* values) {
        const py::gil_scoped_release release;
        return cuda::quadratic_rows(values, count, dim, stride, centre, columns, rank, lengths,
                                    stream_of(stream));
    };
    check(with_narrow_rows(kind, rows, reach_of(count, dim, stride), run), "quadratic_rows");
}

void constants(const Span& lengths, const MaybeSpan& squares, std::size_t count, int form,
               double at_mean, const Span& inv_norm, const MaybeSpan& row_scale,
               const MaybeSpan& row_bias, const Span& usable, std::uintptr_t stream) {
    if (form < 0 || form > 2 || (form != 0 && !squares) || (form == 1 && !row_scale) ||
        (form == 2 && !row_bias)) {
        throw InvalidArgument("form: expected 0, 1 or 2 and the arrays that it fills");
    }
    const auto* norm = at<double>(lengths, count, "lengths");
    const auto* square = at<double>(squares, count, "squares");
    auto* inverse = at<double>(inv_norm, count, "inv_norm");
    auto* scale = at<double>(row_scale, count, "row_scale");
    auto* bias = at<double>(row_bias, count, "row_bias");
    auto* use = at<std::uint8_t>(usable, count, "usable");
    const py::gil_scoped_release release;
    check(cuda::row_constants(norm, square, count, form, at_mean, inverse, scale, bias, use,
                              stream_of(stream)),
          "row_constants");
}

void fold(const Span& queries, std::size_t count, std::size_t dim, std::size_t stride,
          const MaybeSpan& mean, const MaybeSpan& whitening, double at_mean, int form, bool unit,
          const Span& q, const Span& w, const Span& offset, const Span& bias, const Span& empty,
          const Span& scratch, std::uintptr_t stream) {
    const auto* values = at<float>(queries, reach_of(count, dim, stride), "queries");
    cuda::DeviceMetric metric;
    metric.mean = at<double>(mean, dim, "mean");
    metric.whitening = at<double>(whitening, dim * dim, "whitening");
    if ((metric.mean == nullptr) != (metric.whitening == nullptr)) {
        throw InvalidArgument("mean: expected it with whitening, or neither");
    }
    metric.at_mean = at_mean;
    metric.form = form;
    metric.unit = unit;
    auto* to_q = at<double>(q, count * dim, "q");
    auto* to_w = at<double>(w, count * dim, "w");
    auto* to_offset = at<double>(offset, count, "offset");
    auto* to_bias = at<double>(bias, count, "bias");
    auto* to_empty = at<std::uint8_t>(empty, count, "empty");
    auto* room = at<double>(scratch, count * dim, "scratch");
    const py::gil_scoped_release release;
    check(cuda::fold_queries(values, count, dim, stride, metric, to_q, to_w, to_offset, to_bias,
                             to_empty, room, stream_of(stream)),
          "fold_queries");
}

}  // namespace

void bind_cuda_fused_topk(py::module_& module) {
    using py::arg;
    py::class_<Points>(module, "Points", py::module_local())
        .def(py::init(&make_points), arg("count"), arg("dim"), arg("storage"), arg("stride"),
             arg("rows"), arg("high"), arg("low"), arg("tiles"), arg("tile_scale"), arg("residual"),
             arg("inv_norm"), arg("row_scale"), arg("row_bias"), arg("part_scales"), arg("signs"),
             arg("order"), arg("ids"))
        .def("prepare", &prepare, arg("stream"))
        .def("workspace_bytes", &workspace_bytes, arg("queries"), arg("norm"), arg("k"))
        .def("topk", &topk, arg("count"), arg("q"), arg("w"), arg("offset"), arg("bias"),
             arg("empty"), arg("cosine_weight"), arg("norm"), arg("mask"), arg("mask_per_query"),
             arg("least"), arg("greatest"), arg("k"), arg("indices"), arg("scores"), arg("counts"),
             arg("workspace"), arg("stream"))
        .def("scores", &all_scores, arg("count"), arg("q"), arg("w"), arg("offset"), arg("bias"),
             arg("empty"), arg("cosine_weight"), arg("norm"), arg("mask"), arg("mask_per_query"),
             arg("least"), arg("greatest"), arg("out"), arg("wide"), arg("workspace"),
             arg("stream"));
    module.def(
        "part_scales_size",
        [](std::size_t rows) { return cuda::part_count(rows) * cuda::kPartScales; }, arg("rows"));
    module.def("row_norms", &norms, arg("rows"), arg("kind"), arg("count"), arg("dim"),
               arg("stride"), arg("out"), arg("bad"), arg("stream"),
               arg("limit") = std::numeric_limits<double>::infinity());
    module.def("quadratic_rows", &squared, arg("rows"), arg("kind"), arg("count"), arg("dim"),
               arg("stride"), arg("mean"), arg("whitening"), arg("rank"), arg("out"),
               arg("stream"));
    module.def("row_constants", &constants, arg("lengths"), arg("squares"), arg("count"),
               arg("form"), arg("at_mean"), arg("inv_norm"), arg("row_scale"), arg("row_bias"),
               arg("usable"), arg("stream"));
    module.def("fold_queries", &fold, arg("queries"), arg("count"), arg("dim"), arg("stride"),
               arg("mean"), arg("whitening"), arg("at_mean"), arg("form"), arg("unit"), arg("q"),
               arg("w"), arg("offset"), arg("bias"), arg("empty"), arg("scratch"), arg("stream"));
}

}  // namespace riemem
