// What each instruction set provides.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"

namespace riemem {

constexpr std::size_t kMaxSimTogether = 8;  // rows of the question that share one reading of a row

struct MaxSimKernels {
    std::size_t step;  // dimensions worked on at once; a panel is padded to a whole number of them

    // `count` <= kMaxSimTogether rows of d numbers in the kernel's own order: count * padded bytes.
    void (*pack)(const std::int8_t* rows, std::size_t count, std::size_t d, std::int8_t* panel);

    // best (kMaxSimTogether,): over `rows` > 0 binary rows, the largest sum of a packed row's
    // numbers where the bits are 1. Only the first `count` mean something.
    void (*best)(const std::int8_t* panel, std::size_t count, const std::uint8_t* bits,
                 std::size_t rows, std::size_t d, std::int32_t* best);
};

const MaxSimKernels& max_sim_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
const MaxSimKernels& max_sim_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
const MaxSimKernels& max_sim_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_AVX512_VNNI)
const MaxSimKernels& max_sim_kernels_avx512_vnni();
#endif
#if defined(RIEMEM_HAVE_NEON)
const MaxSimKernels& max_sim_kernels_neon();
#endif

const MaxSimKernels& max_sim_kernels(Isa isa);

}  // namespace riemem
