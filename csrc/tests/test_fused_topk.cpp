// Every instruction set against the scalar one: odd sizes, misaligned rows, guard pages and bytes.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/thread_pool.hpp"
#include "guarded.hpp"
#include "kernels/fused_topk/fused_topk.hpp"
#include "kernels/fused_topk/fused_topk_kernels.hpp"
#include "kernels/quantize/quantize.hpp"

using namespace riemem;

namespace {

const std::vector<std::size_t> kDims = {1,  2,  3,  4,  5,  7,  8,   9,   15,  16,  17,  31, 32,
                                        33, 47, 63, 64, 65, 96, 100, 127, 128, 129, 257, 384};

std::vector<float> random_floats(std::size_t n, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> values(n);
    for (float& v : values) v = normal(generator);
    return values;
}

// Rows that end at a guard page and start `shift` floats off any alignment.
struct Rows {
    test::Guarded<float> memory;
    std::size_t n, d, stride;

    Rows(std::size_t rows, std::size_t dim, std::size_t gap, unsigned seed)
        : memory((rows - 1) * (dim + gap) + dim), n(rows), d(dim), stride(dim + gap) {
        const std::vector<float> values = random_floats(memory.size(), seed);
        std::memcpy(memory.data(), values.data(), values.size() * sizeof(float));
    }
    MatrixView<const float> view() const {
        return {memory.data(), n, d, static_cast<std::ptrdiff_t>(stride)};
    }
};

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

struct Problem {
    Rows rows;
    std::size_t queries;
    std::vector<double> inv_norm, scale, bias, q, w, offset, query_bias;

    Problem(std::size_t n, std::size_t d, std::size_t count, unsigned seed)
        : rows(n, d, seed % 3, seed), queries(count) {
        inv_norm.resize(n);
        CHECK(row_norms(rows.view(), Isa::scalar, inv_norm.data()) == -1);
        for (double& v : inv_norm) v = v > 0.0 ? 1.0 / v : 0.0;
        std::mt19937 generator(seed + 1);
        std::normal_distribution<double> normal;
        auto fill = [&](std::vector<double>& v, std::size_t size) {
            v.resize(size);
            for (double& x : v) x = normal(generator);
        };
        fill(scale, n);
        fill(bias, n);
        fill(q, count * d);
        fill(w, count * d);
        fill(offset, count);
        fill(query_bias, count);
        for (double& s : scale) s = std::abs(s);
        for (std::size_t b = 0; b < count; ++b) {
            double norm = 0.0;
            for (std::size_t t = 0; t < d; ++t) norm += q[b * d + t] * q[b * d + t];
            for (std::size_t t = 0; t < d; ++t) q[b * d + t] /= std::sqrt(norm);
        }
    }

    FusedPoints points() const { return {rows.view(), inv_norm.data(), scale.data(), bias.data()}; }
    FusedQueries all() const {
        return {q.data(), w.data(), offset.data(), query_bias.data(), queries};
    }
};

struct Answer {
    std::vector<std::int64_t> indices, counts;
    std::vector<double> scores;
    bool operator==(const Answer& other) const {
        return indices == other.indices && counts == other.counts &&
               std::memcmp(scores.data(), other.scores.data(), scores.size() * sizeof(double)) == 0;
    }
};

// The answer, with guard values around each output checked for being untouched.
Answer search(const Problem& problem, const FusedOptions& options, std::size_t k) {
    constexpr std::size_t kGuard = 16;
    const std::size_t size = problem.queries * k;
    std::vector<std::int64_t> indices(size + 2 * kGuard, 77),
        counts(problem.queries + 2 * kGuard, 77);
    std::vector<double> scores(size + 2 * kGuard, 77.0);
    FusedTopkResult result{indices.data() + kGuard, scores.data() + kGuard, counts.data() + kGuard};
    fused_topk(PreparedPoints(problem.points()), problem.all(), options, k, result);
    for (std::size_t g = 0; g < kGuard; ++g) {
        CHECK(indices[g] == 77 && indices[kGuard + size + g] == 77);
        CHECK(scores[g] == 77.0 && scores[kGuard + size + g] == 77.0);
        CHECK(counts[g] == 77 && counts[kGuard + problem.queries + g] == 77);
    }
    return {{indices.begin() + kGuard, indices.end() - kGuard},
            {counts.begin() + kGuard, counts.end() - kGuard},
            {scores.begin() + kGuard, scores.end() - kGuard}};
}

}  // namespace

RIEMEM_TEST(float64_kernels_give_the_same_bits_on_every_isa) {
    const FusedTopkKernels& scalar = fused_topk_kernels(Isa::scalar);
    for (Isa isa : available_isas()) {
        const FusedTopkKernels& kernels = fused_topk_kernels(isa);
        for (std::size_t d : kDims) {
            const Rows rows(3, d, 1, static_cast<unsigned>(d));
            std::vector<double> q((d + 7) / 8 * 8, 0.0), w(q.size(), 0.0);
            for (std::size_t t = 0; t < d; ++t) {
                q[t] = std::sin(static_cast<double>(t));
                w[t] = std::cos(static_cast<double>(t)) * 1e3;
            }
            for (std::size_t i = 0; i < 3; ++i) {
                double want[2], got[2];
                scalar.dot_pair(rows.view().row(i), q.data(), w.data(), d, want);
                kernels.dot_pair(rows.view().row(i), q.data(), w.data(), d, got);
                CHECK(same_bits(want[0], got[0]) && same_bits(want[1], got[1]));
                CHECK(same_bits(scalar.square_norm(rows.view().row(i), d),
                                kernels.square_norm(rows.view().row(i), d)));
            }
            const float* four[kDotRows];
            for (std::size_t i = 0; i < kDotRows; ++i) four[i] = rows.view().row(i % 3);
            double both[kDotRows][2], second[kDotRows][2];
            kernels.dot_four(four, q.data(), w.data(), d, both);
            kernels.dot_four(four, nullptr, w.data(), d, second);
            for (std::size_t i = 0; i < kDotRows; ++i) {
                double want[2];
                scalar.dot_pair(four[i], q.data(), w.data(), d, want);
                CHECK(same_bits(want[0], both[i][0]) && same_bits(want[1], both[i][1]));
                CHECK(second[i][0] == 0.0 && same_bits(want[1], second[i][1]));
            }
        }
    }
}

RIEMEM_TEST(quadratic_rows_do_not_depend_on_isa_or_position) {
    for (std::size_t d : {1u, 5u, 33u, 70u}) {
        const Rows rows(11, d, 2, 5);
        const std::size_t rank = d;
        std::vector<double> mean(d, 0.25), whitening(d * rank);
        for (std::size_t i = 0; i < whitening.size(); ++i) {
            whitening[i] = std::sin(static_cast<double>(3 * i + 1));
        }
        std::vector<double> want(11), got(11);
        quadratic_rows(rows.view(), mean.data(), whitening.data(), rank, Isa::scalar, want.data());
        for (Isa isa : available_isas()) {
            quadratic_rows(rows.view(), mean.data(), whitening.data(), rank, isa, got.data());
            for (std::size_t i = 0; i < 11; ++i) CHECK(same_bits(want[i], got[i]));
            for (std::size_t i = 0; i < 11; ++i) {
                double alone = -1.0;
                const MatrixView<const float> one{rows.view().row(i), 1, d, 0};
                quadratic_rows(one, mean.data(), whitening.data(), rank, isa, &alone);
                CHECK(same_bits(alone, want[i]));
            }
        }
        double direct = 0.0;
        for (std::size_t j = 0; j < rank; ++j) {
            double projection = 0.0;
            for (std::size_t t = 0; t < d; ++t) {
                projection += (static_cast<double>(rows.view().row(4)[t]) - mean[t]) *
                              whitening[t * rank + j];
            }
            direct += projection * projection;
        }
        CHECK(std::abs(direct - want[4]) <= 1e-12 * direct);
    }
}

RIEMEM_TEST(rows_times_is_one_chain_of_fused_steps_on_each_isa) {
    for (std::size_t d : {1u, 3u, 8u, 13u, 37u, 64u}) {
        for (Nonzero nonzero : {Nonzero::all, Nonzero::upper, Nonzero::lower}) {
            std::vector<double> x(6 * d), matrix(d * d), got(6 * d);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<double>(i + 1));
            for (std::size_t t = 0; t < d; ++t) {
                for (std::size_t j = 0; j < d; ++j) {
                    const bool zero = (nonzero == Nonzero::upper && j < t) ||
                                      (nonzero == Nonzero::lower && j > t);
                    matrix[t * d + j] = zero ? 0.0 : std::cos(static_cast<double>(5 * t + j));
                }
            }
            for (Isa isa : available_isas()) {
                for (std::size_t count : {1u, 4u, 6u}) {
                    rows_times(x.data(), count, matrix.data(), d, nonzero, isa, got.data());
                    for (std::size_t i = 0; i < count * d; ++i) {
                        double want = 0.0;
                        for (std::size_t t = 0; t < d; ++t) {
                            want = std::fma(x[i / d * d + t], matrix[t * d + i % d], want);
                        }
                        CHECK(same_bits(want, got[i]));
                    }
                }
            }
        }
    }
}

RIEMEM_TEST(float32_scores_stay_inside_their_bound) {
    for (Isa isa : available_isas()) {
        const FusedTopkKernels& kernels = fused_topk_kernels(isa);
        for (std::size_t d : kDims) {
            const std::size_t n = 2 * kernels.lanes + 5;
            const Rows rows(n, d, 1, static_cast<unsigned>(7 * d));
            const std::size_t padded = (d + 63) / 64 * 64;
            std::vector<float> q(padded, 0.0f), w(padded, 0.0f);
            std::vector<float> panel(d * 2 * kernels.lanes), offsets(kMostLanes, 0.5f);
            const std::vector<float> values = random_floats(2 * d, 3);
            for (std::size_t t = 0; t < d; ++t) {
                q[t] = values[t];
                w[t] = values[d + t];
                for (std::size_t l = 0; l < kernels.lanes; ++l) {
                    panel[t * 2 * kernels.lanes + l] = q[t];
                    panel[t * 2 * kernels.lanes + kernels.lanes + l] = w[t];
                }
            }
            const std::vector<float> ones(kBlockRows, 1.0f), zeros(kBlockRows, 0.0f);
            const BlockTerms terms{ones.data(), ones.data(), ones.data(), zeros.data()};
            test::Guarded<float> single(2 * kBlockRows), panels(2 * kBlockRows * kernels.lanes);
            kernels.score_single(rows.view().data, rows.view().row_stride, n, d, q.data(), w.data(),
                                 0.5f, terms, single.data());
            kernels.score_panel(rows.view().data, rows.view().row_stride, n, d, panel.data(),
                                offsets.data(), terms, panels.data());
            for (std::size_t i = 0; i < n; ++i) {
                double exact_q = 0.0, exact_w = 0.0, size_q = 0.0, size_w = 0.0;
                for (std::size_t t = 0; t < d; ++t) {
                    const auto x = static_cast<double>(rows.view().row(i)[t]);
                    exact_q += x * static_cast<double>(q[t]);
                    exact_w += x * static_cast<double>(w[t]);
                    size_q += std::abs(x * static_cast<double>(q[t]));
                    size_w += std::abs(x * static_cast<double>(w[t]));
                }
                exact_w += 0.5;
                const double unit = 0x1p-24 * 1.01;
                const double single_unit =
                    unit * static_cast<double>(kernels.single_roundings(d) + 3);
                const double wide = unit * static_cast<double>(kernels.panel_roundings(d) + 3);
                const auto close = [](float got, double want, double most) {
                    CHECK(std::abs(static_cast<double>(got) - want) <= most);
                };
                close(single[i], exact_q, single_unit * size_q);
                close(single[kBlockRows + i], exact_w, single_unit * (size_w + 0.5));
                for (std::size_t l = 0; l < kernels.lanes; ++l) {
                    const float* out = panels.data() + l * 2 * kBlockRows;
                    close(out[i], exact_q, wide * size_q);
                    close(out[kBlockRows + i], exact_w, wide * (size_w + 0.5));
                }
            }
        }
    }
}

RIEMEM_TEST(int8_scores_equal_the_integers) {
    for (std::size_t d : kDims) {
        const std::size_t n = 70;
        const std::size_t groups = (d + 3) / 4;
        test::Guarded<std::uint8_t> tiles(2 * 64 * groups * 4);
        std::mt19937 generator(static_cast<unsigned>(d));
        for (std::size_t i = 0; i < tiles.size(); ++i) {
            tiles[i] = static_cast<std::uint8_t>(generator() % 255 + 1);
        }
        constexpr std::size_t kPairs = 5;
        std::vector<std::int32_t> packed(kPairs * 2 * groups);
        for (std::int32_t& word : packed) word = static_cast<std::int32_t>(generator());
        std::vector<Int8Pair> pairs;
        for (std::size_t p = 0; p < kPairs; ++p) {
            const std::int32_t* q = packed.data() + p * 2 * groups;
            pairs.push_back({q, q + groups, 17, -5, 0.5f, 0.25f, 2.0f});
        }
        std::vector<float> ones(kBlockRows, 1.0f), zeros(kBlockRows, 0.0f);
        const BlockTerms terms{ones.data(), ones.data(), ones.data(), zeros.data()};
        std::vector<float> want(kPairs * 2 * kBlockRows), got(want.size());
        fused_topk_kernels(Isa::scalar)
            .score_int8(tiles.data(), n, d, pairs.data(), kPairs, terms, want.data());
        for (Isa isa : available_isas()) {
            fused_topk_kernels(isa).score_int8(tiles.data(), n, d, pairs.data(), kPairs, terms,
                                               got.data());
            for (std::size_t p = 0; p < 2 * kPairs; ++p) {
                for (std::size_t i = 0; i < n; ++i) {
                    CHECK(want[p * kBlockRows + i] == got[p * kBlockRows + i]);
                }
            }
        }
    }
}

RIEMEM_TEST(search_equals_the_scalar_exact_pass) {
    unsigned seed = 11;
    for (std::size_t n : {1u, 2u, 63u, 65u, 255u, 257u, 1000u, 5000u}) {
        for (std::size_t d : {1u, 3u, 16u, 33u, 65u}) {
            for (std::size_t queries : {1u, 3u, 4u, 17u}) {
                const Problem problem(n, d, queries, ++seed);
                const std::size_t k = std::min<std::size_t>(n, 5);
                FusedOptions options;
                options.cosine_weight = static_cast<double>(seed % 5) / 4.0;
                options.norm = seed % 4 == 0 ? Norm::none : Norm::minmax;
                std::vector<std::uint8_t> mask(n, 1);
                for (std::size_t i = 0; i < n; i += 3) mask[i] = 0;
                if (seed % 2 == 0) options.mask = mask.data();
                options.isa = Isa::scalar;
                // k above n / 4 takes the pass that evaluates every row: the oracle.
                const std::size_t whole = n;
                const Answer oracle = search(problem, options, whole);
                for (Isa isa : available_isas()) {
                    options.isa = isa;
                    for (std::size_t threads : {1u, 3u}) {
                        set_num_threads(threads);
                        const Answer answer = search(problem, options, k);
                        for (std::size_t b = 0; b < queries; ++b) {
                            for (std::size_t j = 0; j < k; ++j) {
                                CHECK(answer.indices[b * k + j] == oracle.indices[b * whole + j]);
                                CHECK(same_bits(answer.scores[b * k + j],
                                                oracle.scores[b * whole + j]) ||
                                      answer.indices[b * k + j] == -1);
                            }
                        }
                    }
                }
            }
        }
    }
}

RIEMEM_TEST(not_finite_rows_are_found_by_number) {
    Rows rows(600, 9, 1, 3);
    rows.memory[500 * 10 + 8] = std::numeric_limits<float>::infinity();
    rows.memory[300 * 10 + 2] = std::numeric_limits<float>::quiet_NaN();
    std::vector<double> norms(600);
    for (Isa isa : available_isas()) CHECK(row_norms(rows.view(), isa, norms.data()) == 300);
    CHECK(std::isfinite(norms[299]));
}

namespace {

// What a scan reads beside the float32 rows, for each form of storage.
struct Copies {
    std::vector<std::uint8_t> tiles;
    std::vector<float> tile_scale, residual;
    std::vector<std::uint16_t> high;
    std::vector<std::int16_t> low;

    FusedPoints points(const Problem& problem, ScanStorage storage) {
        const std::size_t n = problem.rows.n, d = problem.rows.d;
        FusedPoints points = problem.points();
        points.storage = storage;
        residual.assign(n, 0.0f);
        if (storage == ScanStorage::int8) {
            tiles.assign((n + kTileRows64 - 1) / kTileRows64 * int8_tile_bytes(d), 128);
            tile_scale.assign(n, 0.0f);
            quantize_int8(problem.rows.view(), Rotation(d), 0, Isa::scalar, tiles.data(),
                          tile_scale.data(), residual.data());
            points.tiles = tiles.data();
            points.tile_scale = tile_scale.data();
            points.residual = residual.data();
        } else if (storage == ScanStorage::bfloat16) {
            high.resize(n * d);
            low.resize(n * d);
            split_bfloat16(problem.rows.view(), high.data(), low.data(), residual.data());
            points.high = high.data();
            points.low = low.data();
            points.residual = residual.data();
        }
        return points;
    }
};

// Near scores inside guard values, checked against the defining scores of the whole set.
std::vector<double> check_near_scores(const Problem& problem, const FusedPoints& points,
                                      const FusedOptions& options) {
    constexpr std::size_t kGuard = 16;
    const std::size_t n = problem.rows.n;
    std::vector<double> out(n + 2 * kGuard, 77.0), exact(n);
    const FusedQueries query = problem.all();
    const double off =
        fused_approximate(PreparedPoints(points), query, options, out.data() + kGuard);
    for (std::size_t g = 0; g < kGuard; ++g) {
        CHECK(out[g] == 77.0 && out[kGuard + n + g] == 77.0);
    }
    fused_scores<double>(problem.points(), query, options,
                         {exact.data(), 1, n, static_cast<std::ptrdiff_t>(n)});
    CHECK(std::isfinite(off) && off >= 0.0);
    double most = 0.0, size = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
        most = std::max(most, std::abs(out[kGuard + i] - exact[i]));
        size = std::max(size, std::abs(exact[i]));
    }
    CHECK(most <= off);
    CHECK(off <= (points.storage == ScanStorage::float32 ? 1e-3 : 0.5) * std::max(size, 1.0) *
                     static_cast<double>(1 + problem.rows.d));
    return {out.begin() + kGuard, out.end() - kGuard};
}

}  // namespace

RIEMEM_TEST(near_scores_stay_inside_their_bound_on_every_isa_and_storage) {
    const std::size_t before = num_threads();
    for (const std::size_t d : {1u, 7u, 64u, 129u, 384u}) {
        for (const std::size_t n : {1u, 63u, 65u, 700u}) {
            const Problem problem(n, d, 1, static_cast<unsigned>(7 * n + d));
            for (const ScanStorage storage :
                 {ScanStorage::float32, ScanStorage::int8, ScanStorage::bfloat16}) {
                Copies copies;
                const FusedPoints points = copies.points(problem, storage);
                for (const Isa isa : available_isas()) {
                    for (const double weight : {0.0, 0.3, 1.0}) {
                        FusedOptions options;
                        options.isa = isa;
                        options.cosine_weight = weight;
                        options.norm = Norm::none;
                        set_num_threads(1);
                        const auto one = check_near_scores(problem, points, options);
                        set_num_threads(3);
                        CHECK(check_near_scores(problem, points, options) == one);
                    }
                }
            }
        }
    }
    set_num_threads(before);
}

RIEMEM_TEST(a_near_score_without_a_bound_says_so) {
    Problem problem(70, 8, 1, 3);
    problem.scale[69] = 1e300;
    std::vector<double> out(70);
    const double off = fused_approximate(PreparedPoints(problem.points()), problem.all(),
                                         FusedOptions{}, out.data());
    CHECK(std::isinf(off));
}

RIEMEM_TEST(some_scores_are_the_bits_of_all_scores) {
    Problem problem(130, 65, 1, 21);
    problem.scale[64] = 0.0;  // its score is a zero, whatever its cosine
    const std::vector<std::int64_t> wanted = {129, 0, 64, 64, 7, 128, 63};
    std::vector<double> all(130);
    for (const Isa isa : available_isas()) {
        for (const double weight : {0.0, 0.4, 1.0}) {
            for (const bool bias : {false, true}) {
                for (const ScanStorage storage : {ScanStorage::float32, ScanStorage::bfloat16}) {
                    Copies copies;
                    FusedPoints points = copies.points(problem, storage);
                    if (!bias) points.row_bias = nullptr;
                    FusedOptions options;
                    options.isa = isa;
                    options.cosine_weight = weight;
                    options.norm = Norm::none;
                    fused_scores<double>(points, problem.all(), options, {all.data(), 1, 130, 130});
                    for (std::size_t count = 0; count <= wanted.size(); ++count) {
                        std::vector<double> some(count);
                        fused_some(points, problem.all(), options, wanted.data(), count,
                                   some.data());
                        for (std::size_t j = 0; j < count; ++j) {
                            CHECK(same_bits(some[j], all[static_cast<std::size_t>(wanted[j])]));
                        }
                    }
                }
            }
        }
    }
}
