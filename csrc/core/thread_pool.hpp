// The library's own worker threads: started at first use, asleep when idle, never at import.
#pragma once

#include <cstddef>
#include <functional>

namespace riemem {

// Number of threads a call may use: set_num_threads, else RIEMEM_NUM_THREADS, else the
// processors this process may run on.
std::size_t num_threads();

// Throws InvalidArgument when n is 0.
void set_num_threads(std::size_t n);

// Calls task(i) for every i in [0, count), spread over at most max_threads threads, the caller's
// among them. Returns when all are done; the first exception is thrown again here. A call made
// while another one runs does its tasks on the calling thread alone. Safe after fork().
void parallel_for(std::size_t count, std::size_t max_threads,
                  const std::function<void(std::size_t)>& task);

}  // namespace riemem
