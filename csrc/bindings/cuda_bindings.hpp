// What the files of riemem._cuda share: memory on the device as Python describes it, and errors.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "core/error.hpp"
#include "cuda/simt.hpp"

namespace riemem {

namespace py = pybind11;

void bind_cuda_fused_topk(py::module_& module);
void bind_cuda_others(py::module_& module);

class CudaFailure : public std::runtime_error {
 public:
    CudaFailure(cuda::Status code_, const std::string& what)
        : std::runtime_error(what + ": " + cudaGetErrorName(static_cast<cudaError_t>(code_)) +
                             " (" + std::to_string(code_) + "), " +
                             cudaGetErrorString(static_cast<cudaError_t>(code_))),
          code(code_),
          name(cudaGetErrorName(static_cast<cudaError_t>(code_))) {}

    int code;
    std::string name;
};

inline void check(cuda::Status status, const char* what) {
    if (status != 0) throw CudaFailure(status, what);
}

// Somebody's memory on the device: its beginning and how many bytes of it may be used.
struct Span {
    std::uintptr_t pointer = 0;
    std::size_t bytes = 0;
};
using MaybeSpan = std::optional<Span>;

template <typename T>
T* at(const Span& span, std::size_t count, const char* name) {
    if (span.bytes / sizeof(T) < count || (count > 0 && span.pointer == 0)) {
        throw InvalidArgument(std::string(name) + ": expected at least " + std::to_string(count) +
                              " elements of " + std::to_string(sizeof(T)) + " bytes");
    }
    if (span.pointer % alignof(T) != 0) {
        throw InvalidArgument(std::string(name) + ": expected aligned memory");
    }
    return reinterpret_cast<T*>(span.pointer);
}

template <typename T>
T* at(const MaybeSpan& span, std::size_t count, const char* name) {
    return span ? at<T>(*span, count, name) : nullptr;
}

// Elements of rows whose beginnings are `stride` apart.
inline std::size_t reach_of(std::size_t rows, std::size_t dim, std::size_t stride) {
    if (rows > 1 && stride < dim) throw InvalidArgument("stride: expected at least a row");
    return rows == 0 ? 0 : (rows - 1) * stride + dim;
}

// Calls work with a pointer to a caller's rows, whose elements are what Python says: 0 float32, 1
// bfloat16, 2 float64. `reach` elements must be there.
template <typename Work>
cuda::Status with_rows(int kind, const Span& rows, std::size_t reach, const Work& work) {
    if (kind == 0) return work(static_cast<const float*>(at<float>(rows, reach, "rows")));
    if (kind == 2) return work(static_cast<const double*>(at<double>(rows, reach, "rows")));
    if (kind != 1) throw InvalidArgument("kind: expected 0, 1 or 2");
    return work(static_cast<const cuda::Bfloat16*>(at<cuda::Bfloat16>(rows, reach, "rows")));
}

// The same for kernels that take no float64.
template <typename Work>
cuda::Status with_narrow_rows(int kind, const Span& rows, std::size_t reach, const Work& work) {
    if (kind == 0) return work(static_cast<const float*>(at<float>(rows, reach, "rows")));
    if (kind != 1) throw InvalidArgument("kind: expected 0 or 1");
    return work(static_cast<const cuda::Bfloat16*>(at<cuda::Bfloat16>(rows, reach, "rows")));
}

inline cudaStream_t stream_of(std::uintptr_t stream) {
    return reinterpret_cast<cudaStream_t>(stream);
}

}  // namespace riemem
