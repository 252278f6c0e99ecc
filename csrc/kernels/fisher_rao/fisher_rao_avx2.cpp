#include "kernels/fisher_rao/fisher_rao_vec.inl.hpp"

namespace riemem {

const FisherRaoKernels& fisher_rao_kernels_avx2() { return kKernels; }

}  // namespace riemem
