"""Which encoding a text file is in: its BOM, else UTF-8, else the likeliest of the others.

UTF-8 is nearly never what another encoding looks like, so a file that decodes as UTF-8 is. What
does not is compared by charset-normalizer; where Windows-1252 fits as well as the best, it is
taken, since it is what Excel saves in most of the world. Whatever is decided, the whole file
must decode, or it is refused with the line and byte that do not.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from conversations.tables import TableRefused, bad_option

if TYPE_CHECKING:
    from charset_normalizer import CharsetMatches

_CHUNK = 1 << 20
_SAMPLE = 64 * 1024
_LINE = 4096
_BOMS: tuple[tuple[bytes, str], ...] = (  # UTF-32's begins as UTF-16's does
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WESTERN = "cp1252"
# What is guessed at; what may be named is all of these and all of Unicode's.
_GUESSED = [
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257"),
    *("iso8859_2", "koi8_r", "cp437", "cp850", "mac_roman"),
    *("cp932", "gb18030", "big5", "cp949", "euc_jp"),
]
_NAMEABLE = {
    *("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"),
    *("utf-32", "utf-32-le", "utf-32-be", "ascii", "cp1258", "cp852", "cp866", "koi8-u"),
    *("shift_jis", "gbk", "gb2312", "euc_kr", "mac-cyrillic"),
    *(f"iso8859-{number}" for number in range(1, 17) if number != 12),  # there is no 12
    *_GUESSED,
}
_HIGH = re.compile(rb"[\x80-\xff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_MOST_CONTROL = 0.005
_SOME_CONTROL = 4
# After this many letters that only UTF-8 writes so, a byte that it does not is a fault.
_SURELY_UTF8 = 3


@dataclass(frozen=True)
class Encoding:
    """The name of a codec and what it was decided by: `option`, `bom`, `content` or `guess`.

    `others` are the encodings that a guess would have taken next.
    """

    name: str
    decided_by: str
    others: tuple[str, ...] = ()


class _Undecodable(Exception):
    def __init__(self, line: int, byte: int, letters: int) -> None:
        super().__init__()
        self.line = line
        self.byte = byte
        self.letters = letters


def decide(path: str, wanted: str = "") -> Encoding:
    """Return the encoding of a file, `wanted` if it is named.

    Raises `TableRefused`: `file_bad_option`, `file_not_a_table` (binary), `file_encoding`.
    """
    encoding = _named(wanted, path) if wanted else _by_content(path)
    try:
        _decode_whole(path, encoding.name)
    except _Undecodable as fault:
        raise _refusal(encoding.name, fault) from fault
    return encoding


def _named(wanted: str, path: str) -> Encoding:
    try:
        name = codecs.lookup(wanted).name
    except (LookupError, ValueError):
        name = ""
    if name not in {codecs.lookup(known).name for known in _NAMEABLE}:
        raise bad_option("encoding", "is none that is known here, such as utf-8 or windows-1252")
    bom = _bom(path)  # no part of the text, whichever way round it was announced
    if bom.startswith(name[:6]):
        return Encoding(bom, "option")
    # Python's want to see a BOM where the order of bytes is not named.
    return Encoding(f"{name}-le" if name in {"utf-16", "utf-32"} else name, "option")


def _bom(path: str) -> str:
    """Return the codec that a file's first bytes name, or nothing."""
    with Path(path).open("rb") as file:
        start = file.read(4)
    return next((name for bom, name in _BOMS if start.startswith(bom)), "")


def _by_content(path: str) -> Encoding:
    if name := _bom(path):
        return Encoding(name, "bom")
    with Path(path).open("rb") as file:
        start = file.read(_SAMPLE)
    if name := _utf_16_without_bom(start):
        return Encoding(name, "content")
    if len(_CONTROL.findall(start)) > max(_SOME_CONTROL, len(start) * _MOST_CONTROL):
        raise TableRefused(
            "file_not_a_table", "The file is no text, nor an Excel file: it can't be read."
        )
    try:
        _decode_whole(path, "utf-8")
    except _Undecodable as fault:
        if fault.letters >= _SURELY_UTF8:
            raise _refusal("utf-8", fault) from fault
        return _guess(path)
    return Encoding("utf-8", "content")


def _utf_16_without_bom(start: bytes) -> str:
    """Return the UTF-16 of which every other byte of Western text is NUL, or nothing."""
    even, odd = start[::2].count(0), start[1::2].count(0)
    most, least = len(start) // 4, len(start) // 40
    if odd > most and even <= least:
        return "utf-16-le"
    if even > most and odd <= least:
        return "utf-16-be"
    return ""


def _guess(path: str) -> Encoding:
    from charset_normalizer import from_bytes

    matches = from_bytes(b"".join(_telling_lines(path)), cp_isolation=list(_GUESSED))
    best = matches.best()
    if best is None:
        return Encoding(_WESTERN, "guess")
    candidates = _as_good_as_the_best(matches)
    name = _WESTERN if _WESTERN in candidates else best.encoding
    others = dict.fromkeys(c for c in candidates if c != name)
    return Encoding(name, "guess", tuple(others)[:5])


def _as_good_as_the_best(matches: CharsetMatches) -> list[str]:
    best = matches[0]
    return [
        name
        for match in matches
        if (match.chaos, match.coherence) == (best.chaos, best.coherence)
        for name in match.could_be_from_charset
    ]


def _telling_lines(path: str) -> Iterator[bytes]:
    """Yield lines with letters that are not ASCII's: the others tell nothing."""
    left = _SAMPLE
    with Path(path).open("rb") as file:
        while left > 0 and (line := file.readline(_LINE)):
            if _HIGH.search(line):
                left -= len(line)
                yield line


def _decode_whole(path: str, name: str) -> None:
    """Decode a file in pieces; raise `_Undecodable` at the first byte that can't be."""
    decoder = codecs.getincrementaldecoder(name)("strict")
    line, letters = 1, 0
    with Path(path).open("rb") as file:
        while True:
            chunk = file.read(_CHUNK)
            waiting = decoder.getstate()[0]
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                before = _readable(error, name)
                fault = (waiting + chunk)[error.start] if error.start < len(error.object) else 0
                line += before.count("\n")
                raise _Undecodable(line, fault, letters + _letters(before)) from error
            if not chunk:
                return
            line += text.count("\n")
            letters += _letters(text) if letters < _SURELY_UTF8 else 0


def _letters(text: str) -> int:
    """Return how many letters are not ASCII's, as far as it matters."""
    return len([*islice(_NOT_ASCII.finditer(text), _SURELY_UTF8)])


def _readable(error: UnicodeDecodeError, name: str) -> str:
    return bytes(error.object[: error.start]).decode(name, errors="replace")


def _refusal(name: str, fault: _Undecodable) -> TableRefused:
    name = name.removesuffix("-sig")
    return TableRefused(
        "file_encoding",
        f"Line {fault.line} can't be read as {name}: byte 0x{fault.byte:02x} has no meaning "
        "there. Save the file as UTF-8, or name its encoding with the option encoding.",
    )
