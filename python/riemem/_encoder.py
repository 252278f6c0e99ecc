"""The files of a sentence encoder: options, tokenizer, weights, and a hash of what matters."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import models
from ._pooling import MODES
from ._pull import sha256_of
from ._tokenizer import load_tokenizer, require
from .errors import ModelCorruptError

# Content hashes of models that have a name of their own, so that the same files are the same
# embedder wherever they lie.
_NAMES = {"65bb5d0b36ee72a4": "minilm-l6-v2"}
_WEIGHTS = "model.safetensors"
_ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "Sigmoid")


@dataclass(frozen=True)
class Projection:
    """A dense layer after the pooling."""

    folder: str
    inputs: int
    outputs: int
    activation: str


class EncoderFiles:
    """The folder of an encoder: its options, its tokenizer, and how to load its weights.

    Parameters
    ----------
    folder : Path
        In the layout of sentence-transformers, or bare with ``config.json`` and the weights.
    weights : str, optional
        File of the weights below `folder`, where it is not the safetensors of the transformer.
    """

    def __init__(self, folder: Path, weights: str | None = None) -> None:
        self.folder = folder
        self.base, self._pooling_at = "", "1_Pooling"
        self.projections = self._read_modules()
        self.weights = f"{self.base}{_WEIGHTS}" if weights is None else weights
        config = self._json(f"{self.base}config.json")
        limits = self._json(f"{self.base}sentence_bert_config.json", optional=True)
        try:
            self.width = int(config["hidden_size"])
            positions = int(config.get("max_position_embeddings") or 2**31)
            self.model_type = str(config["model_type"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(f"config.json is not that of an encoder ({error!r})") from error
        if config.get("is_encoder_decoder"):
            raise self._unusable(f"{self.model_type} has an encoder and a decoder")
        # RoBERTa's positions begin behind that of the padding, which takes two of them.
        if self.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet"):
            positions -= int(config.get("pad_token_id", 1)) + 1
        self.max_tokens = min(int(limits.get("max_seq_length") or 512), positions)
        self.lower = bool(limits.get("do_lower_case"))
        self.pad_id = int(config.get("pad_token_id") or 0)
        self._read_pooling()
        self.dim = self.width * len(self.modes)
        for layer in self.projections:
            if layer.inputs != self.dim:
                raise self._unusable(
                    f"{layer.folder} takes {layer.inputs} numbers and gets {self.dim}"
                )
            self.dim = layer.outputs
        self._read_prompts()
        self._identities: dict[tuple[str, str], str] = {}

    def _read_modules(self) -> tuple[Projection, ...]:
        projections: list[Projection] = []
        for module in self._json("modules.json", optional=True) or []:
            kind = str(module.get("type", "")).rpartition(".")[2]
            path = str(module.get("path", "")).strip("/")
            if ".." in path or (kind == "Dense" and not path):
                raise self._unusable(f"modules.json points outside of the folder: {path!r}")
            if kind == "Transformer":
                self.base = f"{path}/" if path else ""
            elif kind == "Pooling":
                self._pooling_at = path
            elif kind == "Dense":
                projections.append(self._read_projection(path))
            elif kind != "Normalize":
                raise self._unusable(f"modules.json asks for a module that is not known: {kind}")
        return tuple(projections)

    def _read_projection(self, path: str) -> Projection:
        config = self._json(f"{path}/config.json")
        activation = str(config.get("activation_function", "Identity")).rpartition(".")[2]
        if activation not in _ACTIVATIONS:
            raise self._unusable(f"{path} asks for an activation that is not known: {activation}")
        try:
            return Projection(
                path, int(config["in_features"]), int(config["out_features"]), activation
            )
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(f"{path}/config.json is not that of a layer ({error!r})") from None

    def _read_pooling(self) -> None:
        config = self._json(f"{self._pooling_at}/config.json", optional=True)
        prefix = "pooling_mode_"
        chosen = [
            name[len(prefix) :].removesuffix("_tokens").removesuffix("_token")
            for name, on in config.items()
            if name.startswith(prefix) and on is True
        ]
        named = config.get("pooling_mode")
        if not chosen and named:
            chosen = [named] if isinstance(named, str) else list(named)
        unknown = [name for name in chosen if name not in MODES]
        if unknown:
            raise self._unusable(f"expected poolings out of {', '.join(MODES)}, got {unknown[0]}")
        # Side by side in the order in which sentence-transformers joins them.
        self.modes = [mode for mode in MODES if mode in chosen] or ["mean"]
        self.pooling = "+".join(self.modes)
        self.include_prompt = bool(config.get("include_prompt", True))

    def _read_prompts(self) -> None:
        config = self._json("config_sentence_transformers.json", optional=True)
        prompts = config.get("prompts") or {}
        if not isinstance(prompts, dict):
            raise self._unusable("config_sentence_transformers.json: prompts is not an object")
        default = str(prompts.get(config.get("default_prompt_name"), "") or "")
        self.query_prompt = str(prompts.get("query", "") or default)
        document = prompts.get("document") or prompts.get("passage")
        self.document_prompt = str(document or default)

    def _json(self, file: str, *, optional: bool = False) -> Any:
        path = self.folder / file
        if optional and not path.exists():
            return {}
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._unusable(f"{file} cannot be read ({error})") from error

    def _unusable(self, what: str) -> ModelCorruptError:
        return ModelCorruptError(f"model folder {self.folder}: {what}")

    def identity(self, query_prompt: str = "", document_prompt: str = "") -> str:
        """Name, dimension, pooling, length limit, and a hash of all that the vectors depend on."""
        key = (query_prompt, document_prompt)
        if key not in self._identities:
            digest = hashlib.sha256()
            dense = [f"{p.folder}/{_WEIGHTS}" for p in self.projections]
            for file in (self.weights, "tokenizer.json", *dense):
                if file == "tokenizer.json":
                    digest.update(f"{file}={self._sha256(self.base + file)}\n".encode())
                else:
                    digest.update(f"{file.rpartition('/')[2]}={self._sha256(file)}\n".encode())
            for projection in self.projections:
                digest.update(f"activation={projection.activation}\n".encode())
            if any(key) or self.lower:
                extra = [*key, self.include_prompt, self.lower]
                digest.update(json.dumps(extra).encode())
            short = digest.hexdigest()[:16]
            name = _NAMES.get(short, self.model_type)
            if not self.weights.endswith(_WEIGHTS):
                name = f"{name}-onnx"
            self._identities[key] = (
                f"{name}:{self.dim}:{self.pooling}:{self.max_tokens}:sha256={short}"
            )
        return self._identities[key]

    def _sha256(self, file: str) -> str:
        """The file's hash, out of the manifest where the folder was pulled by riemem."""
        if (self.folder / models.MANIFEST).exists():
            files = models.read_manifest(self.folder.name, self.folder)["files"]
            if file in files:
                return str(files[file]["sha256"])
        try:
            return sha256_of(self.folder / file)
        except OSError as error:
            raise self._unusable(f"{file} cannot be read ({error})") from error

    def tokenizer(self) -> Any:
        if self.base and not (self.folder / "tokenizer.json").exists():
            return load_tokenizer(self.folder / self.base)
        return load_tokenizer(self.folder)

    def added_tokens(self) -> int:
        return int(self.tokenizer().num_special_tokens_to_add(False))

    def token_ids(self, text: str) -> list[int]:
        return list(self._encoding(text).ids)

    def token_places(self, text: str) -> tuple[list[tuple[int, int]], list[int]]:
        """Where the tokens of :meth:`token_ids` lie in `text`, and 1 for those that were added."""
        encoding = self._encoding(text)
        places = list(encoding.offsets)
        if self.lower and len(text.lower()) != len(text):
            # A letter may become two; each of them lies where the one did.
            owners = [i for i, letter in enumerate(text) for _ in letter.lower()]
            places = [(owners[a], owners[b - 1] + 1) if a < b else (0, 0) for a, b in places]
        return places, list(encoding.special_tokens_mask)

    def _encoding(self, text: str) -> Any:
        tokenizer = self.tokenizer()
        text = text.lower() if self.lower else text
        encoding = tokenizer.encode(text, add_special_tokens=False)
        encoding.truncate(self.max_tokens - tokenizer.num_special_tokens_to_add(False))
        return tokenizer.post_process(encoding, add_special_tokens=True)

    def prompt_tokens(self, prompt: str) -> int:
        """Tokens of a prompt, without those that the tokenizer adds around a text."""
        if not prompt:
            return 0
        text = prompt.lower() if self.lower else prompt
        return len(self.tokenizer().encode(text, add_special_tokens=False).ids)

    def load(self) -> Any:
        """Build the encoder and fill in its weights; anything missing is an error, not noise.

        Done by hand because ``from_pretrained`` prints, draws from the global random state, and
        starts a randomly initialised layer where a weight is missing.
        """
        require("torch", "transformers", "safetensors")
        import torch
        from transformers import AutoConfig, AutoModel

        state = self._state(self.weights)
        config = AutoConfig.from_pretrained(str(self.folder / self.base), local_files_only=True)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            model = AutoModel.from_config(config).to(torch.float32)
        prefix = f"{self.model_type}."
        state = {name.removeprefix(prefix): value for name, value in state.items()}
        missing = model.load_state_dict(state, strict=False).missing_keys
        needed = [name for name in missing if "pooler." not in name and "position_ids" not in name]
        if needed:
            raise self._unusable(f"{_WEIGHTS} lacks {needed[0]} and {len(needed) - 1} more")
        return model.eval().requires_grad_(False)

    def load_projections(self) -> list[tuple[Any, Any, str]]:
        """Weight (outputs, inputs), bias and activation of every dense layer; float64."""
        found = []
        for layer in self.projections:
            file = f"{layer.folder}/{_WEIGHTS}"
            state = self._state(file)
            weight, bias = state.get("linear.weight"), state.get("linear.bias")
            if weight is None or tuple(weight.shape) != (layer.outputs, layer.inputs):
                raise self._unusable(f"{file} lacks linear.weight of the size that it states")
            plain = weight.double().numpy()
            found.append((plain, 0.0 if bias is None else bias.double().numpy(), layer.activation))
        return found

    def _state(self, file: str) -> dict[str, Any]:
        require("torch", "safetensors")
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path = self.folder / file
        try:
            return dict(load_file(str(path)))
        except (OSError, SafetensorError) as error:
            raise self._unusable(f"{file.rpartition('/')[2]} cannot be read ({error})") from error
