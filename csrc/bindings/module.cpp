#include "bindings/bindings.hpp"

namespace {

namespace py = pybind11;

// Raises the type of that name from riemem.errors.
void raise(const char* type, const char* message) {
    const py::object error = py::module_::import("riemem.errors").attr(type);
    PyErr_SetString(error.ptr(), message);
}

}  // namespace

PYBIND11_MODULE(_core, module) {
    module.doc() = "Compiled kernels of riemem; use the functions of the package instead.";
    py::register_exception_translator([](std::exception_ptr pointer) {
        try {
            if (pointer) std::rethrow_exception(pointer);
        } catch (const riemem::BackendUnavailable& error) {
            raise("BackendUnavailableError", error.what());
        } catch (const riemem::InvalidArgument& error) {
            raise("ArgumentError", error.what());
        }
    });
    riemem::bind_core(module);
    riemem::bind_fetch(module);
    riemem::bind_fisher_rao(module);
    riemem::bind_fused_topk(module);
    riemem::bind_langevin(module);
    riemem::bind_max_member(module);
    riemem::bind_max_sim(module);
    riemem::bind_quantize(module);
    riemem::bind_scatter(module);
    riemem::bind_svd_update(module);
    riemem::bind_token_select(module);
}
