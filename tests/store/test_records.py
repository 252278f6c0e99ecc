from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem.errors import ArgumentError, DTypeError, TextError
from riemem.store.records import (
    MAX_METADATA_BYTES,
    canonical,
    check_integer,
    check_metadata,
    check_name,
    check_text,
    draft,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u2003", "\u2028"])
def test_blank_text_is_refused(text: str) -> None:
    with pytest.raises(TextError, match=r"^text: expected something to remember"):
        check_text(text)


@pytest.mark.parametrize(
    ("text", "where"), [("hi \ud83d", 3), ("\udc81x", 0), (json.loads('"ab\\ud83d"'), 2)]
)
def test_lone_surrogates_are_refused_with_their_position(text: str, where: int) -> None:
    with pytest.raises(
        TextError, match=rf"^text: lone surrogate U\+D[8C][38][D1] at position {where}"
    ):
        check_text(text)


@pytest.mark.parametrize("value", [None, 5, b"tea", ["tea"], True])
def test_text_must_be_str(value: object) -> None:
    with pytest.raises(DTypeError, match=r"^text: expected str, got"):
        check_text(value)


@pytest.mark.parametrize(
    "text", ["a\0b", "😀", "会议", "שלום", "see <|im_end|> here", "x" * 1_000_000]
)
def test_any_other_text_is_taken_as_it_is(text: str) -> None:
    assert check_text(text) == text


def test_a_text_may_not_be_longer_than_the_limit() -> None:
    assert check_text("é" * 5, limit=10)
    with pytest.raises(TextError, match=r"^text: expected at most 9 bytes of UTF-8, got 10"):
        check_text("é" * 5, limit=9)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("", ArgumentError),
        ("  ", ArgumentError),
        ("x" * 1025, ArgumentError),
        (3, DTypeError),
        (None, DTypeError),
        ("\ud800", TextError),
    ],
)
def test_names(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^speaker: "):
        check_name(value, "speaker")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (-1, ArgumentError),
        (True, DTypeError),
        (1.0, DTypeError),
        ("5", DTypeError),
        (None, DTypeError),
    ],
)
def test_integers(value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=r"^k: expected an int"):
        check_integer(value, "k", 0)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values, max_size=4))
def test_metadata_comes_back_exactly(metadata: dict[str, Any]) -> None:
    text, labels = check_metadata(metadata)
    assert json.loads(text) == metadata
    assert [key for key, _ in labels] == list(metadata)
    again, _ = check_metadata(json.loads(text))
    assert again == text


@given(json_values, json_values)
def test_canonical_is_equal_exactly_for_equal_values(a: Any, b: Any) -> None:
    def tagged(value: Any) -> Any:  # Python's == takes True for 1; JSON does not
        if isinstance(value, bool) or value is None or isinstance(value, str):
            return (type(value).__name__, value)
        if isinstance(value, (int, float)):
            return ("number", value)
        if isinstance(value, list):
            return ("list", [tagged(item) for item in value])
        return ("dict", {key: tagged(item) for key, item in value.items()})

    assert (canonical(a) == canonical(b)) == (tagged(a) == tagged(b))


@pytest.mark.parametrize(
    ("metadata", "error", "start"),
    [
        ([("a", 1)], DTypeError, "metadata: expected a mapping"),
        ("x", DTypeError, "metadata: expected a mapping"),
        ({1: 2}, DTypeError, "metadata: expected str keys, got int 1"),
        ({"a": {2: 3}}, DTypeError, r"metadata\['a'\]: expected str keys"),
        ({"a": math.nan}, ArgumentError, r"metadata\['a'\]: nan is not JSON"),
        ({"a": [1, math.inf]}, ArgumentError, r"metadata\['a'\]\[1\]: inf is not JSON"),
        ({"a": {1, 2}}, DTypeError, r"metadata\['a'\]: set is not JSON"),
        ({"a": b"x"}, DTypeError, r"metadata\['a'\]: bytes is not JSON"),
        ({"a": object()}, DTypeError, r"metadata\['a'\]: object is not JSON"),
        ({"a": "\ud83d"}, TextError, r"metadata\['a'\]: lone surrogate"),
        ({"\ud83d": 1}, TextError, "metadata: lone surrogate"),
        ({"a": "x" * MAX_METADATA_BYTES}, ArgumentError, "metadata: expected at most"),
        ({"a": 10**5000}, ArgumentError, "metadata: "),
    ],
)
def test_metadata_that_is_not_json_is_refused(
    metadata: Any, error: type[Exception], start: str
) -> None:
    with pytest.raises(error, match=rf"^{start}"):
        check_metadata(metadata)


def test_metadata_inside_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(ArgumentError, match=r"^metadata: nested too deeply"):
        check_metadata(loop)


@pytest.mark.parametrize(
    ("item", "error", "start"),
    [
        ({}, ArgumentError, r"items\[2\]\.text: missing"),
        ({"text": "a", "speakr": "b"}, ArgumentError, r"items\[2\]\.speakr: unknown argument"),
        ({"text": "a", "session": 3}, DTypeError, r"items\[2\]\.session: expected str"),
        ({"text": "a", "key": " "}, ArgumentError, r"items\[2\]\.key: expected a name"),
        ({"text": "a", "when": "now"}, ArgumentError, r"items\[2\]\.when: expected ISO 8601"),
        ({"text": "a", "metadata": 3}, DTypeError, r"items\[2\]\.metadata: expected a mapping"),
    ],
)
def test_drafts_name_the_item_and_the_argument(
    item: dict[str, Any], error: type[Exception], start: str
) -> None:
    with pytest.raises(error, match=rf"^{start}"):
        draft(item, "default", "items[2].")
