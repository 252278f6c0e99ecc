// Chooses the kernels of an instruction set.
#include <string>

#include "core/error.hpp"
#include "kernels/max_member/max_member.hpp"
#include "kernels/max_member/max_member_kernels.hpp"

namespace riemem {

const MaxMemberKernels& max_member_kernels(Isa isa) {
    switch (isa) {
        case Isa::scalar:
            return max_member_kernels_scalar();
#if defined(RIEMEM_HAVE_AVX2)
        case Isa::avx2:
            return max_member_kernels_avx2();
#endif
#if defined(RIEMEM_HAVE_AVX512)
        case Isa::avx512:
            return max_member_kernels_avx512();
#endif
#if defined(RIEMEM_HAVE_NEON)
        case Isa::neon:
            return max_member_kernels_neon();
#endif
        default:
            throw BackendUnavailable("max_member: no kernels for " + std::string(isa_name(isa)));
    }
}

std::size_t max_member_workspace_bytes(std::size_t rows, std::size_t atoms, std::size_t dim,
                                       Isa isa) {
    const std::size_t lanes = max_member_kernels(isa).lanes;
    const std::size_t per_lane = rows * sizeof(float) + atoms * sizeof(float) +
                                 (dim + 64) * (sizeof(float) + sizeof(double) + 1);
    return lanes * per_lane + 2 * rows * sizeof(std::uint32_t) + atoms;
}

}  // namespace riemem
