"""Reading the benchmark's format, its misspelt evidence, and everything that can be wrong."""

from __future__ import annotations

import hashlib

import pytest
from riemem.errors import ArgumentError, InputFileError
from riemem.evaluation import apply_audit, load_locomo


def test_turns_and_questions(talk, write):
    path = write("talk.json", talk)
    benchmark = load_locomo(path)
    assert benchmark.file == "talk.json"
    assert benchmark.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    (conversation,) = benchmark.conversations
    assert conversation.name == "talk-1"
    assert [turn.id for turn in conversation.turns] == [
        (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3)
    ]  # fmt: skip
    assert conversation.turns[4].caption == "a torn booklet"
    assert conversation.turns[0].caption is None
    assert conversation.turns[3].when == "9:00 am on 2 May, 2021"
    assert [(q.index, q.category, q.gold) for q in conversation.questions] == [
        (0, 4, (0,)),
        (1, 1, (0, 4)),
        (2, 2, (1,)),
        (3, 3, ()),
        (5, 3, (3,)),
    ]
    assert benchmark.n_questions == 4
    assert [q.index for q in conversation.answerable] == [0, 1, 2, 5]


def test_ten_sessions_are_ordered_by_number(talk, write):
    sessions = talk[0]["conversation"]
    for number in (10, 3):
        turn = {"speaker": "Tom", "text": f"late {number}", "dia_id": f"D{number}:1"}
        sessions[f"session_{number}"] = [turn]
    (conversation,) = load_locomo(write("talk.json", talk)).conversations
    assert [turn.id[0] for turn in conversation.turns] == [1, 1, 1, 2, 2, 2, 3, 10]


def test_audit_corrects_and_drops(talk, audit, write):
    benchmark = load_locomo(write("talk.json", talk))
    audited, changes = apply_audit(benchmark, write("audit.json", audit))
    assert [(q.index, q.gold) for q in audited.conversations[0].questions] == [
        (0, (0,)),
        (1, (0, 4)),
        (3, (3,)),
        (5, (5,)),
    ]
    assert (changes.corrected, changes.dropped, changes.file) == (2, 1, "audit.json")
    assert benchmark.n_questions == 4  # the original is untouched


def test_correction_that_names_no_turn_drops_the_question(talk, audit, write):
    audit[0]["correct_evidence"] = ["D8:8"]
    benchmark = load_locomo(write("talk.json", talk))
    audited, changes = apply_audit(benchmark, write("audit.json", audit))
    assert [q.index for q in audited.conversations[0].questions] == [0, 1, 3]
    assert (changes.corrected, changes.dropped) == (1, 2)


def test_audit_of_another_benchmark(talk, audit, write):
    benchmark = load_locomo(write("talk.json", talk))
    audit[0]["question"] = "who?"
    with pytest.raises(ArgumentError, match=r"^audit: question 5 of 'talk-1' is another one"):
        apply_audit(benchmark, write("audit.json", audit))
    for bad, message in (
        ({}, "^audit: expected a list"),
        ([3], r"^audit: \[0\]: expected an object"),
        ([{"sample_id": "talk-1"}], r"^audit: \[0\]: 'qa_index' is missing"),
        ([{"sample_id": "talk-1", "qa_index": True}], r"'qa_index': expected int"),
        ([{"sample_id": "talk-1", "qa_index": 1}], r"'error_type' is missing"),
    ):
        with pytest.raises(ArgumentError, match=message):
            apply_audit(benchmark, write("bad.json", bad))


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputFileError, match=r"^path: no such file"):
        load_locomo(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError):
        load_locomo(tmp_path / "none.json")
    with pytest.raises(InputFileError, match=r"^path: "):
        load_locomo(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe[]", b"not json", b"[" * 200_000])
def test_files_that_are_not_json(tmp_path, content):
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    with pytest.raises(ArgumentError, match=r"^path: .*bad\.json is not JSON"):
        load_locomo(path)


def remove(talk, *keys):
    for key in keys[:-1]:
        talk = talk[key]
    del talk[keys[-1]]


def put(talk, value, *keys):
    for key in keys[:-1]:
        talk = talk[key]
    talk[keys[-1]] = value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: put(t, 3, 0),
            r"^path: \[0\]: expected an object with 'sample_id', got a number",
        ),
        (lambda t: remove(t, 0, "sample_id"), r"^path: \[0\]: 'sample_id' is missing"),
        (lambda t: remove(t, 0, "conversation"), r"\(talk-1\): 'conversation' is missing"),
        (lambda t: remove(t, 0, "qa"), r"\(talk-1\): 'qa' is missing"),
        (lambda t: put(t, {}, 0, "conversation"), r"expected turns in session_1"),
        (lambda t: put(t, "x", 0, "conversation", "session_1"), r"'session_1': expected list"),
        (lambda t: put(t, "x", 0, "conversation", "session_1", 1), r"session_1\[1\]: expected an"),
        (lambda t: remove(t, 0, "conversation", "session_1", 1, "text"), "'text' is missing"),
        (lambda t: remove(t, 0, "conversation", "session_1", 1, "speaker"), "'speaker' is missing"),
        (
            lambda t: put(t, "x1", 0, "conversation", "session_1", 1, "dia_id"),
            "expected D<session>",
        ),
        (lambda t: put(t, "D1:1", 0, "conversation", "session_1", 1, "dia_id"), "same dia_id"),
        (lambda t: remove(t, 0, "qa", 0, "category"), r"qa\[0\]: 'category' is missing"),
        (lambda t: put(t, None, 0, "qa", 0, "question"), r"'question': expected str, got null"),
        (lambda t: put(t, [], 0, "qa"), "expected questions of categories 1 to 4"),
        (lambda t: t.append(t[0]), "same sample_id"),
        (lambda t: t.clear(), "expected a non-empty list of conversations, got a list of length 0"),
    ],
)
def test_malformed_benchmarks(talk, write, change, message):
    change(talk)
    with pytest.raises(ArgumentError, match=message):
        load_locomo(write("talk.json", talk))


@pytest.mark.parametrize("evidence", [None, [], "D1:1", [3, None], [["D1:1"]], ["D1-1", "1:1"]])
def test_evidence_of_any_kind_is_read_or_left_out(talk, write, evidence):
    talk[0]["qa"][0]["evidence"] = evidence
    question = load_locomo(write("talk.json", talk)).conversations[0].questions[0]
    assert question.gold == ((0,) if evidence == "D1:1" else ())
