"""What a file is, by its content: the end of its name is no more than a claim."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

from conversations.tables import Notes, ParsedTable, ReadOptions, TableLimits, TableRefused

_LOOKED_AT = 4096
_EXCEL = {"xlsx", "xlsb", "ods", "xls"}
_MAY_BE_CALLED = {
    "csv": {"csv", "tsv", "tab", "txt", "psv", "dat", "asc", ""},
    "xlsx": {"xlsx", "xlsm", "xltx", "xltm", ""},
    "xlsb": {"xlsb", ""},
    "ods": {"ods", ""},
    "xls": {"xls", "xlt", ""},
}
_SAVE_AS = "open it in Excel or LibreOffice and save it as .xlsx or .csv"
# What people take for a spreadsheet, and how it begins.
_OTHERS: tuple[tuple[bytes, str], ...] = (
    (b"%PDF", "a PDF"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"7z\xbc\xaf", "a 7-Zip archive"),
    (b"Rar!", "a RAR archive"),
    (b"PAR1", "a Parquet file"),
    (b"SQLite format 3", "an SQLite database"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"{\\rtf", "an RTF document"),
)
_MARKUP: tuple[tuple[bytes, str], ...] = (
    (b"<!doctype html", "a web page (HTML)"),
    (b"<html", "a web page (HTML)"),
    (b"<table", "a web page (HTML)"),
    (b"<?xml", "an XML document"),
    (b"<workbook", "an XML document"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_table(path: str, name: str, options: ReadOptions, limits: TableLimits) -> ParsedTable:
    """Open the table with the reader that its content asks for; see `read_table`."""
    limits.check("bytes", Path(path).stat().st_size)
    kind = kind_of(path)
    notes = Notes()
    ending = Path(name).suffix.lower().removeprefix(".")
    if ending not in _MAY_BE_CALLED[kind]:
        notes.add("name_says_otherwise", f"{kind} content, named .{ending[:20]}")
    return _reader(kind)(path, options, limits, notes)


Reader = Callable[[str, ReadOptions, TableLimits, Notes], ParsedTable]


def _reader(kind: str) -> Reader:
    """Return the reader of a kind; the other one and its library are not even loaded."""
    if kind in _EXCEL:
        from conversations.tables.excel_tables import read_excel

        return lambda *given: read_excel(kind, *given)
    from conversations.tables.csv_tables import read_csv

    return read_csv


def kind_of(path: str) -> str:
    """Return `csv`, `xlsx`, `xlsb`, `ods` or `xls`; raise `TableRefused` for what is no table."""
    with Path(path).open("rb") as file:
        start = file.read(_LOOKED_AT)
    if not start.strip():
        raise TableRefused("file_empty", "The file is empty.")
    if start.startswith(b"PK"):
        return _kind_of_archive(path)
    if start.startswith(_OLE):
        return _kind_of_ole(path)
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for beginning, what in (*_OTHERS, *_MARKUP):
        if start.startswith(beginning) or text.startswith(beginning):
            raise _not_a_table(what)
    return "csv"


def _not_a_table(what: str) -> TableRefused:
    return TableRefused(
        "file_not_a_table", f"The file is {what}, not a CSV or Excel file; {_SAVE_AS}."
    )


def damaged(what: str) -> TableRefused:
    """Return the refusal of a file that is not whole."""
    return TableRefused(
        "file_damaged", f"The {what} file is damaged and can't be read; {_SAVE_AS} again."
    )


def protected() -> TableRefused:
    """Return the refusal of a file that needs a password."""
    return TableRefused(
        "file_password_protected",
        "The file is protected by a password; save it without one and upload it again.",
    )


def _kind_of_archive(path: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            inside = set(archive.namelist())
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
        raise damaged("Excel") from error
    for entry, kind in (("xl/workbook.xml", "xlsx"), ("xl/workbook.bin", "xlsb"),
                        ("content.xml", "ods")):  # fmt: skip
        if entry in inside:
            return kind
    raise _not_a_table("a zip archive without a workbook in it")


def _kind_of_ole(path: str) -> str:
    """Tell an .xls from an encrypted .xlsx, which Microsoft puts into the same container."""
    content = Path(path).read_bytes()
    if "EncryptedPackage".encode("utf-16-le") in content:
        raise protected()
    if any(stream.encode("utf-16-le") in content for stream in ("Workbook", "Book")):
        return "xls"
    raise _not_a_table("an Office document without a workbook in it")
