"""Any sentence-transformers folder, and ONNX models: against torch by hand and a graph by hand."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from riemem.embed import (
    Embedder,
    OnnxEmbedder,
    SentenceEmbedder,
    TokenEmbedder,
    export_onnx,
    load_embedder,
)
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    DTypeError,
    ModelCorruptError,
    ModelNotFoundError,
)
from riemem.memory import Memory

_LINE = "[PAD] [UNK] [CLS] [SEP] dave maya said tea boat red blue find query : passage"
WORDS = _LINE.split()
TEXTS = ["Dave said tea", "red boat blue boat red", "maya", ""]
WIDTH = 8


def make_tokenizer(folder: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import models, normalizers, pre_tokenizers, processors

    made = tokenizers.Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    made.normalizer = normalizers.Sequence([])
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(WORDS[:4])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    made.save(str(folder / "tokenizer.json"))


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with random weights and a tokenizer of fifteen words."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("bert")
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=24,
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model = transformers.BertModel(config).eval()
        # The usual start is so near to zero that every text has nearly the same vector.
        state = {
            name: torch.randn_like(value) * 0.5 if value.dim() > 1 else value
            for name, value in model.state_dict().items()
        }
    save_file(
        {name: value.contiguous() for name, value in state.items()}, folder / "model.safetensors"
    )
    write(folder / "config.json", config.to_dict() | {"model_type": "bert"})
    make_tokenizer(folder)
    return folder


def folder_like(bert: Path, target: Path, base: str = "") -> Path:
    """A copy of the tiny encoder in the layout of sentence-transformers."""
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        (target / base).mkdir(parents=True, exist_ok=True)
        (target / base / name).write_bytes((bert / name).read_bytes())
    return target


def states_by_hand(bert: Path, texts: list[str]) -> list[Any]:
    """Per text the states of its own tokens, from transformers, one text at a time."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig.from_pretrained(bert)).eval()
    model.load_state_dict(load_file(bert / "model.safetensors"))
    found = []
    with torch.no_grad():
        for text in texts:
            words = text.replace(":", " :").split()
            ids = [2, *(WORDS.index(w) if w in WORDS else 1 for w in words), 3]
            found.append(model(torch.tensor([ids])).last_hidden_state[0].double())
    return found


def modules(*extra: tuple[str, str], base: str = "") -> list[dict[str, str]]:
    kinds = [("Transformer", base), ("Pooling", "1_Pooling"), *extra]
    return [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(kinds)
    ]


def test_every_pooling_is_that_of_torch(bert: Path, tmp_path: Path) -> None:
    import torch

    states = states_by_hand(bert, TEXTS)
    expected = {
        "cls_token": [s[0] for s in states],
        "max_tokens": [s.max(0).values for s in states],
        "mean_tokens": [s.mean(0) for s in states],
        "mean_sqrt_len_tokens": [s.sum(0) / len(s) ** 0.5 for s in states],
        "weightedmean_tokens": [
            torch.einsum("n,nd->d", torch.arange(1.0, len(s) + 1, dtype=torch.double), s)
            for s in states
        ],
        "lasttoken": [s[-1] for s in states],
    }
    for mode, rows in expected.items():
        folder = folder_like(bert, tmp_path / mode)
        write(folder / "1_Pooling/config.json", {f"pooling_mode_{mode}": True})
        write(folder / "modules.json", modules(("Normalize", "2_Normalize")))
        unit = torch.nn.functional.normalize(torch.stack(rows)).numpy()
        found = SentenceEmbedder(folder, batch_size=3).embed(TEXTS)
        np.testing.assert_allclose(found, unit, atol=1e-6, err_msg=mode)
    both = folder_like(bert, tmp_path / "both")
    write(
        both / "1_Pooling/config.json",
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True},
    )
    joined = torch.stack([torch.cat([s[0], s.mean(0)]) for s in states])
    embedder = SentenceEmbedder(both)
    assert (embedder.dim, embedder.files.pooling) == (2 * WIDTH, "cls+mean")
    np.testing.assert_allclose(
        embedder.embed(TEXTS), torch.nn.functional.normalize(joined).numpy(), atol=1e-6
    )


def test_dense_layers_follow_the_pooling(bert: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    states = states_by_hand(bert, TEXTS)
    torch.manual_seed(1)
    for name, function in (
        ("Tanh", torch.tanh),
        ("ReLU", torch.relu),
        ("Sigmoid", torch.sigmoid),
        ("GELU", torch.nn.functional.gelu),
        ("Identity", lambda x: x),
    ):
        folder = folder_like(bert, tmp_path / name, base="0_Transformer")
        write(folder / "config.json", {})  # models.find looks for one
        layer = torch.nn.Linear(WIDTH, 5)
        write(
            folder / "2_Dense/config.json",
            {
                "in_features": WIDTH,
                "out_features": 5,
                "bias": True,
                "activation_function": f"torch.nn.modules.activation.{name}",
            },
        )
        save_file(
            {f"linear.{key}": value.detach().clone() for key, value in layer.state_dict().items()},
            folder / "2_Dense/model.safetensors",
        )
        write(folder / "1_Pooling/config.json", {"pooling_mode": "mean"})
        write(folder / "modules.json", modules(("Dense", "2_Dense"), base="0_Transformer"))
        with torch.no_grad():
            rows = function(layer.double()(torch.stack([s.mean(0) for s in states])))
        unit = torch.nn.functional.normalize(rows).numpy()
        embedder = load_embedder(folder)
        assert embedder.dim == 5
        np.testing.assert_allclose(embedder.embed(TEXTS), unit, atol=1e-6, err_msg=name)


def test_prompts_stand_before_queries_and_memories(bert: Path, tmp_path: Path) -> None:
    folder = folder_like(bert, tmp_path / "p")
    write(
        folder / "config_sentence_transformers.json",
        {"prompts": {"query": "query : ", "passage": "passage : "}, "default_prompt_name": None},
    )
    plain, embedder = SentenceEmbedder(bert), SentenceEmbedder(folder)
    np.testing.assert_array_equal(
        embedder.embed_queries(["red tea"]), plain.embed(["query : red tea"])
    )
    np.testing.assert_array_equal(embedder.embed(["red tea"]), plain.embed(["passage : red tea"]))
    own = SentenceEmbedder(folder, query_prompt="find ", document_prompt="")
    np.testing.assert_array_equal(own.embed_queries(["tea"]), plain.embed(["find tea"]))
    np.testing.assert_array_equal(own.embed(["tea"]), plain.embed(["tea"]))
    assert len({plain.identity, embedder.identity, own.identity}) == 3
    # A window leaves room for the longer prompt; what the search embeds is the query's vector.
    assert max(len(w.split()) for w in embedder.windows("tea " * 90)) == 24 - 2 - 2
    with Memory.open(":memory:", embedder=embedder) as memory:
        memory.add("red tea")
        hit = memory.search("blue tea", explain=True)[0]
        query, row = embedder.embed_queries(["blue tea"])[0], embedder.embed(["red tea"])[0]
        assert hit.channels["cosine"] == pytest.approx(float(query @ row), abs=1e-6)
    write(
        folder / "1_Pooling/config.json",
        {"pooling_mode_mean_tokens": True, "include_prompt": False},
    )
    import torch

    kept = states_by_hand(bert, ["query : red tea"])[0][3:]  # neither [CLS] nor the two words
    unit = torch.nn.functional.normalize(kept.mean(0), dim=0).numpy()
    np.testing.assert_allclose(
        SentenceEmbedder(folder).embed_queries(["red tea"])[0], unit, atol=1e-6
    )


def test_tokens_are_those_of_the_text_alone(bert: Path, tmp_path: Path) -> None:
    import torch

    folder = folder_like(bert, tmp_path / "t")
    write(folder / "config_sentence_transformers.json", {"prompts": {"query": "query : "}})
    write(folder / "modules.json", modules())
    embedder = SentenceEmbedder(folder, batch_size=2)
    assert isinstance(embedder, TokenEmbedder)
    rows, tokens = embedder.embed_with_tokens(TEXTS)
    np.testing.assert_array_equal(rows, embedder.embed(TEXTS))
    for text, found, states in zip(TEXTS, tokens, states_by_hand(bert, TEXTS), strict=True):
        words = [text[a:b] for a, b in zip(found.starts, found.ends, strict=True)]
        assert words == text.split()
        unit = torch.nn.functional.normalize(states[1:-1]).numpy()
        np.testing.assert_allclose(found.vectors, unit, atol=1e-6)
    rows, (asked,) = embedder.embed_queries_with_tokens(["red tea"])
    np.testing.assert_array_equal(rows, embedder.embed_queries(["red tea"]))
    assert (asked.starts.tolist(), asked.ends.tolist()) == ([0, 4], [3, 7])
    unit = torch.nn.functional.normalize(states_by_hand(bert, ["query : red tea"])[0][3:-1])
    np.testing.assert_allclose(asked.vectors, unit.numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ({"pooling_mode_mean_tokens": True}, True),
        ({"pooling_mode_weightedmean_tokens": True}, True),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, True),
        ({"pooling_mode_cls_token": True}, False),
        ({"pooling_mode_max_tokens": True}, False),
        ({"pooling_mode_lasttoken": True}, False),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, True),
    ],
)
def test_a_new_store_keeps_tokens_whose_mean_is_the_vector(
    bert: Path, tmp_path: Path, config: dict[str, bool], kept: bool
) -> None:
    folder = folder_like(bert, tmp_path / "p")
    write(folder / "modules.json", modules())
    write(folder / "1_Pooling/config.json", config)
    with Memory.open(tmp_path / "me.db", embedder=folder) as memory:
        memory.add("red tea")
        assert memory.stats()["late_interaction"]["on"] == kept
        assert memory.enable_late_interaction().memories == 1


def test_tokens_lie_where_they_did_before_letters_were_made_small(
    bert: Path, tmp_path: Path
) -> None:
    folder = folder_like(bert, tmp_path / "s")
    write(folder / "sentence_bert_config.json", {"do_lower_case": True})
    text = "İİ Tea İ BOAT"  # each İ becomes two characters
    (found,) = SentenceEmbedder(folder).embed_with_tokens([text])[1]
    words = {text[a:b] for a, b in zip(found.starts, found.ends, strict=True)}
    assert {"Tea", "BOAT"} <= words
    assert int(found.ends[-1]) == len(text)


def test_lower_case_and_length_limit_are_those_of_the_folder(bert: Path, tmp_path: Path) -> None:
    folder = folder_like(bert, tmp_path / "l")
    write(folder / "sentence_bert_config.json", {"max_seq_length": 4, "do_lower_case": True})
    embedder, plain = SentenceEmbedder(folder), SentenceEmbedder(bert)
    assert embedder.max_tokens == 4
    np.testing.assert_array_equal(embedder.embed(["DAVE Tea boat"]), plain.embed(["dave tea"]))
    assert embedder.identity != plain.identity


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("1_Pooling/config.json", {"pooling_mode": "magic"}, "expected poolings out of"),
        ("modules.json", [{"type": "x.Dense", "path": ""}], "outside of the folder"),
        ("modules.json", [{"type": "x.Transformer", "path": "../x"}], "outside of the folder"),
        ("modules.json", [{"type": "x.WeightedLayerPooling"}], "WeightedLayerPooling"),
        ("config_sentence_transformers.json", {"prompts": ["x"]}, "prompts is not an object"),
        ("config.json", {"hidden_size": 8, "model_type": "t5", "is_encoder_decoder": True}, "t5"),
    ],
)
def test_what_cannot_be_done_as_the_folder_says_is_refused(
    bert: Path, tmp_path: Path, file: str, value: Any, message: str
) -> None:
    write(folder_like(bert, tmp_path / "x") / file, value)
    with pytest.raises(ModelCorruptError, match=message):
        load_embedder(tmp_path / "x")


def test_bad_options() -> None:
    with pytest.raises(DTypeError, match=r"^query_prompt: "):
        SentenceEmbedder("x", query_prompt=3)  # type: ignore[arg-type]
    with pytest.raises(ModelNotFoundError):
        _ = OnnxEmbedder("/no/such/folder").dim


class TestOnnx:
    """A graph that looks word vectors up and doubles them: every answer is known."""

    table = np.random.default_rng(5).standard_normal((len(WORDS), WIDTH)).astype(np.float32)

    def folder(self, target: Path, file: str = "onnx/model_quantized.onnx", **options: Any) -> Path:
        onnx = pytest.importorskip("onnx")
        pytest.importorskip("onnxruntime")
        from onnx import TensorProto, helper, numpy_helper

        kind = options.get("kind", TensorProto.INT64)
        names = options.get("inputs", ("input_ids", "attention_mask", "token_type_ids"))
        out = ["last_hidden_state"]
        flat = options.get("flat", False)
        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("ReduceMean", ["rows"], out, axes=[1], keepdims=0)
            if flat
            else helper.make_node("Add", ["rows", "rows"], out),
        ]
        shape = ["batch", WIDTH] if flat else ["batch", "tokens", WIDTH]
        graph = helper.make_graph(
            nodes,
            "words",
            [helper.make_tensor_value_info(n, kind, ["batch", "tokens"]) for n in names],
            [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, shape)],
            [numpy_helper.from_array(self.table, "table")],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        onnx.save(made, str(target / file))
        make_tokenizer(target)
        width = options.get("width", WIDTH)
        config = {"hidden_size": width, "max_position_embeddings": 24, "model_type": "bert"}
        write(target / "config.json", config)
        return target

    def expected(self, text: str) -> np.ndarray:
        ids = [2, *(WORDS.index(w) if w in WORDS else 1 for w in text.split()), 3]
        mean = self.table[ids].astype(np.float64).mean(axis=0)
        return mean / np.linalg.norm(mean)

    def test_vectors_are_those_of_the_graph(self, tmp_path: Path) -> None:
        embedder = load_embedder(self.folder(tmp_path / "m"))
        assert isinstance(embedder, OnnxEmbedder)
        assert isinstance(embedder, Embedder)
        assert embedder.identity.startswith("bert-onnx:8:mean:24:sha256=")
        texts = ["dave said tea", "red boat", ""]
        rows = np.array([self.expected(text) for text in texts])
        np.testing.assert_allclose(embedder.embed(texts), rows, atol=1e-6)
        for size in (2, 3):
            again = OnnxEmbedder(tmp_path / "m", batch_size=size, threads=1).embed(texts)
            np.testing.assert_array_equal(again, embedder.embed(texts))
        with Memory.open(":memory:", embedder=tmp_path / "m") as memory:
            memory.add_many([{"text": "red boat"}, {"text": "dave said tea"}])
            assert memory.search("tea", k=1)[0].text == "dave said tea"

    def test_where_the_file_lies_and_which_inputs_it_has(self, tmp_path: Path) -> None:
        from onnx import TensorProto

        for file, kind, inputs in (
            ("model.onnx", TensorProto.INT32, ("input_ids",)),
            ("onnx/model_int8.onnx", TensorProto.INT64, ("input_ids", "position_ids")),
        ):
            folder = self.folder(tmp_path / file, file, kind=kind, inputs=inputs)
            found = load_embedder(folder).embed(["tea"])[0]
            np.testing.assert_allclose(found, self.expected("tea"), atol=1e-6)
        odd = self.folder(tmp_path / "odd", "onnx/mine.onnx")
        by_file = load_embedder(odd / "onnx/mine.onnx")
        np.testing.assert_allclose(by_file.embed(["tea"])[0], self.expected("tea"), atol=1e-6)
        with pytest.raises(ModelCorruptError, match="holds no ONNX model"):
            _ = OnnxEmbedder(odd).dim

    def test_models_that_are_no_encoders(self, tmp_path: Path) -> None:
        flat = self.folder(tmp_path / "flat", flat=True)
        with pytest.raises(ModelCorruptError, match="expected an output"):
            load_embedder(flat).embed(["tea"])
        odd = self.folder(tmp_path / "odd", inputs=("input_ids", "pixel_values"))
        with pytest.raises(ModelCorruptError, match="pixel_values"):
            load_embedder(odd).embed(["tea"])
        wide = self.folder(tmp_path / "wide", width=9)
        with pytest.raises(ModelCorruptError, match=r"expected hidden states of shape \(1, 3, 9\)"):
            load_embedder(wide).embed(["tea"])
        broken = self.folder(tmp_path / "broken")
        (broken / "onnx/model_quantized.onnx").write_bytes(b"not a model")
        with pytest.raises(ModelCorruptError, match="onnxruntime cannot run it"):
            load_embedder(broken).embed(["tea"])

    def test_without_onnxruntime(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = self.folder(tmp_path / "m")
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        with pytest.raises(BackendUnavailableError, match=r"pip install 'riemem\[onnx\]'"):
            load_embedder(folder).embed(["tea"])
        with pytest.raises(BackendUnavailableError, match=r"pip install 'riemem\[onnx\]'"):
            export_onnx("minilm", tmp_path / "new")
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("int8", [False, True])
def test_an_exported_model_gives_the_vectors_of_torch(
    bert: Path, tmp_path: Path, int8: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    folder = folder_like(bert, tmp_path / "source")
    write(folder / "1_Pooling/config.json", {"pooling_mode_mean_tokens": True})
    level = logging.getLogger().level
    made = export_onnx(folder, tmp_path / "made", int8=int8)
    assert logging.getLogger().level == level
    assert sorted(p.name for p in (made / "onnx").iterdir()) == [
        "model_int8.onnx" if int8 else "model.onnx"
    ]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made", "source"]
    embedder, plain = load_embedder(made), SentenceEmbedder(folder)
    assert isinstance(embedder, OnnxEmbedder)
    assert embedder.identity != plain.identity
    rows, same = embedder.embed(TEXTS), plain.embed(TEXTS)
    if int8:
        assert (rows * same).sum(axis=1).min() > 0.98
        np.testing.assert_array_equal(rows[::-1], embedder.embed(TEXTS[::-1]))
    else:
        np.testing.assert_allclose(rows, same, atol=1e-5)
        assert isinstance(embedder, TokenEmbedder)
        given, wanted = (e.embed_with_tokens(TEXTS)[1] for e in (embedder, plain))
        for own, other in zip(given, wanted, strict=True):
            np.testing.assert_array_equal(own.starts, other.starts)
            np.testing.assert_allclose(own.vectors, other.vectors, atol=1e-5)
    assert capfd.readouterr().out == ""
    with pytest.raises(ArgumentError, match="exists"):
        export_onnx(folder, made)


@pytest.mark.model
def test_minilm_in_int8_means_the_same(minilm: SentenceEmbedder, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    embedder = load_embedder(export_onnx("minilm", tmp_path / "int8"))
    texts = ["Dave took up photography", "He bought his first camera", "The tax form is due"]
    rows = embedder.embed(texts)
    assert (rows * minilm.embed(texts)).sum(axis=1).min() > 0.98
    assert rows[0] @ rows[1] > 0.3 > rows[0] @ rows[2]
    size = (tmp_path / "int8/onnx/model_int8.onnx").stat().st_size
    assert size < 0.3 * (minilm.files.folder / "model.safetensors").stat().st_size
