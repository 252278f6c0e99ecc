#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "core/error.hpp"
#include "core/thread_pool.hpp"

using riemem::parallel_for;

RIEMEM_TEST(every_task_runs_once) {
    for (std::size_t threads : {1u, 2u, 7u}) {
        riemem::set_num_threads(threads);
        std::vector<std::atomic<int>> seen(1000);
        parallel_for(seen.size(), threads, [&](std::size_t i) { ++seen[i]; });
        for (const auto& count : seen) CHECK(count == 1);
    }
}

RIEMEM_TEST(no_tasks_is_fine) {
    bool called = false;
    parallel_for(0, 4, [&](std::size_t) { called = true; });
    CHECK(!called);
}

RIEMEM_TEST(an_exception_reaches_the_caller_and_the_pool_survives) {
    riemem::set_num_threads(4);
    for (int round = 0; round < 20; ++round) {
        bool caught = false;
        try {
            parallel_for(100, 4, [](std::size_t i) {
                if (i == 37) throw std::runtime_error("37");
            });
        } catch (const std::runtime_error& error) {
            caught = std::string(error.what()) == "37";
        }
        CHECK(caught);
    }
    std::atomic<int> sum{0};
    parallel_for(10, 4, [&](std::size_t i) { sum += static_cast<int>(i); });
    CHECK(sum == 45);
}

RIEMEM_TEST(calls_from_several_threads_and_nested_calls_finish) {
    riemem::set_num_threads(3);
    std::atomic<int> total{0};
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; ++c) {
        callers.emplace_back([&] {
            for (int round = 0; round < 50; ++round) {
                parallel_for(
                    5, 3, [&](std::size_t) { parallel_for(4, 3, [&](std::size_t) { ++total; }); });
            }
        });
    }
    for (std::thread& caller : callers) caller.join();
    CHECK(total == 4 * 50 * 5 * 4);
}

RIEMEM_TEST(zero_threads_is_refused) {
    bool refused = false;
    try {
        riemem::set_num_threads(0);
    } catch (const riemem::InvalidArgument&) {
        refused = true;
    }
    CHECK(refused);
}

#if !defined(__SANITIZE_THREAD__)
RIEMEM_TEST(a_forked_child_gets_workers_of_its_own) {
    riemem::set_num_threads(4);
    std::atomic<int> warm{0};
    parallel_for(8, 4, [&](std::size_t) { ++warm; });
    const pid_t child = fork();
    if (child == 0) {
        std::atomic<int> count{0};
        parallel_for(100, 4, [&](std::size_t) { ++count; });
        _exit(count == 100 ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif
