#include "kernels/token_select/token_select_vec.inl.hpp"

namespace riemem {

const TokenSelectKernels& token_select_kernels_neon() { return kKernels; }

}  // namespace riemem
