// Planted faults: the shim must find each of them, and nothing in the same kernel without it.
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "tests/cuda/device_problem.hpp"

using namespace riemem;
using namespace riemem::test;

namespace {

enum class Plant {
    none,
    no_barrier,          // the sum starts before all is staged
    no_barrier_at_tail,  // the next round overwrites what is still read
    past_shared,
    past_global,
    unwritten_shared,
    unwritten_output,
    early_return,
    split_barrier,  // two branches, a barrier in each
    missing_lane,   // a shuffle that one lane does not come to
    wrong_lane,
    stranger_lane,    // a shuffle from a lane outside the mask
    plain_add,        // a sum in shared memory without an atomic
    no_warp_barrier,  // lanes read each other's shared memory without __syncwarp
};

constexpr unsigned kThreads = 64;

// out[b] = the sum of 2 x over the 64 numbers of block b, by staging, a warp sum and an atomic.
__global__ void block_sums(const float* x, std::size_t n, float* out, Plant plant) {
    RIEMEM_SHARED(float, staged, kThreads);
    RIEMEM_SHARED(float, total, 1);
    const unsigned id = threadIdx.x;
    const std::size_t at = blockIdx.x * std::size_t{kThreads} + id;
    if (id == 0) total[0] = 0.0f;
    for (int round = 0; round < 2; ++round) {
        if (plant == Plant::early_return && at >= n) return;
        float value = 0.0f;
        if (at < n || plant == Plant::past_global) value = x[at];
        if (plant != Plant::unwritten_shared || at < n) {
            staged[plant == Plant::past_shared ? id + 1 : id] = value;
        }
        if (plant == Plant::split_barrier && id % 2 == 0) {
            __syncthreads();
        } else if (plant == Plant::no_warp_barrier) {
            __syncwarp();
            const float next = staged[id ^ 1u];
            staged[id] = next;  // the neighbour may not have read it yet
            __syncthreads();
        } else if (plant != Plant::no_barrier) {
            __syncthreads();
        }
        float sum = staged[kThreads - 1 - id];
        for (int step = 16; step > 0; step /= 2) {
            if (plant == Plant::missing_lane && id == 5 && step == 4) continue;
            if (plant == Plant::wrong_lane) {
                sum += __shfl_down_sync(cuda::kFullWarp, sum, static_cast<unsigned>(step + 1));
            } else if (plant == Plant::stranger_lane && id < 16) {
                sum += __shfl_sync(0xffffu, sum, 20);
            } else if (plant == Plant::stranger_lane && id % 32 >= 16) {
                continue;
            } else {
                sum += __shfl_xor_sync(cuda::kFullWarp, sum, step);
            }
        }
        if (id % 32 == 0 && plant == Plant::plain_add) total[0] += sum;
        if (id % 32 == 0 && plant != Plant::plain_add) atomicAdd(&total[0], sum);
        if (plant != Plant::no_barrier_at_tail) __syncthreads();
    }
    if (id == 0 && plant != Plant::unwritten_output) out[blockIdx.x] = total[0];
}

void nothing(int) {}

struct Outcome {
    std::string fault;
    bool right = true;
};

Outcome run(Plant plant, simt::Order order) {
    constexpr std::size_t kCount = 3 * kThreads - 7;
    const auto x = device<float>(kCount);
    for (std::size_t i = 0; i < kCount; ++i) (*x)[i] = static_cast<float>(i % 13);
    const auto out = device<float>(3);
    simt::set_options({order, 5, false, {}, 0});
    const int status = RIEMEM_LAUNCH(block_sums, dim3(3), dim3(kThreads), nullptr, x->data(),
                                     kCount, out->data(), plant);
    simt::set_options({});
    Outcome outcome{simt::take_fault(), true};
    CHECK((status != 0) == !outcome.fault.empty());
    for (std::size_t b = 0; b < 3; ++b) {
        float expected = 0.0f;
        for (std::size_t i = b * kThreads; i < (b + 1) * kThreads && i < kCount; ++i) {
            expected += 2.0f * (*x)[i];
        }
        outcome.right = outcome.right && (*out)[b] == expected;
    }
    return outcome;
}

constexpr simt::Order kOrders[] = {simt::Order::forward, simt::Order::reverse,
                                   simt::Order::shuffled};

// Whether a child that does this ends otherwise than by itself.
bool dies(const std::function<void()>& work) {
    const pid_t child = fork();
    if (child == 0) {
        if (std::freopen("/dev/null", "w", stderr) == nullptr) _exit(0);
        work();
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status != 0;
}

}  // namespace

RIEMEM_TEST(a_right_kernel_is_right_in_every_order) {
    for (simt::Order order : kOrders) {
        const Outcome outcome = run(Plant::none, order);
        if (!outcome.fault.empty()) std::fprintf(stderr, "%s\n", outcome.fault.c_str());
        CHECK(outcome.fault.empty() && outcome.right);
    }
}

RIEMEM_TEST(planted_faults_are_named_in_every_order) {
    const std::pair<Plant, const char*> faults[] = {
        {Plant::no_barrier, "staged"},
        {Plant::no_barrier_at_tail, "no barrier between"},
        {Plant::past_shared, "past the end: staged[64]"},
        {Plant::unwritten_shared, "before anything was written: staged"},
        {Plant::early_return, "returned or wait elsewhere"},
        {Plant::split_barrier, "meets one at line"},
        {Plant::missing_lane, "threads wait at line"},
        {Plant::stranger_lane, "leaves out"},
        {Plant::plain_add, "no barrier between: total[0]"},
        {Plant::no_warp_barrier, "no barrier between: staged"},
    };
    for (const auto& [plant, words] : faults) {
        for (simt::Order order : kOrders) {
            const Outcome outcome = run(plant, order);
            const bool named = outcome.fault.find(words) != std::string::npos;
            if (!named) {
                std::fprintf(stderr, "planted %d: expected '%s', found '%s'\n",
                             static_cast<int>(plant), words, outcome.fault.c_str());
            }
            CHECK(named);
        }
    }
}

RIEMEM_TEST(planted_wrong_answers_differ) {
    CHECK(!run(Plant::wrong_lane, simt::Order::forward).right);
    CHECK(!run(Plant::unwritten_output, simt::Order::forward).right);
}

RIEMEM_TEST(a_read_past_global_memory_is_a_crash) {
    CHECK(dies([] { run(Plant::past_global, simt::Order::forward); }));
    CHECK(!dies([] { run(Plant::none, simt::Order::forward); }));
}

RIEMEM_TEST(launches_that_no_device_takes_are_refused) {
    CHECK(RIEMEM_LAUNCH(nothing, dim3(0), dim3(32), nullptr, 1) != 0);
    CHECK(simt::take_fault().find("no device takes") != std::string::npos);
    CHECK(RIEMEM_LAUNCH(nothing, dim3(1), dim3(1025), nullptr, 1) != 0);
    CHECK(RIEMEM_LAUNCH(nothing, dim3(1, 65536), dim3(32), nullptr, 1) != 0);
    simt::take_fault();
}

// Each __syncthreads of the search is left out in turn: a fault must be found, or the answer be
// another, in one of the orders.
RIEMEM_TEST(every_barrier_of_fused_topk_is_missed_when_it_is_not_there) {
    std::vector<Problem> problems;
    problems.emplace_back(200, 40, 7, ScanStorage::float32, 3);
    problems.emplace_back(200, 40, 2, ScanStorage::int8, 4);
    problems.emplace_back(200, 40, 1, ScanStorage::bfloat16, 5);
    const auto answers = [&](bool& faulty) {
        std::vector<Answer> all;
        for (const Problem& problem : problems) {
            for (const std::size_t k : {std::size_t{1}, std::size_t{60}}) {
                const auto points = problem.on_device();
                const std::size_t b = problem.queries;
                Answer answer{std::vector<std::int64_t>(b * k, -2),
                              std::vector<std::int64_t>(b, -2), std::vector<double>(b * k, -2.0)};
                cuda::DeviceOptions options;
                options.cosine_weight = 0.5;
                const auto workspace =
                    device<unsigned char>(cuda::fused_topk_workspace(points, b, options.norm, k));
                // Finite, so that what is read too early is a wrong number and not a NaN, which
                // would only cost the certificate and never the answer.
                std::memset(workspace->data(), 0x3f, workspace->size());
                const cuda::DeviceTopk result{answer.indices.data(), answer.scores.data(),
                                              answer.counts.data()};
                faulty |= cuda::fused_topk(points, problem.asked(), options, k, result,
                                           workspace->data(), nullptr) != 0;
                simt::take_fault();
                if (faulty) return all;
                all.push_back(answer);
            }
        }
        return all;
    };
    simt::take_barriers();
    bool faulty = false;
    const std::vector<Answer> right = answers(faulty);
    CHECK(!faulty);
    const auto barriers = simt::take_barriers();
    CHECK(barriers.size() > 10);
    for (const auto& [file, line] : barriers) {
        bool noticed = false;
        for (simt::Order order : kOrders) {
            simt::Options options;
            options.order = order;
            options.skip_file = file;
            options.skip_line = line;
            simt::set_options(options);
            bool found = false;
            const std::vector<Answer> got = answers(found);
            for (std::size_t i = 0; i < got.size() && !found; ++i) found = !same(right[i], got[i]);
            noticed = noticed || found;
            if (noticed) break;
        }
        if (!noticed)
            std::fprintf(stderr, "nobody misses the barrier of %s:%d\n", file.c_str(), line);
        CHECK(noticed);
    }
    simt::set_options({});
    simt::take_barriers();
}
