"""Sensitivity of a frozen language model to each token of a text: one pass forward and back.

``S_i = || g_i * h_i ||_2 / (number of later predictions)``, where ``h_i`` is the input embedding
of token i and ``g_i`` the gradient with respect to it of the summed next-token loss. It is a
heuristic score: it says how much the model's predictions of what follows lean on a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from riemem.errors import ArgumentError, CudaError, NotFiniteError, VramBudgetError
from riemem.vram import PassPlan, VramBudget, pass_bytes, plan_within

from .kernels import on_host, row_norms
from .language_model import LanguageModel

__all__ = ["OVERLAP", "WINDOW", "TokenScores", "token_scores"]

WINDOW = 512
OVERLAP = 64
_QUESTION_TOKENS = 128
_CHUNK_ROWS = 128


@dataclass(frozen=True)
class TokenScores:
    """What one pass says about the tokens of a text.

    Attributes
    ----------
    offsets : (n, 2) int64
        First and last character + 1 of each token.
    sensitivity : (n,) float64
        Of each token; the first and last take their neighbour's.
    surprisal : (n,) float64
        Negative log-likelihood in nats; 0 for the first token.
    windows : int
        Passes that were needed.
    estimated_bytes : int
        Of the largest pass; 0 without a memory budget.
    """

    offsets: NDArray[np.int64]
    sensitivity: NDArray[np.float64]
    surprisal: NDArray[np.float64]
    windows: int
    estimated_bytes: int = 0


def token_scores(
    model: LanguageModel,
    text: str,
    *,
    question: str | None = None,
    vram: VramBudget | None = None,
    window: int = WINDOW,
    overlap: int = OVERLAP,
) -> TokenScores:
    """Return the sensitivity and the surprisal of every token of a text.

    Parameters
    ----------
    model : LanguageModel
        Frozen; its state, the global random state and the gradient mode are left as they are.
    text : str
        Any length; long texts go through in windows.
    question : str, optional
        With it the loss is that of the question's tokens after the window's text.
    vram : VramBudget, optional
        Chooses the window and how the pass is made, and holds the pass to its limit.
    window, overlap : int
        In tokens. Of two overlapping windows each gives the half that it sees more around.

    Raises
    ------
    NotFiniteError
        The model gave NaN or an infinity; the message names the window.
    VramBudgetError
        No window fits, or the device ran out of memory all the same, again and again: each time
        the pass is planned anew in half of the memory.

    Notes
    -----
    One backward pass per window. The logits of at most 128 positions are alive at a time.
    """
    if not 0 <= 2 * overlap < window:
        raise ArgumentError(f"overlap: expected 0 to less than half of {window}, got {overlap}")
    encoding = model.encode(text)
    if model.max_window < window:
        window = model.max_window
        overlap = min(overlap, window // 8)
    asked = model.encode(f"\n{question}").ids if question else []
    asked = asked[: min(_QUESTION_TOKENS, window // 4)]
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    n = len(encoding.ids)
    if n == 0:
        return TokenScores(offsets, np.zeros(0), np.zeros(0), 0)
    plan = PassPlan(window, _CHUNK_ROWS, False, 0)
    if vram is not None:
        plan = _planned(model, vram, min(n + len(asked), window))
    while True:
        try:
            return _all_windows(model, encoding, asked, window, overlap, plan, vram)
        except _DeviceFullError as error:
            failed = error.with_traceback(None)  # which would hold the tensors of the pass
        smaller = _half(model, plan, min(n + len(asked), window))
        if smaller is None:
            raise VramBudgetError(
                f"{failed}; no smaller pass is possible",
                required_bytes=plan.estimated_bytes,
                budget_bytes=vram.limit_bytes if vram is not None else 0,
                free_bytes=vram.free_bytes() if vram is not None else 0,
            ) from failed
        plan = smaller
        _give_back(model.device)


def _planned(model: LanguageModel, vram: VramBudget, tokens: int) -> PassPlan:
    if not model.loaded:
        vram.plan(model.spec, tokens=tokens, dtype=model.dtype, weights_loaded=False)
        _ = model.model  # only now is it known how the model makes its logits
    vram.trim()
    return vram.plan(model.spec, tokens=tokens, dtype=model.dtype, whole_head=not model.split_head)


class _DeviceFullError(Exception):
    """The allocator refused; the message says where."""


def _half(model: LanguageModel, plan: PassPlan, tokens: int) -> PassPlan | None:
    """Return the way to make a pass in half the memory of one that did not fit after all."""
    used = plan.estimated_bytes or pass_bytes(
        model.spec,
        min(tokens, plan.window),
        model.dtype,
        chunk_rows=plan.chunk_rows,
        checkpoint=plan.checkpoint,
        whole_head=not model.split_head,
    )
    for available in (used // 2, used - 1):  # near the smallest pass any smaller one will do
        found = plan_within(
            model.spec, tokens=tokens, dtype=model.dtype, available=available,
            whole_head=not model.split_head,
        )[0]  # fmt: skip
        if found is not None:
            return found
    return None


def _give_back(device: str) -> None:
    """Return what torch's allocator has set aside on a GPU, in pieces too small for a pass."""
    if device != "cpu":
        import torch

        torch.cuda.empty_cache()


def _is_out_of_memory(error: BaseException) -> bool:
    # On the CPU torch has no type of its own for it.
    import torch

    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    if isinstance(error, CudaError):  # from the kernels, which name what the runtime said
        return error.name == "cudaErrorMemoryAllocation"
    words = ("can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(text in str(error) for text in words)


def _all_windows(
    model: LanguageModel,
    encoding: Any,
    asked: list[int],
    window: int,
    overlap: int,
    plan: PassPlan,
    vram: VramBudget | None,
) -> TokenScores:
    offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    n = len(encoding.ids)
    sensitivity, surprisal = np.zeros(n), np.zeros(n)
    limit = window - len(asked)
    if plan.window < window and n + len(asked) > plan.window:
        limit = max(plan.window - len(asked), 2)
        overlap = min(overlap, limit // 4)
    passes = 0
    with model.evaluating() as module, _budget_enforced(vram):
        for first, last in _windows(n, limit, overlap):
            one, nll = _one_pass(
                model,
                module,
                encoding.ids[first:last],
                asked,
                plan,
                f"window {passes + 1} (characters {offsets[first, 0]} to {offsets[last - 1, 1]})",
                None if vram is None else vram.trim,
            )
            begin = first if first == 0 else first + overlap // 2
            sensitivity[begin:last] = one[begin - first :]
            surprisal[begin:last] = nll[begin - first :]
            passes += 1
    return TokenScores(offsets, sensitivity, surprisal, passes, plan.estimated_bytes)


def _windows(n: int, limit: int, overlap: int) -> Iterator[tuple[int, int]]:
    first = 0
    while True:
        last = min(first + limit, n)
        yield first, last
        if last == n:
            return
        first += limit - overlap


@contextmanager
def _budget_enforced(vram: VramBudget | None) -> Iterator[None]:
    if vram is None:
        yield
    else:
        with vram.enforce():
            yield


def _one_pass(
    model: LanguageModel,
    module: Any,
    ids: list[int],
    asked: list[int],
    plan: PassPlan,
    name: str,
    trim: Callable[[], object] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sensitivity and surprisal of one window's own tokens."""
    import torch

    size = len(ids)
    if size + len(asked) < 2:
        return np.zeros(size), np.zeros(size)
    rows = torch.tensor([ids + asked], device=model.device)
    first_target = size if asked else 1
    try:
        with torch.enable_grad():
            leaf = module.get_input_embeddings()(rows).detach().requires_grad_(True)
            with _layers_run(module, plan.checkpoint, trim):
                gradient, losses = _gradient(
                    module, leaf, rows, first_target, plan.chunk_rows, model.split_head, trim
                )
        scores = on_host(row_norms(gradient[0, :size], leaf.detach()[0, :size]))
        nll = losses.double().cpu().numpy()
    except (MemoryError, RuntimeError) as error:  # torch's own is a RuntimeError
        if not _is_out_of_memory(error):
            raise
        raise _DeviceFullError(
            f"{name}: out of memory on {model.device} although {plan.estimated_bytes} bytes were "
            "expected to be enough"
        ) from error.with_traceback(None)
    if not (np.isfinite(scores).all() and np.isfinite(nll).all()):
        raise NotFiniteError(f"{name}: the model gave a gradient or a loss that is not finite")
    surprisal = np.zeros(size)
    if not asked:
        surprisal[1:] = nll
        later = np.arange(size - 1, -1, -1, dtype=np.float64)
        scores = scores / np.maximum(later, 1.0)
        scores[-1] = scores[-2]
    if size > 1:
        scores[0] = scores[1]
    return scores, surprisal


def _gradient(
    module: Any, leaf: Any, rows: Any, first_target: int, chunk: int, split_head: bool,
    trim: Callable[[], object] | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Return d(sum of losses)/d(leaf) and the losses of the targets from `first_target` on."""
    import torch
    from torch.nn.functional import cross_entropy

    targets = rows[0, first_target:]
    if not split_head:
        logits = module(inputs_embeds=leaf, use_cache=False).logits[0, first_target - 1 : -1]
        losses = cross_entropy(logits.float(), targets, reduction="none")
        (gradient,) = torch.autograd.grad(losses.sum(), leaf)
        return gradient, losses.detach()
    hidden = module.base_model(inputs_embeds=leaf, use_cache=False).last_hidden_state
    predicting = hidden.detach()[0, first_target - 1 : -1]
    upstream = torch.zeros_like(hidden)
    losses = torch.empty(len(targets), dtype=torch.float32, device=hidden.device)
    with torch.no_grad():
        for at in range(0, len(targets), chunk):
            rows_now = slice(at, at + chunk)
            losses[rows_now], gradient = _through_head(
                module.get_output_embeddings().weight, predicting[rows_now], targets[rows_now]
            )
            upstream[0, first_target - 1 + at : first_target - 1 + at + len(gradient)] = gradient
            if trim is not None:
                trim()
    (gradient,) = torch.autograd.grad(hidden, leaf, grad_outputs=upstream)
    return gradient, losses


def _through_head(weight: Any, hidden: Any, targets: Any) -> tuple[Any, Any]:
    """Return cross entropy of each row and its gradient to the row, d = (p - 1[target]) W.

    By hand and in place: one array of logits in float32 is alive, and beside it one in the
    model's precision where that is another; autograd would keep three more.
    """
    import torch

    made = torch.nn.functional.linear(hidden, weight)
    logits = made.float()  # the same array where that is the model's precision
    places = torch.arange(len(targets), device=targets.device)
    largest = logits.amax(-1, keepdim=True)
    wanted = logits[places, targets] - largest[:, 0]
    share = logits.sub_(largest).exp_()
    total = share.sum(-1, keepdim=True)
    share.div_(total)
    share[places, targets] -= 1.0
    return total[:, 0].log() - wanted, made.copy_(share) @ weight


@contextmanager
def _layers_run(
    module: Any, again: bool, trim: Callable[[], object] | None = None
) -> Iterator[None]:
    """Have every layer computed again in the backward pass, and freed memory given back after it.

    Parameters
    ----------
    module : Any
        Whose layers are meant.
    again : bool
        Whether activations are computed again and not kept.
    trim : callable, optional
        Called after every layer, forward and backward.
    """
    from torch.utils.checkpoint import checkpoint

    def wrapped(forward: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            if again:
                kwargs |= {"use_reentrant": False, "preserve_rng_state": False}
                made = checkpoint(forward, *args, **kwargs)
            else:
                made = forward(*args, **kwargs)
            if trim is not None:
                trim()
                (made[0] if isinstance(made, tuple) else made).register_hook(_ignoring(trim))
            return made

        return run

    layers = _layers(module) if again or trim is not None else []
    try:
        for layer in layers:
            layer.forward = wrapped(layer.forward)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)


def _ignoring(act: Callable[[], object]) -> Callable[[Any], None]:
    def hook(gradient: Any) -> None:
        act()

    return hook


def _layers(module: Any) -> list[Any]:
    """Return the decoder layers: the longest list of modules of one type."""
    import torch

    lists = [child for child in module.modules() if isinstance(child, torch.nn.ModuleList)]
    return list(max(lists, key=lambda found: len(list(found)))) if lists else []
