"""What the text side shares: optional packages, tokenizer files, and what counts as text."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .errors import BackendUnavailableError, ModelCorruptError, TextError


def require(*packages: str) -> None:
    """Raise `BackendUnavailableError`, with the command that helps, if a package is missing."""
    for package in packages:
        if find_spec(package) is None:
            raise BackendUnavailableError(
                f"the package {package!r} is not installed; get what the text side needs with: "
                "pip install 'riemem[text]'"
            )


_TOKENIZERS: dict[tuple[str, int], Any] = {}
_TOKENIZERS_LOCK = threading.Lock()


def load_tokenizer(folder: Path) -> Any:
    """Return the folder's ``tokenizers.Tokenizer``, loaded once per process, without torch.

    It neither truncates nor pads, and takes control strings such as ``<|im_end|>`` or ``[SEP]``
    as the ordinary text they are when a user types them.
    """
    require("tokenizers")
    import tokenizers

    path = folder / "tokenizer.json"
    try:
        key = (str(path), path.stat().st_mtime_ns)
        with _TOKENIZERS_LOCK:
            tokenizer = _TOKENIZERS.get(key)
            if tokenizer is None:
                tokenizer = tokenizers.Tokenizer.from_file(str(path))
                tokenizer.no_truncation()
                tokenizer.no_padding()
                tokenizer.encode_special_tokens = True
                _TOKENIZERS[key] = tokenizer
    except OSError as error:
        raise ModelCorruptError(f"model folder {folder}: tokenizer.json: {error}") from error
    except Exception as error:  # tokenizers raises bare Exception on a file it cannot parse
        if type(error) is not Exception:
            raise
        raise ModelCorruptError(
            f"model folder {folder}: tokenizer.json cannot be read ({error})"
        ) from error
    return tokenizer


def encodable(text: str, name: str = "text") -> str:
    """Return `text` if it is valid Unicode, else raise `TextError` naming the position."""
    if not isinstance(text, str):
        raise TextError(f"{name}: expected str, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextError(
            f"{name}: expected Unicode text, got the lone surrogate "
            f"U+{ord(text[error.start]):04X} at character {error.start}"
        ) from None
    return text


# A line break between two characters that are not white space; the literal first is found fast.
_SEAM = re.compile(r"\n(?=\S)(?<=\S\n)")
_MOST_KNOWN = 4096


def counter_of(tokenizer: Any) -> Callable[[str], int]:
    """Return ``count(text) -> int``, the tokens of a text without a start token.

    Notes
    -----
    Packing counts many texts that are made of the same lines. Where the tokenizer is sure to take
    a line break between two visible characters as a token of its own, lines are counted once and
    added up, which is the same number. Of a counter's last lines up to 4096 are kept.
    """

    def whole(text: str) -> int:
        return len(tokenizer.encode(encodable(text), add_special_tokens=False).ids)

    if not _breaks_at_lines(tokenizer):
        return whole
    known: dict[str, int] = {}

    def count(text: str) -> int:
        lines = _SEAM.split(encodable(text))
        total = 0
        for line in lines:
            size = known.get(line)
            if size is None:
                if len(known) >= _MOST_KNOWN:
                    known.clear()
                size = known[line] = whole(line)
            total += size
        return total + (len(lines) - 1) * line_break

    line_break = whole("\n")
    return count


def _breaks_at_lines(tokenizer: Any) -> bool:
    """Whether this is GPT-2's byte-level BPE, bare or with single digits, and nothing more.

    Its pattern matches a run of white space that ends at a visible character by itself (of the
    run's last character only a space goes to what follows), and merges stay inside a match.
    """
    from tokenizers import models

    model = tokenizer.model
    if not isinstance(model, models.BPE) or model.dropout or tokenizer.normalizer is not None:
        return False
    if not all(token.special for token in tokenizer.get_added_tokens_decoder().values()):
        return False
    if tokenizer.pre_tokenizer is None or not tokenizer.encode_special_tokens:
        return False
    stage = json.loads(tokenizer.pre_tokenizer.__getstate__())
    stages = stage.get("pretokenizers", [stage])
    *before, last = stages or [{}]
    return (
        last.get("type") == "ByteLevel"
        and bool(last.get("use_regex"))
        and not last.get("add_prefix_space")
        and all(part.get("type") == "Digits" for part in before)
    )
