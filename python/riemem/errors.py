"""Every exception that riemem raises on purpose, one type per kind of failure.

All of them derive from :class:`RiememError` and from the built-in exception a caller would
expect, so ``except ValueError`` keeps working for people who never heard of this module.
"""

from __future__ import annotations

__all__ = [
    "ArgumentError",
    "BackendUnavailableError",
    "BudgetTooSmallError",
    "CancelledError",
    "CudaError",
    "DTypeError",
    "DeviceError",
    "DowndateError",
    "EmbedderMismatchError",
    "InputFileError",
    "MemoryNotFoundError",
    "ModelCorruptError",
    "ModelNotFoundError",
    "NotFiniteError",
    "OutputFileError",
    "RiememError",
    "SchemaVersionError",
    "ShapeError",
    "StoreCorruptError",
    "StoreError",
    "StoreLockedError",
    "StoreReadOnlyError",
    "StoreWarning",
    "TextError",
    "VramBudgetError",
    "ZeroVectorError",
]


class RiememError(Exception):
    """Base class of every error raised by riemem."""


class ArgumentError(RiememError, ValueError):
    """An argument has the right type but a value that cannot be used."""


class ShapeError(RiememError, ValueError):
    """An array has the wrong number of dimensions or the wrong size along one of them."""


class DTypeError(RiememError, TypeError):
    """An array or an argument has a type that cannot be converted without losing meaning."""


class DeviceError(RiememError, ValueError):
    """Arrays that must live on the same device do not."""


class DowndateError(ArgumentError):
    """Rows cannot be taken away from what is held of them; the message names the exact way."""


class NotFiniteError(RiememError, ValueError):
    """An array holds NaN or an infinity; the message names the first such row."""


class ZeroVectorError(RiememError, ValueError):
    """A vector of length zero has no direction, so it cannot be stored."""


class BackendUnavailableError(RiememError, RuntimeError):
    """The requested instruction set or device is not available in this build or machine."""


class CudaError(RiememError, RuntimeError):
    """A CUDA call failed; the message carries the code and its name.

    Attributes
    ----------
    code : int
        Of the CUDA runtime, such as 2.
    name : str
        Its name, such as ``"cudaErrorMemoryAllocation"``.
    """

    def __init__(self, message: str, *, code: int = 999, name: str = "cudaErrorUnknown") -> None:
        super().__init__(message)
        self.code = code
        self.name = name


class VramBudgetError(RiememError, MemoryError):
    """An operation would not fit into the memory budget.

    Attributes
    ----------
    required_bytes, budget_bytes, free_bytes : int
        What the operation needs, what the budget allows, what the device has left.
    """

    def __init__(
        self, message: str, *, required_bytes: int, budget_bytes: int, free_bytes: int
    ) -> None:
        super().__init__(message)
        self.required_bytes = required_bytes
        self.budget_bytes = budget_bytes
        self.free_bytes = free_bytes


class BudgetTooSmallError(RiememError, ValueError):
    """A token budget is too small to hold anything at all."""


class StoreError(RiememError):
    """The store could not be opened, read or written."""


class SchemaVersionError(StoreError):
    """The store was written by a newer riemem; it was left untouched."""


class EmbedderMismatchError(StoreError):
    """The store holds vectors of another embedder than the one given."""


class StoreLockedError(StoreError):
    """Another process kept the store locked for longer than the timeout."""


class StoreCorruptError(StoreError):
    """The file is damaged or is not a riemem store."""


class StoreReadOnlyError(StoreError):
    """A write was asked of a store that was opened, or can only be opened, read-only."""


class InputFileError(RiememError, FileNotFoundError):
    """A file that the caller named does not exist or cannot be opened."""


class OutputFileError(RiememError, OSError):
    """A file could not be written; what was there before is as it was."""


class StoreWarning(UserWarning):
    """The store works, but where it lies it may not stay whole; the message says why."""


class CancelledError(RiememError):
    """A progress callback asked to stop; what was asked for has not happened, not even partly."""


class MemoryNotFoundError(RiememError, KeyError):
    """No memory with this id exists in the scope that was asked."""

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0]) if self.args else ""


class TextError(RiememError, ValueError):
    """A text cannot be stored: it is empty, blank, or holds code points that are not text."""


class ModelNotFoundError(RiememError, FileNotFoundError):
    """A model's files are not on this machine; the message says which command gets them."""


class ModelCorruptError(RiememError, ValueError):
    """A model's files are there but incomplete, altered, or of the wrong kind."""
