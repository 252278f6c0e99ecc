// A matrix somebody else owns: pointer, sizes, distance between rows in elements.
#pragma once

#include <cstddef>

namespace riemem {

// Which elements of a square matrix may differ from zero: the diagonal and those on one side of
// it, or all.
enum class Nonzero { all, upper, lower };

template <typename T>
struct MatrixView {
    T* data = nullptr;
    std::size_t rows = 0;
    std::size_t cols = 0;
    std::ptrdiff_t row_stride = 0;

    T* row(std::size_t i) const { return data + static_cast<std::ptrdiff_t>(i) * row_stride; }
};

}  // namespace riemem
