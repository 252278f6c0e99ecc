// Which instruction sets this build holds, which of them this machine runs, and which is used.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace riemem {

enum class Isa { scalar, avx2, avx512, neon };

std::string_view isa_name(Isa isa);

// Built into this binary, slowest first.
std::vector<Isa> compiled_isas();

// Built in and supported by this processor and its operating system.
std::vector<Isa> available_isas();

// RIEMEM_ISA if it is set, else the fastest available one. Throws BackendUnavailable for a
// name that is unknown or cannot run here. Decided at the first call and kept.
Isa active_isa();

// Whether the processor multiplies and adds bytes in one AVX-512 instruction.
bool has_avx512_vnni();

// "auto" is active_isa(); any other name must be available.
Isa resolve_isa(std::string_view name);

}  // namespace riemem
