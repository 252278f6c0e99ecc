// Finds rows that are equal bit for bit, so that a search evaluates each distinct row once.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>

namespace riemem {

class Twins {
 public:
    // Row i is about to become known. row_at(j) gives any earlier row. twin[i] becomes the lowest
    // equal row, whose own entry then names itself, or -1.
    void add(std::int32_t i, const float* row, std::size_t d,
             const std::function<const float*(std::int32_t)>& row_at, std::int32_t* twin);

 private:
    std::unordered_multimap<std::uint64_t, std::int32_t> lowest_;  // hash of the bits -> lowest row
};

}  // namespace riemem
