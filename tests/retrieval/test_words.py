from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riemem.retrieval.words import (
    MAX_QUERY_TERMS,
    STOP_WORDS,
    Stemmer,
    query_words,
    raw_words,
)


def fts5_tokens(text: str) -> list[str]:
    """The tokens of SQLite's own tokenizer, in order."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (x, tokenize='porter unicode61')")
    connection.execute("INSERT INTO t VALUES (?)", (text,))
    connection.execute("CREATE VIRTUAL TABLE v USING fts5vocab (t, instance)")
    rows = connection.execute("SELECT term FROM v ORDER BY offset").fetchall()
    connection.close()
    return [row[0] for row in rows]


@pytest.mark.parametrize(
    "text",
    [
        "Dave's photographies were running, and agreed; the RELATIONAL databases' ponies!",
        "pre-edit don't ubuntu 20.04 foo_bar C++ a.b@c.d",
        "Zoë façade naïve Ångström Ünïcödé",
        "Привет мир, Ελλαδα",
    ],
)
def test_words_of_spaced_scripts_are_those_of_the_full_text_index(text: str) -> None:
    assert Stemmer()(raw_words(text)) == fts5_tokens(text)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.from_regex(r"[a-z]{3,20}", fullmatch=True), max_size=20))
def test_stems_are_those_of_fts5(words: list[str]) -> None:
    assert Stemmer()(words) == fts5_tokens(" ".join(words))


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我昨天去了东京塔", "东京"),
        ("昨日は東京タワーに行きました", "東京タワー"),
        ("어제 도쿄타워에 갔어요", "도쿄타워"),
        ("เมื่อวานฉันไปหอคอยโตเกียว", "หอคอย"),
        ("ខ្ញុំបានទៅភ្នំពេញ", "ភ្នំពេញ"),
        ("मैं कल दिल्ली गया था", "दिल्ली"),
        ("ذهبت إلى القاهرة", "القاهرة"),
    ],
)
def test_a_word_of_any_script_is_found_in_its_sentence(text: str, query: str) -> None:
    asked = query_words(query)
    assert asked
    assert set(asked) <= set(raw_words(text))


def test_single_characters_are_found_and_pairs_do_not_ask_for_them() -> None:
    assert query_words("塔") == ["塔"]
    assert query_words("东京") == ["东京"]
    assert "塔" in raw_words("东京塔")


def test_stop_words_count_only_where_there_is_nothing_else() -> None:
    assert query_words("What did you do about it?") == ["what", "did", "you", "do", "about", "it"]
    assert query_words("What did you do about tea?") == ["tea"]
    assert "not" not in STOP_WORDS
    assert "no" not in STOP_WORDS


@pytest.mark.parametrize("text", ["", "🙂", "?!...", "\u200b", "\x00", "   \n"])
def test_nothing_to_look_for(text: str) -> None:
    assert raw_words(text) == []
    assert query_words(text) == []


def test_a_long_query_is_cut() -> None:
    query = " ".join(f"word{i}" for i in range(20_000))
    assert len(query) > 100_000
    assert query_words(query) == [f"word{i}" for i in range(MAX_QUERY_TERMS)]


def test_stems_are_remembered() -> None:
    stem = Stemmer()
    assert stem(["running", "running", "東京"]) == ["run", "run", "東京"]
    assert stem(["running"]) == ["run"]
