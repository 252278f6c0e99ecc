#include "kernels/max_sim/max_sim_avx512.inl.hpp"

namespace riemem {

const MaxSimKernels& max_sim_kernels_avx512_vnni() { return kKernels; }

}  // namespace riemem
