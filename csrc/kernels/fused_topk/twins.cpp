#include "kernels/fused_topk/twins.hpp"

#include <cstring>

namespace riemem {
namespace {

// FNV-1a over 64-bit words in eight chains, mixed: one chain would wait for its own products.
std::uint64_t hash_of(const float* row, std::size_t d) {
    constexpr std::uint64_t kPrime = 0x100000001b3ull;
    constexpr std::size_t kChains = 8;
    std::uint64_t chain[kChains] = {
        0xcbf29ce484222325ull, 0x9e3779b97f4a7c15ull, 0xbf58476d1ce4e5b9ull, 0x94d049bb133111ebull,
        0xd6e8feb86659fd93ull, 0xa0761d6478bd642full, 0xe7037ed1a0b428dbull, 0x8ebc6af09c88c6e3ull};
    std::uint64_t bits[kChains] = {};
    const auto take = [&] {
        for (std::size_t j = 0; j < kChains; ++j) {
            chain[j] = (chain[j] ^ bits[j]) * kPrime;
            chain[j] ^= chain[j] >> 29;
        }
    };
    std::size_t t = 0;
    for (; t + 2 * kChains <= d; t += 2 * kChains) {  // of a size that the compiler knows
        std::memcpy(bits, row + t, sizeof(bits));
        take();
    }
    if (t < d) {
        std::memset(bits, 0, sizeof(bits));
        std::memcpy(bits, row + t, (d - t) * sizeof(float));
        take();
    }
    std::uint64_t hash = chain[0];
    for (std::size_t j = 1; j < kChains; ++j) {
        hash = (hash ^ chain[j]) * kPrime;
        hash ^= hash >> 29;
    }
    return hash;
}

}  // namespace

void Twins::reserve(std::size_t rows) {
    std::size_t size = 64;
    while (size < 2 * rows) size *= 2;
    if (size > slots_.size()) grow(size);
}

void Twins::grow(std::size_t size) {
    std::vector<Slot> larger(size, Slot{0, -1});
    const std::size_t mask = larger.size() - 1;
    for (const Slot& slot : slots_) {
        if (slot.row < 0) continue;
        std::size_t at = slot.hash & mask;
        while (larger[at].row >= 0) at = (at + 1) & mask;
        larger[at] = slot;
    }
    slots_.swap(larger);
}

void Twins::add(std::int32_t i, const float* row, std::size_t d,
                const std::function<const float*(std::int32_t)>& row_at, std::int32_t* twin) {
    if (2 * (taken_ + 1) > slots_.size()) reserve(taken_ + 1);
    const std::uint64_t hash = hash_of(row, d);
    const std::size_t mask = slots_.size() - 1;
    twin[i] = -1;
    std::size_t at = hash & mask;
    for (; slots_[at].row >= 0; at = (at + 1) & mask) {
        const std::int32_t other = slots_[at].row;
        if (slots_[at].hash == hash && std::memcmp(row_at(other), row, d * sizeof(float)) == 0) {
            twin[i] = twin[other] = other;
            return;
        }
    }
    slots_[at] = {hash, i};
    ++taken_;
}

}  // namespace riemem
