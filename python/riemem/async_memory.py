"""The same memory for code on an event loop: every call runs in a thread, none blocks the loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from riemem.memory import Memory
from riemem.store.records import check_integer

__all__ = ["AsyncMemory"]

P = ParamSpec("P")
R = TypeVar("R")


def _describe(call: Any, method: Callable[..., Any], how: str) -> None:
    first = (method.__doc__ or "").strip().split("\n")[0]
    call.__doc__ = (
        f"{first}\n\n        As :meth:`riemem.memory.Memory.{method.__name__}`, in a thread. {how}"
    )


def _reading(
    method: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    """A method that changes nothing: a cancelled caller need not wait for it."""

    @functools.wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        work = functools.partial(method, self._memory, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    _describe(call, method, "Cancelled, it returns at once and its result is dropped.")
    return call


def _writing(
    method: Callable[Concatenate[Memory, P], R],
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    """A method that changes the store: once cancelled, it has ended before the caller goes on."""

    @functools.wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return await _finish(
            self._threads, functools.partial(method, self._memory, *args, **kwargs), None
        )

    _describe(call, method, "Cancelled, it happens as a whole or not at all.")
    return call


_STOPS = "Cancelled, it stops at the next step of its\n        progress"
_NOTHING_WRITTEN = f"{_STOPS}, and then nothing has been written."
_PART_WRITTEN = f"{_STOPS}; what it wrote by then stays."


def _stoppable(
    method: Callable[Concatenate[Memory, P], R], how: str = _NOTHING_WRITTEN
) -> Callable[Concatenate[AsyncMemory, P], Coroutine[Any, Any, R]]:
    """A method with a `progress` argument, which is how a running one is told to stop."""

    @functools.wraps(method)
    async def call(self: AsyncMemory, /, *args: P.args, **kwargs: P.kwargs) -> R:
        stop = threading.Event()
        given: dict[str, Any] = dict(kwargs)
        given["progress"] = _until(stop, given.get("progress"))
        work = functools.partial(method, self._memory, *args, **given)
        return await _finish(self._threads, work, stop)

    _describe(call, method, f"{how} `progress` is called in the thread.")
    return call


class AsyncMemory:
    """:class:`riemem.Memory` for coroutines: the same methods, awaited.

    Open it with ``async with AsyncMemory.open(path) as memory``, or await what `open` returns.

    Parameters
    ----------
    memory : Memory
        An open one; it is closed with this object.
    threads : int
        Most calls that run at the same time. Further ones wait, and can be cancelled without a
        trace while they do.

    Raises
    ------
    DTypeError, ArgumentError
        `threads` is not an int from 1 on.

    Notes
    -----
    A cancelled read returns at once. A cancelled write that has not begun never begins; one that
    runs is told to stop where it can be (`add_many`, `import_`, `import_from`, `export`,
    `maintain`, `check`, `reembed_store`, `enable_late_interaction`), and in any case the
    cancellation arrives only when the thread is done with the store: nothing goes on behind the
    caller's back. A write is whole or has not happened; whether it has cannot be told from the
    cancellation, but a `key` given at `add` makes doing it again harmless. Only
    `enable_late_interaction` is many writes, and those that were made stay.

    Examples
    --------
    >>> from riemem.embed import HashingEmbedder
    >>> async def main() -> list[str]:
    ...     async with AsyncMemory.open(":memory:", embedder=HashingEmbedder(dim=64)) as memory:
    ...         await memory.add("I moved to Porto", speaker="Maya")
    ...         return [hit.text for hit in await memory.search("Porto")]
    >>> asyncio.run(main())
    ['I moved to Porto']
    """

    def __init__(self, memory: Memory, *, threads: int = 4) -> None:
        count = check_integer(threads, "threads", 1)
        self._memory = memory
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="riemem")

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, threads: int = 4, **options: Any) -> _Opening:
        """Open a store; `options` are those of :meth:`riemem.memory.Memory.open`.

        Returns
        -------
        awaitable and asynchronous context manager
            Both give an :class:`AsyncMemory`.

        Raises
        ------
        As :meth:`riemem.memory.Memory.open`, when awaited.
        """

        async def opened() -> AsyncMemory:
            memory = await asyncio.to_thread(Memory.open, path, **options)
            try:
                return cls(memory, threads=threads)
            except BaseException:
                memory.close()
                raise

        return _Opening(opened)

    @classmethod
    async def reembed_store(
        cls,
        path: str | os.PathLike[str],
        *,
        embedder: Any = None,
        progress: Any = None,
        timeout: float = 5.0,
    ) -> int:
        """Embed every memory of a store again; as :meth:`riemem.memory.Memory.reembed_store`.

        Cancelled, it stops at the next step of its progress and leaves the store as it was.
        """
        stop = threading.Event()
        work = functools.partial(
            Memory.reembed_store,
            path,
            embedder=embedder,
            progress=_until(stop, progress),
            timeout=timeout,
        )
        with ThreadPoolExecutor(1, thread_name_prefix="riemem") as threads:
            return await _finish(threads, work, stop)

    async def __aenter__(self) -> AsyncMemory:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"Async{self._memory!r}"

    @property
    def path(self) -> str:
        """The file."""
        return self._memory.path

    @property
    def profile(self) -> str:
        """The profile used when a call names none."""
        return self._memory.profile

    async def close(self) -> None:
        """Wait for the calls that run, then close the file. A second call does nothing."""

        def finish() -> None:
            self._threads.shutdown(wait=True)
            self._memory.close()

        with ThreadPoolExecutor(1, thread_name_prefix="riemem-close") as last:
            await _finish(last, finish, None)

    add = _writing(Memory.add)
    add_many = _stoppable(Memory.add_many)
    update = _writing(Memory.update)
    forget = _writing(Memory.forget)
    get = _reading(Memory.get)
    list = _reading(Memory.list)
    search = _reading(Memory.search)
    recall = _writing(Memory.recall)  # a compressor's sensitivities are kept in the store
    atoms = _writing(Memory.atoms)  # the first call makes them
    vectors = _reading(Memory.vectors)
    stats = _reading(Memory.stats)
    used = _writing(Memory.used)
    weigh = _writing(Memory.weigh)
    life = _reading(Memory.life)
    maintain = _stoppable(Memory.maintain)
    check = _stoppable(Memory.check)
    compact = _writing(Memory.compact)
    enable_late_interaction = _stoppable(Memory.enable_late_interaction, _PART_WRITTEN)
    disable_late_interaction = _writing(Memory.disable_late_interaction)
    export = _stoppable(Memory.export)
    import_ = _stoppable(Memory.import_)
    import_from = _stoppable(Memory.import_from)
    backup = _writing(Memory.backup)
    conflicts = _reading(Memory.conflicts)
    resolve = _writing(Memory.resolve)
    undo = _writing(Memory.undo)
    check_conflicts = _writing(Memory.check_conflicts)
    trust = _reading(Memory.trust)
    mark = _writing(Memory.mark)
    history = _reading(Memory.history)
    feedback = _writing(Memory.feedback)
    weights = _reading(Memory.weights)
    judgements = _reading(Memory.judgements)
    replay_weights = _reading(Memory.replay_weights)
    reset_weights = _writing(Memory.reset_weights)


# A method that Memory has and that is not spelt out above: it is there all the same, only without
# static types. One with a progress callback can be stopped, any other is waited for.
for _name, _method in inspect.getmembers(Memory, inspect.isfunction):
    if not _name.startswith("_") and _name not in vars(AsyncMemory):
        _stops = "progress" in inspect.signature(_method).parameters
        setattr(AsyncMemory, _name, (_stoppable if _stops else _writing)(_method))


class _Opening:
    """What :meth:`AsyncMemory.open` returns: to be awaited, or entered with ``async with``."""

    def __init__(self, opened: Callable[[], Coroutine[Any, Any, AsyncMemory]]) -> None:
        self._opened = opened
        self._memory: AsyncMemory | None = None

    def __await__(self) -> Generator[Any, None, AsyncMemory]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncMemory:
        self._memory = await self._opened()
        return self._memory

    async def __aexit__(self, *exc: object) -> None:
        if self._memory is not None:
            await self._memory.close()


def _until(stop: threading.Event, progress: Any) -> Any:
    """A progress callback that says False once `stop` is set; anything not callable as it is."""
    if progress is not None and not callable(progress):
        return progress  # Memory refuses it by name

    def report(*step: Any) -> Any:
        if stop.is_set():
            return False
        return None if progress is None else progress(*step)

    return report


async def _finish(
    threads: ThreadPoolExecutor, work: Callable[[], R], stop: threading.Event | None
) -> R:
    """Run `work` in a thread; a cancellation is passed on only when the thread has let go of it."""
    running = threads.submit(work)
    done: Awaitable[R] = asyncio.wrap_future(running)
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if not running.cancel():
            if stop is not None:
                stop.set()
            await _ended(done)
        raise


async def _ended(done: Any) -> None:
    """Wait until a future is done, however often the waiting task is cancelled meanwhile."""
    while not done.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([done])
    if not done.cancelled():
        done.exception()  # the cancellation is what the caller hears of; asyncio wants it looked at
