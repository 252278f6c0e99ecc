// Late interaction on binary rows: how well each row of a question is met by the best row of each
// text.
//
//   out_bi = max over the rows r of text i of  sum_j question_bj (2 r_j - 1)      r_j a bit
//
// Whole numbers, so the same on every instruction set and in every order of the rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"

namespace riemem {

// No sum of so many int8 comes near the ends of int32.
constexpr std::size_t kMaxSimMostDims = 16384;

struct MaxSimQuestion {
    const std::int8_t* rows = nullptr;  // (count, d)
    std::size_t count = 0;
    std::size_t d = 0;  // a multiple of 8, 8 to kMaxSimMostDims
};

// The rows of all texts, one after the other: d / 8 bytes each, bit j in byte j / 8 at 1 << j % 8.
struct MaxSimTexts {
    const std::uint8_t* rows = nullptr;
    const std::int64_t* counts = nullptr;  // (count,) rows of each text, not negative
    std::size_t count = 0;
};

// out is (question.count, texts.count); the least int32 for a text without rows. One thread.
void max_sim(const MaxSimQuestion& question, const MaxSimTexts& texts, Isa isa, std::int32_t* out);

}  // namespace riemem
