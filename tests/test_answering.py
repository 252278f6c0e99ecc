"""Three modes of answering, and what leaves the machine in each."""

from __future__ import annotations

import json
import socket

import pytest
import riemem
from click.testing import CliRunner
from riemem._cli.app import cli
from riemem.answering import answer, modes
from riemem.embed import HashingEmbedder
from riemem.errors import ArgumentError, DTypeError
from riemem.memory import Memory


@pytest.fixture
def memory(tmp_path):
    with Memory.open(tmp_path / "me.db", embedder=HashingEmbedder(dim=64)) as opened:
        opened.add("I moved to Porto", speaker="Maya", when="2024-05-01T10:00:00Z", session="s")
        opened.add("I like tea", speaker="Tom", when="2024-05-02T10:00:00Z")
        yield opened


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("somebody opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_mode_a_answers_with_what_was_said(memory, no_network):
    found = riemem.answer(memory, "Where did Maya move to?")
    assert (found.text, found.mode, found.handed_out) == (
        "Maya, 2024-05-01: I moved to Porto", "A", "",
    )  # fmt: skip
    assert found.context.tokens <= 500
    assert answer(memory, "tea?", session="s").text.endswith("Porto")
    assert answer(memory, "tea?", filters={"speaker": "Nobody"}).text == ""


def test_mode_c_hands_out_one_prompt_and_no_more(memory, no_network):
    seen = []

    def ask(prompt):
        seen.append(prompt)
        return "Porto"

    found = answer(memory, "Where did Maya move to?", mode="C", answerer=ask)
    assert (found.text, [found.handed_out]) == ("Porto", seen)
    assert found.handed_out == (
        f"{found.context.text}\n\nQuestion: Where did Maya move to?\nAnswer:"
    )
    # Nothing found, nothing handed out.
    assert answer(memory, "?", mode="C", answerer=ask, filters={"speaker": "x"}).text == ""
    assert len(seen) == 1
    with pytest.raises(DTypeError, match="expected it to return str, got NoneType"):
        answer(memory, "Where?", mode="C", answerer=lambda prompt: None)


def test_nothing_is_handed_out_by_mistake(memory):
    for mode in ("A", "B"):
        with pytest.raises(ArgumentError, match=f"answerer: not used in mode '{mode}'"):
            answer(memory, "Where?", mode=mode, answerer=str)
    with pytest.raises(ArgumentError, match="expected a function for mode 'C'"):
        answer(memory, "Where?", mode="C")
    with pytest.raises(DTypeError, match="answerer: expected a function, got str"):
        answer(memory, "Where?", mode="C", answerer="gpt")
    with pytest.raises(ArgumentError, match="mode: expected one of A, B, C, got 'D'"):
        answer(memory, "Where?", mode="D")
    with pytest.raises(ArgumentError, match="model, distil: not used in mode 'A'"):
        answer(memory, "Where?", distil=True)


@pytest.mark.model
@pytest.mark.parametrize("distil", [False, True])
def test_mode_b_answers_on_this_machine(memory, no_network, smollm_path, distil):
    found = answer(memory, "Where did Maya move to?", mode="B", model=smollm_path,
                   max_tokens=12, distil=distil)  # fmt: skip
    again = answer(memory, "Where did Maya move to?", mode="B", model=smollm_path,
                   max_tokens=12, distil=distil)  # fmt: skip
    assert found.text == again.text != ""
    assert "\n" not in found.text
    assert found.handed_out == ""


def test_doctor_says_what_leaves_the_machine_in_each_mode():
    from riemem.doctor import SECTIONS, Subject

    found = {finding.name: finding.value for finding in SECTIONS["privacy"](Subject())}
    assert found["in mode A"].startswith("none ")
    assert found["in mode B"].startswith("none ")
    assert "your function" in found["in mode C"]
    assert [mode.name for mode in modes.values()] == ["A", "B", "C"]


def test_the_command(memory, tmp_path):
    given = ["--store", str(tmp_path / "me.db"), "--embedder", "hashing:64"]
    result = CliRunner().invoke(cli, ["answer", "Where did Maya move to?", *given])
    assert result.exit_code == 0
    assert result.stdout == "Maya, 2024-05-01: I moved to Porto\n"
    found = json.loads(CliRunner().invoke(cli, ["answer", "Porto?", "--json", *given]).stdout)
    assert (found["mode"], found["handed_out"]) == ("A", "")
    assert CliRunner().invoke(cli, ["answer", "Porto?", "--mode", "C", *given]).exit_code == 2
