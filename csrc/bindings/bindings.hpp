// What the binding files share. pybind11 appears in this folder and nowhere else.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <string>

#include "core/error.hpp"
#include "core/matrix_view.hpp"

namespace riemem {

namespace py = pybind11;

void bind_core(py::module_& module);
void bind_fetch(py::module_& module);
void bind_fisher_rao(py::module_& module);
void bind_fused_topk(py::module_& module);
void bind_langevin(py::module_& module);
void bind_max_member(py::module_& module);
void bind_max_sim(py::module_& module);
void bind_quantize(py::module_& module);
void bind_scatter(py::module_& module);
void bind_svd_update(py::module_& module);
void bind_token_select(py::module_& module);

template <typename T>
using Array = py::array_t<T, py::array::c_style>;

// Rows of float32 with unit inner stride and any non-negative, element-aligned row stride.
inline MatrixView<const float> float_rows(const py::array_t<float>& array, const char* name) {
    const auto item = static_cast<py::ssize_t>(sizeof(float));
    if (array.ndim() != 2) throw InvalidArgument(std::string(name) + ": expected a 2-d array");
    const py::ssize_t rows = array.shape(0);
    const py::ssize_t cols = array.shape(1);
    if (cols > 1 && array.strides(1) != item) {
        throw InvalidArgument(std::string(name) + ": expected unit inner stride");
    }
    const py::ssize_t stride = rows > 1 ? array.strides(0) : cols * item;
    if (stride % item != 0 || reinterpret_cast<std::uintptr_t>(array.data()) % sizeof(float) != 0) {
        throw InvalidArgument(std::string(name) + ": expected aligned float32 elements");
    }
    return {array.data(), static_cast<std::size_t>(rows), static_cast<std::size_t>(cols),
            stride / item};
}

template <typename T>
const T* vector_of(const Array<T>& array, std::size_t size, const char* name) {
    if (array.ndim() != 1 || static_cast<std::size_t>(array.shape(0)) != size) {
        throw InvalidArgument(std::string(name) + ": expected shape (" + std::to_string(size) +
                              ",)");
    }
    return array.data();
}

template <typename T>
const T* matrix_of(const Array<T>& array, std::size_t rows, std::size_t cols, const char* name) {
    if (array.ndim() != 2 || static_cast<std::size_t>(array.shape(0)) != rows ||
        static_cast<std::size_t>(array.shape(1)) != cols) {
        throw InvalidArgument(std::string(name) + ": expected shape (" + std::to_string(rows) +
                              ", " + std::to_string(cols) + ")");
    }
    return array.data();
}

}  // namespace riemem
