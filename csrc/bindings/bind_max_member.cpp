#include <string>

#include "bindings/bindings.hpp"
#include "core/cpu.hpp"
#include "kernels/max_member/max_member.hpp"

namespace riemem {
namespace {

// One array of the dictionary that holds a state, checked for type, order and size.
template <typename T>
T* array_of(const py::dict& arrays, const char* name, std::size_t least) {
    const py::object item = arrays[name];
    if (!py::isinstance<Array<T>>(item)) {
        throw InvalidArgument(std::string(name) + ": expected a C-ordered array of its type");
    }
    auto array = py::reinterpret_borrow<Array<T>>(item);
    if (static_cast<std::size_t>(array.size()) < least || !array.writeable()) {
        throw InvalidArgument(std::string(name) + ": expected a writeable array of at least " +
                              std::to_string(least) + " elements");
    }
    return array.mutable_data();
}

// The arrays stay alive in the dictionary, which the caller holds for the length of the call.
MaxMemberState state_of(const py::dict& arrays, std::size_t row_count, std::size_t atom_count,
                        std::size_t new_rows) {
    MaxMemberState state;
    const py::object rows = arrays["rows"];
    if (!py::isinstance<Array<float>>(rows)) throw InvalidArgument("rows: expected float32");
    const auto matrix = py::reinterpret_borrow<Array<float>>(rows);
    if (matrix.ndim() != 2) throw InvalidArgument("rows: expected a 2-d array");
    state.dim = static_cast<std::size_t>(matrix.shape(1));
    state.padded = (state.dim + 7) / 8 * 8;
    state.row_count = row_count;
    state.atom_count = atom_count;
    const std::size_t n = row_count + new_rows;
    const std::size_t m = atom_count + new_rows;
    state.rows = array_of<float>(arrays, "rows", n * state.dim);
    state.squares = array_of<double>(arrays, "squares", n);
    state.inverse = array_of<float>(arrays, "inverse", n);
    state.atom = array_of<std::int64_t>(arrays, "atom", n);
    state.next = array_of<std::int64_t>(arrays, "next", n);
    if (arrays.contains("codes")) {
        state.codes.stride = (state.dim + 3) / 4 * 4;
        state.codes.codes = array_of<std::int8_t>(arrays, "codes", n * state.codes.stride);
        state.codes.scale = array_of<float>(arrays, "code_scale", n);
        state.codes.error = array_of<float>(arrays, "code_error", n);
        state.codes.sum = array_of<std::int32_t>(arrays, "code_sum", n);
    }
    state.sums = array_of<double>(arrays, "sums", m * state.padded);
    state.sum_squares = array_of<double>(arrays, "sum_squares", m);
    state.centres = array_of<float>(arrays, "centres", m * state.dim);
    state.reach = array_of<double>(arrays, "reach", m * 3);
    state.newest = array_of<std::int64_t>(arrays, "newest", m);
    state.sizes = array_of<std::int64_t>(arrays, "sizes", m);
    for (std::size_t i = 0; i < row_count; ++i) {
        if (state.atom[i] < 0 || static_cast<std::size_t>(state.atom[i]) >= atom_count) {
            throw InvalidArgument("atom: expected numbers of existing atoms");
        }
    }
    return state;
}

MaxMemberOptions options_of(double threshold, int route, const std::string& isa) {
    if (route < 0 || route > 2) throw InvalidArgument("route: expected 0, 1 or 2");
    return {threshold, static_cast<Route>(route), resolve_isa(isa)};
}

py::tuple assign(const py::dict& arrays, std::size_t row_count, std::size_t atom_count,
                 std::size_t count, double threshold, int route, const std::string& isa) {
    MaxMemberState state = state_of(arrays, row_count, atom_count, count);
    const MaxMemberOptions options = options_of(threshold, route, isa);
    Array<double> scores(static_cast<py::ssize_t>(count));
    Array<bool> created(static_cast<py::ssize_t>(count));
    double* out = scores.mutable_data();
    auto* flags = reinterpret_cast<std::uint8_t*>(created.mutable_data());
    {
        const py::gil_scoped_release release;
        max_member_assign(state, options, count, out, flags);
    }
    return py::make_tuple(state.atom_count, scores, created);
}

py::tuple nearest(const py::dict& arrays, std::size_t row_count, std::size_t atom_count,
                  const Array<float>& rows, int route, const std::string& isa) {
    const MaxMemberState state = state_of(arrays, row_count, atom_count, 0);
    const MaxMemberOptions options = options_of(0.0, route, isa);
    if (rows.ndim() != 2) throw InvalidArgument("rows: expected a 2-d array");
    const auto count = static_cast<std::size_t>(rows.shape(0));
    const float* chunks = matrix_of(rows, count, state.dim, "rows");
    Array<std::int64_t> atoms(rows.shape(0));
    Array<double> scores(rows.shape(0));
    std::int64_t* out = atoms.mutable_data();
    double* best = scores.mutable_data();
    {
        const py::gil_scoped_release release;
        max_member_nearest(state, options, chunks, count, out, best);
    }
    return py::make_tuple(atoms, scores);
}

void rebuild(const py::dict& arrays, std::size_t row_count, std::size_t atom_count,
             const Array<bool>& dirty, bool all_rows, const std::string& isa) {
    MaxMemberState state = state_of(arrays, row_count, atom_count, 0);
    const bool* marks = vector_of(dirty, atom_count, "dirty");
    const Isa chosen = resolve_isa(isa);
    const py::gil_scoped_release release;
    max_member_rebuild(state, reinterpret_cast<const std::uint8_t*>(marks), all_rows, chosen);
}

}  // namespace

void bind_max_member(py::module_& module) {
    using py::arg;
    module.def("max_member_assign", &assign, arg("arrays"), arg("row_count"), arg("atom_count"),
               arg("count"), arg("threshold"), arg("route"), arg("isa") = "auto");
    module.def("max_member_nearest", &nearest, arg("arrays"), arg("row_count"), arg("atom_count"),
               arg("rows").noconvert(), arg("route"), arg("isa") = "auto");
    module.def("max_member_rebuild", &rebuild, arg("arrays"), arg("row_count"), arg("atom_count"),
               arg("dirty").noconvert(), arg("all_rows"), arg("isa") = "auto");
}

}  // namespace riemem
