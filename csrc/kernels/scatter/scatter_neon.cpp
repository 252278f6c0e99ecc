#include "kernels/scatter/scatter_vec.inl.hpp"

namespace riemem {

const ScatterKernels& scatter_kernels_neon() { return kKernels; }

}  // namespace riemem
