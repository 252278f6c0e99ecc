"""What a memory budget asks of a device, and the two devices there are."""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from riemem.errors import ArgumentError, BackendUnavailableError

__all__ = ["CpuMemory", "CudaMemory", "MemoryProvider", "device_memory"]


class MemoryProvider(Protocol):
    """What a budget asks of a device."""

    def free_bytes(self) -> int:
        """Bytes that could still be allocated."""

    def used_bytes(self) -> int:
        """Bytes that this process holds."""

    def reset_peak(self) -> None:
        """Begin to watch for the largest use."""

    def peak_bytes(self) -> int:
        """Largest use since `reset_peak`."""

    def limit(self, fraction_bytes: int | None) -> None:
        """Have the allocator refuse more than so many bytes; None takes the limit away."""

    def overhead_bytes(self) -> int:
        """What the device needs beside the tensors: its context and libraries."""

    def trim(self) -> None:
        """Give back what the allocator keeps of freed memory, where that counts as used."""


def device_memory(device: str) -> MemoryProvider:
    """Return the memory of a torch device: "cpu" or a CUDA device."""
    if device == "cpu":
        return CpuMemory()
    if device.startswith("cuda"):
        return CudaMemory(device)
    raise ArgumentError(f"device: expected cpu or cuda, got {device!r}")


class CpuMemory:
    """Resident memory of this process; the peak is the system's, or else sampled.

    Where the system keeps a high-water mark and it rose meanwhile, that is the peak to the page.
    A peak below an earlier one is what was seen every few milliseconds.
    """

    def __init__(self, interval_seconds: float = 0.002) -> None:
        self._interval = interval_seconds
        self._peak = 0
        self._mark = 0
        self._stop: threading.Event | None = None
        self._thread: threading.Thread | None = None

    def free_bytes(self) -> int:
        """Return the machine's available memory."""
        try:
            for line in Path("/proc/meminfo").read_text().splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass
        return sys.maxsize

    def used_bytes(self) -> int:
        """Return the resident set size."""
        try:
            import resource

            with open("/proc/self/statm", encoding="ascii") as stream:
                return int(stream.read().split()[1]) * resource.getpagesize()
        except OSError:
            return _largest_resident()

    def reset_peak(self) -> None:
        """Start sampling."""
        self.peak_bytes()
        self._mark = _high_water()
        self._peak = self.used_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._sample, args=(self._stop,), name="riemem-memory", daemon=True
        )
        self._thread.start()

    def _sample(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval):
            self._peak = max(self._peak, self.used_bytes())

    def peak_bytes(self) -> int:
        """Stop sampling and return the largest use that was seen."""
        if self._stop is not None and self._thread is not None:
            self._stop.set()
            self._thread.join()
            self._stop = self._thread = None
            mark = _high_water()
            if mark > self._mark:
                self._peak = max(self._peak, mark)
        return self._peak

    def limit(self, fraction_bytes: int | None) -> None:
        """Do nothing: the system offers no limit on one process's tensors."""

    def overhead_bytes(self) -> int:
        """Return 0: what is loaded is part of the use."""
        return 0

    def trim(self) -> None:
        """Return freed memory to the system, where the C library is glibc: a few milliseconds."""
        give_back = _malloc_trim()
        if give_back is not None:
            give_back(0)


@functools.lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):  # another C library, or none to open by that name
        return None
    return found


def _high_water() -> int:
    """Return the most bytes that this process ever had resident, or 0 where that is not told."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return 0


def _largest_resident() -> int:
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


class CudaMemory:
    """Memory of a CUDA device as torch and the driver see it.

    Raises
    ------
    BackendUnavailableError
        torch or the device is not there.
    """

    def __init__(self, device: str = "cuda") -> None:
        try:
            import torch
        except ImportError as error:
            raise BackendUnavailableError(f"device {device!r} needs torch") from error
        if not torch.cuda.is_available():
            raise BackendUnavailableError(f"device {device!r}: no CUDA device was found")
        self._cuda: Any = torch.cuda
        self._device = torch.device(device)

    def free_bytes(self) -> int:
        """Return what the whole device has left, and torch has reserved without using."""
        free = int(self._cuda.mem_get_info(self._device)[0])
        idle = self._cuda.memory_reserved(self._device) - self._cuda.memory_allocated(self._device)
        return free + int(idle)

    def used_bytes(self) -> int:
        """Return the bytes of live tensors."""
        return int(self._cuda.memory_allocated(self._device))

    def reset_peak(self) -> None:
        """Begin to watch."""
        self._cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        """Return the largest number of bytes in tensors."""
        return int(self._cuda.max_memory_allocated(self._device))

    def limit(self, fraction_bytes: int | None) -> None:
        """Set torch's per-process fraction."""
        total = self._cuda.get_device_properties(self._device).total_memory
        share = 1.0 if fraction_bytes is None else min(fraction_bytes / total, 1.0)
        self._cuda.set_per_process_memory_fraction(share, self._device)

    def overhead_bytes(self) -> int:
        """Return half a gigabyte: the context and the libraries."""
        return 512 * 1024 * 1024

    def trim(self) -> None:
        """Do nothing: memory that torch keeps for its next tensors does not count here."""
