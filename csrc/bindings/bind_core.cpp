#include "bindings/bindings.hpp"
#include "core/cpu.hpp"
#include "core/thread_pool.hpp"

namespace riemem {
namespace {

py::list names(const std::vector<Isa>& isas) {
    py::list list;
    for (Isa isa : isas) list.append(std::string(isa_name(isa)));
    return list;
}

}  // namespace

void bind_core(py::module_& module) {
    module.attr("version") = RIEMEM_VERSION;
#if defined(__clang__)
    module.attr("compiler") = "clang " __clang_version__;
#elif defined(__GNUC__)
    module.attr("compiler") = "gcc " __VERSION__;
#else
    module.attr("compiler") = "unknown";
#endif
    module.attr("compiled_isas") = names(compiled_isas());
    module.def("available_isas", [] { return names(available_isas()); });
    module.def("active_isa", [] { return std::string(isa_name(active_isa())); });
    module.def("num_threads", &num_threads);
    module.def("set_num_threads", &set_num_threads, py::arg("n"));
}

}  // namespace riemem
