#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "kernels/fused_topk/twins.hpp"
#include "kernels/quantize/quantize.hpp"

using namespace riemem;

namespace {

std::vector<float> random_rows(std::size_t n, std::size_t d, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> rows(n * d);
    for (float& x : rows) x = normal(generator);
    return rows;
}

MatrixView<const float> view(const std::vector<float>& rows, std::size_t n, std::size_t d) {
    return {rows.data(), n, d, static_cast<std::ptrdiff_t>(d)};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0.0;
    for (std::size_t t = 0; t < a.size(); ++t) sum += a[t] * b[t];
    return sum;
}

}  // namespace

RIEMEM_TEST(the_rotation_keeps_lengths_and_angles) {
    for (std::size_t d : {1u, 2u, 3u, 7u, 64u, 100u, 384u}) {
        const std::vector<float> rows = random_rows(2, d, 3);
        const Rotation rotation(d);
        std::vector<double> x(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(d));
        std::vector<double> y(rows.begin() + static_cast<std::ptrdiff_t>(d), rows.end());
        std::vector<double> scratch(d), rx = x, ry = y;
        rotation.apply<1>(rx.data(), scratch.data());
        rotation.apply<1>(ry.data(), scratch.data());
        const double size = std::sqrt(dot(x, x) * dot(y, y));
        CHECK(std::abs(dot(rx, ry) - dot(x, y)) <= 1e-13 * size);
        CHECK(std::abs(dot(rx, rx) - dot(x, x)) <= 1e-13 * dot(x, x));
    }
}

RIEMEM_TEST(the_rotation_spreads_a_dimension_that_dwarfs_the_others) {
    const std::size_t d = 384;
    std::vector<double> x(d, 0.0), scratch(d);
    x[7] = 1.0;
    Rotation(d).apply<1>(x.data(), scratch.data());
    const double most = std::abs(*std::max_element(
        x.begin(), x.end(), [](double a, double b) { return std::abs(a) < std::abs(b); }));
    CHECK(most < 0.3);
}

RIEMEM_TEST(the_int8_residual_bounds_every_dot_product) {
    for (std::size_t d : {1u, 5u, 64u, 130u}) {
        const std::size_t n = 70;
        const std::vector<float> rows = random_rows(n, d, static_cast<unsigned>(d));
        std::vector<std::uint8_t> tiles(2 * int8_tile_bytes(d));
        std::vector<float> scale(n), residual(n);
        const Rotation rotation(d);
        quantize_int8(view(rows, n, d), rotation, 0, tiles.data(), scale.data(), residual.data());
        std::vector<double> query(d), scratch(d);
        for (std::size_t t = 0; t < d; ++t) query[t] = std::sin(static_cast<double>(t + 1));
        std::vector<double> rotated = query;
        rotation.apply<1>(rotated.data(), scratch.data());
        for (std::size_t i = 0; i < n; ++i) {
            double exact = 0.0, approximate = 0.0;
            for (std::size_t t = 0; t < d; ++t) {
                exact += static_cast<double>(rows[i * d + t]) * query[t];
                const std::size_t at =
                    i / 64 * int8_tile_bytes(d) + t / 4 * 256 + i % 64 * 4 + t % 4;
                approximate += static_cast<double>(scale[i]) *
                               (static_cast<double>(tiles[at]) - 128.0) * rotated[t];
            }
            const double length = std::sqrt(dot(query, query));
            CHECK(std::abs(exact - approximate) <=
                  static_cast<double>(residual[i]) * length * (1.0 + 1e-9) + 1e-12);
        }
    }
}

RIEMEM_TEST(bfloat16_halves_join_to_the_same_bits) {
    std::vector<float> values = random_rows(1, 40, 9);
    const float largest = std::numeric_limits<float>::max();
    const float smallest = std::numeric_limits<float>::denorm_min();
    for (float x : {0.0f, -0.0f, largest, -largest, smallest, -smallest, 1.0f, 1.00390625f}) {
        values.push_back(x);
    }
    const std::size_t n = values.size();
    std::vector<std::uint16_t> high(n);
    std::vector<std::int16_t> low(n);
    std::vector<float> residual(n), joined(n);
    split_bfloat16(view(values, n, 1), high.data(), low.data(), residual.data());
    join_bfloat16(high.data(), low.data(), n, joined.data());
    CHECK(std::memcmp(values.data(), joined.data(), n * sizeof(float)) == 0);
    CHECK(std::isinf(residual[42]));  // the largest float has no finite bfloat16 above it
    CHECK(residual[46] == 0.0f);
}

RIEMEM_TEST(twins_name_the_lowest_equal_row) {
    const std::vector<float> rows = {1, 2, 3, 4, 1, 2, 0.0f, 5, -0.0f, 5, 3, 4, 1, 2};
    std::vector<std::int32_t> twin(7, 77);
    Twins twins;
    for (std::int32_t i = 0; i < 7; ++i) {
        twins.add(
            i, rows.data() + 2 * i, 2, [&](std::int32_t j) { return rows.data() + 2 * j; },
            twin.data());
    }
    const std::vector<std::int32_t> want = {0, 1, 0, -1, -1, 1, 0};  // -0 is not 0 bit for bit
    CHECK(twin == want);
}
