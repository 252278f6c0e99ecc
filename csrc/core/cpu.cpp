#include "core/cpu.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/error.hpp"

namespace riemem {
namespace {

bool supported(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return true;
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
            return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return true;  // part of every 64-bit Arm processor
#endif
        default:
            return false;
    }
}

std::string join(const std::vector<Isa>& isas) {
    std::string text;
    for (Isa isa : isas) {
        if (!text.empty()) text += ", ";
        text += isa_name(isa);
    }
    return text;
}

Isa require_available(std::string_view name, const std::string& asked_by) {
    const std::vector<Isa> usable = available_isas();
    for (Isa isa : usable) {
        if (isa_name(isa) == name) return isa;
    }
    throw BackendUnavailable(asked_by + ": expected one of auto, " + join(usable) +
                             " on this machine, got '" + std::string(name) + "'");
}

}  // namespace

std::string_view isa_name(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return "scalar";
        case Isa::avx2:
            return "avx2";
        case Isa::avx512:
            return "avx512";
        case Isa::neon:
            return "neon";
    }
    return "unknown";
}

std::vector<Isa> compiled_isas() {
    return {
        Isa::scalar,
#if defined(RIEMEM_HAVE_AVX2)
            Isa::avx2,
#endif
#if defined(RIEMEM_HAVE_AVX512)
            Isa::avx512,
#endif
#if defined(RIEMEM_HAVE_NEON)
            Isa::neon,
#endif
    };
}

std::vector<Isa> available_isas() {
    std::vector<Isa> usable = compiled_isas();
    usable.erase(
        std::remove_if(usable.begin(), usable.end(), [](Isa isa) { return !supported(isa); }),
        usable.end());
    return usable;
}

Isa active_isa() {
    static const Isa chosen = [] {
        const char* forced = std::getenv("RIEMEM_ISA");
        if (forced != nullptr && *forced != '\0' && std::string_view(forced) != "auto") {
            return require_available(forced, "RIEMEM_ISA");
        }
        return available_isas().back();
    }();
    return chosen;
}

bool has_avx512_vnni() {
#if defined(RIEMEM_HAVE_AVX512_VNNI)
    return __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

Isa resolve_isa(std::string_view name) {
    return name == "auto" ? active_isa() : require_available(name, "backend");
}

}  // namespace riemem
