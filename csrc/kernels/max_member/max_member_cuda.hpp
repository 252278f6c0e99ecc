// max_member.hpp on a GPU: the same labels and the same bits of each score. Device pointers and a
// stream; see csrc/cuda/README.md.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/simt.hpp"
#include "kernels/max_member/max_member.hpp"

namespace riemem::cuda {

// What decides of a MaxMemberState; reaches, codes and lists of members follow from it (see
// max_member_rebuild). The caller makes room for the new rows and as many new atoms.
struct DeviceAtoms {
    std::size_t dim = 0;
    std::size_t padded = 0;                // dim rounded up to a multiple of 8
    const float* rows = nullptr;           // (capacity, dim), norms within [0.5, 2)
    double* squares = nullptr;             // (capacity,)
    std::int64_t* atom = nullptr;          // (capacity,)
    double* sums = nullptr;                // (atom capacity, padded), zero padded
    double* sum_squares = nullptr;         // (atom capacity,)
    float* centres = nullptr;              // (atom capacity, dim)
    std::int64_t* sizes = nullptr;         // (atom capacity,)
    unsigned long long* counts = nullptr;  // one number: atoms there are
    // One number, or null: the lowest row that has no direction, ~0 for none. Once there is one,
    // nothing is assigned any more: atom becomes -1, scores NaN, created 0.
    const unsigned long long* bad = nullptr;
};

// Doubles for the cosines of one chunk.
std::size_t max_member_workspace(std::size_t rows, std::size_t atoms);

// Brings `count` rows of a caller to norms within [0.5, 2) by powers of two and puts them to out
// (count, dim). *bad is lowered to first + i for the first row i without direction, or with NaN or
// an infinity; when it is a row at all, nothing is put. norms is (count,). T is float or Bfloat16.
template <typename T>
Status max_member_place(const T* rows, std::size_t count, std::size_t dim, std::size_t stride,
                        std::size_t first, double* norms, float* out, unsigned long long* bad,
                        cudaStream_t stream);

// labels (count,) from the slots of atoms: names[slot], or `next` and up beyond the `known` ones;
// -1 for a row that was not assigned.
Status max_member_labels(const std::int64_t* atom, std::size_t count, const std::int64_t* names,
                         std::size_t known, std::int64_t next, std::int64_t* labels,
                         cudaStream_t stream);

// Assigns rows [row_count, row_count + count), which are in place. atoms_before is at least the
// number of atoms there are. Rows of one call follow each other: two launches each.
Status max_member_assign(const DeviceAtoms& state, double threshold, Route route,
                         std::size_t row_count, std::size_t count, std::size_t atoms_before,
                         double* scores, std::uint8_t* created, void* workspace,
                         cudaStream_t stream);

// The atom that would win for each of `count` rows, and its best; -1 and NaN without atoms.
Status max_member_nearest(const DeviceAtoms& state, Route route, std::size_t row_count,
                          std::size_t atoms_before, const float* chunks, std::size_t count,
                          std::int64_t* atoms, double* scores, void* workspace,
                          cudaStream_t stream);

}  // namespace riemem::cuda
