"""A memory budget for one backward pass of a language model: plan, check, enforce, measure.

Peak of a pass to the input embeddings with frozen weights, for T tokens, b bytes per element,
hidden width h, MLP width f, attention widths q = heads * head_dim and k = kv_heads * head_dim,
V words, n layers and R rows of logits alive at a time::

    layer = b (3f + 2q + 2k) + 8h + 8 + 4 heads        bytes per token and layer
            + 4 (q + k) + 4 (heads + kv_heads)         with normalised queries and keys
    trans = b (3f + 2h)
    body  = n layer T + trans T                        everything kept
          = n b h T + (layer + trans) T                activation checkpointing
    head  = kept + 4 V R,  kept = n layer T  or  n b h T
          = kept + (4 + b) V R                         in half precision
          = kept + 16 V T                              logits that the model makes itself
    peak  = max(body, head) + 4 b h T                  embeddings, last layer and their gradients

These are the tensors. The C library keeps much of what is freed (measured: 60 to 220 MiB of the
process's resident memory, more for more precision), so a pass under a budget gives it back after
every layer.

The budget is held by whoever gives the memory's state: a *provider*, so all of it can be tried
without a GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from riemem._arrays import whole_number
from riemem._device_memory import CpuMemory, CudaMemory, MemoryProvider, device_memory
from riemem.errors import ArgumentError, DTypeError, VramBudgetError

__all__ = [
    "CpuMemory",
    "CudaMemory",
    "Measurement",
    "MemoryProvider",
    "ModelSpec",
    "PassPlan",
    "VramBudget",
    "pass_bytes",
    "plan_within",
]

_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_SMALLEST_CHUNK = 64
_SMALLEST_WINDOW = 64
_CHUNK = 256


@dataclass(frozen=True)
class ModelSpec:
    """The sizes of a decoder that decide on its memory.

    Examples
    --------
    >>> spec = ModelSpec.from_config({"hidden_size": 576, "intermediate_size": 1536,
    ...     "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
    ...     "vocab_size": 49152, "tie_word_embeddings": True})
    >>> round(spec.parameters / 1e6)
    135
    """

    hidden: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool = True
    query_norm: bool = False

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ModelSpec:
        """Read the sizes from a ``config.json`` of the transformers library.

        Raises
        ------
        ArgumentError
            A size is missing.
        """
        inner = config.get("text_config")
        values = {**config, **inner} if isinstance(inner, Mapping) else dict(config)

        def number(*names: str, default: int | None = None) -> int:
            for name in names:
                if values.get(name):
                    return int(values[name])
            if default is not None:
                return default
            raise ArgumentError(f"config: expected one of {', '.join(names)}")

        hidden = number("hidden_size", "n_embd", "d_model")
        heads = number("num_attention_heads", "n_head", "num_heads")
        return cls(
            hidden=hidden,
            mlp=number("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden),
            layers=number("num_hidden_layers", "n_layer", "num_layers"),
            heads=heads,
            kv_heads=number("num_key_value_heads", default=heads),
            head_dim=number("head_dim", default=hidden // heads),
            vocabulary=number("vocab_size"),
            tied=bool(values.get("tie_word_embeddings", True)),
            query_norm=str(values.get("model_type", "")).startswith("qwen3"),
        )

    @property
    def parameters(self) -> int:
        """Number of weights, of a gated MLP and grouped attention."""
        q, k = self.heads * self.head_dim, self.kv_heads * self.head_dim
        layer = self.hidden * (2 * q + 2 * k + 3 * self.mlp + 2)
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + embeddings + self.hidden

    def weight_bytes(self, dtype: str) -> int:
        """Bytes of the weights."""
        return self.parameters * _BYTES[dtype]


@dataclass(frozen=True)
class PassPlan:
    """How a pass is made.

    Attributes
    ----------
    window : int
        Tokens in one pass.
    chunk_rows : int
        Positions whose logits are alive at a time.
    checkpoint : bool
        Whether activations are computed again in the backward pass.
    estimated_bytes : int
        Peak of the pass, without the weights.
    dtype : str
        Of weights and activations.
    """

    window: int
    chunk_rows: int
    checkpoint: bool
    estimated_bytes: int
    dtype: str = "float32"


@dataclass
class Measurement:
    """Memory around a piece of work; filled in when it ends.

    Attributes
    ----------
    before_bytes, peak_bytes, after_bytes : int
        Of this process on this device.
    """

    before_bytes: int
    peak_bytes: int = 0
    after_bytes: int = 0

    @property
    def rise_bytes(self) -> int:
        """Peak above the beginning."""
        return max(self.peak_bytes - self.before_bytes, 0)


def pass_bytes(
    spec: ModelSpec, tokens: int, dtype: str, *, chunk_rows: int | None = None,
    checkpoint: bool = False, whole_head: bool = False,
) -> int:  # fmt: skip
    """Return the estimated peak of one pass in bytes, without the weights.

    Parameters
    ----------
    spec : ModelSpec
        Sizes of the model.
    tokens : int
        Tokens in the pass.
    dtype : str
        ``"float32"``, ``"bfloat16"`` or ``"float16"``.
    chunk_rows : int, optional
        Rows of logits alive at a time; None: all.
    checkpoint : bool
        Whether activations are recomputed.
    whole_head : bool
        Whether the logits come from the model itself, of all tokens and with a graph.

    Examples
    --------
    >>> spec = ModelSpec(576, 1536, 30, 9, 3, 64, 49152)
    >>> pass_bytes(spec, 2048, "bfloat16") > pass_bytes(spec, 2048, "bfloat16", chunk_rows=256)
    True
    """
    if dtype not in _BYTES:
        raise ArgumentError(f"dtype: expected one of {', '.join(_BYTES)}, got {dtype!r}")
    b = _BYTES[dtype]
    q, k = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    layer = b * (3 * spec.mlp + 2 * q + 2 * k) + 8 * spec.hidden + 8 + 4 * spec.heads
    if spec.query_norm:
        layer += 4 * (q + k) + 4 * (spec.heads + spec.kv_heads)
    trans = b * (3 * spec.mlp + 2 * spec.hidden)
    rows = tokens if chunk_rows is None or whole_head else min(chunk_rows, tokens)
    logit = 16 if whole_head else 4 if b == 4 else 4 + b
    if checkpoint:
        kept = spec.layers * b * spec.hidden * tokens
        body = kept + (layer + trans) * tokens
    else:
        kept = spec.layers * layer * tokens
        body = kept + trans * tokens
    ends = 4 * b * spec.hidden * tokens
    return max(body, kept + logit * spec.vocabulary * rows) + ends


def plan_within(
    spec: ModelSpec, *, tokens: int, dtype: str, available: int, whole_head: bool = False
) -> tuple[PassPlan | None, int]:
    """Return the first way to make a pass that fits into so many bytes, and what it needs.

    See :meth:`VramBudget.plan` for the order; None where nothing fits, with what the smallest
    would need.

    Examples
    --------
    >>> spec = ModelSpec(576, 1536, 30, 9, 3, 64, 49152)
    >>> plan_within(spec, tokens=512, dtype="bfloat16", available=10**9)[0].window
    512
    """
    required = 0
    window = max(tokens, 2)
    while True:
        for chunk, checkpoint in _ladder(window):
            required = pass_bytes(
                spec, window, dtype, chunk_rows=chunk, checkpoint=checkpoint, whole_head=whole_head
            )
            if required <= available:
                return PassPlan(window, chunk, checkpoint, required, dtype), required
        if window <= _SMALLEST_WINDOW:
            return None, required
        window = max(window // 2, _SMALLEST_WINDOW)


class VramBudget:
    """A limit on device (or process) memory that plans, checks and enforces.

    Parameters
    ----------
    limit_bytes : int
        Most bytes this process may hold on the device, weights included.
    device : str, optional
        A torch device such as ``"cuda:0"``; None or ``"cpu"`` is this process's resident memory.
    headroom : float
        Share of the limit that is left free, for what an estimate cannot know.
    memory : MemoryProvider, optional
        Where the state of the memory comes from; by default the device itself.

    Raises
    ------
    ArgumentError
        A limit below 1, or a headroom outside [0, 1).
    BackendUnavailableError
        A CUDA device is asked for and there is none.

    Examples
    --------
    >>> budget = VramBudget(2_000_000_000)
    >>> budget.usable_bytes
    1800000000
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        device: str | None = None,
        headroom: float = 0.1,
        memory: MemoryProvider | None = None,
    ) -> None:
        limit = whole_number(limit_bytes)
        if limit is None:
            raise DTypeError(f"limit_bytes: expected an int, got {type(limit_bytes).__name__}")
        if limit < 1:
            raise ArgumentError(f"limit_bytes: expected at least 1, got {limit}")
        if isinstance(headroom, bool) or not isinstance(headroom, (int, float)):
            raise DTypeError(f"headroom: expected a float, got {type(headroom).__name__}")
        if not 0.0 <= headroom < 1.0:
            raise ArgumentError(f"headroom: expected 0 to less than 1, got {headroom}")
        self.limit_bytes = limit
        self.device = str(device) if device is not None else "cpu"
        self.headroom = float(headroom)
        self.memory = memory if memory is not None else device_memory(self.device)

    def __repr__(self) -> str:
        return f"VramBudget({self.limit_bytes}, device={self.device!r}, headroom={self.headroom})"

    @property
    def usable_bytes(self) -> int:
        """The limit without the headroom."""
        return int(self.limit_bytes * (1.0 - self.headroom))

    def free_bytes(self) -> int:
        """Return what the device has left."""
        return self.memory.free_bytes()

    def available_bytes(self) -> int:
        """Return what may still be used: by the budget and by the device."""
        own = self.usable_bytes - self.memory.used_bytes()
        return min(own, self.memory.free_bytes())

    def check(self, required_bytes: int) -> None:
        """Make sure that so many more bytes fit.

        Raises
        ------
        VramBudgetError
            They do not; it carries `required_bytes`, `budget_bytes` and `free_bytes`.
        """
        if required_bytes > self.available_bytes():
            raise self._error(required_bytes, "the work")

    def _error(self, required: int, what: str) -> VramBudgetError:
        used, free = self.memory.used_bytes(), self.memory.free_bytes()
        return VramBudgetError(
            f"{what} needs {required} bytes on {self.device}; the budget is {self.limit_bytes} "
            f"with {self.headroom:.0%} headroom, {used} are in use and {free} are free",
            required_bytes=required,
            budget_bytes=self.limit_bytes,
            free_bytes=free,
        )

    def plan(
        self, spec: ModelSpec, *, tokens: int, dtype: str, weights_loaded: bool = True,
        whole_head: bool = False,
    ) -> PassPlan:  # fmt: skip
        """Choose how to make a pass over `tokens` tokens.

        The first that fits of: all at once; the head in chunks of 256, 128, 64 rows; activation
        checkpointing; half the window, and so on down to 64 tokens.

        Parameters
        ----------
        spec : ModelSpec
            Sizes of the model.
        tokens : int
            Largest window that is of use.
        dtype : str
            Precision of the pass.
        weights_loaded : bool
            False: the weights come on top.
        whole_head : bool
            See :func:`pass_bytes`.

        Raises
        ------
        VramBudgetError
            Not even the smallest fits; `required_bytes` is what that would need.
        """
        available = self.available_bytes() - self.memory.overhead_bytes()
        if not weights_loaded:
            available -= spec.weight_bytes(dtype)
        found, required = plan_within(
            spec, tokens=tokens, dtype=dtype, available=available, whole_head=whole_head
        )
        if found is not None:
            return found
        if not weights_loaded:
            required += spec.weight_bytes(dtype)
        required += self.memory.overhead_bytes()
        smallest = min(max(tokens, 2), _SMALLEST_WINDOW)
        raise self._error(required, f"the smallest pass ({smallest} tokens, {dtype})")

    def choose(self, spec: ModelSpec, *, tokens: int, dtypes: tuple[str, ...]) -> PassPlan:
        """Return the plan with the largest window over several precisions, weights included.

        Of equal windows the earlier precision wins.

        Raises
        ------
        VramBudgetError
            None fits.
        """
        best: PassPlan | None = None
        refused: VramBudgetError | None = None
        for dtype in dtypes:
            try:
                found = self.plan(spec, tokens=tokens, dtype=dtype, weights_loaded=False)
            except VramBudgetError as error:
                if refused is None or error.required_bytes < refused.required_bytes:
                    refused = error
                continue
            if best is None or found.window > best.window:
                best = found
        if best is not None:
            return best
        if refused is None:
            raise ArgumentError("dtypes: expected at least one")
        raise refused

    def trim(self) -> None:
        """Give back what the allocator keeps of freed memory, where that counts as used."""
        self.memory.trim()

    @contextlib.contextmanager
    def enforce(self) -> Iterator[None]:
        """Have the device's allocator refuse what goes beyond the limit, for the time being."""
        self.memory.limit(self.limit_bytes)
        try:
            yield
        finally:
            self.memory.limit(None)

    @contextlib.contextmanager
    def measure(self) -> Iterator[Measurement]:
        """Watch the memory while a block runs.

        Examples
        --------
        >>> with VramBudget(10**12).measure() as seen:
        ...     block = bytearray(1000)
        >>> seen.peak_bytes >= seen.before_bytes > 0
        True
        """
        self.memory.reset_peak()
        seen = Measurement(self.memory.used_bytes())
        try:
            yield seen
        finally:
            seen.after_bytes = self.memory.used_bytes()
            seen.peak_bytes = max(self.memory.peak_bytes(), seen.before_bytes, seen.after_bytes)


def _ladder(window: int) -> Iterator[tuple[int, bool]]:
    yield window, False
    for checkpoint in (False, True):
        chunk = _CHUNK
        while chunk >= _SMALLEST_CHUNK:
            if chunk < window:
                yield chunk, checkpoint
            chunk //= 2
    yield min(_SMALLEST_CHUNK, window), True
