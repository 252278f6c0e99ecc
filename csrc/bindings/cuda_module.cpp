// riemem._cuda: apart from riemem._core, so that a machine without a driver can still import it.
#include "bindings/cuda_bindings.hpp"
#include "kernels/quantize/quantize.hpp"

#if !defined(RIEMEM_CUDA_MODULE)
#define RIEMEM_CUDA_MODULE _cuda
#endif

namespace riemem {
namespace {

py::object error_type(const char* name) { return py::module_::import("riemem.errors").attr(name); }

std::string version_of(int number) {
    return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// Empty when kernels can run here, else why they cannot. Never throws: a machine without a GPU is
// a usual one.
std::string why_unavailable() {
    int count = 0;
    const int code = static_cast<int>(cudaGetDeviceCount(&count));
    if (code == 0) return count > 0 ? "" : "no CUDA device was found";
    cudaGetLastError();  // or the next call would return it
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0) return "no NVIDIA driver was found";
    if (code == cudaErrorInsufficientDriver) {
        return "the NVIDIA driver is older than this build: it supports CUDA " +
               version_of(driver) + ", the kernels need " + version_of(runtime);
    }
    if (code == cudaErrorNoDevice) return "no CUDA device was found";
    return std::string(cudaGetErrorName(static_cast<cudaError_t>(code))) + " (" +
           std::to_string(code) + ")";
}

py::tuple memory_info() {
    std::size_t free = 0;
    std::size_t total = 0;
    check(static_cast<int>(cudaMemGetInfo(&free, &total)), "memory_info");
    return py::make_tuple(free, total);
}

// The fixed map of int8 rows, as the kernels take it: (2, d) signs and (d,) places.
py::tuple rotation(std::size_t d) {
    const Rotation map(d);
    const auto size = static_cast<py::ssize_t>(d);
    py::array_t<std::int8_t> signs({py::ssize_t{2}, size});
    py::array_t<std::int32_t> order(size);
    for (std::size_t t = 0; t < d; ++t) {
        signs.mutable_data()[t] = map.first_signs()[t] > 0.0 ? 1 : -1;
        signs.mutable_data()[d + t] = map.second_signs()[t] > 0.0 ? 1 : -1;
        order.mutable_data()[t] = static_cast<std::int32_t>(map.order()[t]);
    }
    return py::make_tuple(signs, order);
}

void synchronize(std::uintptr_t stream) {
    const py::gil_scoped_release release;
    check(static_cast<int>(cudaStreamSynchronize(stream_of(stream))), "synchronize");
}

int current_device() {
    int device = 0;
    check(static_cast<int>(cudaGetDevice(&device)), "current_device");
    return device;
}

void set_device(int device) { check(static_cast<int>(cudaSetDevice(device)), "set_device"); }

}  // namespace
}  // namespace riemem

PYBIND11_MODULE(RIEMEM_CUDA_MODULE, module) {
    using namespace riemem;
    module.doc() = "CUDA kernels of riemem; use the functions of the package instead.";
    py::register_local_exception_translator([](std::exception_ptr pointer) {
        try {
            if (pointer) std::rethrow_exception(pointer);
        } catch (const CudaFailure& error) {
            const py::object value = error_type("CudaError")(
                error.what(), py::arg("code") = error.code, py::arg("name") = error.name);
            PyErr_SetObject(error_type("CudaError").ptr(), value.ptr());
        } catch (const InvalidArgument& error) {
            PyErr_SetString(error_type("ArgumentError").ptr(), error.what());
        }
    });
    py::class_<Span>(module, "Span", py::module_local())
        .def(py::init([](std::uintptr_t pointer, std::size_t bytes) {
                 return Span{pointer, bytes};
             }),
             py::arg("pointer"), py::arg("bytes"));
    module.attr("toolkit") = RIEMEM_CUDA_TOOLKIT;
    module.attr("architectures") = RIEMEM_CUDA_BUILT_FOR;
    module.def("why_unavailable", &why_unavailable);
    module.def("memory_info", &memory_info);
    module.def("current_device", &current_device);
    module.def("rotation", &rotation, py::arg("d"));
    module.def("synchronize", &synchronize, py::arg("stream"));
    module.def("set_device", &set_device, py::arg("device"));
    bind_cuda_fused_topk(module);
    bind_cuda_others(module);
#if !defined(RIEMEM_CUDA_HOST)
    // What tests on the shim turn: failures of the runtime, the order of threads.
    module.def("shim_fail_device", &simt::fail_device_calls, py::arg("code"),
               py::arg("driver") = 13000);
    module.def("shim_fail_launch", &simt::fail_launch_after, py::arg("launches"), py::arg("code"));
    module.def(
        "shim_defer",
        [](bool deferred) {
            simt::set_options({simt::Order::shuffled, 3, deferred, {}, 0});
        },
        py::arg("deferred"));
    module.def("shim_take_fault", &simt::take_fault);
    module.def("shim_take_launches", &simt::take_launches);
#endif
}
