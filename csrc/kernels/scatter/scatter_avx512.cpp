#include "kernels/scatter/scatter_vec.inl.hpp"

namespace riemem {

const ScatterKernels& scatter_kernels_avx512() { return kKernels; }

}  // namespace riemem
