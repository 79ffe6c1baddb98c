"""What a zip archive really unpacks to: counted before anything else is given the file.

The sizes that an archive declares are added up first. Then each entry is inflated, in pieces
that are not kept, since what it declares need not be true: a declared 10 bytes may inflate to
a gigabyte in a library that believes the data instead.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from conversations.tables import TableLimits
from conversations.tables.detection import damaged, protected

_CHUNK = 1 << 20
_READ = 64 * 1024
_LOCAL_HEADER = 30
_ENCRYPTED = 0x1


def unpacked(path: str, limits: TableLimits) -> Iterator[tuple[str, bytes]]:
    """Yield `(name of the entry, up to 1 MiB of it)` of all that is in an archive.

    Raises `TableRefused` where it is more than `limits.unpacked_bytes`, damaged or encrypted.
    """
    entries = _entries(path)
    limits.check("unpacked_bytes", sum(entry.file_size for entry in entries))
    total = 0
    with Path(path).open("rb") as file:
        for entry in entries:
            for chunk in _inflated(file, entry):
                total += len(chunk)
                limits.check("unpacked_bytes", total)
                yield entry.filename, chunk


def _entries(path: str) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise damaged("Excel") from error
    if any(entry.flag_bits & _ENCRYPTED for entry in entries):
        raise protected()
    return entries


def _inflated(file: BinaryIO, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    packed = _packed(file, entry)
    try:
        if entry.compress_type == zipfile.ZIP_STORED:
            yield from packed
        elif entry.compress_type == zipfile.ZIP_DEFLATED:
            yield from _deflated(packed)
        else:
            raise damaged("Excel")
    except (zlib.error, OSError) as error:  # OSError: nothing stands where an entry is said to
        raise damaged("Excel") from error


def _deflated(packed: Iterator[bytes]) -> Iterator[bytes]:
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for piece in packed:
        data = inflater.decompress(piece, _CHUNK)
        while data:
            yield data
            data = inflater.decompress(inflater.unconsumed_tail, _CHUNK)


def _packed(file: BinaryIO, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """Yield an entry's bytes as they stand in the file."""
    file.seek(entry.header_offset)
    header = file.read(_LOCAL_HEADER)
    if len(header) < _LOCAL_HEADER or header[:4] != b"PK\x03\x04":
        raise damaged("Excel")
    name, extra = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
    position, left = file.tell() + name + extra, entry.compress_size
    while left > 0:
        file.seek(position)  # entries may be asked for in turns
        piece = file.read(min(_READ, left))
        if not piece:
            raise damaged("Excel")
        position, left = position + len(piece), left - len(piece)
        yield piece
