"""Counting line by line: the same number as the tokenizer gives for the text as a whole."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from riemem import models
from riemem._tokenizer import counter_of

tokenizers = pytest.importorskip("tokenizers")

PARTS = [*"ab'st 5\n\n\n\t\r\v\x1c\x85\u00a0\u2028#:-é日", "<|im_end|>", "'s", "  "]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)


def byte_level(*before, **options):
    """A small byte-level BPE that has merged what it saw, line breaks too."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    level = tokenizers.pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([*before, level])
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|im_end|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    rng = random.Random(1)
    corpus = ["".join(rng.choices("ab 5\n\n'st#:", k=300)) for _ in range(30)]
    tokenizer.train_from_iterator(corpus, trainer)
    tokenizer.encode_special_tokens = True
    return tokenizer


DIGITS = byte_level(tokenizers.pre_tokenizers.Digits(individual_digits=True))
PLAIN = byte_level()
# Here a line break and what is beside it can be one token, so lines must not be counted alone.
LOOSE = byte_level(use_regex=False)


@given(TEXTS)
@example("a\nb")
@example("a \n b\n\nc\n")
@example("5\n5")
@example("<|im_end|>\n<|im_end|>")
def test_the_count_of_the_whole(text):
    for tokenizer in (DIGITS, PLAIN, LOOSE):
        count = counter_of(tokenizer)
        expected = len(tokenizer.encode(text, add_special_tokens=False).ids)
        assert [count(text), count(text)] == [expected, expected]


def test_lines_are_counted_once():
    seen = []

    class Spy:
        def __getattr__(self, name):
            return getattr(DIGITS, name)

        def encode(self, text, **options):
            seen.append(text)
            return DIGITS.encode(text, **options)

    count = counter_of(Spy())
    assert count("ab\nb\nab") == count("ab") * 2 + count("b") + count("\n") * 2
    assert sorted(seen) == ["\n", "\n", "ab", "b"]


def test_a_loose_tokenizer_joins_lines():
    whole = len(LOOSE.encode("5\n5 5\n5\n", add_special_tokens=False).ids)
    parts = [len(LOOSE.encode(part).ids) for part in ("5", "\n", "5 5", "\n", "5\n")]
    assert whole != sum(parts)


@pytest.mark.model
def test_with_the_tokenizer_of_the_default_model(smollm_path):
    tokenizer = models.load_tokenizer(smollm_path)
    count, _ = models.token_counter()
    rng = random.Random(2)
    parts = ["# 2024-05-01", "Maya:", " I moved", "\n", "\n", "\n  ", "'s", " ", "\t", "é", "12"]
    for _ in range(2000):
        text = "".join(rng.choices([*parts, "日本", "\u00a0", "\r\n", "<|im_end|>"], k=12))
        assert count(text) == len(tokenizer.encode(text, add_special_tokens=False).ids)
