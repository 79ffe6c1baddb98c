"""Excel files as Excel and others save them: read as stored, or refused with the sheet named."""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import replace

import pytest

from conversations.tables import TableLimits
from tests.conversations import workbooks
from tests.conversations.table_reader import LIMITS, Reader
from tests.conversations.workbooks import DAY, DURATION, MOMENT, TIME, Cell, Sheet, xlsx


@pytest.fixture
def read(tmp_path):
    return Reader(tmp_path)


@pytest.fixture
def refusal(read):
    return read.refusal


def book(rows, **sheet):
    return xlsx(Sheet("Budget", rows, **sheet))


# --- Values -----------------------------------------------------------------------------------


def test_names_and_rows_are_read(read):
    table = read(book({1: ["region", "amount"], 2: ["North", 4], 3: ["South", 5.5]}))
    assert table.columns == ["region", "amount"]
    assert table.rows == [["North", 4], ["South", 5.5]]
    assert table.about["kind"] == "xlsx"
    assert table.types == ["text", "number"]


@pytest.mark.parametrize(
    "text", ["00501", "NA", "NULL", "nan", "9223372036854775808", "1,5", "=A1"]
)
def test_text_stays_text(read, text):
    table = read(book({1: ["v"], 2: [text]}))
    assert (table.rows, table.types) == ([[text]], ["text"])


def test_whole_numbers_are_integers(read):
    row = read(book({1: ["v", "w"], 2: [2, 999999999999999]})).rows[0]
    assert row == [2, 999999999999999]
    assert [*map(type, row)] == [int, int]


def test_digits_that_a_float_would_lose_are_kept_as_text(read):
    table = read(book({1: ["id", "v"], 2: [9223372036854775808, 1], 3: [-12345678901234567, 2]}))
    assert table.rows == [["9223372036854775808", 1], ["-12345678901234567", 2]]
    assert table.notes["long_numbers"]["count"] == 2


def test_an_infinite_number_is_null(read):
    assert read(book({1: ["v", "w"], 2: ["x", Cell("1e999", type="n")]})).rows == [["x", None]]


def test_dates_and_times_are_iso(read):
    cells = [Cell(46356, style=DAY), Cell(46356.375, style=MOMENT), Cell(0.25, style=TIME)]
    table = read(book({1: ["d", "m", "t", "l"], 2: [*cells, Cell(1.0625, style=DURATION)]}))
    assert table.rows == [["2026-11-30", "2026-11-30T09:00:00", "06:00:00", "P1DT01H30M00S"]]
    assert table.types == ["date", "datetime", "time", "duration"]


def test_a_column_may_be_mixed(read):
    table = read(book({1: ["v"], 2: [501], 3: ["00501"]}))
    assert (table.rows, table.types) == ([[501], ["00501"]], ["mixed"])


def test_truth_is_kept_and_missing_cells_are_null(read):
    table = read(book({1: ["a", "b", "c"], 2: ["x", Cell(1, type="b")], 3: ["y", None, 5]}))
    assert table.rows == [["x", True, None], ["y", None, 5]]
    assert table.types == ["text", "boolean", "integer"]


def test_an_error_is_null_and_told(read):
    table = read(book({1: ["a", "b"], 2: ["x", Cell("#N/A", type="e")]}))
    assert table.rows == [["x", None]]
    assert table.notes["excel_errors"]["first"] == "sheet Budget"


# --- Formulas ---------------------------------------------------------------------------------


def test_a_formula_that_was_calculated_is_its_value(read):
    table = read(book({1: ["n"], 2: [2], 3: [3], 4: [Cell(5, formula="SUM(A2:A3)")]}))
    assert table.rows == [[2], [3], [5]]
    assert "formulas_without_value" not in table.notes


@pytest.mark.parametrize("value", [None, ""])
def test_a_formula_that_nobody_has_calculated_keeps_its_row_and_is_told(read, value):
    table = read(book({1: ["n"], 2: [2], 3: [3], 4: [Cell(value, formula="SUM(A2:A3)")]}))
    assert table.rows == [[2], [3], [None]]
    note = table.notes["formulas_without_value"]
    assert (note["count"], note["first"]) == (1, "sheet Budget, A4")
    assert "save it" in note["detail"]


def test_formulas_without_values_keep_their_columns(read):
    formula = Cell(formula="B2*2")
    table = read(book({1: [None, "n"], 2: [formula, 2, formula], 3: [None, 3, formula]}))
    assert table.rows == [[None, 2, None], [None, 3, None]]


def test_a_sheet_of_nothing_but_formulas_is_not_empty(read):
    table = read(book({1: [Cell(formula="1+1")], 2: [Cell(formula="2+2")]}), header="none")
    assert table.rows == [[None], [None]]


def test_a_formula_is_noticed_across_the_pieces_that_an_archive_is_unpacked_in(read):
    rows = {n: ["x" * 90_000, Cell(formula="1+1")] for n in range(2, 27)}
    table = read(book({1: ["text", "sum"], **rows}))
    assert table.notes["formulas_without_value"]["count"] == 25


# --- Headers and where the table stands -------------------------------------------------------


def test_a_table_may_stand_anywhere(read):
    table = read(
        book({5: [None, None, "id", "v"], 6: [None, None, "x", 1], 8: [None, None, "y", 2]})
    )
    assert table.columns == ["id", "v"]
    assert table.rows == [["x", 1], ["y", 2]]
    assert table.about["header"] == 5
    assert table.notes["blank_lines"]["first"] == "sheet Budget, row 7"


def test_a_title_above_the_header_is_no_header(read):
    table = read(book({1: ["Budget 2026"], 3: ["id", "v"], 4: ["x", 1]}))
    assert (table.columns, table.about["header"]) == (["id", "v"], 3)
    assert table.notes["before_header"]["first"] == "sheet Budget, row 1"


def test_the_header_may_be_named(read):
    table = read(book({1: ["2025", "2026"], 2: ["id", "v"], 3: ["x", 1]}), header="2")
    assert (table.columns, table.rows) == (["id", "v"], [["x", 1]])


def test_a_header_on_an_empty_row_is_refused_with_the_sheet_named(refusal):
    refused = refusal(book({1: ["id"], 3: ["x"]}), header="2")
    assert refused.code == "file_bad_option"
    assert "row 2 of sheet Budget" in refused.sentence


def test_numbers_alone_are_no_header(read):
    table = read(book({1: [1, 2], 2: [3, 4]}))
    assert (table.columns, len(table.rows)) == (["column_1", "column_2"], 2)


def test_names_that_stand_twice_or_not_at_all_become_unique(read):
    table = read(book({1: ["id", None, "id"], 2: ["x", 1, 2]}))
    assert table.columns == ["id", "column_2", "id (2)"]


def test_a_name_over_merged_cells_is_that_of_each(read):
    table = read(book({1: ["region", "2026", None], 2: ["x", 1, 2]}, merged=["B1:C1"]))
    assert table.columns == ["region", "2026", "2026 (2)"]
    assert table.notes["merged_header"]["first"] == "sheet Budget, row 1"


def test_merged_cells_below_are_told(read):
    table = read(book({1: ["a", "b"], 2: ["x", 1], 3: [None, 2]}, merged=["A2:A3"]))
    assert table.rows == [["x", 1], [None, 2]]
    assert table.notes["merged_cells"]["first"] == "sheet Budget, row 2"


def test_numbers_and_dates_are_names_as_they_are_read(read):
    table = read(book({1: ["country", 2020, Cell(46356, style=DAY)], 2: ["x", 1, 2]}))
    assert table.columns == ["country", "2020", "2026-11-30"]


def test_a_header_alone_is_a_table_without_rows(read):
    table = read(book({1: ["a", "b"]}))
    assert (table.rows, table.types) == ([], ["empty", "empty"])


# --- Sheets -----------------------------------------------------------------------------------

SHEETS = [
    Sheet("Cover", {}),
    Sheet("Secret", {1: ["s"], 2: ["hidden"]}, state="hidden"),
    Sheet("Data & more", {1: ["d"], 2: ["shown"]}),
    Sheet("Later", {1: ["l"], 2: ["last"]}),
]


def test_the_first_visible_sheet_with_a_value_is_read(read):
    table = read(xlsx(*SHEETS))
    assert table.rows == [["shown"]]
    assert table.about["sheet"] == "Data & more"
    assert table.notes["other_sheets"]["first"] == "Cover, Secret (hidden), Later"


def test_the_metadata_lists_all_sheets(read):
    listed = read(xlsx(*SHEETS)).about["sheets"]
    assert [(sheet["name"], sheet["visible"]) for sheet in listed] == [
        ("Cover", True), ("Secret", False), ("Data & more", True), ("Later", True),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("named", "found"), [("Later", "last"), ("later", "last"), ("Secret", "hidden")]
)
def test_a_sheet_may_be_named_hidden_or_not(read, named, found):
    assert read(xlsx(*SHEETS), sheet=named).rows == [[found]]


def test_notes_are_of_the_sheet_that_is_read(read):
    other = Sheet("Sums", {1: ["s"], 2: [Cell(formula="1+1")]})
    assert "formulas_without_value" not in read(xlsx(Sheet("A", {1: ["a"], 2: ["x"]}), other)).notes


def test_a_sheet_that_is_not_there_is_refused_with_those_that_are(refusal):
    refused = refusal(xlsx(*SHEETS), sheet="Data")
    assert refused.code == "file_bad_option"
    assert "Cover, Secret (hidden), Data & more, Later" in refused.sentence


def test_a_sheet_of_nothing_but_errors_is_empty(refusal):
    errors = Sheet("Errors", {1: [Cell("#N/A", type="e")]})
    assert refusal(xlsx(errors)).code == "file_empty"
    assert "Sheet Errors" in refusal(xlsx(errors), sheet="Errors").sentence


def test_a_workbook_of_empty_sheets_is_refused_with_their_names(refusal):
    refused = refusal(xlsx(Sheet("One", {}), SHEETS[1]))
    assert refused.code == "file_empty"
    assert "One, Secret (hidden)" in refused.sentence


# --- Other kinds, and what is only called so --------------------------------------------------


def test_an_old_xls_is_read(read):
    table = read(workbooks.XLS, name="old.xls")
    assert table.rows == [["00501", 12.5, "2026-11-30"]]
    assert (table.about["kind"], table.about["sheet"]) == ("xls", "Alt")


def test_a_csv_that_is_really_xlsx_is_read_and_told(read):
    table = read(book({1: ["id"], 2: ["x"]}), name="report.csv")
    assert (table.about["kind"], table.rows) == ("xlsx", [["x"]])
    assert "name_says_otherwise" in table.notes


def test_a_workbook_with_a_password_is_refused(refusal):
    refused = refusal(workbooks.PROTECTED, name="report.xlsx")
    assert refused.code == "file_password_protected"
    assert "password" in refused.sentence


def test_an_encrypted_archive_is_refused(refusal):
    content = bytearray(book({1: ["id"], 2: ["x"]}))
    at = content.rfind(b"PK\x01\x02")
    content[at + 8] |= 1
    assert refusal(bytes(content)).code == "file_password_protected"


@pytest.mark.parametrize("content", [b"PK\x03\x04" + b"x" * 500, book({1: ["a"], 2: ["b"]})[:-200]])
def test_a_damaged_workbook_is_refused(refusal, content):
    assert refusal(content, name="report.xlsx").code == "file_damaged"


def test_an_archive_with_an_entry_outside_of_it_is_refused(refusal):
    content = bytearray(book({1: ["id"], 2: ["x"]}))
    end = content.rfind(b"PK\x05\x06")
    content[end + 16 : end + 20] = struct.pack("<I", 2**31)  # where the directory begins
    assert refusal(bytes(content)).code == "file_damaged"


def test_a_damaged_sheet_is_refused(refusal):
    broken = {"xl/worksheets/sheet1.xml": "<worksheet><sheetData><row"}
    assert refusal(xlsx(Sheet("A", {1: ["a"]}), more=broken)).code == "file_damaged"


def test_a_damaged_xls_is_refused(refusal):
    assert refusal(workbooks.XLS[:2_000] + b"\0" * 2_000).code in {
        "file_damaged",
        "file_not_a_table",
    }


def test_any_other_archive_is_refused(refusal):
    assert refusal(workbooks.zipped({"a.txt": "hello"})).code == "file_not_a_table"


# --- Limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "setting"),
    [
        ({"bytes": 100}, "MAX_UPLOAD_BYTES"),
        ({"unpacked_bytes": 1_000}, "MAX_UPLOAD_UNPACKED_BYTES"),
        ({"rows": 2}, "MAX_UPLOAD_ROWS"),
        ({"columns": 2}, "MAX_UPLOAD_COLUMNS"),
        ({"cells": 8}, "MAX_UPLOAD_CELLS"),
        ({"cell_chars": 4}, "MAX_UPLOAD_CELL_CHARS"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_its_name(read, refusal, limit, setting):
    content = book({1: ["a", "b", "c"], 2: ["x", 1, 2], 3: ["y", 3, 4], 4: ["zzzzz", 5, 6]})
    assert len(read(content).rows) == 3
    refused = refusal(content, limits=replace(LIMITS, **limit))
    assert (refused.code, refused.setting) == ("file_too_large", setting)
    assert setting in refused.sentence


def test_sizes_that_an_archive_declares_are_enough_to_refuse_it(refusal):
    bomb = book({1: ["a"], 2: ["x"]}, extra=" " * 20_000_000)
    assert len(bomb) < 30_000
    refused = refusal(bomb, limits=TableLimits(unpacked_bytes=10_000_000))
    assert refused.setting == "MAX_UPLOAD_UNPACKED_BYTES"


def test_an_archive_that_lies_about_its_sizes_is_refused_by_what_it_unpacks_to(refusal):
    bomb = _declaring(10, book({1: ["a"], 2: ["x"]}, extra=" " * 20_000_000))
    refused = refusal(bomb, limits=TableLimits(unpacked_bytes=10_000_000))
    assert refused.setting == "MAX_UPLOAD_UNPACKED_BYTES"


def _declaring(size, content):
    """The archive with another unpacked size written down for its largest entry."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        largest = max(archive.infolist(), key=lambda entry: entry.file_size)
    true = struct.pack("<I", largest.file_size)
    assert true in content
    return content.replace(true, struct.pack("<I", size))
