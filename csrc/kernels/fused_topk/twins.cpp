#include "kernels/fused_topk/twins.hpp"

#include <cstring>

namespace riemem {
namespace {

std::uint64_t hash_of(const float* row, std::size_t d) {  // FNV-1a over 32-bit words, mixed
    std::uint64_t hash = 0xcbf29ce484222325ull;
    for (std::size_t t = 0; t < d; ++t) {
        std::uint32_t bits;
        std::memcpy(&bits, row + t, sizeof(bits));
        hash = (hash ^ bits) * 0x100000001b3ull;
        hash ^= hash >> 29;
    }
    return hash;
}

}  // namespace

void Twins::add(std::int32_t i, const float* row, std::size_t d,
                const std::function<const float*(std::int32_t)>& row_at, std::int32_t* twin) {
    const std::uint64_t hash = hash_of(row, d);
    twin[i] = -1;
    const auto [begin, end] = lowest_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
        const std::int32_t other = entry->second;
        if (std::memcmp(row_at(other), row, d * sizeof(float)) == 0) {
            twin[i] = twin[other] = other;
            return;
        }
    }
    lowest_.emplace(hash, i);
}

}  // namespace riemem
