// Streaming max-member assignment: each chunk joins an atom or opens one, in order of arrival.
//
//   cos(x, m) = x . m / sqrt(|x|^2 |m|^2)          clipped to [-1, 1]; every sum canonical float64
//   best(x, a) = max(cos(x, centroid_a), max over members m of a of cos(x, m))
//
// The atom with the largest best wins; ties go to the higher centroid cosine, then to the older
// atom. The chunk joins it when best > threshold, else it opens a new atom. A centroid is the
// unnormalised float64 sum of the members' unit vectors, added in order of arrival.
//
// Labels and scores are the same bits on every instruction set, thread count and batch size:
// float32 and int8 decide only what their error bounds allow (README.md).
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cpu.hpp"

namespace riemem {

enum class Route : int {
    max_member = 0,        // all members of all atoms
    nearest_fallback = 1,  // the atom of the nearest centroid, and its members
    centroid = 2,          // centroids alone
};

// A row's own int8 code: row ~ scale * |row| * code, with |error| relative to |row|.
struct RowCodes {
    std::int8_t* codes = nullptr;  // (capacity, stride), zero padded
    std::size_t stride = 0;        // a multiple of 4
    float* scale = nullptr;
    float* error = nullptr;  // upper bound
    std::int32_t* sum = nullptr;
};

// All arrays belong to the caller, who makes room for the rows and as many new atoms.
struct MaxMemberState {
    std::size_t dim = 0;
    std::size_t padded = 0;  // dim rounded up to a multiple of 8

    float* rows = nullptr;         // (capacity, dim), norms within [0.5, 2)
    double* squares = nullptr;     // |row|^2
    float* inverse = nullptr;      // 1 / |row|
    std::int64_t* atom = nullptr;  // atom of a row
    std::int64_t* next = nullptr;  // the member of the same atom that came before, or -1
    RowCodes codes;                // codes.codes is null when rows are held as float32 alone
    std::size_t row_count = 0;

    double* sums = nullptr;         // (atom capacity, padded), sum of unit vectors, zero padded
    double* sum_squares = nullptr;  // |sum|^2
    float* centres = nullptr;       // (atom capacity, dim), sum / |sum|
    double* reach = nullptr;        // (atom capacity, 3): greatest angle to a member, cos, sin
    std::int64_t* newest = nullptr;
    std::int64_t* sizes = nullptr;
    std::size_t atom_count = 0;
};

struct MaxMemberOptions {
    double threshold = 0.0;
    Route route = Route::max_member;
    Isa isa = Isa::scalar;
};

// Assigns rows [row_count, row_count + count), which are in place already, and extends the state.
// scores: the winner's best, NaN where there was no atom yet. created: 1 where an atom was opened.
void max_member_assign(MaxMemberState& state, const MaxMemberOptions& options, std::size_t count,
                       double* scores, std::uint8_t* created);

// The atom that would win for each of `count` rows (norms within [0.5, 2)), and its best; the
// state stays as it is. Without atoms: -1 and NaN.
void max_member_nearest(const MaxMemberState& state, const MaxMemberOptions& options,
                        const float* rows, std::size_t count, std::int64_t* atoms, double* scores);

// Everything that follows from rows and their atoms: members lists and sizes of all atoms, and
// sums, centres and reaches of the atoms that are marked in `dirty`. With `all_rows`, also the
// constants of each row.
void max_member_rebuild(MaxMemberState& state, const std::uint8_t* dirty, bool all_rows, Isa isa);

// Doubles that one assignment needs beside the state: (rows + atoms) * lanes floats and less.
std::size_t max_member_workspace_bytes(std::size_t rows, std::size_t atoms, std::size_t dim,
                                       Isa isa);

}  // namespace riemem
