// max_sim: each instruction set against sums over dimensions, at odd sizes, at the ends of int8,
// with buffers that end at an unreadable page.
#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "core/cpu.hpp"
#include "guarded.hpp"
#include "kernels/max_sim/max_sim.hpp"
#include "kernels/max_sim/max_sim_kernels.hpp"

using namespace riemem;

namespace {

constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::min();

struct Problem {
    std::size_t m, d;
    std::vector<std::int64_t> counts;
    std::size_t total;
    test::Guarded<std::int8_t> question;
    test::Guarded<std::uint8_t> rows;

    Problem(std::size_t m_, std::size_t d_, const std::vector<std::int64_t>& counts_, unsigned seed)
        : m(m_), d(d_), counts(counts_), total(sum(counts_)), question(m * d), rows(total * d / 8) {
        std::mt19937 generator(seed);
        for (std::size_t i = 0; i < question.size(); ++i) {
            question[i] = static_cast<std::int8_t>(generator());
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            rows[i] = static_cast<std::uint8_t>(generator());
        }
    }

    static std::size_t sum(const std::vector<std::int64_t>& counts) {
        std::size_t all = 0;
        for (const std::int64_t count : counts) all += static_cast<std::size_t>(count);
        return all;
    }

    std::vector<std::int32_t> expected() const {
        std::vector<std::int32_t> out(m * counts.size(), kNone);
        for (std::size_t b = 0; b < m; ++b) {
            std::size_t row = 0;
            for (std::size_t i = 0; i < counts.size(); ++i) {
                for (std::int64_t k = 0; k < counts[i]; ++k, ++row) {
                    std::int32_t dot = 0;
                    for (std::size_t j = 0; j < d; ++j) {
                        const bool set = (rows[row * (d / 8) + j / 8] >> (j % 8) & 1) != 0;
                        dot += set ? question[b * d + j] : -question[b * d + j];
                    }
                    std::int32_t& most = out[b * counts.size() + i];
                    most = std::max(most, dot);
                }
            }
        }
        return out;
    }

    void check() const {
        const std::vector<std::int32_t> answer = expected();
        test::Guarded<std::int32_t> out(answer.size());
        for (const Isa isa : available_isas()) {
            std::fill_n(out.data(), out.size(), 7);
            max_sim({question.data(), m, d}, {rows.data(), counts.data(), counts.size()}, isa,
                    out.data());
            CHECK(std::equal(answer.begin(), answer.end(), out.data()));
        }
    }
};

}  // namespace

RIEMEM_TEST(max_sim_is_the_sum_over_dimensions_everywhere) {
    for (const std::size_t d : {8u, 16u, 24u, 32u, 40u, 56u, 64u, 72u, 120u, 128u, 136u, 384u}) {
        for (std::size_t m = 0; m <= 18; ++m) {
            Problem(m, d, {3, 0, 1, 5, 0}, static_cast<unsigned>(d + m)).check();
        }
    }
    // Around the steps after which int16 sums are taken out.
    for (const std::size_t d : {504u, 512u, 520u, 1000u, 1024u, 1032u, 4096u}) {
        Problem(9, d, {2, 1}, static_cast<unsigned>(d)).check();
    }
}

RIEMEM_TEST(max_sim_of_nothing_is_nothing) {
    Problem(3, 64, {}, 1).check();
    Problem(3, 64, {0}, 1).check();
    Problem(0, 64, {2}, 1).check();
    Problem(0, 64, {}, 1).check();
}

RIEMEM_TEST(max_sim_does_not_overflow_at_the_ends_of_its_numbers) {
    for (const std::size_t d : {384u, 512u, 1024u, 16384u}) {
        for (const int number : {127, -127, -128}) {
            for (const unsigned bits : {0u, 255u, 0x55u}) {
                Problem problem(9, d, {1, 2}, 1);
                std::fill_n(problem.question.data(), problem.question.size(),
                            static_cast<std::int8_t>(number));
                std::fill_n(problem.rows.data(), problem.rows.size(),
                            static_cast<std::uint8_t>(bits));
                problem.check();
            }
        }
    }
}

#if defined(RIEMEM_HAVE_AVX512)
RIEMEM_TEST(max_sim_without_the_dot_product_of_bytes_is_the_same) {
    const std::vector<Isa> isas = available_isas();
    if (std::find(isas.begin(), isas.end(), Isa::avx512) == isas.end()) return;
    const MaxSimKernels& plain = max_sim_kernels_avx512();
    const MaxSimKernels& truth = max_sim_kernels_scalar();
    for (const std::size_t d : {8u, 64u, 200u, 384u, 512u, 520u, 1536u}) {
        for (std::size_t m = 1; m <= kMaxSimTogether; ++m) {
            const Problem problem(m, d, {4}, static_cast<unsigned>(d + m));
            std::vector<std::int8_t> panel(m * ((d + plain.step - 1) / plain.step * plain.step));
            std::int32_t found[kMaxSimTogether], expected[kMaxSimTogether];
            plain.pack(problem.question.data(), m, d, panel.data());
            plain.best(panel.data(), m, problem.rows.data(), 4, d, found);
            truth.best(problem.question.data(), m, problem.rows.data(), 4, d, expected);
            CHECK(std::equal(found, found + m, expected));
        }
    }
}
#endif
