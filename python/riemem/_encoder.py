"""The files of a BERT-type encoder: options, tokenizer, weights, and a hash of what matters."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from . import models
from ._pull import sha256_of
from ._tokenizer import load_tokenizer, require
from .errors import ModelCorruptError

# Content hashes of models that have a name of their own, so that the same files are the same
# embedder wherever they lie.
_NAMES = {"65bb5d0b36ee72a4": "minilm-l6-v2"}


class EncoderFiles:
    """The folder of an encoder: its options, its tokenizer, and how to load its weights."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        config = self._json("config.json")
        pooling = self._json("1_Pooling/config.json", optional=True)
        limits = self._json("sentence_bert_config.json", optional=True)
        try:
            self.dim = int(config["hidden_size"])
            positions = int(config["max_position_embeddings"])
            self.model_type = str(config["model_type"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(f"config.json is not that of an encoder ({error!r})") from error
        self.max_tokens = min(int(limits.get("max_seq_length") or 512), positions)
        self.pad_id = int(config.get("pad_token_id") or 0)
        chosen = sorted(name for name, on in pooling.items() if on is True)
        self.pooling = "cls" if chosen == ["pooling_mode_cls_token"] else "mean"
        if chosen not in ([], ["pooling_mode_cls_token"], ["pooling_mode_mean_tokens"]):
            raise self._unusable(f"expected mean or cls pooling, got {', '.join(chosen)}")
        for module in self._json("modules.json", optional=True) or []:
            kind = str(module.get("type", "")).rpartition(".")[2]
            if kind not in ("Transformer", "Pooling", "Normalize"):
                raise self._unusable(f"modules.json asks for a module that is not known: {kind}")
        self._identity = ""

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

    def identity(self) -> str:
        if not self._identity:
            digest = hashlib.sha256()
            for file in ("model.safetensors", "tokenizer.json"):
                digest.update(f"{file}={self._sha256(file)}\n".encode())
            short = digest.hexdigest()[:16]
            name = _NAMES.get(short, self.model_type)
            self._identity = f"{name}:{self.dim}:{self.pooling}:{self.max_tokens}:sha256={short}"
        return self._identity

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
        return load_tokenizer(self.folder)

    def added_tokens(self) -> int:
        return int(self.tokenizer().num_special_tokens_to_add(False))

    def token_ids(self, text: str) -> list[int]:
        tokenizer = self.tokenizer()
        encoding = tokenizer.encode(text, add_special_tokens=False)
        encoding.truncate(self.max_tokens - tokenizer.num_special_tokens_to_add(False))
        return list(tokenizer.post_process(encoding, add_special_tokens=True).ids)

    def load(self) -> Any:
        """Build the encoder and fill in its weights; anything missing is an error, not noise.

        Done by hand because ``from_pretrained`` prints, draws from the global random state, and
        starts a randomly initialised layer where a weight is missing.
        """
        require("torch", "transformers", "safetensors")
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load_file
        from transformers import AutoConfig, AutoModel

        weights = self.folder / "model.safetensors"
        try:
            state = load_file(str(weights))
        except (OSError, SafetensorError) as error:
            raise self._unusable(f"model.safetensors cannot be read ({error})") from error
        config = AutoConfig.from_pretrained(str(self.folder), local_files_only=True)
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            model = AutoModel.from_config(config).to(torch.float32)
        prefix = f"{self.model_type}."
        state = {name.removeprefix(prefix): value for name, value in state.items()}
        missing = model.load_state_dict(state, strict=False).missing_keys
        needed = [name for name in missing if "pooler." not in name and "position_ids" not in name]
        if needed:
            raise self._unusable(f"model.safetensors lacks {needed[0]} and {len(needed) - 1} more")
        return model.eval().requires_grad_(False)
