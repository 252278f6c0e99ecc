#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/thread_pool.hpp"
#include "guarded.hpp"
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
        rotation.apply(rx.data(), scratch.data());
        rotation.apply(ry.data(), scratch.data());
        const double size = std::sqrt(dot(x, x) * dot(y, y));
        CHECK(std::abs(dot(rx, ry) - dot(x, y)) <= 1e-13 * size);
        CHECK(std::abs(dot(rx, rx) - dot(x, x)) <= 1e-13 * dot(x, x));
    }
}

RIEMEM_TEST(rotated_rows_are_the_bits_of_one_row_alone_on_every_instruction_set) {
    for (const std::size_t d : {1u, 2u, 3u, 7u, 8u, 9u, 31u, 64u, 100u, 384u}) {
        const Rotation rotation(d);
        for (const std::size_t n : {0u, 1u, 2u, 7u, 8u, 9u, 17u}) {
            const std::vector<float> rows = random_rows(n, d, static_cast<unsigned>(n + d));
            const std::vector<double> wide(rows.begin(), rows.end());
            const auto stride = static_cast<std::ptrdiff_t>(d);
            std::vector<double> expected = wide, scratch(d);
            for (std::size_t i = 0; i < n; ++i) {
                rotation.apply(expected.data() + i * d, scratch.data());
            }
            test::Guarded<double> out(n * d);
            const auto right = [&] {  // not memcmp alone, which takes no null pointer
                return n == 0 || std::memcmp(out.data(), expected.data(), n * d * 8) == 0;
            };
            for (const Isa isa : available_isas()) {
                rotate_rows(view(rows, n, d), rotation, isa, out.data());
                CHECK(right());
                std::fill_n(out.data(), out.size(), 7.0);
                rotate_rows(MatrixView<const double>{wide.data(), n, d, stride}, rotation, isa,
                            out.data());
                CHECK(right());
            }
        }
    }
}

RIEMEM_TEST(rotations_that_are_kept_are_those_that_are_made) {
    const std::size_t before = num_threads();
    set_num_threads(4);
    std::vector<unsigned char> right(400);
    parallel_for(right.size(), 4, [&](std::size_t i) {
        const std::size_t d = 1 + i * 7 % 9;  // more than are kept
        const auto kept = rotation_of(d);
        const Rotation made(d);
        right[i] = kept->dim() == d && kept->order() == made.order() &&
                   kept->first_signs() == made.first_signs() &&
                   kept->second_signs() == made.second_signs();
    });
    set_num_threads(before);
    CHECK(std::count(right.begin(), right.end(), 1) == 400);
}

RIEMEM_TEST(the_rotation_spreads_a_dimension_that_dwarfs_the_others) {
    const std::size_t d = 384;
    std::vector<double> x(d, 0.0), scratch(d);
    x[7] = 1.0;
    Rotation(d).apply(x.data(), scratch.data());
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
        quantize_int8(view(rows, n, d), rotation, 0, active_isa(), tiles.data(), scale.data(),
                      residual.data());
        std::vector<double> query(d), scratch(d);
        for (std::size_t t = 0; t < d; ++t) query[t] = std::sin(static_cast<double>(t + 1));
        std::vector<double> rotated = query;
        rotation.apply(rotated.data(), scratch.data());
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

namespace {

// Rows of every kind: plain, one large element, zeros, tiny, beyond float32's squares, not finite.
std::vector<float> unruly_rows(std::size_t n, std::size_t d) {
    std::vector<float> rows = random_rows(n, d, static_cast<unsigned>(31 * n + d));
    const float infinity = std::numeric_limits<float>::infinity();
    for (std::size_t i = 0; i < n; ++i) {
        float* row = rows.data() + i * d;
        const float factor[] = {1.0f, 1.0f, 0.0f, 1e-44f, 1e38f, 1.0f, -0.0f};
        for (std::size_t t = 0; t < d; ++t) row[t] *= factor[i % 7];
        if (i % 7 == 1) row[i % d] = 1e6f;
        if (i % 14 == 5) row[i % d] = infinity;
        if (i % 21 == 12) row[i % d] = std::numeric_limits<float>::quiet_NaN();
    }
    return rows;
}

struct Int8Copy {
    test::Guarded<std::uint8_t> tiles;
    test::Guarded<float> scale, residual;

    // n rows from `begin` of a set that ends with them; earlier ones stay 7.
    Int8Copy(const std::vector<float>& rows, std::size_t n, std::size_t d, std::size_t begin,
             Isa isa)
        : tiles((begin + n + 63) / 64 * int8_tile_bytes(d)), scale(begin + n), residual(begin + n) {
        std::fill_n(tiles.data(), tiles.size(), std::uint8_t{128});
        std::fill_n(scale.data(), scale.size(), 7.0f);
        std::fill_n(residual.data(), residual.size(), 7.0f);
        quantize_int8(view(rows, n, d), Rotation(d), begin, isa, tiles.data(), scale.data(),
                      residual.data());
    }
    bool operator==(const Int8Copy& other) const {
        return std::memcmp(tiles.data(), other.tiles.data(), tiles.size()) == 0 &&
               std::memcmp(scale.data(), other.scale.data(), scale.size() * 4) == 0 &&
               std::memcmp(residual.data(), other.residual.data(), residual.size() * 4) == 0;
    }
};

// One row as the definition has it: rotated alone, eight sums, nearest integers.
void check_against_definition(const Int8Copy& copy, const std::vector<float>& rows, std::size_t d,
                              std::size_t begin, std::size_t i) {
    std::vector<double> x(d), scratch(d);
    for (std::size_t t = 0; t < d; ++t) x[t] = static_cast<double>(rows[i * d + t]);
    Rotation(d).apply(x.data(), scratch.data());
    double most = 0.0, square[8] = {}, length = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        most = std::max(most, std::abs(x[t]));
        square[t % 8] += x[t] * x[t];
    }
    for (double part : square) length += part;
    const std::size_t at = begin + i;
    const float scale = static_cast<float>(most / 127.0);
    const bool finite = std::isfinite(scale) && std::isfinite(length);
    CHECK(copy.scale[at] == (finite ? scale : 0.0f));
    CHECK(std::isinf(copy.residual[at]) == !finite);
    double rest = 0.0;
    for (std::size_t t = 0; t < d; ++t) {
        const std::size_t place = at / 64 * int8_tile_bytes(d) + t / 4 * 256 + at % 64 * 4 + t % 4;
        const int found = copy.tiles[place] - 128;
        const double step = static_cast<double>(scale);
        double value = finite && scale > 0.0f ? x[t] * (1.0 / step) : 0.0;
        value = std::nearbyint(std::min(127.0, std::max(-127.0, value)));
        CHECK(found == static_cast<int>(value));
        rest += (x[t] - step * found) * (x[t] - step * found);
    }
    if (finite) {
        CHECK(static_cast<double>(copy.residual[at]) >= std::sqrt(rest));
        CHECK(static_cast<double>(copy.residual[at]) <=
              std::sqrt(rest) * (1.0 + 1e-6) + 1e-12 * std::sqrt(length) + 1e-44);
    }
}

}  // namespace

RIEMEM_TEST(int8_copies_are_the_same_bits_on_every_instruction_set_and_right) {
    for (const std::size_t d : {1u, 2u, 3u, 4u, 7u, 8u, 9u, 16u, 31u, 64u, 100u, 129u, 384u}) {
        for (const std::size_t n : {1u, 2u, 3u, 7u, 8u, 9u, 70u, 300u}) {
            const std::vector<float> rows = unruly_rows(n, d);
            for (const std::size_t begin : {0u, 3u, 56u, 61u}) {
                const Int8Copy expected(rows, n, d, begin, Isa::scalar);
                for (std::size_t i = 0; i < std::min(n, std::size_t{30}); ++i) {
                    check_against_definition(expected, rows, d, begin, i);
                }
                for (const Isa isa : available_isas()) {
                    CHECK(Int8Copy(rows, n, d, begin, isa) == expected);
                }
            }
        }
    }
}

RIEMEM_TEST(int8_copies_do_not_depend_on_the_threads_or_on_how_rows_come) {
    const std::size_t n = 900, d = 300;
    const std::vector<float> rows = unruly_rows(n, d);
    const std::size_t before = num_threads();
    set_num_threads(1);
    const Int8Copy one(rows, n, d, 0, active_isa());
    set_num_threads(4);
    CHECK(Int8Copy(rows, n, d, 0, active_isa()) == one);
    set_num_threads(before);
    Int8Copy parts(rows, n, d, 0, active_isa());
    std::fill_n(parts.tiles.data(), parts.tiles.size(), std::uint8_t{128});
    const Rotation rotation(d);
    for (std::size_t first = 0, size = 1; first < n; first += size, size = size * 2 + 1) {
        size = std::min(size, n - first);
        const MatrixView<const float> part{rows.data() + first * d, size, d,
                                           static_cast<std::ptrdiff_t>(d)};
        quantize_int8(part, rotation, first, active_isa(), parts.tiles.data(), parts.scale.data(),
                      parts.residual.data());
    }
    CHECK(parts == one);
}

RIEMEM_TEST(int8_queries_are_the_same_bits_on_every_instruction_set) {
    for (const std::size_t d : {1u, 5u, 64u, 100u, 384u}) {
        for (const std::size_t count : {1u, 2u, 3u, 4u, 5u, 9u}) {
            std::vector<double> q(count * d), w(count * d);
            const std::vector<float> from = random_rows(2 * count, d, 17);
            for (std::size_t i = 0; i < count * d; ++i) {
                q[i] = static_cast<double>(from[i]) / 3.0;
                w[i] = static_cast<double>(from[count * d + i]) * 1e5;
            }
            if (count == 3) q[d] = std::numeric_limits<double>::infinity();
            if (count == 4) std::fill_n(w.begin(), d, 0.0);
            const Rotation rotation(d);
            const auto expected =
                quantize_queries(q.data(), w.data(), count, rotation, Isa::scalar);
            for (const Isa isa : available_isas()) {
                const auto found = quantize_queries(q.data(), w.data(), count, rotation, isa);
                CHECK(found.size() == 2 * count);
                for (std::size_t i = 0; i < found.size(); ++i) {
                    CHECK(found[i].packed == expected[i].packed);
                    CHECK(found[i].scale == expected[i].scale);
                    CHECK(found[i].residual == expected[i].residual);
                    CHECK(found[i].correction == expected[i].correction);
                }
            }
            std::int32_t sum = 0;
            for (const std::int32_t four : expected[0].packed) {
                for (int shift = 0; shift < 32; shift += 8) {
                    sum += static_cast<std::int8_t>(static_cast<std::uint32_t>(four) >> shift);
                }
            }
            CHECK(expected[0].correction == 128 * sum);
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
