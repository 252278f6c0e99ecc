#include "cuda/shim/simt_shim.hpp"

#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the registers that a call must keep and changes the stack. swapcontext does the same, and
// asks the system for the signal mask each time: two thirds of a run.
extern "C" void riemem_simt_switch(void** save, void* load);
__asm__(
    ".text\n"
    ".globl riemem_simt_switch\n"
    ".hidden riemem_simt_switch\n"
    ".type riemem_simt_switch, @function\n"
    "riemem_simt_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size riemem_simt_switch, .-riemem_simt_switch\n");
#endif

namespace simt {

thread_local Thread* running = nullptr;

namespace {

constexpr std::size_t kStack = 256 * 1024;
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kMostShared = 48 * 1024;  // what every device gives a block

Options options;
std::string first_fault;
std::size_t launches = 0;
cudaError_t last_error = cudaSuccess;
cudaError_t device_failure = cudaSuccess;
int driver_version = 13000;
cudaError_t launch_failure = cudaSuccess;
int launches_until_failure = -1;
std::deque<std::pair<Stream*, std::function<void()>>> waiting;
std::set<std::pair<std::string, int>> barriers;

template <typename... Args>
const char* say(const char* format, Args... args) {
    static char text[256];
    std::snprintf(text, sizeof(text), format, args...);
    return text;
}

enum class State { ready, block_barrier, warp_wait, done };

// A stack and the place where it stopped.
class Context {
 public:
    void begin(void* stack, void (*entry)()) {
        stack_ = stack;
#if defined(__x86_64__)
        auto** top = reinterpret_cast<void**>(static_cast<char*>(stack) + kStack);
        *--top = nullptr;  // where entry would return to
        *--top = reinterpret_cast<void*>(entry);
        for (int i = 0; i < 6; ++i) *--top = nullptr;
        at_ = top;
#else
        getcontext(&at_);
        at_.uc_stack.ss_sp = stack;
        at_.uc_stack.ss_size = kStack;
        at_.uc_link = nullptr;
        makecontext(&at_, entry, 0);
#endif
    }
    void switch_to(Context& other) {
#if defined(__x86_64__)
        riemem_simt_switch(&at_, other.at_);
#else
        swapcontext(&at_, &other.at_);
#endif
    }
    void* stack() const { return stack_; }

 private:
    void* stack_ = nullptr;
#if defined(__x86_64__)
    void* at_ = nullptr;
#else
    ucontext_t at_;
#endif
};

struct Fiber {
    Context context;
    Thread thread;
    State state = State::ready;
    int line = 0;
    void* fake_stack = nullptr;
};

// What the lanes of one warp give each other.
struct Meeting {
    unsigned mask = 0, arrived = 0;
    int line = 0;
    std::uint64_t given[kWarp];
    std::uint64_t result[kWarp];
};

struct SharedStore {
    Cells cells;
    std::unique_ptr<unsigned char[]> bytes;
    std::unique_ptr<Cell[]> states;
};

class Stacks {
 public:
    ~Stacks() {
        for (void* stack : stacks_) munmap(stack, kStack);
    }
    void* get(std::size_t i) {
        while (stacks_.size() <= i) {
            void* at = mmap(nullptr, kStack, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED) throw std::bad_alloc();
            stacks_.push_back(at);
        }
#if defined(__SANITIZE_ADDRESS__)
        __asan_unpoison_memory_region(stacks_[i], kStack);
#endif
        return stacks_[i];
    }

 private:
    std::vector<void*> stacks_;
};
Stacks stacks;

class Block {
 public:
    Block(const char* name, dim3 grid, dim3 block, dim3 index, const std::function<void()>& kernel,
          std::mt19937& random)
        : name_(name), kernel_(kernel), random_(random) {
        const unsigned count = block.x * block.y * block.z;
        meetings_.resize((count + kWarp - 1) / kWarp);
        fibers_.resize(count);
        for (unsigned id = 0; id < count; ++id) {
            Fiber* fiber = &fibers_[id];
            fiber->thread.thread =
                dim3(id % block.x, id / block.x % block.y, id / (block.x * block.y));
            fiber->thread.block = index;
            fiber->thread.block_dim = block;
            fiber->thread.grid_dim = grid;
            fiber->thread.id = id;
            fiber->context.begin(stacks.get(id), &Block::enter);
            order_.push_back(id);
        }
    }

    static Block* current;

    // Empty, or what went wrong.
    std::string run() {
        current = this;
        if (options.order == Order::reverse) std::reverse(order_.begin(), order_.end());
        for (;;) {
            if (options.order == Order::shuffled) {
                std::shuffle(order_.begin(), order_.end(), random_);
            }
            bool ran = false;
            for (unsigned id : order_) {
                if (fibers_[id].state != State::ready) continue;
                ran = true;
                resume(fibers_[id]);
                if (!fault_.empty()) return describe();
            }
            if (!ran) break;
        }
        const auto left = std::find_if(fibers_.begin(), fibers_.end(), [](const Fiber& fiber) {
            return fiber.state != State::done;
        });
        if (left == fibers_.end()) return {};
        fault_ = "threads wait at line " + std::to_string(left->line) +
                 " for threads that have returned or wait elsewhere";
        running = &left->thread;
        return describe();
    }

    // The fiber is never resumed, so nothing on its stack may own memory.
    [[noreturn]] void fail(const char* what) {
        fault_ = what;
        leave(false);
        __builtin_unreachable();
    }

    void barrier(int line, const char* file) {
        Fiber& self = fibers_[running->id];
        self.line = line;
        self.state = State::block_barrier;
        if (++at_barrier_ == fibers_.size()) {
            for (const Fiber& fiber : fibers_) {
                if (fiber.line != line) {
                    fail(say("__syncthreads at line %d meets one at line %d", line, fiber.line));
                }
            }
            at_barrier_ = 0;
            barriers.emplace(file, line);
            for (Fiber& fiber : fibers_) {
                fiber.state = State::ready;
                ++fiber.thread.block_epoch;
            }
        }
        leave(false);
    }

    const std::uint64_t* exchange(unsigned mask, std::uint64_t value, int line, const char* what) {
        Fiber& self = fibers_[running->id];
        const unsigned lane = running->lane();
        Meeting& meeting = meetings_[running->warp()];
        if ((mask >> lane & 1u) == 0) fail(say("%s by a lane outside its mask", what));
        if (meeting.arrived == 0) {
            meeting.mask = mask;
            meeting.line = line;
        } else if (meeting.mask != mask || meeting.line != line) {
            fail(say("lanes of one warp meet at lines %d and %d", meeting.line, line));
        }
        meeting.given[lane] = value;
        meeting.arrived |= 1u << lane;
        self.line = line;
        self.state = State::warp_wait;
        if (meeting.arrived == meeting.mask) {
            std::copy_n(meeting.given, kWarp, meeting.result);
            const unsigned first = running->warp() * kWarp;
            for (unsigned j = 0; j < kWarp; ++j) {
                if ((meeting.mask >> j & 1u) == 0) continue;
                if (first + j >= fibers_.size()) fail("a mask names lanes that do not exist");
                fibers_[first + j].state = State::ready;
            }
            meeting.arrived = 0;
        }
        leave(false);
        return meeting.result;
    }

    Cells& shared(const char* name, std::size_t count, std::size_t size) {
        SharedStore& store = shared_[name];
        if (store.bytes == nullptr) {
            shared_bytes_ += count * size;
            if (shared_bytes_ > kMostShared) fail("more than 48 KiB of shared memory");
            store.bytes = std::make_unique<unsigned char[]>(count * size);
            std::fill_n(store.bytes.get(), count * size, static_cast<unsigned char>(0xff));
            store.states = std::make_unique<Cell[]>(count);
            store.cells = {name, store.bytes.get(), store.states.get(), count};
        }
        return store.cells;
    }

 private:
    static void enter() {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, &current->outer_stack_, &current->outer_size_);
#endif
        current->kernel_();
        current->fibers_[running->id].state = State::done;
        current->leave(true);
    }

    void resume(Fiber& fiber) {
        running = &fiber.thread;
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(&outer_fake_, fiber.context.stack(), kStack);
#endif
        outer_.switch_to(fiber.context);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(outer_fake_, nullptr, nullptr);
#endif
    }

    void leave(bool for_good) {
        Fiber& fiber = fibers_[running->id];
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(for_good ? nullptr : &fiber.fake_stack, outer_stack_,
                                       outer_size_);
#else
        (void)for_good;
#endif
        fiber.context.switch_to(outer_);
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(fiber.fake_stack, &outer_stack_, &outer_size_);
#endif
    }

    std::string describe() const {
        const Thread& at = *running;
        return std::string(name_) + ", block (" + std::to_string(at.block.x) + ", " +
               std::to_string(at.block.y) + "), thread " + std::to_string(at.id) + ": " + fault_;
    }

    const char* name_;
    const std::function<void()>& kernel_;
    std::mt19937& random_;
    std::vector<Fiber> fibers_;
    std::vector<unsigned> order_;
    std::vector<Meeting> meetings_;
    std::map<std::string, SharedStore> shared_;
    std::size_t shared_bytes_ = 0;
    std::size_t at_barrier_ = 0;
    std::string fault_;
    Context outer_;
    // Used by the address sanitizer's build alone.
    [[maybe_unused]] void* outer_fake_ = nullptr;
    [[maybe_unused]] const void* outer_stack_ = nullptr;
    [[maybe_unused]] std::size_t outer_size_ = 0;
};

Block* Block::current = nullptr;

void note_fault(const std::string& what) {
    if (first_fault.empty()) first_fault = what;
    last_error = cudaErrorLaunchFailure;
}

void run_grid(const char* name, dim3 grid, dim3 block, const std::function<void()>& kernel) {
    std::vector<dim3> indices;
    for (unsigned z = 0; z < grid.z; ++z) {
        for (unsigned y = 0; y < grid.y; ++y) {
            for (unsigned x = 0; x < grid.x; ++x) indices.push_back({x, y, z});
        }
    }
    std::mt19937 random(options.seed);
    if (options.order == Order::reverse) std::reverse(indices.begin(), indices.end());
    if (options.order == Order::shuffled) std::shuffle(indices.begin(), indices.end(), random);
    for (dim3 index : indices) {
        Block one(name, grid, block, index, kernel, random);
        const std::string found = one.run();
        running = nullptr;
        if (!found.empty()) return note_fault(found);
    }
}

}  // namespace

void set_options(const Options& given) { options = given; }
std::string take_fault() {
    last_error = cudaSuccess;
    return std::exchange(first_fault, {});
}
std::set<std::pair<std::string, int>> take_barriers() { return std::exchange(barriers, {}); }
void drop_waiting() { waiting.clear(); }
std::size_t take_launches() { return std::exchange(launches, 0); }
void fail_device_calls(cudaError_t code, int driver) {
    device_failure = code;
    driver_version = driver;
}
void fail_launch_after(int count, cudaError_t code) {
    launches_until_failure = count;
    launch_failure = code;
}

void fault(const char* what) { Block::current->fail(what); }
void block_barrier(int line, const char* file) {
    if (line == options.skip_line && options.skip_file == file) return;
    Block::current->barrier(line, file);
}
const std::uint64_t* warp_exchange(unsigned mask, std::uint64_t value, int line, const char* what) {
    return Block::current->exchange(mask, value, line, what);
}
void warp_barrier(unsigned mask, int line) {
    warp_exchange(mask, 0, line, "__syncwarp");
    ++running->warp_epoch;
}

Cells& shared_cells_raw(const char* name, std::size_t count, std::size_t size) {
    return Block::current->shared(name, count, size);
}

void check_read(Cells& cells, std::size_t index, bool atomic) {
    if (index >= cells.count) fault(say("read past the end: %s[%zu]", cells.name, index));
    Cell& cell = cells.cells[index];
    if (!cell.written) fault(say("read before anything was written: %s[%zu]", cells.name, index));
    if (!(atomic && cell.atomic) && !cell.write.ordered_before(*running)) {
        fault(say("read of what another thread wrote, no barrier between: %s[%zu]", cells.name,
                  index));
    }
    if (!atomic) cell.read.add(*running);
}

void check_write(Cells& cells, std::size_t index, bool atomic) {
    if (index >= cells.count) fault(say("write past the end: %s[%zu]", cells.name, index));
    Cell& cell = cells.cells[index];
    if (!(atomic && cell.atomic) && !cell.write.ordered_before(*running)) {
        fault(say("write over what another thread wrote, no barrier between: %s[%zu]", cells.name,
                  index));
    }
    if (!cell.read.ordered_before(*running)) {
        fault(say("write over what another thread reads, no barrier between: %s[%zu]", cells.name,
                  index));
    }
    if (atomic && cell.atomic) {
        cell.write.add(*running);
    } else {
        cell.write.set(*running);
    }
    cell.written = true;
    cell.atomic = atomic;
}

cudaError_t run(const char* name, dim3 grid, dim3 block, Stream* stream,
                std::function<void()> kernel) {
    ++launches;
    const std::size_t threads = std::size_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > kMostThreads || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535u || grid.z > 65535u) {
        note_fault(std::string(name) + ": a launch that no device takes");
        return last_error;
    }
    if (launches_until_failure >= 0 && launches_until_failure-- == 0) return launch_failure;
    if (options.deferred) {
        waiting.emplace_back(stream, [name, grid, block, kernel = std::move(kernel)] {
            run_grid(name, grid, block, kernel);
        });
        return cudaSuccess;
    }
    run_grid(name, grid, block, kernel);
    return last_error;
}

}  // namespace simt

cudaError_t cudaGetLastError() { return std::exchange(simt::last_error, cudaSuccess); }

const char* cudaGetErrorName(cudaError_t code) {
    switch (code) {
        case cudaSuccess:
            return "cudaSuccess";
        case cudaErrorInvalidValue:
            return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation:
            return "cudaErrorMemoryAllocation";
        case cudaErrorInsufficientDriver:
            return "cudaErrorInsufficientDriver";
        case cudaErrorNoDevice:
            return "cudaErrorNoDevice";
        case cudaErrorLaunchFailure:
            return "cudaErrorLaunchFailure";
        default:
            return "cudaErrorUnknown";
    }
}

const char* cudaGetErrorString(cudaError_t code) {
    return code == cudaSuccess ? "no error" : "an error of the SIMT shim";
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    std::deque<std::pair<simt::Stream*, std::function<void()>>> others;
    while (!simt::waiting.empty()) {
        auto [owner, work] = std::move(simt::waiting.front());
        simt::waiting.pop_front();
        if (owner == stream) {
            work();
        } else {
            others.emplace_back(owner, std::move(work));
        }
    }
    simt::waiting = std::move(others);
    return simt::last_error;
}

cudaError_t cudaMemsetAsync(void* at, int value, std::size_t bytes, cudaStream_t stream) {
    if (simt::options.deferred) {
        simt::waiting.emplace_back(stream, [=] { std::memset(at, value, bytes); });
    } else {
        std::memset(at, value, bytes);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return simt::device_failure;
}
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return simt::device_failure;
}
cudaError_t cudaSetDevice(int device) {
    return device == 0 ? simt::device_failure : cudaErrorInvalidValue;
}
cudaError_t cudaDriverGetVersion(int* version) {
    *version = simt::driver_version;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = 13000;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    *free = *total = std::size_t{2} << 30;
    return simt::device_failure;
}
