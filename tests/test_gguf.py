"""The conversion of a GGUF model, on a tiny one written here with known weights."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from riemem._gguf import convert_llama
from riemem.errors import ModelCorruptError

gguf = pytest.importorskip("gguf")
numpy_files = pytest.importorskip("safetensors.numpy")

WIDTH, FORWARD, HEADS, KV_HEADS, BLOCKS = 64, 96, 4, 2, 2
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def interleave(rows: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to query and key weights, row by row."""
    out, half = np.empty_like(rows), rows.shape[0] // heads // 2
    for head in range(heads):
        for i in range(half):
            for part in (0, 1):
                out[head * 2 * half + 2 * i + part] = rows[head * 2 * half + part * half + i]
    return out


def weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    kv = WIDTH // HEADS * KV_HEADS
    shapes = {"model.embed_tokens.weight": (8, WIDTH), "model.norm.weight": (WIDTH,)}
    for block in range(BLOCKS):
        shapes |= {
            f"model.layers.{block}.{name}.weight": shape
            for name, shape in {
                "input_layernorm": (WIDTH,),
                "self_attn.q_proj": (WIDTH, WIDTH),
                "self_attn.k_proj": (kv, WIDTH),
                "self_attn.v_proj": (kv, WIDTH),
                "self_attn.o_proj": (WIDTH, WIDTH),
                "post_attention_layernorm": (WIDTH,),
                "mlp.gate_proj": (FORWARD, WIDTH),
                "mlp.up_proj": (FORWARD, WIDTH),
                "mlp.down_proj": (WIDTH, FORWARD),
            }.items()
        }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def write_model(
    path: Path,
    *,
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    pre: str = "smollm",
    extra: str | None = None,
) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*CONTROL, "a", "b", "ab", "1", "Ġ"])
    writer.add_token_types([3, 3, 3, 1, 1, 1, 1, 1])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template("{{ messages }}")
    for name, values in weights().items():
        stem = name.removesuffix(".weight")
        prefix = ""
        if stem.startswith("model.layers."):
            block, _, stem = stem.removeprefix("model.layers.").partition(".")
            prefix = f"blk.{block}."
        if "q_proj" in stem or "k_proj" in stem:
            values = interleave(values, HEADS if "q_proj" in stem else KV_HEADS)
        if values.ndim == 2 and kind != gguf.GGMLQuantizationType.F32:
            packed = gguf.quantize(values, kind)
            writer.add_tensor(f"{prefix}{GGUF_NAMES[stem]}.weight", packed, raw_dtype=kind)
        else:
            writer.add_tensor(f"{prefix}{GGUF_NAMES[stem]}.weight", values)
    if extra is not None:
        writer.add_tensor(extra, np.zeros(4, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_weights_come_back_in_their_own_order(tmp_path):
    steps = []
    names = convert_llama(
        write_model(tmp_path / "m.gguf"), tmp_path, progress=lambda *step: steps.append(step)
    )
    state = numpy_files.load_file(tmp_path / "model.safetensors")
    expected = weights()
    assert state.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(state[name], values.astype(np.float16), err_msg=name)
    assert all((tmp_path / name).exists() for name in names)
    assert steps[-1] == (len(expected), len(expected))


def test_quantised_blocks_are_expanded(tmp_path):
    kind = gguf.GGMLQuantizationType.Q8_0
    convert_llama(write_model(tmp_path / "m.gguf", kind=kind), tmp_path)
    state = numpy_files.load_file(tmp_path / "model.safetensors")
    for name, values in weights().items():
        # Half a step of an eight-bit block, plus the rounding to float16.
        np.testing.assert_allclose(state[name], values, atol=np.abs(values).max() / 127 * 0.6)


def test_config_and_tokenizer(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    convert_llama(write_model(tmp_path / "m.gguf"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["hidden_size"], config["intermediate_size"]) == (WIDTH, FORWARD)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (HEADS, KV_HEADS)
    assert config["rms_norm_eps"] == 1e-5
    assert config["tie_word_embeddings"] is True
    tokenizer = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("ab ba11").tokens == ["ab", "Ġ", "b", "a", "1", "1"]
    assert tokenizer.encode("ab<|im_end|>").ids == [5, 2]
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (settings["eos_token"], settings["bos_token"]) == ("<|im_end|>", "<|im_start|>")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_transformers_can_run_the_result(tmp_path):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    convert_llama(write_model(tmp_path / "m.gguf"), tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.dtype == torch.float32
    with torch.no_grad():
        logits = model(torch.tensor([[1, 3, 4]])).logits
    assert logits.shape == (1, 3, 8)
    assert bool(torch.isfinite(logits).all())


@pytest.mark.parametrize("content", [b"", b"GGUF", b"not a model at all, only text" * 9])
def test_file_that_is_no_gguf(tmp_path, content):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelCorruptError, match=r"^bad\.gguf: not a readable GGUF file"):
        convert_llama(path, tmp_path)


def test_other_kinds_of_model(tmp_path):
    with pytest.raises(ModelCorruptError, match="expected architecture 'llama' with tokenizer"):
        convert_llama(write_model(tmp_path / "m.gguf", pre="qwen2"), tmp_path)
    with pytest.raises(ModelCorruptError, match=r"the tensor 'blk\.0\.mystery' is not known"):
        convert_llama(write_model(tmp_path / "n.gguf", extra="blk.0.mystery"), tmp_path)
