"""The writer that renders each turn once gives the text that rendering each choice anew gives."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st
from riemem._packed_text import TurnWriter, format_turns

ROWS = st.builds(
    lambda text, speaker, session, when: {
        "text": text,
        "speaker": speaker,
        "session": session,
        "when": when,
    },
    st.text("ab #:-\n\r\u2028", max_size=6),
    st.sampled_from([None, "Ana", "Cy: x", '"', ""]),
    st.sampled_from([None, "s", "t"]),
    st.sampled_from(
        [
            None,
            "2024-05-01T10:00:00+00:00",
            "2024-05-01T10:00:00.500000+00:00",
            "2024-05-01T11:00:00+00:00",
            "2023-01-01T00:00:00+00:00",
        ]
    ),
)


@given(st.lists(ROWS, max_size=8), st.data())
def test_any_choice_is_written_as_if_alone(rows, data):
    turns = [SimpleNamespace(id=i, score=0.0, **row) for i, row in enumerate(rows)]
    turns = data.draw(st.permutations(turns))
    writer = TurnWriter(turns)
    for size in range(len(turns) + 1):
        chosen = data.draw(st.permutations(turns))[:size]
        assert writer.write(chosen) == format_turns(chosen)
        by_time = sorted(chosen, key=lambda t: (t.when is not None, _moment(t.when), t.id))
        assert writer.in_time(chosen) == by_time


@given(st.lists(ROWS, min_size=1, max_size=7), st.data())
def test_a_draft_holds_what_was_added_and_shows_what_would_be(rows, data):
    turns = [SimpleNamespace(id=i, score=0.0, **row) for i, row in enumerate(rows)]
    turns = data.draw(st.permutations(turns))
    draft = TurnWriter(turns).draft()
    chosen = []
    while len(chosen) < len(turns):
        left = turns[len(chosen) :]
        size = data.draw(st.integers(1, len(left)))
        for more in ([turn] for turn in left), (left[:n] for n in range(len(left) + 1)):
            for some in more:
                assert draft.with_more(some) == format_turns([*chosen, *some])
        draft.add(left[:size])
        chosen += left[:size]
        assert len(draft) == len(chosen)
        assert draft.text == draft.with_more([]) == format_turns(chosen)


@given(st.lists(ROWS, min_size=1, max_size=7), st.data())
def test_a_draft_grows_turn_by_turn_in_any_order(rows, data):
    turns = [SimpleNamespace(id=i, score=0.0, **row) for i, row in enumerate(rows)]
    draft = TurnWriter(turns).draft()
    chosen = []
    for turn in data.draw(st.permutations(turns)):
        if data.draw(st.booleans()):  # what was tried last is not always what is added
            draft.with_more([data.draw(st.sampled_from(turns))])
        draft.add([turn])
        chosen.append(turn)
        assert draft.text == format_turns(chosen)


def _moment(when):
    return (when or "")[:19], "." in (when or "")
