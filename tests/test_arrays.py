"""What callers may pass, what it becomes, and how the rest is refused."""

from __future__ import annotations

import numpy as np
import pytest
from riemem import _arrays
from riemem.errors import ArgumentError, DeviceError, DTypeError, NotFiniteError, ShapeError

ROWS = np.arange(24, dtype=np.float32).reshape(6, 4)


def test_c30_sliced_rows_are_read_by_their_strides_without_a_copy():
    view = ROWS[::2]
    rows = _arrays.as_rows(view, "H")
    assert rows.tolist() == [[0, 1, 2, 3], [8, 9, 10, 11], [16, 17, 18, 19]]
    assert np.shares_memory(rows, ROWS)


def test_sliced_columns_with_unit_inner_stride_are_not_copied():
    rows = _arrays.as_rows(ROWS[:, 1:3], "H")
    assert np.shares_memory(rows, ROWS)
    assert rows[1].tolist() == [5, 6]


@pytest.mark.parametrize(
    "view",
    [
        ROWS[::-1],
        ROWS[:, ::-1],
        ROWS[:, ::2],
        np.asfortranarray(ROWS),
        np.broadcast_to(ROWS[0], (5, 4)),
        ROWS.astype(">f4"),
    ],
    ids=["c32-rows", "c32-columns", "columns", "c37-fortran", "stride-0", "big-endian"],
)
def test_other_layouts_are_copied_with_equal_values(view):
    rows = _arrays.as_rows(view, "H")
    assert rows.flags.c_contiguous
    assert rows.dtype == np.float32
    assert rows.dtype.isnative
    np.testing.assert_array_equal(rows, np.array(view.tolist(), dtype=np.float32))


def test_misaligned_memory_is_copied():
    raw = np.zeros(1 + 24 * 4, dtype=np.uint8)
    view = raw[1:].view(np.float32).reshape(6, 4)
    view[:] = ROWS
    assert not view.flags.aligned
    rows = _arrays.as_rows(view, "H")
    assert rows.flags.aligned
    np.testing.assert_array_equal(rows, ROWS)


def test_read_only_rows_are_accepted():
    rows = ROWS.copy()
    rows.flags.writeable = False
    assert _arrays.as_rows(rows, "H") is rows


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "i1", "i2", "i4", "i8", "u1", "u8"])
def test_c34_every_real_dtype_is_converted_once(dtype):
    rows = _arrays.as_rows(ROWS.astype(dtype), "H")
    assert rows.dtype == np.float32
    np.testing.assert_array_equal(rows, ROWS)


def test_lists_are_accepted():
    assert _arrays.as_rows([[1, 2.5], [3, 4]], "H").tolist() == [[1, 2.5], [3, 4]]


@pytest.mark.parametrize(
    "value",
    [
        ROWS > 3,
        ROWS.astype(complex),
        ROWS.astype(object),
        ROWS.astype("U8"),
        np.zeros((2, 2), "M8[s]"),
        [["a", "b"]],
        [[None, 1.0]],
        None,
        "text",
        np.ma.masked_array(ROWS, mask=ROWS > 3),
    ],
    ids=[
        "bool",
        "complex",
        "object",
        "str",
        "time",
        "strings",
        "none-in",
        "none",
        "text",
        "masked",
    ],
)
def test_what_is_not_a_number_is_refused(value):
    with pytest.raises(DTypeError, match=r"^H: expected .*numbers"):
        _arrays.as_rows(value, "H")


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ([], r"\(0,\)"),
        (3.0, r"\(\)"),
        (np.zeros((2, 3)), r"\(2, 3\)"),
        (np.zeros((1, 2, 4)), r"\(1"),
    ],
)
def test_c43_shape_errors_say_what_was_expected_and_what_came(value, got):
    with pytest.raises(ShapeError, match=rf"^H: expected shape \(B, 4\) or \(4,\), got {got}"):
        _arrays.as_rows(value, "H", dim=4, letter="B", one_row=True)


def test_c43_ragged_lists():
    with pytest.raises(ShapeError, match=r"^H: expected rows of equal length"):
        _arrays.as_rows([[1.0, 2.0], [3.0]], "H")


def test_c43_a_vector_is_a_batch_of_one_only_where_that_is_allowed():
    assert _arrays.as_rows([1, 2, 3, 4], "H", dim=4, one_row=True).shape == (1, 4)
    with pytest.raises(ShapeError, match=r"^H: expected shape \(N, 4\), got \(4,\)"):
        _arrays.as_rows([1, 2, 3, 4], "H", dim=4)


def test_no_columns():
    with pytest.raises(ShapeError, match=r"^H: expected shape \(N, d\), got \(3, 0\)"):
        _arrays.as_rows(np.zeros((3, 0)), "H")


def test_values_beyond_float32_are_refused_with_their_row():
    with pytest.raises(NotFiniteError, match=r"^H: expected finite values .* in row 1$"):
        _arrays.as_rows([[1.0, 2.0], [1.0, 1e39]], "H")


def test_the_first_bad_row_is_named_also_far_down():
    rows = np.zeros((20_000, 2), np.float32)
    rows[17_123, 1] = np.nan
    rows[19_000, 0] = np.inf
    assert _arrays.first_bad_row(rows) == 17_123
    with pytest.raises(NotFiniteError, match=r"row 17123$"):
        _arrays.require_finite(rows, "H")


def test_torch_tensors_of_every_kind():
    torch = pytest.importorskip("torch")
    base = torch.arange(24, dtype=torch.float32).reshape(6, 4)
    assert np.shares_memory(_arrays.as_rows(base, "H"), base.numpy())
    for tensor in (base.double(), base.half(), base.bfloat16(), base.int(), base.T.contiguous().T):
        np.testing.assert_array_equal(_arrays.as_rows(tensor, "H"), ROWS)
    np.testing.assert_array_equal(_arrays.as_rows(base.clone().requires_grad_(), "H"), ROWS)
    with pytest.raises(DTypeError, match=r"^H: expected real numbers"):
        _arrays.as_rows(base.bool(), "H")
    with pytest.raises(DTypeError, match=r"^H: expected a dense tensor"):
        _arrays.as_rows(base.to_sparse(), "H")
    with pytest.raises(
        DeviceError, match=r"^H: expected an array in host memory, got one on 'meta'"
    ):
        _arrays.as_rows(base.to("meta"), "H")


def test_device_arrays_are_refused():
    class OnDevice:
        __cuda_array_interface__ = {"shape": (1, 1)}  # noqa: RUF012

    class Exporter:
        def __dlpack_device__(self):
            return (2, 0)

    for value in (OnDevice(), Exporter()):
        with pytest.raises(DeviceError, match=r"^H: expected an array in host memory"):
            _arrays.as_rows(value, "H")


def test_dlpack_exporters_without_the_array_protocol():
    class Exporter:
        def __dlpack__(self, **options):
            return ROWS.__dlpack__(**options)

        def __dlpack_device__(self):
            return ROWS.__dlpack_device__()

    np.testing.assert_array_equal(_arrays.as_rows(Exporter(), "H"), ROWS)


def test_masks():
    assert _arrays.as_mask(None, 3, 2) is None
    assert _arrays.as_mask([True, False, True], 3, 2).tolist() == [True, False, True]
    assert _arrays.as_mask(np.ones((3, 2), bool).T, 3, 2).flags.c_contiguous
    assert _arrays.as_mask([], 0, 2).shape == (0,)
    with pytest.raises(DTypeError, match=r"^mask: expected dtype bool, got int64"):
        _arrays.as_mask([1, 0, 1], 3, 2)
    with pytest.raises(ShapeError, match=r"^mask: expected shape \(3,\) or \(2, 3\), got \(2,\)"):
        _arrays.as_mask([True, False], 3, 2)


def test_counts():
    assert _arrays.as_count(np.int32(5), "k") == 5
    assert _arrays.as_count(10**30, "k") == 10**30
    for bad in (True, np.True_, 1.5, "5", None):
        with pytest.raises(DTypeError, match=r"^k: expected an integer, got"):
            _arrays.as_count(bad, "k")
    with pytest.raises(ArgumentError, match=r"^k: expected an integer >= 0, got -1"):
        _arrays.as_count(-1, "k")


@pytest.mark.parametrize("bad", [-0.1, 1.1, np.nan, np.inf])
def test_numbers_out_of_range(bad):
    with pytest.raises(ArgumentError, match=r"^a: expected a finite number in \[0, 1\], got"):
        _arrays.as_number(bad, "a", low=0.0, high=1.0)


@pytest.mark.parametrize("bad", [True, "0.5", None, 1j])
def test_numbers_that_are_none(bad):
    with pytest.raises(DTypeError, match=r"^a: expected a number, got"):
        _arrays.as_number(bad, "a", low=0.0, high=1.0)


def test_choices():
    assert _arrays.as_choice("x", "form", ("x", "y")) == "x"
    with pytest.raises(ArgumentError, match=r"^form: expected one of x, y, got 'z'"):
        _arrays.as_choice("z", "form", ("x", "y"))
    with pytest.raises(DTypeError, match=r"^form: expected one of x, y, got 3"):
        _arrays.as_choice(3, "form", ("x", "y"))


def test_ids():
    assert _arrays.as_ids({3}, 1).tolist() == [3]
    assert _arrays.as_ids(np.array([1, 2], np.uint8), 2).dtype == np.int64
    with pytest.raises(ArgumentError, match=r"^ids: expected unique ids, got 4 more than once"):
        _arrays.as_ids([4, 4], 2)
    with pytest.raises(ArgumentError, match=r"^ids: expected integers in \[0, 2\^63\), got -1"):
        _arrays.as_ids([-1], 1)
    with pytest.raises(ArgumentError, match=r"^ids: expected integers in \[0, 2\^63\)"):
        _arrays.as_ids(np.array([2**63], np.uint64), 1)
    with pytest.raises(ShapeError, match=r"^ids: expected shape \(2,\), got \(1,\)"):
        _arrays.as_ids([1], 2)
    with pytest.raises(DTypeError, match=r"^ids: expected integers, got dtype float64"):
        _arrays.as_ids([1.0], 1)
