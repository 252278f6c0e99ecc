#include "kernels/fused_topk/fused_topk_scan.hpp"

namespace riemem::fused {
namespace {

double norm_of(const std::vector<double>& padded) {
    double part[8] = {};
    for (std::size_t t = 0; t < padded.size(); t += 8) {
        for (std::size_t j = 0; j < 8; ++j) part[j] += padded[t + j] * padded[t + j];
    }
    double sum = 0.0;
    for (double p : part) sum += p;
    return std::sqrt(sum) * (1.0 + 1e-12);
}

}  // namespace

Scan::Scan(const PreparedPoints& prepared, const FusedQueries& queries, const FusedOptions& options,
           std::size_t begin, std::size_t end)
    : points_(prepared.points),
      tables_(prepared.tables()),
      kernels_(fused_topk_kernels(options.isa)),
      d_(points_.rows.cols),
      padded_((d_ + 63) / 64 * 64),
      width_(end - begin),
      panel_(points_.storage != ScanStorage::int8 && end - begin > 1) {
    const std::size_t lanes = kernels_.lanes;
    if (panel_) width_ = lanes;
    offsets_.assign(std::max(kMostLanes, end - begin), 0.0f);
    if (points_.storage == ScanStorage::int8) {
        int8_ = quantize_queries(queries.q + begin * d_, queries.w + begin * d_, end - begin,
                                 *tables_.rotation, options.isa);
    } else {
        single_.assign((end - begin) * 2 * padded_, 0.0f);
        if (panel_) packed_.assign(d_ * 2 * lanes, 0.0f);
    }
    for (std::size_t b = begin; b < end; ++b) {
        const std::size_t lane = b - begin;
        const PaddedQuery& query = queries_.emplace_back(queries, b, d_);
        offsets_[lane] = static_cast<float>(query.offset);
        QueryScales scales;
        scales.q_norm = norm_of(query.q);
        scales.w_norm = norm_of(query.w);
        scales.offset = std::abs(query.offset);
        scales.bias = std::abs(query.bias);
        scales.subnormal = kSubnormal * static_cast<double>(2 * d_ + 4);
        if (points_.storage == ScanStorage::int8) {
            const Int8Query& q = int8_[2 * lane];
            const Int8Query& w = int8_[2 * lane + 1];
            pairs_.push_back({q.packed.data(), w.packed.data(), q.correction, w.correction,
                              static_cast<float>(q.scale), static_cast<float>(w.scale),
                              offsets_[lane]});
            scales.roundings = 4.0;  // the integers are exact; their conversion and scale are not
            scales.q_residual = q.residual;
            scales.w_residual = w.residual;
        } else {
            float* single = single_.data() + lane * 2 * padded_;
            for (std::size_t t = 0; t < d_; ++t) {
                single[t] = static_cast<float>(query.q[t]);
                single[padded_ + t] = static_cast<float>(query.w[t]);
                if (!panel_) continue;
                packed_[t * 2 * lanes + lane] = single[t];
                packed_[(t * 2 + 1) * lanes + lane] = single[padded_ + t];
            }
            const std::size_t one = kernels_.single_roundings(d_);
            scales.roundings =
                static_cast<double>(panel_ ? std::max(one, kernels_.panel_roundings(d_)) : one);
        }
        scales_.push_back(scales);
    }
}

const float* Scan::float_rows(std::size_t first, std::size_t n, std::vector<float>& scratch,
                              std::ptrdiff_t& stride) const {
    stride = points_.rows.row_stride;
    if (points_.storage != ScanStorage::bfloat16) return points_.rows.row(first);
    scratch.resize(n * d_);
    kernels_.widen(points_.high + first * d_, n * d_, scratch.data());
    stride = static_cast<std::ptrdiff_t>(d_);
    return scratch.data();
}

void Scan::score(std::size_t block, float* out) const {
    const std::size_t n = block_size(points_.rows.rows, block);
    const std::size_t first = block * kBlockRows;
    const BlockTerms terms = tables_.terms(block);
    if (points_.storage == ScanStorage::int8) {
        kernels_.score_int8(points_.tiles + first / kTileRows64 * int8_tile_bytes(d_), n, d_,
                            pairs_.data(), pairs_.size(), terms, out);
        return;
    }
    thread_local std::vector<float> scratch;
    std::ptrdiff_t stride = 0;
    const float* rows = float_rows(first, n, scratch, stride);
    if (panel_) {
        kernels_.score_panel(rows, stride, n, d_, packed_.data(), offsets_.data(), terms, out);
    } else {
        kernels_.score_single(rows, stride, n, d_, single_.data(), single_.data() + padded_,
                              offsets_[0], terms, out);
    }
}

void Scan::score_part(std::size_t part, std::size_t lane, float* out) const {
    const std::size_t n = part_size(points_.rows.rows, part);
    const std::size_t first = part * kPartRows;
    const BlockTerms whole = tables_.terms(part / kBlockParts);
    const std::size_t skip = part % kBlockParts * kPartRows;
    const BlockTerms terms{whole.cos_scale + skip, whole.rie_scale + skip, whole.scale + skip,
                           whole.bias + skip};
    if (points_.storage == ScanStorage::int8) {
        kernels_.score_int8(points_.tiles + first / kTileRows64 * int8_tile_bytes(d_), n, d_,
                            pairs_.data() + lane, 1, terms, out);
        return;
    }
    thread_local std::vector<float> scratch;
    std::ptrdiff_t stride = 0;
    const float* rows = float_rows(first, n, scratch, stride);
    const float* single = single_.data() + lane * 2 * padded_;
    kernels_.score_single(rows, stride, n, d_, single, single + padded_, offsets_[lane], terms,
                          out);
}

}  // namespace riemem::fused
