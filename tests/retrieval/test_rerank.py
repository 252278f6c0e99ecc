"""A real cross-encoder, tiny and with random weights, from a folder made here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, ModelCorruptError, ModelNotFoundError
from riemem.memory import Memory
from riemem.retrieval.rerank import CrossEncoder, Reranker

_LINE = "[PAD] [UNK] [CLS] [SEP] dave maya said tea boat red blue moon salt full the is"
WORDS = _LINE.split()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    from safetensors.torch import save_file

    made = tmp_path_factory.mktemp("cross")
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    words.save(str(made / "tokenizer.json"))
    options = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"}
    options |= {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    (made / "tokenizer_config.json").write_text(json.dumps(options))
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        num_labels=1,
        architectures=["BertForSequenceClassification"],
    )
    with torch.random.fork_rng():
        torch.manual_seed(11)
        model = transformers.BertForSequenceClassification(config)
        state = {
            name: (torch.randn_like(value) * 0.4 if value.dim() > 1 else value).contiguous()
            for name, value in model.state_dict().items()
        }
    save_file(state, made / "model.safetensors", metadata={"format": "pt"})
    config.save_pretrained(made)
    return made


def by_hand(folder: Path, query: str, text: str) -> float:
    """The model's logit for one pair, without a tokenizer of transformers and without padding."""
    import torch
    from safetensors.torch import load_file
    from transformers import BertConfig, BertForSequenceClassification

    model = BertForSequenceClassification(BertConfig.from_pretrained(folder, num_labels=1)).eval()
    model.load_state_dict(load_file(folder / "model.safetensors"))

    def ids(words: str) -> list[int]:
        return [WORDS.index(w) if w in WORDS else 1 for w in words.split()]

    first, second = [2, *ids(query), 3], [*ids(text), 3]
    kinds = [0] * len(first) + [1] * len(second)
    with torch.no_grad():
        found = model(torch.tensor([first + second]), token_type_ids=torch.tensor([kinds]))
    return float(found.logits[0, 0])


def test_scores_are_the_logits_of_the_model(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder = CrossEncoder(folder, batch_size=2)
    assert isinstance(encoder, Reranker)
    texts = ["red boat", "the moon is full", "tea", "dave said the boat is blue", "nobody knows"]
    found = encoder.scores("is the moon full", texts)
    expected = [by_hand(folder, "is the moon full", text) for text in texts]
    assert np.ptp(expected) > 0.1
    assert found == pytest.approx(expected, abs=1e-5)
    assert encoder.scores("is the moon full", texts) == found
    assert capfd.readouterr() == ("", "")
    # Control strings are text, and a pair that is too long is cut to the model's 32 places.
    odd = encoder.scores("moon", ["[SEP] tea"])[0]
    assert odd == pytest.approx(by_hand(folder, "moon", "x x x tea"), abs=1e-5)
    long = encoder.scores("moon " * 99, ["tea " * 99])[0]
    assert long == pytest.approx(by_hand(folder, "moon " * 14, "tea " * 15), abs=1e-5)
    assert encoder.scores("tea", []) == []


def test_a_search_with_the_folder_is_the_papers_blend(folder: Path) -> None:
    texts = ["red boat", "the moon is full", "tea salt", "dave said the boat is blue"]
    with Memory.open(":memory:", embedder=HashingEmbedder(dim=32)) as memory:
        memory.add_many([{"text": text} for text in texts])
        plain = {hit.id: hit.score for hit in memory.search("the full moon", k=4)}
        hits = memory.search("the full moon", k=4, reranker=folder, explain=True)
    low, high = min(plain.values()), max(plain.values())
    for hit in hits:
        chance = 1.0 / (1.0 + np.exp(-by_hand(folder, "the full moon", hit.text)))
        scaled = (plain[hit.id] - low) / (high - low)
        assert hit.score == pytest.approx(0.5 * chance + 0.5 * scaled, abs=1e-5)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert hits.scoring.startswith("reranked, alpha 0.5; ")


def test_a_folder_that_is_none(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="no cross-encoder"):
        CrossEncoder(tmp_path)
    with pytest.raises(ArgumentError, match="batch_size"):
        CrossEncoder(folder, batch_size=0)
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(ModelCorruptError, match=r"model\.safetensors"):
        CrossEncoder(tmp_path).scores("tea", ["boat"])
