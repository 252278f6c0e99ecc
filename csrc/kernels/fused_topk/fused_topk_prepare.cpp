// The tables of a set of points.
#include <array>

#include "kernels/fused_topk/fused_topk_bounds.hpp"

namespace riemem {
namespace {

constexpr auto constant_block(float value) {
    std::array<float, kBlockRows> block{};
    for (float& v : block) v = value;
    return block;
}
constexpr std::array<float, kBlockRows> kOnes = constant_block(1.0f);
constexpr std::array<float, kBlockRows> kZeros = constant_block(0.0f);

const float* block_of(const std::vector<float>& table, std::size_t block,
                      const std::array<float, kBlockRows>& otherwise) {
    return table.empty() ? otherwise.data() : table.data() + block * kBlockRows;
}

fused::BlockScales scales_of_block(const FusedPoints& points, std::size_t block) {
    fused::BlockScales most;
    const std::size_t first = block * kBlockRows;
    const std::size_t end = first + fused::block_size(points.rows.rows, block);
    for (std::size_t i = first; i < end; ++i) {
        const double scale = points.row_scale == nullptr ? 1.0 : points.row_scale[i];
        const double bias = points.row_bias == nullptr ? 0.0 : points.row_bias[i];
        const double residual =
            points.residual == nullptr ? 0.0 : static_cast<double>(points.residual[i]);
        most.add(points.inv_norm[i], scale, bias, residual);
    }
    return most;
}

// first[i] * second[i] as float32, padded with zeros to whole blocks; null stands for ones.
template <typename T, typename U>
std::vector<float> product(std::size_t n, const T* first, const U* second) {
    std::vector<float> table(fused::block_count(n) * kBlockRows, 0.0f);
    for (std::size_t i = 0; i < n; ++i) {
        const double a = first == nullptr ? 1.0 : static_cast<double>(first[i]);
        const double b = second == nullptr ? 1.0 : static_cast<double>(second[i]);
        table[i] = static_cast<float>(a * b);
    }
    return table;
}

}  // namespace

BlockTerms PreparedPoints::Tables::terms(std::size_t block) const {
    const float* scales = block_of(scale, block, kOnes);
    const float* weights = rie_scale.empty() ? scales : rie_scale.data() + block * kBlockRows;
    return {block_of(cos_scale, block, kOnes), weights, scales, block_of(bias, block, kZeros)};
}

PreparedPoints::PreparedPoints(const FusedPoints& given)
    : points(given), tables_(std::make_unique<Tables>()) {
    const std::size_t n = points.rows.rows;
    const double* none = nullptr;
    const bool int8 = points.storage == ScanStorage::int8;
    tables_->cos_scale = product(n, points.inv_norm, int8 ? points.tile_scale : nullptr);
    if (int8) {
        tables_->rie_scale = product(n, points.row_scale, points.tile_scale);
        tables_->rotation = std::make_unique<Rotation>(points.rows.cols);
    }
    if (points.row_scale != nullptr) tables_->scale = product(n, points.row_scale, none);
    if (points.row_bias != nullptr) tables_->bias = product(n, points.row_bias, none);
    tables_->blocks.resize(fused::block_count(n));
    for (std::size_t block = 0; block < tables_->blocks.size(); ++block) {
        tables_->blocks[block] = scales_of_block(points, block);
    }
}

PreparedPoints::~PreparedPoints() = default;
PreparedPoints::PreparedPoints(PreparedPoints&&) noexcept = default;

std::size_t PreparedPoints::unbounded_rows() const {
    std::size_t rows = 0;
    for (std::size_t block = 0; block < tables_->blocks.size(); ++block) {
        const fused::BlockScales& scales = tables_->blocks[block];
        const double most = std::max(
            {scales.norm, scales.inv_norm, scales.scale, scales.bias, scales.cos_residual});
        if (!(most < fused::kFloatSafe)) rows += fused::block_size(points.rows.rows, block);
    }
    return rows;
}

}  // namespace riemem
