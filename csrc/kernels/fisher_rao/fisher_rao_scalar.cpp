// The kernels as plain loops: the reading copy, and what runs where no vector unit is known.
#include "kernels/fisher_rao/fisher_rao_finish.inl.hpp"

namespace riemem {
namespace {

std::size_t roundings(std::size_t d) { return d + 4; }

void scan(MatrixView<const float> rows, MatrixView<const float> precision, const float* queries,
          std::size_t padded, std::size_t count, float* out) {
    for (std::size_t b = 0; b < count; ++b) {
        const float* q = queries + b * padded;
        for (std::size_t i = 0; i < rows.rows; ++i) {
            const float* h = rows.row(i);
            const float* p = precision.row(i);
            float distance = 0.0f;
            float dot = 0.0f;
            for (std::size_t t = 0; t < rows.cols; ++t) {
                const float difference = q[t] - h[t];
                distance += (p[t] * difference) * difference;
                dot += q[t] * h[t];
            }
            out[b * 2 * kFisherRows + i] = distance;
            out[(b * 2 + 1) * kFisherRows + i] = dot;
        }
    }
}

double sum8(const double* l) {
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

void pair(const float* row, const float* precision, const float* query, std::size_t d,
          double out[2]) {
    double distance[8] = {};
    double dot[8] = {};
    for (std::size_t t = 0; t < d; ++t) {
        const double q = static_cast<double>(query[t]);
        const double h = static_cast<double>(row[t]);
        const double difference = q - h;
        distance[t % 8] += (difference * difference) * static_cast<double>(precision[t]);
        dot[t % 8] += q * h;
    }
    out[0] = sum8(distance);
    out[1] = sum8(dot);
}

constexpr FisherRaoKernels kKernels = {roundings, scan, finish, pair};

}  // namespace

const FisherRaoKernels& fisher_rao_kernels_scalar() { return kKernels; }

}  // namespace riemem
