"""How a turn is written for the embedder: one place, because it is worth more than the metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Rendering = Callable[..., str]


def _with_caption(rendered: str, caption: str | None) -> str:
    return f"{rendered} [shares {caption}]" if caption else rendered


def _name_said(
    text: str, *, speaker: str | None = None, when: str | None = None, caption: str | None = None
) -> str:
    return _with_caption(f'{speaker} said, "{text}"' if speaker else text, caption)


def _name_text(
    text: str, *, speaker: str | None = None, when: str | None = None, caption: str | None = None
) -> str:
    return _with_caption(f"{speaker}: {text}" if speaker else text, caption)


def _text_only(
    text: str, *, speaker: str | None = None, when: str | None = None, caption: str | None = None
) -> str:
    return text


RENDERINGS: Mapping[str, Rendering] = {
    "name-said": _name_said,
    "name-text": _name_text,
    "text": _text_only,
}


def render_turn(
    text: str, *, speaker: str | None = None, when: str | None = None, caption: str | None = None
) -> str:
    """Return the string that is embedded for a turn; every memory goes through this function.

    ``Name said, "text"`` where the speaker is known, else the text alone; then ``[shares
    caption]`` where the turn came with a picture. Of the renderings tried this one measured best;
    it is ``RENDERINGS["name-said"]``.

    Parameters
    ----------
    text : str
        What was said, unchanged.
    speaker : str, optional
        Who said it.
    when : str, optional
        Accepted so that every rendering has one signature; the date is not part of the vector.
    caption : str, optional
        What the shared picture shows.

    Returns
    -------
    str

    Examples
    --------
    >>> render_turn("I moved to Porto", speaker="Maya")
    'Maya said, "I moved to Porto"'
    >>> render_turn("I moved to Porto")
    'I moved to Porto'
    """
    return _name_said(text, speaker=speaker, when=when, caption=caption)
