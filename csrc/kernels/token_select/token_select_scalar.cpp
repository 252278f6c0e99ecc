// The kernel as a plain loop: the reading copy, and what runs where no vector unit is known.
#include "kernels/token_select/token_select_kernels.hpp"

namespace riemem {
namespace {

double square_product(const float* gradient, const float* embedding, std::size_t d) {
    double lane[8] = {};
    for (std::size_t t = 0; t < d; ++t) {
        const double product = static_cast<double>(gradient[t] * embedding[t]);
        lane[t % 8] += product * product;
    }
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

constexpr TokenSelectKernels kKernels = {square_product};

}  // namespace

const TokenSelectKernels& token_select_kernels_scalar() { return kKernels; }

}  // namespace riemem
