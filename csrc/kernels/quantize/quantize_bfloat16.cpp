// float32 rows as their nearest bfloat16 and the rest of their bits, and back.
#include <bit>
#include <cmath>

#include "kernels/quantize/quantize.hpp"

namespace riemem {

void split_bfloat16(MatrixView<const float> rows, std::uint16_t* high, std::int16_t* low,
                    float* residual) {
    for (std::size_t i = 0; i < rows.rows; ++i) {
        const float* row = rows.row(i);
        double rest = 0.0;
        for (std::size_t t = 0; t < rows.cols; ++t) {
            const auto bits = std::bit_cast<std::uint32_t>(row[t]);
            // The largest finite values round to infinity: their residual is infinite too, and
            // the difference of the bits still joins back to the row.
            const std::uint32_t top = (bits + 0x8000u) >> 16;
            const std::size_t at = i * rows.cols + t;
            high[at] = static_cast<std::uint16_t>(top);
            low[at] = static_cast<std::int16_t>(static_cast<std::uint16_t>(bits - (top << 16)));
            const double difference =
                static_cast<double>(row[t]) - static_cast<double>(std::bit_cast<float>(top << 16));
            rest += difference * difference;
        }
        const double margin = 1.0 + 1e-12 * static_cast<double>(rows.cols);
        residual[i] = round_up(std::sqrt(rest) * margin);
    }
}

void join_bfloat16(const std::uint16_t* high, const std::int16_t* low, std::size_t count,
                   float* out) {
    for (std::size_t t = 0; t < count; ++t) {
        const std::uint32_t bits = (static_cast<std::uint32_t>(high[t]) << 16) +
                                   static_cast<std::uint32_t>(static_cast<std::int32_t>(low[t]));
        out[t] = std::bit_cast<float>(bits);
    }
}

}  // namespace riemem
