#include "kernels/fused_topk/fused_topk_vec.inl.hpp"

namespace riemem {

const FusedTopkKernels& fused_topk_kernels_avx512_vnni() { return kKernels; }

}  // namespace riemem
