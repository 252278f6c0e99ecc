#include "core/thread_pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define RIEMEM_HAVE_FORK 1
#endif

namespace riemem {
namespace {

constexpr std::size_t kMostThreads = 1024;

std::size_t processors() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        const int count = CPU_COUNT(&set);
        if (count > 0) return static_cast<std::size_t>(count);
    }
#endif
    return std::max<std::size_t>(1, std::thread::hardware_concurrency());
}

std::size_t initial_threads() {
    const char* text = std::getenv("RIEMEM_NUM_THREADS");
    if (text == nullptr || *text == '\0') return processors();
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > static_cast<long>(kMostThreads)) {
        throw InvalidArgument("RIEMEM_NUM_THREADS: expected an integer from 1 to 1024, got '" +
                              std::string(text) + "'");
    }
    return static_cast<std::size_t>(value);
}

std::atomic<std::size_t> configured_threads{0};

// One parallel_for in flight. Workers take task numbers until none is left.
struct Job {
    const std::function<void(std::size_t)>* task = nullptr;
    std::size_t count = 0;
    std::atomic<std::size_t> next{0};
    std::mutex failure_mutex;
    std::exception_ptr failure;

    void work() {
        for (;;) {
            const std::size_t i = next.fetch_add(1, std::memory_order_relaxed);
            if (i >= count) return;
            try {
                (*task)(i);
            } catch (...) {
                const std::lock_guard<std::mutex> lock(failure_mutex);
                if (!failure) failure = std::current_exception();
                next.store(count, std::memory_order_relaxed);
            }
        }
    }
};

class Pool {
 public:
    // False when another call is using the workers.
    bool try_run(Job& job, std::size_t helpers) {
        const std::unique_lock<std::mutex> claim(in_use_, std::try_to_lock);
        if (!claim.owns_lock()) return false;
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            while (workers_.size() < helpers) {
                workers_.emplace_back([this] { loop(); });
            }
            job_ = &job;
            invited_ = helpers;
            busy_ = helpers;
        }
        wake_.notify_all();
        job.work();
        std::unique_lock<std::mutex> lock(mutex_);
        busy_ -= invited_;  // workers that had not woken yet are not needed any more
        invited_ = 0;
        idle_.wait(lock, [this] { return busy_ == 0; });
        job_ = nullptr;
        return true;
    }

 private:
    void loop() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return invited_ > 0; });
            --invited_;
            Job* job = job_;
            lock.unlock();
            job->work();
            lock.lock();
            if (--busy_ == 0) idle_.notify_all();
        }
    }

    std::mutex in_use_;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::condition_variable idle_;
    std::vector<std::thread> workers_;
    Job* job_ = nullptr;
    std::size_t invited_ = 0;
    std::size_t busy_ = 0;
};

// Never destroyed: workers sleep in it until the process ends. A forked child inherits the
// memory but none of the threads, so it starts over with a pool of its own.
std::atomic<Pool*> current_pool{nullptr};

Pool& pool() {
    static std::once_flag fork_handler;
#if defined(RIEMEM_HAVE_FORK)
    std::call_once(fork_handler,
                   [] { pthread_atfork(nullptr, nullptr, [] { current_pool.store(nullptr); }); });
#endif
    Pool* existing = current_pool.load();
    if (existing == nullptr) {
        Pool* fresh = new Pool;
        if (current_pool.compare_exchange_strong(existing, fresh)) {
            existing = fresh;
        } else {
            delete fresh;  // another thread was first
        }
    }
    return *existing;
}

}  // namespace

std::size_t num_threads() {
    std::size_t n = configured_threads.load(std::memory_order_relaxed);
    if (n == 0) {
        n = initial_threads();
        configured_threads.store(n, std::memory_order_relaxed);
    }
    return n;
}

void set_num_threads(std::size_t n) {
    if (n < 1 || n > kMostThreads) {
        throw InvalidArgument("n: expected a number of threads from 1 to 1024, got " +
                              std::to_string(n));
    }
    configured_threads.store(n, std::memory_order_relaxed);
}

void parallel_for(std::size_t count, std::size_t max_threads,
                  const std::function<void(std::size_t)>& task) {
    Job job;
    job.task = &task;
    job.count = count;
    const std::size_t threads = std::min({count, max_threads, num_threads()});
    if (threads <= 1 || !pool().try_run(job, threads - 1)) job.work();
    if (job.failure) std::rethrow_exception(job.failure);
}

}  // namespace riemem
