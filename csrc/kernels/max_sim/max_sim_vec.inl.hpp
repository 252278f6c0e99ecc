// The kernels on the primitives of an instruction set, which max_sim_<isa>.cpp writes down first:
//
//   kStep                 dimensions in a register of bytes
//   kMost                 steps that an Acc can take, and combine() after them
//   arrange(from, to)     kStep numbers of a question's row in the order of Bits
//   Acc, Bits, Sums       sums of one question's row, kStep bits of a row, int32 per question's row
//   zero(), expand(bits)  kStep / 8 bytes as Bits
//   add(acc, bits, q)     acc + the numbers of q where a bit is 1
//   combine(acc)          the total of each Acc, as Sums
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/max_sim/max_sim_kernels.hpp"
#include "simd/vec.hpp"

namespace riemem {
namespace {

constexpr std::size_t steps_of(std::size_t d) { return (d + kStep - 1) / kStep; }

// (steps, count, kStep), so that a row is met by one stream of loads.
void pack(const std::int8_t* rows, std::size_t count, std::size_t d, std::int8_t* panel) {
    for (std::size_t b = 0; b < count; ++b) {
        const std::int8_t* row = rows + b * d;
        std::int8_t* to = panel + b * kStep;
        std::size_t j = 0;
        for (; j + kStep <= d; j += kStep, to += count * kStep) arrange(row + j, to);
        if (j == d) continue;
        std::int8_t rest[kStep] = {};
        for (std::size_t i = j; i < d; ++i) rest[i - j] = row[i];
        arrange(rest, to);
    }
}

template <std::size_t Q>
RIEMEM_INLINE void add_step(Acc* acc, Bits bits, const std::int8_t* q) {
#pragma GCC unroll 8
    for (std::size_t b = 0; b < Q; ++b) acc[b] = add(acc[b], bits, q + b * kStep);
}

template <std::size_t Q>
RIEMEM_INLINE Sums sums_of(const std::int8_t* q, const std::uint8_t* row, std::size_t d) {
    constexpr std::size_t kBytes = kStep / 8;
    const std::size_t whole = d / kStep;
    const std::size_t steps = steps_of(d);
    Sums total = {};
    for (std::size_t t = 0; t < steps;) {
        const std::size_t end = steps - t < kMost ? steps : t + kMost;
        // All eight, of which those past Q stay zero and cost nothing.
        Acc acc[kMaxSimTogether];
#pragma GCC unroll 8
        for (std::size_t b = 0; b < kMaxSimTogether; ++b) acc[b] = zero();
        for (; t < end && t < whole; ++t) {
            add_step<Q>(acc, expand(row + t * kBytes), q);
            q += Q * kStep;
        }
        if (t < end) {  // the last step lacks some of its bytes
            std::uint8_t rest[kBytes] = {};
            for (std::size_t i = t * kBytes; i < d / 8; ++i) rest[i - t * kBytes] = row[i];
            add_step<Q>(acc, expand(rest), q);
            ++t;
        }
        total = plus(total, combine(acc));
    }
    return total;
}

template <std::size_t Q>
RIEMEM_INLINE void best_of(const std::int8_t* panel, const std::uint8_t* bits, std::size_t rows,
                           std::size_t d, std::int32_t* best) {
    Sums most = sums_of<Q>(panel, bits, d);
    for (std::size_t i = 1; i < rows; ++i) {
        most = larger(most, sums_of<Q>(panel, bits + i * (d / 8), d));
    }
    std::memcpy(best, &most, kMaxSimTogether * sizeof(std::int32_t));
}

void best(const std::int8_t* panel, std::size_t count, const std::uint8_t* bits, std::size_t rows,
          std::size_t d, std::int32_t* best) {
    switch (count) {
        case 1:
            return best_of<1>(panel, bits, rows, d, best);
        case 2:
            return best_of<2>(panel, bits, rows, d, best);
        case 3:
            return best_of<3>(panel, bits, rows, d, best);
        case 4:
            return best_of<4>(panel, bits, rows, d, best);
        case 5:
            return best_of<5>(panel, bits, rows, d, best);
        case 6:
            return best_of<6>(panel, bits, rows, d, best);
        case 7:
            return best_of<7>(panel, bits, rows, d, best);
        default:
            return best_of<8>(panel, bits, rows, d, best);
    }
}

constexpr MaxSimKernels kKernels = {kStep, pack, best};

}  // namespace
}  // namespace riemem
