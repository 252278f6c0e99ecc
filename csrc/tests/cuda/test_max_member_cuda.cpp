// The streaming assignment on the SIMT shim against the processor: labels, bits of scores and sums.
#include <limits>

#include "kernels/max_member/max_member_cuda.hpp"
#include "tests/cuda/device_problem.hpp"

using namespace riemem;
using namespace riemem::test;

namespace {

// A stream with near and exact repetitions, so that atoms have several members and ties occur.
std::vector<float> stream_of(std::size_t n, std::size_t d, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> rows(n * d);
    for (std::size_t i = 0; i < n; ++i) {
        const std::size_t like = i > 3 && i % 3 != 0 ? generator() % i : i;
        const float noise = i % 5 == 0 ? 0.0f : 0.3f;
        double square = 0.0;
        for (std::size_t t = 0; t < d; ++t) {
            const float base = like == i ? normal(generator) : rows[like * d + t];
            rows[i * d + t] = base + (like == i ? 0.0f : noise * normal(generator) / 4.0f);
            square += static_cast<double>(rows[i * d + t]) * static_cast<double>(rows[i * d + t]);
        }
        if (like != i && noise == 0.0f) continue;  // an exact copy
        for (std::size_t t = 0; t < d; ++t) {
            rows[i * d + t] =
                static_cast<float>(static_cast<double>(rows[i * d + t]) / std::sqrt(square));
        }
    }
    return rows;
}

struct Both {
    std::size_t n, d, padded;
    std::vector<float> rows, inverse, centres, device_centres;
    std::vector<double> squares, sums, sum_squares, reach, device_squares, device_sums,
        device_sum_squares;
    std::vector<std::int64_t> atom, next, newest, sizes, device_atom, device_sizes;
    unsigned long long counts = 0;
    MaxMemberState state;
    cuda::DeviceAtoms atoms;

    Both(std::size_t n_, std::size_t d_, unsigned seed)
        : n(n_),
          d(d_),
          padded((d_ + 7) / 8 * 8),
          rows(stream_of(n_, d_, seed)),
          inverse(n),
          centres(n * d),
          device_centres(n * d, NAN),
          squares(n),
          sums(n * padded),
          sum_squares(n),
          reach(3 * n),
          device_squares(n, NAN),
          device_sums(n * padded, NAN),
          device_sum_squares(n, NAN),
          atom(n),
          next(n),
          newest(n),
          sizes(n),
          device_atom(n, -9),
          device_sizes(n, -9) {
        state.dim = d;
        state.padded = padded;
        state.rows = rows.data();
        state.squares = squares.data();
        state.inverse = inverse.data();
        state.atom = atom.data();
        state.next = next.data();
        state.sums = sums.data();
        state.sum_squares = sum_squares.data();
        state.centres = centres.data();
        state.reach = reach.data();
        state.newest = newest.data();
        state.sizes = sizes.data();
        atoms.dim = d;
        atoms.padded = padded;
        atoms.rows = rows.data();
        atoms.squares = device_squares.data();
        atoms.atom = device_atom.data();
        atoms.sums = device_sums.data();
        atoms.sum_squares = device_sum_squares.data();
        atoms.centres = device_centres.data();
        atoms.sizes = device_sizes.data();
        atoms.counts = &counts;
    }

    void assign(std::size_t first, std::size_t count, double threshold, Route route) {
        std::vector<double> expected(count), got(count, 7.0);
        std::vector<std::uint8_t> opened(count), created(count, 9);
        const std::size_t before = state.atom_count;
        max_member_assign(state, {threshold, route, Isa::scalar}, count, expected.data(),
                          opened.data());
        const auto work =
            device<unsigned char>(cuda::max_member_workspace(first + count, before + count));
        CHECK(cuda::max_member_assign(atoms, threshold, route, first, count, before, got.data(),
                                      created.data(), work->data(), nullptr) == 0);
        CHECK(opened == created);
        for (std::size_t i = 0; i < count; ++i) {
            CHECK(same_bits(expected[i], got[i]) ||
                  (std::isnan(expected[i]) && std::isnan(got[i])));
        }
        CHECK(counts == state.atom_count);
    }

    void compare() const {
        const std::size_t m = state.atom_count;
        CHECK(std::equal(atom.begin(), atom.begin() + static_cast<std::ptrdiff_t>(state.row_count),
                         device_atom.begin()));
        for (std::size_t a = 0; a < m; ++a) {
            CHECK(sizes[a] == device_sizes[a]);
            CHECK(same_bits(sum_squares[a], device_sum_squares[a]));
            CHECK(std::memcmp(&sums[a * padded], &device_sums[a * padded], padded * 8) == 0);
            CHECK(std::memcmp(&centres[a * d], &device_centres[a * d], d * 4) == 0);
        }
    }
};

}  // namespace

RIEMEM_TEST(a_stream_is_assigned_as_on_the_processor) {
    unsigned seed = 0;
    for (Route route : {Route::max_member, Route::nearest_fallback, Route::centroid}) {
        for (std::size_t d : {3, 8, 13}) {
            for (double threshold : {0.5, 0.9, 1.0, -2.0}) {
                Both both(60, d, ++seed);
                both.assign(0, 1, threshold, route);
                both.assign(1, 34, threshold, route);
                both.assign(35, 25, threshold, route);
                both.compare();
            }
        }
    }
}

RIEMEM_TEST(chunks_are_brought_to_a_length_by_powers_of_two) {
    auto values = stream_of(20, 5, 3);
    const float lengths[] = {1.0f, 1e-20f, 3e18f, 0.3f, 2.0f};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] *= lengths[i / 5 % 5];
    const auto place = [&](const auto* rows, std::vector<float>& out) {
        const auto norms = device<double>(20);
        unsigned long long bad = ~0ull;
        CHECK(cuda::max_member_place(rows, 20, 5, 5, 100, norms->data(), out.data(), &bad,
                                     nullptr) == 0);
        return bad;
    };
    std::vector<float> out(100, -9.0f);
    CHECK(place(values.data(), out) == ~0ull);
    for (std::size_t i = 0; i < 20; ++i) {
        double square = 0.0, placed = 0.0;
        for (std::size_t t = 0; t < 5; ++t) {
            square +=
                static_cast<double>(values[i * 5 + t]) * static_cast<double>(values[i * 5 + t]);
            placed += static_cast<double>(out[i * 5 + t]) * static_cast<double>(out[i * 5 + t]);
        }
        const double norm = std::sqrt(square);
        int exponent = 0;
        if (norm < 0.5 || norm >= 2.0) std::frexp(norm, &exponent);
        for (std::size_t t = 0; t < 5; ++t) {
            CHECK(out[i * 5 + t] == std::ldexp(values[i * 5 + t], -exponent));
        }
        CHECK(std::sqrt(placed) >= 0.5 && std::sqrt(placed) < 2.0);
    }
    const Narrow cut(values);
    std::vector<float> narrow(100, -9.0f), exact(100, -9.0f);
    CHECK(place(cut.narrow.data(), narrow) == ~0ull);
    CHECK(place(cut.exact.data(), exact) == ~0ull);
    CHECK(narrow == exact);
    std::fill_n(values.data() + 35, 5, 0.0f);
    values[60] = NAN;
    out.assign(100, -9.0f);
    CHECK(place(values.data(), out) == 107);
    CHECK(out == std::vector<float>(100, -9.0f));
}

RIEMEM_TEST(nothing_is_assigned_after_a_row_without_direction) {
    Both both(30, 6, 5);
    both.assign(0, 20, 0.7, Route::max_member);
    const unsigned long long before = both.counts;
    unsigned long long bad = ~0ull;
    both.atoms.bad = &bad;
    std::vector<double> scores(5, 7.0);
    std::vector<std::uint8_t> created(5, 9);
    const auto work = device<unsigned char>(cuda::max_member_workspace(30, 30));
    bad = 22;
    CHECK(cuda::max_member_assign(both.atoms, 0.7, Route::max_member, 20, 5, before, scores.data(),
                                  created.data(), work->data(), nullptr) == 0);
    CHECK(both.counts == before);
    CHECK(created == std::vector<std::uint8_t>(5, 0));
    for (std::size_t i = 0; i < 5; ++i) {
        CHECK(std::isnan(scores[i]) && both.device_atom[20 + i] == -1);
    }
    std::int64_t atom = 5;
    CHECK(cuda::max_member_nearest(both.atoms, Route::max_member, 20, before, both.rows.data(), 1,
                                   &atom, scores.data(), work->data(), nullptr) == 0);
    CHECK(atom == -1);
    const std::vector<std::int64_t> slots{0, 2, 3, -1, 5}, names{7, 8, 11};
    std::vector<std::int64_t> labels(5, -9);
    CHECK(cuda::max_member_labels(slots.data(), 5, names.data(), 3, 20, labels.data(), nullptr) ==
          0);
    CHECK((labels == std::vector<std::int64_t>{7, 11, 20, -1, 22}));
    both.atoms.bad = nullptr;
    both.compare();
}

RIEMEM_TEST(the_nearest_atom_is_found_without_a_change) {
    for (Route route : {Route::max_member, Route::nearest_fallback, Route::centroid}) {
        Both both(50, 9, 77);
        const std::vector<float> asked = stream_of(8, 9, 78);
        std::vector<std::int64_t> expected(8), got(8, -9);
        std::vector<double> best(8), found(8, 7.0);
        const auto work = device<unsigned char>(cuda::max_member_workspace(50, 50));
        const auto look = [&] {
            max_member_nearest(both.state, {0.0, route, Isa::scalar}, asked.data(), 8,
                               expected.data(), best.data());
            CHECK(cuda::max_member_nearest(both.atoms, route, both.state.row_count,
                                           both.state.atom_count, asked.data(), 8, got.data(),
                                           found.data(), work->data(), nullptr) == 0);
            CHECK(expected == got);
            for (std::size_t i = 0; i < 8; ++i) {
                CHECK(same_bits(best[i], found[i]) ||
                      (std::isnan(best[i]) && std::isnan(found[i])));
            }
        };
        look();
        both.assign(0, 50, 0.8, route);
        look();
        both.compare();
    }
}
