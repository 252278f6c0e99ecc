"""The embedders: unit rows in order, the same in any batch, and no trace left in torch."""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem import _windows, models
from riemem.embed import (
    RENDERINGS,
    Embedder,
    HashingEmbedder,
    MiniLMEmbedder,
    Windows,
    load_embedder,
    render_turn,
)
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    DTypeError,
    ModelCorruptError,
    ModelNotFoundError,
    TextError,
)

TURNS = [
    f'{name} said, "{verb} {noun} in {year}{", and again" * (i % 7)}"'
    for i, (name, verb, noun, year) in enumerate(
        zip(
            ["Dave", "Maya", "Léa", "Ken"] * 10,
            ["bought", "sold", "missed", "painted", "lost"] * 8,
            ["a red bicycle", "the piano", "two tickets", "her keys 🔑"] * 10,
            range(1984, 2024),
            strict=True,
        )
    )
]
MIXED = ["word ", "é", "日", "👍🏽", "\n", "un", "a\u0301", ".", "🇵🇹"]
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


class TestRendering:
    def test_the_three_renderings(self):
        turn = {"speaker": "Maya", "when": "2023-05-08T00:00:00+00:00", "caption": "a cat"}
        assert RENDERINGS["name-said"]("Hi", **turn) == 'Maya said, "Hi" [shares a cat]'
        assert RENDERINGS["name-text"]("Hi", **turn) == "Maya: Hi [shares a cat]"
        assert RENDERINGS["text"]("Hi", **turn) == "Hi"
        assert list(RENDERINGS) == ["name-said", "name-text", "text"]

    def test_without_speaker_or_caption(self):
        assert render_turn("Hi") == RENDERINGS["name-text"]("Hi") == "Hi"
        assert render_turn("Hi", speaker="") == "Hi"
        assert render_turn("Hi", speaker="Maya") == 'Maya said, "Hi"'


class TestHashingEmbedder:
    @given(st.lists(text, max_size=5), st.integers(1, 700))
    def test_unit_rows_for_every_text(self, texts, dim):
        rows = HashingEmbedder(dim=dim).embed(texts)
        assert rows.shape == (len(texts), dim)
        assert rows.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(rows.astype(np.float64), axis=1), 1, atol=1e-6)

    def test_same_vectors_in_another_process(self):
        code = (
            "from riemem.embed import HashingEmbedder\n"
            "print(HashingEmbedder(dim=600, seed=3).embed(['Zoë ate 3 plums!']).tobytes().hex())"
        )
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        rows = HashingEmbedder(dim=600, seed=3).embed(["Zoë ate 3 plums!"])
        assert result.stdout.strip() == rows.tobytes().hex()

    def test_shared_words_are_near_others_are_not(self):
        rows = HashingEmbedder(dim=256).embed(
            [
                "Dave bought a camera",
                "a camera Dave bought",
                "which camera did Dave buy",
                "tax form",
            ]
        )
        similar = rows @ rows.T
        assert similar[0, 1] == pytest.approx(1.0, abs=1e-6)
        assert similar[0, 2] > 0.4 > abs(similar[0, 3])

    def test_seed_and_case(self):
        first, other = HashingEmbedder(seed=0), HashingEmbedder(seed=1)
        assert abs(float(first.embed(["piano"])[0] @ other.embed(["piano"])[0])) < 0.5
        assert first.identity != other.identity != HashingEmbedder(dim=32, seed=1).identity
        np.testing.assert_array_equal(*first.embed(["PIANO", "piano"])[:, None])

    def test_bad_arguments(self):
        with pytest.raises(ArgumentError, match=r"^dim: "):
            HashingEmbedder(dim=0)
        with pytest.raises(ArgumentError, match=r"^seed: "):
            HashingEmbedder(seed="x")

    def test_protocol_and_windows(self, hashing_embedder):
        assert isinstance(hashing_embedder, Embedder)
        windows = hashing_embedder.windows("a b")
        assert (list(windows), windows.spans, windows.truncated) == (["a b"], [(0, 3)], False)


@pytest.mark.parametrize("call", [HashingEmbedder().embed, MiniLMEmbedder().embed])
def test_texts_that_are_refused(call):
    with pytest.raises(DTypeError, match=r"^texts: expected a sequence of str, got a single str"):
        call("one string")
    with pytest.raises(TextError, match=r"^texts\[1\]: .*lone surrogate U\+DC80 at character 2"):
        call(["fine", "ab\udc80"])
    with pytest.raises(TextError, match=r"^texts\[0\]: expected str, got NoneType"):
        call([None])


def test_importing_the_module_loads_neither_torch_nor_transformers():
    code = (
        "import sys; from riemem.embed import MiniLMEmbedder, HashingEmbedder\n"
        "MiniLMEmbedder(); HashingEmbedder().embed(['x'])\n"
        "print([m for m in ('torch', 'transformers', 'tokenizers') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


class TestLoadEmbedder:
    def test_kinds_of_spec(self, hashing_embedder, tmp_path, monkeypatch):
        assert load_embedder(hashing_embedder) is hashing_embedder
        assert isinstance(load_embedder(None), MiniLMEmbedder)
        with pytest.raises(DTypeError, match=r"^embedder: expected a name"):
            load_embedder(3)
        monkeypatch.setenv("RIEMEM_CACHE", str(tmp_path))
        absent = MiniLMEmbedder()
        assert load_embedder(absent) is absent
        with pytest.raises(ModelNotFoundError, match="riemem models pull minilm"):
            load_embedder("minilm")
        with pytest.raises(ModelNotFoundError, match="riemem models pull minilm"):
            _ = MiniLMEmbedder().identity

    @pytest.mark.parametrize("options", [{"batch_size": 0}, {"threads": 0}, {"batch_size": 1.5}])
    def test_bad_options(self, options):
        with pytest.raises(ArgumentError, match=f"^{next(iter(options))}: "):
            MiniLMEmbedder(**options)


@pytest.mark.model
class TestMiniLM:
    def test_meaning(self, minilm):
        rows = minilm.embed(
            ["Dave took up photography", "He bought his first camera", "The tax form is due"]
        )
        assert rows[0] @ rows[1] > 0.3 > rows[0] @ rows[2]

    def test_same_vectors_as_transformers_by_hand(self, minilm):
        torch = pytest.importorskip("torch")
        transformers = pytest.importorskip("transformers")
        # Another attention code than the default one, and padding on purpose.
        model = transformers.BertModel.from_pretrained(
            minilm.files.folder, attn_implementation="eager"
        ).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(minilm.files.folder)
        texts = ["short", 'Léa said, "I missed two tickets 🔑"', "long " * 300]
        encoded = tokenizer(
            texts, padding="max_length", truncation=True, max_length=256, return_tensors="pt"
        )
        with torch.no_grad():
            hidden = model(**encoded).last_hidden_state
        mask = encoded["attention_mask"][:, :, None]
        expected = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
        np.testing.assert_allclose(minilm.embed(texts), expected.numpy(), atol=2e-6)

    def test_batch_size_does_not_change_the_vectors(self, minilm):
        results = {}
        for size in (1, 8, 40):
            embedder = MiniLMEmbedder(batch_size=size, threads=1)
            embedder._model = minilm.files.load()
            results[size] = embedder.embed(TURNS)
            assert embedder.identity == minilm.identity
        assert np.abs(results[1] - results[8]).max() <= 1e-6
        assert np.abs(results[1] - results[40]).max() <= 1e-6
        np.testing.assert_allclose(np.linalg.norm(results[8], axis=1), 1, atol=1e-6)

    def test_order_is_that_of_the_input(self, minilm):
        rows = minilm.embed(TURNS)
        again = minilm.embed(TURNS[::-1])[::-1]
        assert np.abs(rows - again).max() <= 1e-6

    def test_empty_list_and_odd_texts(self, minilm):
        assert minilm.embed([]).shape == (0, 384)
        rows = minilm.embed(["", "\x00", "🙂", "مرحبا", "日本語", "a" * 2000])
        assert np.isfinite(rows).all()

    def test_control_strings_are_ordinary_text(self, minilm):
        files = minilm.files
        special = files.tokenizer().token_to_id("[SEP]")
        ids = files.token_ids("see [SEP] here [CLS]")
        assert ids[-1] == special
        assert special not in ids[:-1]
        assert ids.count(files.tokenizer().token_to_id("[CLS]")) == 1

    def test_only_the_first_256_tokens_count(self, minilm):
        assert len(minilm.files.token_ids("word " * 400)) == 256
        rows = minilm.embed(["word " * 254 + "and the piano", "word " * 254])
        np.testing.assert_array_equal(rows[0], rows[1])

    def test_global_state_of_torch_is_left_alone(self, minilm):
        torch = pytest.importorskip("torch")
        torch.manual_seed(5)
        before = torch.get_rng_state()
        embedder = MiniLMEmbedder(threads=1)
        torch.set_default_dtype(torch.float64)
        threads = torch.get_num_threads()
        try:
            torch.set_num_threads(2)
            rows = embedder.embed(["hello"])
            assert torch.get_num_threads() == 2
            assert torch.get_default_dtype() == torch.float64
        finally:
            torch.set_default_dtype(torch.float32)
            torch.set_num_threads(threads)
        assert torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        assert torch.equal(torch.get_rng_state(), before)
        np.testing.assert_allclose(rows, minilm.embed(["hello"]), atol=1e-6)
        assert all(not p.requires_grad for p in embedder._model.parameters())

    def test_autocast_of_the_caller_does_not_reach_it(self, minilm):
        torch = pytest.importorskip("torch")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rows = minilm.embed(["hello"])
        np.testing.assert_array_equal(rows, minilm.embed(["hello"]))

    def test_shared_between_threads(self, minilm):
        embedder, results = MiniLMEmbedder(threads=1), {}
        barrier = threading.Barrier(4)

        def work(i: int) -> None:
            barrier.wait()
            results[i] = embedder.embed(TURNS[i : i + 3])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i in range(4):
            np.testing.assert_allclose(results[i], minilm.embed(TURNS[i : i + 3]), atol=1e-6)

    def test_no_network(self, minilm, monkeypatch):
        def refuse(*_: object) -> None:
            raise AssertionError("a connection was attempted")

        monkeypatch.setattr(socket.socket, "connect", refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        embedder = MiniLMEmbedder(threads=1)
        embedder.embed(["hello"])
        models.token_counter()

    @pytest.mark.parametrize("package", ["torch", "transformers", "tokenizers"])
    def test_missing_package_is_named_with_the_command(self, minilm, monkeypatch, package):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            BackendUnavailableError, match=rf"{package}.*pip install 'riemem\[text\]'"
        ):
            MiniLMEmbedder().embed(["hello"])

    def test_loading_prints_nothing(self, minilm, capfd):
        MiniLMEmbedder(threads=1).embed(["hello"])
        assert capfd.readouterr() == ("", "")

    def test_identity_is_that_of_the_content(self, minilm, tmp_path):
        name, dim, pooling, limit, digest = minilm.identity.split(":")
        assert (name, dim, pooling, limit) == ("minilm-l6-v2", "384", "mean", "256")
        assert len(digest) == len("sha256=") + 16
        copy = tmp_path / "copy"
        shutil.copytree(minilm.files.folder, copy)
        (copy / "manifest.json").unlink()
        assert load_embedder(copy).identity == minilm.identity
        with (copy / "tokenizer.json").open("a") as file:
            file.write(" ")
        assert load_embedder(copy).identity != minilm.identity

    def test_unusable_folders(self, minilm, tmp_path):
        small = [p for p in minilm.files.folder.iterdir() if p.is_file() and p.stat().st_size < 1e6]
        for path in small:
            if path.name != "manifest.json":
                shutil.copy(path, tmp_path / path.name)
        with pytest.raises(ModelCorruptError, match=r"model\.safetensors cannot be read"):
            load_embedder(tmp_path).embed(["x"])
        (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}      ")
        with pytest.raises(ModelCorruptError, match=r"model\.safetensors lacks"):
            load_embedder(tmp_path).embed(["x"])
        (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.CNN"}]')
        with pytest.raises(ModelCorruptError, match="not known: CNN"):
            load_embedder(tmp_path)
        (tmp_path / "modules.json").unlink()
        config = json.loads((tmp_path / "config.json").read_text())
        del config["hidden_size"]
        (tmp_path / "config.json").write_text(json.dumps(config))
        with pytest.raises(ModelCorruptError, match=r"config\.json is not that of an encoder"):
            load_embedder(tmp_path)


@pytest.mark.model
class TestWindows:
    def check(self, minilm: MiniLMEmbedder, source: str) -> Windows:
        windows = minilm.windows(source)
        assert [source[a:b] for a, b in windows.spans] == list(windows)
        assert windows.spans[0][0] == 0
        assert len(windows) <= 64
        for (a, b), (c, d) in zip(windows.spans, windows.spans[1:], strict=False):
            assert a < c <= b < d
        tokenizer = minilm.files.tokenizer()
        if len(windows) > 1:
            lengths = [len(tokenizer.encode(w, add_special_tokens=False).ids) for w in windows]
            assert max(lengths) <= 254
        assert windows.truncated == (windows.spans[-1][1] < len(source))
        return windows

    def test_short_text_is_its_own_window(self, minilm):
        for source in ("", "hello", "word " * 254):
            windows = self.check(minilm, source)
            assert (list(windows), windows.truncated) == ([source], False)

    def test_end_of_a_long_text_is_found(self, minilm):
        source = (
            "Maya moved the dentist appointment. " * 400 + "The spare key is under the blue pot."
        )
        windows = self.check(minilm, source)
        assert not windows.truncated
        assert all(window[0].isupper() or window[0].islower() for window in windows)
        assert all(source[b - 1].isspace() for _, b in windows.spans[:-1])
        scores = minilm.embed(windows) @ minilm.embed(["where is the spare key"])[0]
        assert scores.argmax() == len(windows) - 1
        assert scores.max() > 0.25

    @pytest.mark.parametrize(
        "characters",
        [
            ["👨‍👩‍👧", " "],
            ["🇵🇹", "🇯🇵", "."],
            ["e\u0301\u0323", "-"],
            ["日", "本", "語"],
            ["\u1112\u1161\u11ab", "。"],
            [*"supercalifragilistic", "-"],
        ],
    )
    def test_characters_are_never_cut(self, minilm, characters):
        windows = self.check(minilm, "".join(characters) * 900)
        assert len(windows) > 1
        ends = set(itertools.accumulate(map(len, characters * 900), initial=0))
        assert {at for span in windows.spans for at in span} <= ends

    @pytest.mark.parametrize(
        "text",
        ["a\u0301", "👍🏽", "👩\u200d🚀", "❤\ufe0f", "🇵🇹", "🇵🇹🇯", "\r\n", "\u1112\u1161"],
    )
    def test_unsafe_places(self, text):
        inside = [at for at in range(1, len(text)) if text[:at] not in ("🇵🇹",)]
        assert not any(_windows._is_safe(text, at) for at in inside)
        assert _windows._is_safe(text, 0)
        assert _windows._is_safe(text, len(text))
        assert _windows._is_safe("x" + text, 1)

    def test_very_long_text_is_truncated_and_says_so(self, minilm):
        windows = self.check(minilm, "one two three four " * 5000)
        assert windows.truncated
        assert len(windows) == 64

    def test_text_without_tokens_or_breaks(self, minilm):
        for source in ("x" * 100_000, " " * 100_000, "\x00" * 10_000, "\u0301" * 10_000):
            assert not self.check(minilm, source).truncated

    @given(
        st.lists(st.sampled_from(["word ", "é", "日", "👍🏽", "\n", "un", "a\u0301", ".", "🇵🇹"]))
    )
    def test_cover_whatever_is_mixed(self, minilm, parts):
        windows = self.check(minilm, "".join(parts) * 60)
        assert not windows.truncated or len(windows) == 64

    def test_lone_surrogate(self, minilm):
        with pytest.raises(TextError, match="lone surrogate"):
            minilm.windows("a\ud83d")


def test_windows_of_a_model_that_is_absent(tmp_path, monkeypatch):
    monkeypatch.setenv("RIEMEM_CACHE", str(tmp_path))
    with pytest.raises(ModelNotFoundError):
        MiniLMEmbedder().windows("x")
    assert not Path(tmp_path / "models").exists()
