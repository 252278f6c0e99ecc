#include <cstring>

#include "bindings/bindings.hpp"

namespace riemem {
namespace {

// Takes what a database cursor yields apart, tuples of k integers and one bytes: column j of the
// integers to numbers[j], the bytes to rows of `blobs`. In Python that costs as much as reading.
// Returns how many there were, at most as many as there is room for, and -1; or, where bytes have
// another length, how many came before them (their integers are written too) and that length.
py::tuple fetch(const py::iterator& tuples, Array<std::int64_t> numbers,
                Array<std::uint8_t> blobs) {
    if (numbers.ndim() != 2 || blobs.ndim() != 2 || numbers.shape(1) != blobs.shape(0)) {
        throw InvalidArgument("numbers, blobs: expected shapes (k, n) and (n, size)");
    }
    const py::ssize_t columns = numbers.shape(0);
    const py::ssize_t room = blobs.shape(0);
    const py::ssize_t size = blobs.shape(1);
    std::int64_t* number = numbers.mutable_data();
    std::uint8_t* blob = blobs.mutable_data();
    for (py::ssize_t i = 0; i < room; ++i) {
        const auto row = py::reinterpret_steal<py::object>(PyIter_Next(tuples.ptr()));
        if (!row) {
            if (PyErr_Occurred() != nullptr) throw py::error_already_set();
            return py::make_tuple(i, -1);
        }
        if (!PyTuple_Check(row.ptr()) || PyTuple_GET_SIZE(row.ptr()) != columns + 1 ||
            !PyBytes_Check(PyTuple_GET_ITEM(row.ptr(), columns))) {
            throw InvalidArgument("tuples: expected integers and, at the end, bytes");
        }
        for (py::ssize_t j = 0; j < columns; ++j) {
            const long long value = PyLong_AsLongLong(PyTuple_GET_ITEM(row.ptr(), j));
            if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
            number[j * room + i] = value;
        }
        PyObject* bytes = PyTuple_GET_ITEM(row.ptr(), columns);
        const py::ssize_t length = PyBytes_GET_SIZE(bytes);
        if (length != size) return py::make_tuple(i, length);
        std::memcpy(blob + i * size, PyBytes_AS_STRING(bytes), static_cast<std::size_t>(size));
    }
    return py::make_tuple(room, -1);
}

}  // namespace

void bind_fetch(py::module_& module) {
    using py::arg;
    module.def("fetch", &fetch, arg("tuples"), arg("numbers").noconvert(),
               arg("blobs").noconvert());
}

}  // namespace riemem
