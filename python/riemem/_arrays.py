"""Turning what callers pass (numpy, torch, lists, DLPack) into arrays the kernels can read.

Everything here checks meaning: type, shape, device, range. Each failure has its own error type and
names the argument, what was expected and what came. Nothing is copied when it need not be.
"""

from __future__ import annotations

import math
import numbers
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from riemem.errors import ArgumentError, DeviceError, DTypeError, NotFiniteError, ShapeError

F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
I64: TypeAlias = NDArray[np.int64]
Bool: TypeAlias = NDArray[np.bool_]

LAST_ID = int(np.iinfo(np.int64).max)

_DLPACK_CPU = 1
_CHECK_ROWS = 8192  # rows looked at together when searching for a bad one: bounds the workspace


def is_torch(value: object) -> bool:
    """Say whether a value is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    return tensor is not None and isinstance(value, tensor)


def like(template: object) -> Callable[[NDArray[Any]], Any]:
    """Return the conversion of a numpy result to the kind of array that the caller passed."""
    if is_torch(template):
        return sys.modules["torch"].from_numpy  # type: ignore[no-any-return]
    return lambda array: array


def _require_host(value: object, name: str) -> None:
    if is_torch(value):
        kind = value.device.type  # type: ignore[attr-defined]
        if kind != "cpu":
            raise DeviceError(f"{name}: expected an array in host memory, got one on {kind!r}")
    elif hasattr(value, "__cuda_array_interface__"):
        raise DeviceError(f"{name}: expected an array in host memory, got one on 'cuda'")
    elif (
        not isinstance(value, np.ndarray)
        and hasattr(value, "__dlpack_device__")
        and int(value.__dlpack_device__()[0]) != _DLPACK_CPU
    ):
        raise DeviceError(f"{name}: expected an array in host memory, got one on a device")


def _torch_to_numpy(value: Any, name: str) -> NDArray[Any]:
    torch = sys.modules["torch"]
    if value.layout != torch.strided:
        raise DTypeError(f"{name}: expected a dense tensor, got layout {value.layout}")
    value = value.detach()
    if value.dtype == torch.bfloat16:  # numpy has no such type; float32 holds each value exactly
        value = value.float()
    return np.asarray(value.resolve_conj().resolve_neg().numpy())


def to_numpy(value: object, name: str) -> NDArray[Any]:
    """Return a host array for anything array-like, sharing memory where that is possible.

    Parameters
    ----------
    value : array_like
        numpy array, CPU torch tensor, DLPack exporter, buffer, or nested lists.
    name : str
        Name of the argument, for the error message.

    Raises
    ------
    DeviceError
        The array lives on a device.
    ShapeError
        Nested lists of different lengths.
    DTypeError
        Not an array at all, a masked array, or a sparse one.

    Examples
    --------
    >>> to_numpy([[1, 2], [3, 4]], "rows").shape
    (2, 2)
    """
    _require_host(value, name)
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise DTypeError(f"{name}: expected plain numbers, got a masked array with masked entries")
    if is_torch(value):
        return _torch_to_numpy(value, name)
    try:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"{name}: expected rows of equal length, got {error}") from error
    except (TypeError, RuntimeError, BufferError) as error:
        raise DTypeError(f"{name}: expected an array of numbers, got {error}") from error


def as_rows(
    value: object,
    name: str,
    *,
    dim: int | None = None,
    letter: str = "N",
    one_row: bool = False,
) -> F32:
    """Return `value` as float32 rows with unit inner stride, copied only when needed.

    Parameters
    ----------
    value : array_like, shape (N, d)
        Any real dtype, any strides, read-only or not.
    name : str
        Name of the argument, for the error message.
    dim : int, optional
        The number of columns it must have.
    letter : str
        What the number of rows is called in the message.
    one_row : bool
        Accept a vector of shape (d,) as one row.

    Raises
    ------
    DTypeError, DeviceError, ShapeError
        As :func:`to_numpy`; bool, complex, text and object arrays are refused.
    NotFiniteError
        A wider value does not fit into float32. Values that came in as float32 are *not* looked
        at here: the kernels report them while computing the norms.

    Examples
    --------
    >>> as_rows(np.eye(2)[::-1], "rows").tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    array = _numeric_rows(value, name, dim=dim, letter=letter, one_row=one_row)
    if array.dtype == np.float32:
        return array if _kernel_ready(array) else np.array(array, order="C")
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        narrow = array.astype(np.float32, order="C")
    require_finite(narrow, name)
    return narrow


def as_rows64(
    value: object,
    name: str,
    *,
    dim: int | None = None,
    letter: str = "N",
    one_row: bool = False,
) -> F64:
    """Return `value` as finite C-ordered float64 rows (see :func:`as_rows`)."""
    array = _numeric_rows(value, name, dim=dim, letter=letter, one_row=one_row)
    with np.errstate(over="ignore", invalid="ignore"):
        wide = np.ascontiguousarray(array, dtype=np.float64)
    require_finite(wide, name)
    return wide


def _numeric_rows(
    value: object, name: str, *, dim: int | None, letter: str, one_row: bool
) -> NDArray[Any]:
    array = to_numpy(value, name)
    columns = "d" if dim is None else str(dim)
    expected = f"({letter}, {columns})" + (f" or ({columns},)" if one_row else "")
    if array.dtype.kind not in "fiu":
        raise DTypeError(
            f"{name}: expected real numbers of shape {expected}, got dtype {array.dtype} "
            f"of shape {array.shape}"
        )
    got = array.shape
    if array.ndim == 1 and one_row:
        array = array.reshape(1, -1)
    if array.ndim != 2 or array.shape[1] == 0 or (dim is not None and array.shape[1] != dim):
        raise ShapeError(f"{name}: expected shape {expected}, got {got}")
    return array


def _kernel_ready(array: NDArray[Any]) -> bool:
    """Say whether the kernels may read these float32 rows in place."""
    if not array.flags.aligned:
        return False
    if array.flags.c_contiguous:
        return True
    row, column = array.strides
    return column == 4 and row >= 4 * array.shape[1] and row % 4 == 0


def first_bad_row(array: NDArray[Any]) -> int:
    """Return the first row that holds NaN or an infinity, or -1."""
    for start in range(0, array.shape[0], _CHECK_ROWS):
        good = np.isfinite(array[start : start + _CHECK_ROWS]).all(axis=1)
        if not good.all():
            return start + int(np.argmin(good))
    return -1


def require_finite(array: NDArray[Any], name: str) -> None:
    """Raise :class:`NotFiniteError` that names the first row holding NaN or an infinity."""
    raise_if_bad_row(first_bad_row(array), name)


def raise_if_bad_row(row: int, name: str) -> None:
    """Raise :class:`NotFiniteError` for the row a check has found; -1 means none."""
    if row >= 0:
        raise NotFiniteError(
            f"{name}: expected finite values within float32's range, got NaN, an infinity or an "
            f"overflow in row {row}"
        )


def as_mask(value: object, rows: int, queries: int, name: str = "mask") -> Bool | None:
    """Return a C-ordered bool mask of shape (rows,) or (queries, rows), or None for no mask."""
    if value is None:
        return None
    mask = to_numpy(value, name)
    if mask.size == 0 and mask.dtype.kind == "f":  # an empty list has no type of its own
        mask = mask.astype(np.bool_)
    if mask.dtype != np.bool_:
        raise DTypeError(f"{name}: expected dtype bool, got {mask.dtype}")
    if mask.shape not in ((rows,), (queries, rows)):
        raise ShapeError(
            f"{name}: expected shape ({rows},) or ({queries}, {rows}), got {mask.shape}"
        )
    return np.ascontiguousarray(mask)


def whole_number(value: object) -> int | None:
    """Return an integer; None for a bool, a float, an array of several and all that is none.

    Examples
    --------
    >>> whole_number(np.int64(3)), whole_number(True), whole_number(np.arange(2))
    (3, None, None)
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:  # also of an array, which has the method and refuses
        return None


def as_count(value: object, name: str, *, minimum: int = 0) -> int:
    """Return an integer that is at least `minimum`; bools and floats are refused."""
    number = whole_number(value)
    if number is None:
        raise DTypeError(f"{name}: expected an integer, got {value!r}")
    if number < minimum:
        raise ArgumentError(f"{name}: expected an integer >= {minimum}, got {number}")
    return number


def as_number(
    value: object, name: str, *, low: float, high: float = math.inf, open_low: bool = False
) -> float:
    """Return a finite float within [low, high], or (low, high] when `open_low`."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (numbers.Real, np.number)):
        raise DTypeError(f"{name}: expected a number, got {value!r}")
    number = float(value)
    inside = number > low if open_low else number >= low
    if not math.isfinite(number) or not inside or number > high:
        end = "inf)" if math.isinf(high) else f"{high:g}]"
        raise ArgumentError(
            f"{name}: expected a finite number in {'(' if open_low else '['}{low:g}, {end}, "
            f"got {value!r}"
        )
    return number


def as_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Return one of the allowed words."""
    if not isinstance(value, str):
        raise DTypeError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    if value not in choices:
        raise ArgumentError(f"{name}: expected one of {', '.join(choices)}, got {value!r}")
    return value


def as_integers(value: object, name: str) -> NDArray[Any]:
    """Return an integer array of any shape from an array, a list or a set."""
    if isinstance(value, (set, frozenset)):
        value = list(value)
    array = to_numpy(value, name)
    if array.size == 0 and array.dtype.kind == "f":  # an empty list has no type of its own
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise DTypeError(f"{name}: expected integers, got dtype {array.dtype}")
    return array


def as_ids(value: object, count: int, name: str = "ids") -> I64:
    """Return `count` unique ids in [0, 2^63)."""
    array = as_integers(value, name)
    if array.shape == () and count == 1:
        array = array.reshape(1)
    if array.shape != (count,):
        raise ShapeError(f"{name}: expected shape ({count},), got {array.shape}")
    if count and (array.min() < 0 or array.max() > LAST_ID):
        worst = array.min() if array.min() < 0 else array.max()
        raise ArgumentError(f"{name}: expected integers in [0, 2^63), got {worst}")
    values, seen = np.unique(array, return_counts=True)
    if values.size != count:
        twice = values[seen > 1][0]
        raise ArgumentError(f"{name}: expected unique ids, got {twice} more than once")
    return array.astype(np.int64)
