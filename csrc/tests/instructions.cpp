// One fixed search, for counting its instructions: valgrind --tool=callgrind counts what runs
// inside measured_search and nothing else. AVX2, because valgrind knows no AVX-512.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/thread_pool.hpp"
#include "kernels/fused_topk/fused_topk.hpp"
#include "kernels/quantize/quantize.hpp"

using namespace riemem;

extern "C" __attribute__((noinline)) void measured_search(const PreparedPoints& points,
                                                          const FusedQueries& queries,
                                                          const FusedOptions& options,
                                                          FusedTopkResult& result) {
    fused_topk(points, queries, options, 10, result);
}

int main(int count, char** arguments) {
    const std::string_view name = count > 1 ? arguments[1] : "";
    const bool int8 = name != "float32-single";
    const std::size_t batch = name == "int8-batch" ? 32 : 1;
    if (name != "float32-single" && name != "int8-single" && name != "int8-batch") {
        std::fprintf(stderr, "usage: riemem_instructions float32-single|int8-single|int8-batch\n");
        return 2;
    }
    set_num_threads(1);
    constexpr std::size_t kN = 4000;
    constexpr std::size_t kD = 96;
    std::uint64_t state = 1;
    const auto random = [&] {  // uniform in (-1, 1)
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        return static_cast<double>(static_cast<std::int64_t>(state) >> 11) * 0x1p-52;
    };
    std::vector<float> rows(kN * kD);
    std::vector<double> inv_norm(kN), q(batch * kD), w(batch * kD), zeros(batch, 0.0);
    for (float& x : rows) x = static_cast<float>(random());
    for (double& x : q) x = random();
    for (double& x : w) x = random();
    FusedPoints points;
    points.rows = {rows.data(), kN, kD, static_cast<std::ptrdiff_t>(kD)};
    row_norms(points.rows, Isa::avx2, inv_norm.data());
    for (double& x : inv_norm) x = 1.0 / x;
    points.inv_norm = inv_norm.data();
    std::vector<std::uint8_t> tiles((kN + 63) / 64 * int8_tile_bytes(kD));
    std::vector<float> scale(kN), residual(kN);
    if (int8) {
        quantize_int8(points.rows, Rotation(kD), 0, Isa::avx2, tiles.data(), scale.data(),
                      residual.data());
        points.storage = ScanStorage::int8;
        points.tiles = tiles.data();
        points.tile_scale = scale.data();
        points.residual = residual.data();
    }
    const PreparedPoints prepared(points);
    const FusedQueries queries{q.data(), w.data(), zeros.data(), zeros.data(), batch};
    FusedOptions options;
    options.cosine_weight = 0.5;
    options.isa = Isa::avx2;
    std::vector<std::int64_t> indices(batch * 10), counts(batch);
    std::vector<double> scores(batch * 10);
    FusedTopkResult result{indices.data(), scores.data(), counts.data()};
    measured_search(prepared, queries, options, result);
    std::printf("%lld\n", static_cast<long long>(indices[0]));
    return 0;
}
