// fused_topk on the SIMT shim against the processor: the same ids and the same bits.
#include <algorithm>
#include <numeric>

#include "tests/cuda/device_problem.hpp"

using namespace riemem;
using namespace riemem::test;

namespace {

constexpr ScanStorage kStorages[] = {ScanStorage::float32, ScanStorage::int8,
                                     ScanStorage::bfloat16};
constexpr Norm kNorms[] = {Norm::none, Norm::minmax, Norm::zscore};

struct Setting {
    double weight = 0.5;
    Norm norm = Norm::minmax;
    const std::uint8_t* mask = nullptr;
    bool per_query = false;
};

void compare(const Problem& problem, std::size_t k, const Setting& setting = {}) {
    FusedOptions options;
    options.cosine_weight = setting.weight;
    options.norm = setting.norm;
    options.mask = setting.mask;
    options.mask_per_query = setting.per_query;
    cuda::DeviceOptions on;
    on.cosine_weight = setting.weight;
    on.norm = setting.norm;
    on.mask = setting.mask;
    on.mask_per_query = setting.per_query;
    const Answer expected = on_processor(problem, options, k);
    const Answer got = on_shim(problem, on, k, problem.on_device(), problem.asked());
    if (!same(expected, got)) {
        std::fprintf(stderr, "n %zu d %zu queries %zu storage %d k %zu weight %g norm %d\n",
                     problem.n, problem.d, problem.queries, static_cast<int>(problem.storage), k,
                     setting.weight, static_cast<int>(setting.norm));
    }
    CHECK(same(expected, got));
}

std::vector<std::uint8_t> random_mask(std::size_t size, unsigned seed, unsigned one_in) {
    std::mt19937 generator(seed);
    std::vector<std::uint8_t> mask(size);
    for (std::uint8_t& m : mask) m = generator() % one_in == 0 ? 0 : 1;
    return mask;
}

// Every order in which threads and blocks may run; one of them under the slow sanitizer.
template <typename F>
void in_every_order(F run) {
#if defined(__SANITIZE_ADDRESS__)
    constexpr simt::Order kOrders[] = {simt::Order::shuffled};
#else
    constexpr simt::Order kOrders[] = {simt::Order::forward, simt::Order::reverse,
                                       simt::Order::shuffled};
#endif
    for (const simt::Order order : kOrders) {
        simt::set_options({order, 7, false, {}, 0});
        run();
    }
    simt::set_options({});
}

}  // namespace

RIEMEM_TEST(odd_sizes_of_every_storage) {
    unsigned seed = 0;
    for (ScanStorage storage : kStorages) {
        for (std::size_t n : {1, 2, 63, 64, 65, 129, 200}) {
            for (std::size_t d : {1, 3, 8, 33, 100}) {
                const std::size_t queries = 1 + 2 * (seed % 3);
                const Problem problem(n, d, queries, storage, seed);
                compare(problem, std::min<std::size_t>(n, 1 + seed % 11), {0.4, kNorms[seed % 3]});
                ++seed;
            }
        }
    }
}

RIEMEM_TEST(every_norm_weight_and_batch_in_every_order) {
    in_every_order([] {
        for (ScanStorage storage : kStorages) {
            for (std::size_t queries : {1, 2, 19}) {
                const Problem problem(200, 24, queries, storage, 5);
                for (double weight : {0.0, 0.3, 1.0}) {
                    compare(problem, 7, {weight, Norm::minmax});
                }
                compare(problem, 7, {0.6, Norm::none});
                compare(problem, 7, {0.6, Norm::zscore});
            }
        }
    });
}

RIEMEM_TEST(any_k_up_to_all_rows) {
    for (ScanStorage storage : kStorages) {
        const Problem problem(333, 17, 2, storage, 11);
        for (std::size_t k : {1, 2, 3, 5, 6, 64, 100, 256, 332, 333}) compare(problem, k);
    }
}

RIEMEM_TEST(masks) {
    const Problem problem(300, 12, 3, ScanStorage::float32, 3);
    const auto shared = random_mask(300, 1, 3);
    const auto own = random_mask(900, 2, 2);
    for (Norm norm : kNorms) {
        compare(problem, 9, {0.5, norm, shared.data(), false});
        compare(problem, 9, {0.5, norm, own.data(), true});
    }
    std::vector<std::uint8_t> few(300, 0);
    compare(problem, 4, {0.5, Norm::minmax, few.data(), false});
    few[299] = 1;
    compare(problem, 4, {0.5, Norm::minmax, few.data(), false});
    few[70] = 1;
    compare(problem, 4, {0.0, Norm::none, few.data(), false});
}

RIEMEM_TEST(equal_rows_and_rows_without_spread) {
    for (ScanStorage storage : kStorages) {
        // Seven distinct rows, repeated: whole groups tie, and lower rows win.
        Problem repeated(280, 9, 2, storage, 21);
        for (std::size_t i = 7; i < 280; ++i) {
            std::copy_n(repeated.rows->data() + i % 7 * 9, 9, repeated.rows->data() + i * 9);
            repeated.inv_norm[i] = repeated.inv_norm[i % 7];
            repeated.scale[i] = repeated.scale[i % 7];
            repeated.bias[i] = repeated.bias[i % 7];
        }
        repeated.copies();
        for (std::size_t k : {1, 39, 40, 41, 70, 280}) compare(repeated, k);
        for (std::size_t i = 0; i < 280; ++i) {
            std::copy_n(repeated.rows->data(), 9, repeated.rows->data() + i * 9);
            repeated.inv_norm[i] = repeated.inv_norm[0];
            repeated.scale[i] = repeated.scale[0];
            repeated.bias[i] = repeated.bias[0];
        }
        repeated.copies();
        compare(repeated, 5);
        compare(repeated, 5, {0.5, Norm::zscore});
        const auto mask = random_mask(280, 8, 2);
        compare(repeated, 5, {0.5, Norm::minmax, mask.data(), false});
    }
}

RIEMEM_TEST(rows_that_float32_cannot_bound) {
    for (ScanStorage storage : kStorages) {
        const auto huge = [](float x, std::size_t row) { return row % 70 == 3 ? x * 1e37f : x; };
        compare(Problem(150, 10, 2, storage, 31, huge), 6);
        const auto tiny = [](float x, std::size_t row) { return row % 5 == 0 ? x * 1e-38f : x; };
        compare(Problem(150, 10, 2, storage, 32, tiny), 6);
        const auto zero = [](float x, std::size_t row) { return row % 4 == 0 ? 0.0f : x; };
        compare(Problem(150, 10, 2, storage, 33, zero), 40);
        const auto near = [](float x, std::size_t) { return 1.0f + x * 1e-7f; };
        compare(Problem(300, 10, 2, storage, 34, near), 6);
        const auto outlier = [](float x, std::size_t row) { return row == 77 ? 1e6f * x : x; };
        compare(Problem(300, 40, 2, storage, 35, outlier), 6);
    }
}

RIEMEM_TEST(ids_decide_ties_and_are_returned) {
    Problem problem(130, 6, 2, ScanStorage::float32, 41);
    for (std::size_t i = 0; i < 130; ++i) {
        std::copy_n(problem.rows->data() + i % 5 * 6, 6, problem.rows->data() + i * 6);
        problem.inv_norm[i] = problem.inv_norm[i % 5];
        problem.scale[i] = problem.bias[i] = 1.0;
    }
    problem.copies();
    std::vector<std::int64_t> ids(130);
    for (std::size_t i = 0; i < 130; ++i) ids[i] = static_cast<std::int64_t>((i * 37) % 130) * 1000;
    cuda::DevicePoints points = problem.on_device();
    points.ids = ids.data();
    cuda::DeviceOptions options;
    options.cosine_weight = 1.0;
    options.norm = Norm::none;
    const Answer got = on_shim(problem, options, 30, points, problem.asked());
    // The oracle: all rows, sorted by score and id.
    FusedOptions plain;
    plain.cosine_weight = 1.0;
    plain.norm = Norm::none;
    const Answer all = on_processor(problem, plain, 130);
    for (std::size_t b = 0; b < 2; ++b) {
        std::vector<std::pair<double, std::int64_t>> order;
        for (std::size_t i = 0; i < 130; ++i) {
            const auto row = static_cast<std::size_t>(all.indices[b * 130 + i]);
            order.emplace_back(-all.scores[b * 130 + i], ids[row]);
        }
        std::sort(order.begin(), order.end());
        for (std::size_t i = 0; i < 30; ++i) {
            CHECK(got.indices[b * 30 + i] == order[i].second);
            CHECK(same_bits(got.scores[b * 30 + i], -order[i].first));
        }
    }
}

RIEMEM_TEST(scores_beyond_their_limits_tie) {
    // Copies of a query differ from cosine 1 by rounding: at the limit the lower row must win.
    Problem problem(200, 33, 1, ScanStorage::float32, 51);
    std::mt19937 generator(9);
    for (std::size_t i = 0; i < 200; ++i) {
        if (i % 3 != 0) continue;
        const double length = std::uniform_real_distribution<double>(0.1, 10.0)(generator);
        for (std::size_t t = 0; t < 33; ++t) {
            (*problem.rows)[i * 33 + t] = static_cast<float>(problem.q[t] * length);
        }
    }
    CHECK(row_norms(problem.view(), Isa::scalar, problem.inv_norm.data()) == -1);
    for (double& v : problem.inv_norm) v = 1.0 / v;
    problem.copies();
    FusedOptions plain;
    plain.cosine_weight = 1.0;
    plain.norm = Norm::none;
    const Answer all = on_processor(problem, plain, 200);
    cuda::DeviceOptions options;
    options.cosine_weight = 1.0;
    options.norm = Norm::none;
    options.least = -1.0;
    options.greatest = 1.0 - 1e-9;  // rounding of the rows to float32 straddles it
    const Answer got = on_shim(problem, options, 20, problem.on_device(), problem.asked());
    std::vector<std::pair<double, std::int64_t>> order;
    for (std::size_t i = 0; i < 200; ++i) {
        order.emplace_back(-std::clamp(all.scores[i], options.least, options.greatest),
                           all.indices[i]);
    }
    std::sort(order.begin(), order.end());
    for (std::size_t i = 0; i < 20; ++i) {
        CHECK(got.indices[i] == order[i].second);
        CHECK(same_bits(got.scores[i], -order[i].first));
    }
}

RIEMEM_TEST(empty_queries_have_no_hits) {
    const Problem problem(100, 8, 3, ScanStorage::float32, 61);
    const std::vector<std::uint8_t> empty{0, 1, 0};
    cuda::DeviceQueries asked = problem.asked();
    asked.empty = empty.data();
    const Answer got = on_shim(problem, {}, 4, problem.on_device(), asked);
    CHECK((got.counts == std::vector<std::int64_t>{4, 0, 4}));
    for (std::size_t i = 4; i < 8; ++i) CHECK(got.indices[i] == -1 && std::isnan(got.scores[i]));
}

RIEMEM_TEST(all_scores_equal_the_processors) {
    for (ScanStorage storage : kStorages) {
        const Problem problem(150, 21, 2, storage, 71);
        const auto mask = random_mask(150, 3, 4);
        for (Norm norm : kNorms) {
            FusedOptions options;
            options.cosine_weight = 0.25;
            options.norm = norm;
            options.mask = mask.data();
            std::vector<double> expected(300);
            fused_scores(problem.points(), problem.all(), options,
                         MatrixView<double>{expected.data(), 2, 150, 150});
            cuda::DeviceOptions on;
            on.cosine_weight = 0.25;
            on.norm = norm;
            on.mask = mask.data();
            const auto out = device<double>(300);
            const auto points = problem.on_device();
            const auto workspace =
                device<unsigned char>(cuda::fused_topk_workspace(points, 2, norm, 0));
            CHECK(cuda::fused_scores(points, problem.asked(), on, out->data(), workspace->data(),
                                     nullptr) == 0);
            for (std::size_t i = 0; i < 300; ++i) CHECK(same_bits((*out)[i], expected[i]));
        }
    }
}

RIEMEM_TEST(lengths_of_rows_equal_the_processors) {
    for (std::size_t d : {1, 5, 8, 13, 40}) {
        const Problem problem(70, d, 1, ScanStorage::float32, 81);
        std::mt19937 generator(4);
        std::normal_distribution<double> normal;
        std::vector<double> mean(d), whitening(d * d), expected(70);
        for (double& x : mean) x = normal(generator);
        for (double& x : whitening) x = normal(generator);
        const auto out = device<double>(70);
        quadratic_rows(problem.view(), mean.data(), whitening.data(), d, Isa::scalar,
                       expected.data());
        CHECK(cuda::quadratic_rows(problem.rows->data(), 70, d, d, mean.data(), whitening.data(), d,
                                   out->data(), nullptr) == 0);
        for (std::size_t i = 0; i < 70; ++i) CHECK(same_bits((*out)[i], expected[i]));
        unsigned long long bad = 0;
        CHECK(row_norms(problem.view(), Isa::scalar, expected.data()) == -1);
        CHECK(cuda::row_norms(problem.rows->data(), 70, d, d, out->data(), &bad, nullptr) == 0);
        for (std::size_t i = 0; i < 70; ++i) CHECK(same_bits((*out)[i], expected[i]));
        CHECK(bad == ~0ull);
        (*problem.rows)[d * 20] = INFINITY;
        (*problem.rows)[d * 33] = NAN;
        CHECK(cuda::row_norms(problem.rows->data(), 70, d, d, out->data(), &bad, nullptr) == 0);
        CHECK(bad == 20);
    }
}

RIEMEM_TEST(rows_that_are_bfloat16_are_read_as_they_are) {
    for (std::size_t d : {1, 7, 24}) {
        for (std::size_t queries : {1, 3, 17}) {
            Problem problem(130, d, queries, ScanStorage::bfloat16, 93);
            const std::vector<float> values(problem.rows->data(), problem.rows->data() + 130 * d);
            const Narrow cut(values);
            std::copy_n(cut.exact.data(), 130 * d, problem.rows->data());
            problem.copies();
            // The same rows apart, without the rest of the bits that they do not have.
            const std::size_t stride = d + 3;
            const auto apart = device<std::uint16_t>(129 * stride + d);
            for (std::size_t i = 0; i < 130 * d; ++i) {
                (*apart)[i / d * stride + i % d] = cut.narrow[i].bits;
            }
            cuda::DevicePoints points = problem.on_device();
            points.high = apart->data();
            points.low = nullptr;
            points.residual = nullptr;
            points.stride = stride;
            CHECK(cuda::fused_topk_prepare(points, problem.part_scales->data(), nullptr) == 0);
            for (Norm norm : {Norm::none, Norm::minmax, Norm::zscore}) {
                FusedOptions plain;
                cuda::DeviceOptions options;
                plain.cosine_weight = options.cosine_weight = 0.3;
                plain.norm = options.norm = norm;
                CHECK(same(on_processor(problem, plain, 9),
                           on_shim(problem, options, 9, points, problem.asked())));
            }
            std::vector<double> expected(130), mean(d, 0.5), whitening(d * d, 0.25);
            const auto* rows = reinterpret_cast<const cuda::Bfloat16*>(apart->data());
            const auto out = device<double>(130);
            unsigned long long bad = 0;
            CHECK(row_norms(problem.view(), Isa::scalar, expected.data()) == -1);
            CHECK(cuda::row_norms(rows, 130, d, stride, out->data(), &bad, nullptr) == 0);
            CHECK(std::memcmp(expected.data(), out->data(), 130 * 8) == 0);
            quadratic_rows(problem.view(), mean.data(), whitening.data(), d, Isa::scalar,
                           expected.data());
            CHECK(cuda::quadratic_rows(rows, 130, d, stride, mean.data(), whitening.data(), d,
                                       out->data(), nullptr) == 0);
            CHECK(std::memcmp(expected.data(), out->data(), 130 * 8) == 0);
        }
    }
}

RIEMEM_TEST(folded_queries_match_a_plain_product) {
    const std::size_t d = 11;
    const Problem problem(4, d, 1, ScanStorage::float32, 91);
    std::mt19937 generator(4);
    std::normal_distribution<double> normal;
    std::vector<double> mean(d), whitening(d * d);
    for (double& x : mean) x = normal(generator);
    for (double& x : whitening) x = normal(generator);
    (*problem.rows)[2 * d] = NAN;
    for (std::size_t t = 0; t < d; ++t) (*problem.rows)[3 * d + t] = 0.0f;
    for (int form = 0; form < 3; ++form) {
        const auto q = device<double>(4 * d), w = device<double>(4 * d), s = device<double>(4 * d);
        const auto offset = device<double>(4), bias = device<double>(4);
        const auto empty = device<std::uint8_t>(4);
        const cuda::DeviceMetric metric{mean.data(), whitening.data(), 1e-9, form, false};
        CHECK(cuda::fold_queries(problem.rows->data(), 4, d, d, metric, q->data(), w->data(),
                                 offset->data(), bias->data(), empty->data(), s->data(),
                                 nullptr) == 0);
        for (std::size_t b = 0; b < 2; ++b) {
            const float* row = problem.rows->data() + b * d;
            std::vector<double> white(d, 0.0), weight(d, 0.0);
            double norm = 0.0, squared = 0.0, along = 0.0;
            for (std::size_t t = 0; t < d; ++t) {
                const double x = static_cast<double>(row[t]);
                norm += x * x;
                for (std::size_t j = 0; j < d; ++j)
                    white[j] += (x - mean[t]) * whitening[t * d + j];
            }
            for (double x : white) squared += x * x;
            for (std::size_t t = 0; t < d; ++t) {
                for (std::size_t j = 0; j < d; ++j) weight[t] += white[j] * whitening[t * d + j];
                along += weight[t] * mean[t];
            }
            const double factor = form == 0 ? 1.0 : form == 2 ? 2.0 : 1.0 / std::sqrt(squared);
            for (std::size_t t = 0; t < d; ++t) {
                CHECK(std::abs((*w)[b * d + t] - factor * weight[t]) < 1e-9);
                CHECK(std::abs((*q)[b * d + t] * std::sqrt(norm) - static_cast<double>(row[t])) <
                      1e-12);
            }
            CHECK(std::abs((*offset)[b] + factor * along) < 1e-9);
            CHECK(std::abs((*bias)[b] - (form == 2 ? -squared : 0.0)) < 1e-9);
            CHECK((*empty)[b] == 0);
        }
        CHECK((*empty)[2] == 1 && (*empty)[3] == 1 && (*w)[3 * d] == 0.0);
    }
}

RIEMEM_TEST(nothing_is_done_before_the_stream_is_synchronised) {
    const Problem problem(100, 8, 2, ScanStorage::float32, 99);
    const Answer expected = on_processor(problem, {0.5, Norm::minmax}, 5);
    simt::set_options({simt::Order::forward, 0, true, {}, 0});
    const Answer early = on_shim(problem, {0.5}, 5, problem.on_device(), problem.asked());
    CHECK(early.counts[0] == -1);  // as the memory was filled
    simt::set_options({});
    simt::drop_waiting();
    CHECK(same(expected, on_shim(problem, {0.5}, 5, problem.on_device(), problem.asked())));
}

RIEMEM_TEST(a_failed_launch_ends_the_call_with_its_code) {
    const Problem problem(100, 8, 2, ScanStorage::float32, 99);
    const auto points = problem.on_device();
    std::int64_t indices[4], counts[2];
    double scores[4];
    const auto workspace =
        device<unsigned char>(cuda::fused_topk_workspace(points, 2, Norm::minmax, 2));
    for (int launches = 0; launches < 8; ++launches) {
        simt::fail_launch_after(launches, cudaErrorMemoryAllocation);
        simt::take_launches();
        CHECK(cuda::fused_topk(points, problem.asked(), {0.5}, 2, {indices, scores, counts},
                               workspace->data(), nullptr) == cudaErrorMemoryAllocation);
        CHECK(simt::take_launches() == static_cast<std::size_t>(launches) + 1);
    }
    simt::fail_launch_after(-1, 0);
}
