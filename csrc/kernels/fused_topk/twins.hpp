// Finds rows that are equal bit for bit, so that a search evaluates each distinct row once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace riemem {

class Twins {
 public:
    // Make room for so many distinct rows in all.
    void reserve(std::size_t rows);

    // Row i is about to become known. row_at(j) gives any earlier row. twin[i] becomes the lowest
    // equal row, whose own entry then names itself, or -1.
    void add(std::int32_t i, const float* row, std::size_t d,
             const std::function<const float*(std::int32_t)>& row_at, std::int32_t* twin);

 private:
    struct Slot {
        std::uint64_t hash;
        std::int32_t row;  // -1: empty
    };
    void grow(std::size_t size);

    // Distinct rows by the hash of their bits, each the lowest of its equals: open addressing, a
    // power of two of slots, at most half of them taken.
    std::vector<Slot> slots_;
    std::size_t taken_ = 0;
};

}  // namespace riemem
