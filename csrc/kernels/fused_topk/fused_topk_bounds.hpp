// What depends on a set of points alone, as the search holds it.
#pragma once

#include <vector>

#include "kernels/fused_topk/fused_topk_internal.hpp"

namespace riemem {

// float32 constants per row, padded to whole blocks, and error scales per block.
struct PreparedPoints::Tables {
    std::vector<float> cos_scale, rie_scale, scale, bias;  // empty: shared constants serve
    std::vector<fused::BlockScales> blocks;
    std::unique_ptr<Rotation> rotation;  // int8 only

    BlockTerms terms(std::size_t block) const;
};

}  // namespace riemem
