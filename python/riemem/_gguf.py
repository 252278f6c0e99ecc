"""Turning a quantised GGUF language model into a plain safetensors folder.

Done here, with numpy, rather than through ``transformers``: its GGUF loader needs one more
dependency, cannot save what it loaded, and rebuilds the tokenizer from guesses. Nothing in this
module imports torch, and the same input gives the same bytes everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .errors import ModelCorruptError

_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PER_BLOCK = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
_CONTROL_TOKEN = 3


def convert_llama(
    gguf_path: Path, folder: Path, *, progress: Callable[[int, int], None] | None = None
) -> list[str]:
    """Write ``config.json``, the weights and the tokenizer of a llama-type GGUF file.

    The weights are dequantised and stored as float16, whose relative rounding error (2^-11) is
    far below that of the four-bit blocks they come from; ``config.json`` says float32, so that is
    what they are computed in.

    Parameters
    ----------
    gguf_path : Path
        The GGUF file; architecture ``llama`` with a byte-level BPE tokenizer of kind ``smollm``.
    folder : Path
        An existing folder; files of the same names are overwritten.
    progress : callable, optional
        Called with (tensors done, tensors in all).

    Returns
    -------
    list of str
        The names of the files written.

    Raises
    ------
    ModelCorruptError
        The file is not a GGUF file, or not of the architecture and tokenizer named above.
    """
    import gguf

    try:
        reader = gguf.GGUFReader(gguf_path)
    except (ValueError, OSError, IndexError) as error:
        raise ModelCorruptError(f"{gguf_path.name}: not a readable GGUF file ({error})") from error
    meta = _Metadata(reader, gguf_path.name)
    if meta["general.architecture"] != "llama" or meta["tokenizer.ggml.pre"] != "smollm":
        raise ModelCorruptError(
            f"{gguf_path.name}: expected architecture 'llama' with tokenizer 'smollm', got "
            f"{meta['general.architecture']!r} with {meta['tokenizer.ggml.pre']!r}"
        )
    names = {tensor.name for tensor in reader.tensors}
    written = {
        "config.json": _config(meta, tied="output.weight" not in names),
        "generation_config.json": {
            "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
            "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
            "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
        },
        "tokenizer_config.json": _tokenizer_config(meta),
        "tokenizer.json": _tokenizer(meta),
    }
    for name, value in written.items():
        text = json.dumps(value, ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    _write_weights(reader, meta, folder / "model.safetensors", progress)
    return [*written, "model.safetensors"]


class _Metadata:
    """The key-value part of a GGUF file; a missing key is a corrupt model, not a KeyError."""

    def __init__(self, reader: Any, name: str) -> None:
        self._fields = reader.fields
        self._name = name

    def __getitem__(self, key: str) -> Any:
        field = self._fields.get(key)
        if field is None:
            raise ModelCorruptError(f"{self._name}: the GGUF key {key!r} is missing")
        return field.contents()


def _config(meta: _Metadata, *, tied: bool) -> dict[str, Any]:
    heads = meta["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "vocab_size": len(meta["tokenizer.ggml.tokens"]),
        "hidden_size": meta["llama.embedding_length"],
        "intermediate_size": meta["llama.feed_forward_length"],
        "num_hidden_layers": meta["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": meta["llama.attention.head_count_kv"],
        "head_dim": meta["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "max_position_embeddings": meta["llama.context_length"],
        "rms_norm_eps": float(f"{meta['llama.attention.layer_norm_rms_epsilon']:.6g}"),
        "rope_theta": meta["llama.rope.freq_base"],
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "bos_token_id": meta["tokenizer.ggml.bos_token_id"],
        "eos_token_id": meta["tokenizer.ggml.eos_token_id"],
        "pad_token_id": meta["tokenizer.ggml.padding_token_id"],
    }


def _tokenizer_config(meta: _Metadata) -> dict[str, Any]:
    tokens = meta["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": tokens[meta["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[meta["tokenizer.ggml.eos_token_id"]],
        "pad_token": tokens[meta["tokenizer.ggml.padding_token_id"]],
        "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
        "model_max_length": meta["llama.context_length"],
        "clean_up_tokenization_spaces": False,
        "chat_template": meta["tokenizer.chat_template"],
    }


def _tokenizer(meta: _Metadata) -> dict[str, Any]:
    """The ``tokenizer.json`` of kind ``smollm``: single digits, then GPT-2's byte-level BPE."""
    tokens: list[str] = meta["tokenizer.ggml.tokens"]
    types: list[int] = meta["tokenizer.ggml.token_type"]
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": True,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == _CONTROL_TOKEN
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in meta["tokenizer.ggml.merges"]],
        },
    }


def _tensors(reader: Any, meta: _Metadata) -> Iterator[tuple[str, Any]]:
    """Yield (name in the safetensors file, float16 array), dequantised one at a time."""
    import gguf

    rotary_heads = {
        "attn_q.weight": meta["llama.attention.head_count"],
        "attn_k.weight": meta["llama.attention.head_count_kv"],
    }
    for tensor in reader.tensors:
        prefix, _, rest = tensor.name.partition(".")
        block, _, part = rest.partition(".")
        if tensor.name in _TOP_LEVEL:
            name = _TOP_LEVEL[tensor.name]
        elif prefix == "blk" and part in _PER_BLOCK:
            name = f"model.layers.{block}.{_PER_BLOCK[part]}"
        else:
            raise ModelCorruptError(f"GGUF: the tensor {tensor.name!r} is not known")
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        values = values.reshape([int(n) for n in reversed(tensor.shape)])
        if part in rotary_heads:
            # GGUF interleaves the two halves that rotary embedding mixes; undo it.
            heads, (rows, columns) = rotary_heads[part], values.shape
            paired = values.reshape(heads, rows // heads // 2, 2, columns)
            values = paired.swapaxes(1, 2).reshape(rows, columns)
        yield name, np.ascontiguousarray(values, dtype=np.float16)


def _write_weights(
    reader: Any, meta: _Metadata, path: Path, progress: Callable[[int, int], None] | None
) -> None:
    from safetensors.numpy import save_file

    state: dict[str, Any] = {}
    total = len(reader.tensors)
    for name, values in _tensors(reader, meta):
        state[name] = values
        if progress is not None:
            progress(len(state), total)
    save_file(state, path, metadata={"format": "pt"})
    # safetensors makes files that only their owner can read; a cache may be shared.
    path.chmod((path.parent / "config.json").stat().st_mode)
