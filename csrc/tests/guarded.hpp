// Memory that ends exactly at an unreadable page, so that one float too many is a crash.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>

namespace riemem::test {

template <typename T>
class Guarded {
 public:
    explicit Guarded(std::size_t count) : count_(count) {
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        const std::size_t bytes = count * sizeof(T);
        usable_ = (bytes + page - 1) / page * page;
        base_ = mmap(nullptr, usable_ + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        if (base_ == MAP_FAILED) std::abort();
        mprotect(static_cast<char*>(base_) + usable_, page, PROT_NONE);
        total_ = usable_ + page;
        data_ = reinterpret_cast<T*>(static_cast<char*>(base_) + usable_ - bytes);
    }
    ~Guarded() { munmap(base_, total_); }
    Guarded(const Guarded&) = delete;
    Guarded& operator=(const Guarded&) = delete;

    T* data() { return data_; }
    const T* data() const { return data_; }
    T& operator[](std::size_t i) { return data_[i]; }
    const T& operator[](std::size_t i) const { return data_[i]; }
    std::size_t size() const { return count_; }

 private:
    std::size_t count_, usable_ = 0, total_ = 0;
    void* base_ = nullptr;
    T* data_ = nullptr;
};

}  // namespace riemem::test
