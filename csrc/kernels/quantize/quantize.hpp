// Compact copies of rows for the scan: int8 tiles behind a fixed rotation, and split bfloat16.
// Each keeps, per row, how far the copy is from the row: the certificate of the search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/cpu.hpp"
#include "core/matrix_view.hpp"
#include "kernels/quantize/quantize_kernels.hpp"

namespace riemem {

constexpr std::size_t kTileRows64 = 64;  // rows of one int8 tile

// Bytes of one tile: (ceil(d / 4), 64 rows, 4 dimensions), as unsigned: value + 128.
constexpr std::size_t int8_tile_bytes(std::size_t d) { return (d + 3) / 4 * 4 * kTileRows64; }

// A fixed orthogonal map of R^d: signs, Hadamard blocks, a permutation, and the same again. It
// spreads a dimension that dwarfs the others over all of them. Depends on d alone.
class Rotation {
 public:
    explicit Rotation(std::size_t d);
    // One vector, (d,) like the scratch.
    void apply(double* x, double* scratch) const;
    std::size_t dim() const { return dim_; }
    RotationTables tables() const {
        return {dim_, first_signs_.data(), second_signs_.data(), order_.data()};
    }
    // What the map is made of, for kernels that apply it elsewhere: (d,) each.
    const std::vector<double>& first_signs() const { return first_signs_; }
    const std::vector<double>& second_signs() const { return second_signs_; }
    const std::vector<std::uint32_t>& order() const { return order_; }

 private:
    std::size_t dim_;
    std::vector<double> first_signs_, second_signs_;
    std::vector<std::uint32_t> order_;
};

// The map of R^d, kept for the next call: making it takes half as long as applying it to eight
// rows.
std::shared_ptr<const Rotation> rotation_of(std::size_t d);

// Each row through the map: out is (rows, d) without gaps. The same bits for every isa.
void rotate_rows(MatrixView<const float> rows, const Rotation& rotation, Isa isa, double* out);
void rotate_rows(MatrixView<const double> rows, const Rotation& rotation, Isa isa, double* out);

// Quantises rows [begin, begin + rows.rows) of a set into its tiles, scales and residuals:
// rotated row = scale * int8 + rest, |rest| <= residual. The tiles of a row must have been set to
// 128 (zero) or hold earlier rows. The same bits for every isa.
void quantize_int8(MatrixView<const float> rows, const Rotation& rotation, std::size_t begin,
                   Isa isa, std::uint8_t* tiles, float* scale, float* residual);

// The float32 nearest to x that is not below it.
float round_up(double x);

// One vector, rotated, as int8 in groups of four dimensions: v = scale * int8 + rest.
struct Int8Query {
    std::vector<std::int32_t> packed;  // four int8 each, (ceil(d / 4),)
    double scale = 0.0;
    double residual = 0.0;
    std::int32_t correction = 0;  // 128 * sum of the int8: what the rows' offset adds to a dot
};
// Row b of `first`, then row b of `second`, for every b < count; both are (count, d).
std::vector<Int8Query> quantize_queries(const double* first, const double* second,
                                        std::size_t count, const Rotation& rotation, Isa isa);

// float32 = high + low: high is the nearest bfloat16, low the difference of the bit patterns.
// residual bounds |row - high|.
void split_bfloat16(MatrixView<const float> rows, std::uint16_t* high, std::int16_t* low,
                    float* residual);
void join_bfloat16(const std::uint16_t* high, const std::int16_t* low, std::size_t count,
                   float* out);

}  // namespace riemem
