"""What the text side shares: optional packages, tokenizer files, and what counts as text."""

from __future__ import annotations

import threading
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
