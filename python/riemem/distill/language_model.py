"""A frozen causal language model on this machine, loaded once and shared."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from riemem import models
from riemem._pull import sha256_of
from riemem._tokenizer import load_tokenizer, require
from riemem.errors import ArgumentError, ModelCorruptError
from riemem.vram import ModelSpec

__all__ = ["DEFAULT_MODEL", "LanguageModel", "load_language_model"]

DEFAULT_MODEL = "smollm2-135m"
_LOADED: dict[tuple[str, str, str], LanguageModel] = {}
_LOADED_LOCK = threading.Lock()


class LanguageModel:
    """A causal model in evaluation mode with all weights frozen, its tokenizer and its lock.

    Parameters
    ----------
    folder : Path
        ``config.json``, ``tokenizer.json`` and the weights as safetensors.
    dtype : str
        ``"float32"`` or ``"bfloat16"``; also ``"float16"`` on a GPU.
    device : str
        A torch device.

    Raises
    ------
    ModelCorruptError
        The folder is incomplete, or its model does not predict the next token.
    """

    def __init__(self, folder: Path, *, dtype: str = "bfloat16", device: str = "cpu") -> None:
        self.folder = folder
        self.dtype = dtype
        self.device = device
        self.lock = threading.RLock()
        self.config = _config(folder)
        self.tokenizer = load_tokenizer(folder)
        self.spec = ModelSpec.from_config(self.config)
        self._identity = ""
        self._model: Any = None
        self.split_head = True

    @property
    def identity(self) -> str:
        """Type, precision and content hash: equal identities give equal scores."""
        with self.lock:
            if not self._identity:
                digest = hashlib.sha256()
                for file in [*_weight_files(self.folder), "tokenizer.json"]:
                    digest.update(f"{file}={_hash(self.folder, file)}\n".encode())
                kind = self.config.get("model_type", "causal")
                short = digest.hexdigest()[:16]
                self._identity = (
                    f"{kind}:{self.spec.hidden}x{self.spec.layers}:{self.dtype}:{short}"
                )
            return self._identity

    @property
    def loaded(self) -> bool:
        """Whether the weights are in memory."""
        return self._model is not None

    @property
    def max_window(self) -> int:
        """Longest sequence that the model takes."""
        return int(self.config.get("max_position_embeddings") or self.config.get("n_ctx") or 2048)

    @property
    def model(self) -> Any:
        """The torch module; loaded at the first use."""
        with self.lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def encode(self, text: str) -> Any:
        """Return the tokens of a text with their character offsets; no control tokens."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def continued(self, prompt: str, most: int) -> str:
        """Return the likeliest next words, one token at a time, up to the end of the line.

        Parameters
        ----------
        prompt : str
            Of one that is too long for the model, the end.
        most : int
            Tokens.
        """
        import torch

        ids = self.encode(prompt).ids[-(self.max_window - most) :]
        end = self.config.get("eos_token_id")
        stops = end if isinstance(end, list) else [0 if end is None else end]
        with self.evaluating() as module, torch.no_grad():
            rows = torch.tensor([ids], device=self.device)
            found = module.generate(
                rows,
                attention_mask=torch.ones_like(rows),
                max_new_tokens=most,
                do_sample=False,
                eos_token_id=stops,
                pad_token_id=stops[0],
            )
        text = str(self.tokenizer.decode(found[0, len(ids) :].tolist()))
        return text.strip().split("\n")[0].strip()

    def _load(self) -> Any:
        require("torch", "transformers", "safetensors")
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        state = _read_weights(self.folder)
        config = AutoConfig.from_pretrained(str(self.folder), local_files_only=True)
        try:
            with torch.random.fork_rng(devices=[]), torch.device("cpu"):
                # Not cast afterwards: rotary frequencies stay in float32, as the model was trained.
                model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, self.dtype))
        except ValueError as error:
            raise ModelCorruptError(
                f"model folder {self.folder}: {config.model_type!r} is not a causal language model"
            ) from error
        missing = set(model.load_state_dict(state, strict=False).missing_keys)
        if config.get_text_config().tie_word_embeddings:
            missing -= set(getattr(model, "_tied_weights_keys", None) or ())
            missing.discard("lm_head.weight")
        needed = sorted(name for name in missing if not name.endswith((".inv_freq", ".bias_mask")))
        if needed:
            raise ModelCorruptError(
                f"model folder {self.folder}: the weights lack {needed[0]} and "
                f"{len(needed) - 1} more"
            )
        model.tie_weights()
        model = model.eval().requires_grad_(False).to(self.device)
        self.split_head = _head_is_linear(model)
        return model

    @contextmanager
    def evaluating(self) -> Iterator[Any]:
        """Hold the model in evaluation mode, and leave it as it was found."""
        with self.lock:
            model = self.model
            training = [module for module in model.modules() if module.training]
            trainable = [weight for weight in model.parameters() if weight.requires_grad]
            try:
                for module in training:
                    module.training = False
                for weight in trainable:
                    weight.requires_grad_(False)
                yield model
            finally:
                for module in training:
                    module.training = True
                for weight in trainable:
                    weight.requires_grad_(True)


def _config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelCorruptError(
            f"model folder {folder}: config.json cannot be read ({error})"
        ) from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise ModelCorruptError(f"model folder {folder}: config.json does not describe a model")
    names = config.get("architectures") or []
    if names and not any("CausalLM" in name or "LMHead" in name for name in names):
        raise ModelCorruptError(
            f"model folder {folder}: expected a causal language model, got {', '.join(names)}"
        )
    return config


def _weight_files(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            return sorted(set(shards))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            raise ModelCorruptError(
                f"model folder {folder}: {index.name} cannot be read ({error})"
            ) from error
    return ["model.safetensors"]


def _read_weights(folder: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    state: dict[str, Any] = {}
    for file in _weight_files(folder):
        try:
            state.update(load_file(str(folder / file)))
        except (OSError, SafetensorError) as error:  # noqa: PERF203
            raise ModelCorruptError(
                f"model folder {folder}: {file} cannot be read ({error})"
            ) from error
    return state


def _hash(folder: Path, file: str) -> str:
    if (folder / models.MANIFEST).exists():
        files = models.read_manifest(folder.name, folder)["files"]
        if file in files:
            return str(files[file]["sha256"])
    try:
        return sha256_of(folder / file)
    except OSError as error:
        raise ModelCorruptError(
            f"model folder {folder}: {file} cannot be read ({error})"
        ) from error


def _head_is_linear(model: Any) -> bool:
    """Return whether the logits are the output embedding of the last hidden state, no more.

    Some models scale or bound their logits afterwards; those take the slower way.
    """
    import torch

    body, head = getattr(model, "base_model", None), model.get_output_embeddings()
    if body is None or body is model or not isinstance(head, torch.nn.Linear):
        return False
    if head.bias is not None:
        return False
    ids = torch.arange(4, device=model.device)[None]
    with torch.no_grad():
        whole = model(input_ids=ids, use_cache=False).logits
        split = head(body(input_ids=ids, use_cache=False).last_hidden_state)
    return bool(torch.equal(whole, split))


def load_language_model(
    model: str | os.PathLike[str] | LanguageModel | None = None,
    *,
    dtype: str = "auto",
    device: str | None = None,
) -> LanguageModel:
    """Return a causal language model from this machine; the same one for the same arguments.

    Parameters
    ----------
    model : str, path or LanguageModel, optional
        A known name, a folder, or an id in the local Hugging Face cache. None: SmolLM2-135M.
    dtype : str
        "auto": bfloat16 where the processor computes with it, else float32.
    device : str, optional
        A torch device; None is the CPU.

    Raises
    ------
    ModelNotFoundError
        It is not on this machine; the message says which command gets it.
    ModelCorruptError
        Its files are incomplete, or it is not a causal language model.
    """
    if isinstance(model, LanguageModel):
        return model
    if model is not None and not isinstance(model, (str, os.PathLike)):
        raise ArgumentError(
            f"model: expected a name, a folder or a LanguageModel, got {type(model).__name__}"
        )
    folder = models.find(DEFAULT_MODEL if model is None else model)
    place = device or "cpu"
    if dtype not in ("auto", "float32", "bfloat16", "float16"):
        raise ArgumentError(f"dtype: expected auto, float32, bfloat16 or float16, got {dtype!r}")
    if dtype == "auto":
        dtype = _best_dtype(place)
    key = (str(folder.resolve()), dtype, place)
    with _LOADED_LOCK:
        if key not in _LOADED:
            _LOADED[key] = LanguageModel(folder, dtype=dtype, device=place)
        return _LOADED[key]


def _best_dtype(device: str) -> str:
    if device != "cpu":
        return "bfloat16"
    try:
        import torch
    except ImportError:
        return "float32"
    ask = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    amx = getattr(torch.cpu, "_is_amx_tile_supported", None)
    return "bfloat16" if any(test is not None and test() for test in (ask, amx)) else "float32"


def unload(model: LanguageModel) -> None:
    """Forget a loaded model, so that its memory can be freed."""
    with _LOADED_LOCK:
        for key in [key for key, value in _LOADED.items() if value is model]:
            del _LOADED[key]
