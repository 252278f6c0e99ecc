#include "kernels/quantize/quantize_vec.inl.hpp"

namespace riemem {

const QuantizeKernels& quantize_kernels_neon() { return kKernels; }

}  // namespace riemem
