#include "kernels/max_member/max_member_vec.inl.hpp"

namespace riemem {

const MaxMemberKernels& max_member_kernels_neon() { return kKernels; }

}  // namespace riemem
