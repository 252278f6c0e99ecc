#include "simd/vec.hpp"

namespace riemem {
namespace {

constexpr std::size_t kStep = 16;
using Acc = int16x8_t;
using Bits = uint8x16_t;
struct Sums {
    int32x4_t low, high;
};

RIEMEM_INLINE Sums plus(const Sums& a, const Sums& b) {
    return {vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)};
}
RIEMEM_INLINE Sums larger(const Sums& a, const Sums& b) {
    return {vmaxq_s32(a.low, b.low), vmaxq_s32(a.high, b.high)};
}

RIEMEM_INLINE Acc zero() { return vdupq_n_s16(0); }

RIEMEM_INLINE void arrange(const std::int8_t* from, std::int8_t* to) {
    std::memcpy(to, from, kStep);
}

// All bits of a byte, not its lowest, so that the numbers pass through an "and".
RIEMEM_INLINE Bits expand(const std::uint8_t* bytes) {
    const uint8x8_t bit = {1, 2, 4, 8, 16, 32, 64, 128};
    return vtstq_u8(vcombine_u8(vdup_n_u8(bytes[0]), vdup_n_u8(bytes[1])), vcombine_u8(bit, bit));
}

RIEMEM_INLINE Acc add(Acc acc, Bits bits, const std::int8_t* q) {
    return vpadalq_s8(acc, vandq_s8(vreinterpretq_s8_u8(bits), vld1q_s8(q)));
}

// A step adds at most 2 * 128 to an int16: after 64 steps no sum of two of them leaves it.
constexpr std::size_t kMost = 64;

RIEMEM_INLINE int32x4_t combine4(const Acc* acc) {
    const int32x4_t low = vpaddlq_s16(vpaddq_s16(acc[0], acc[1]));
    const int32x4_t high = vpaddlq_s16(vpaddq_s16(acc[2], acc[3]));
    return vpaddq_s32(low, high);
}
RIEMEM_INLINE Sums combine(const Acc* acc) { return {combine4(acc), combine4(acc + 4)}; }

}  // namespace
}  // namespace riemem

#include "kernels/max_sim/max_sim_vec.inl.hpp"

namespace riemem {

const MaxSimKernels& max_sim_kernels_neon() { return kKernels; }

}  // namespace riemem
