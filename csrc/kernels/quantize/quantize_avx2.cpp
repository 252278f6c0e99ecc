#include "kernels/quantize/quantize_vec.inl.hpp"

namespace riemem {

const QuantizeKernels& quantize_kernels_avx2() { return kKernels; }

}  // namespace riemem
