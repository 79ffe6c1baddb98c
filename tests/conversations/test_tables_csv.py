"""CSV files as people save them: read exactly, or refused with a sentence that says where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conversations.table_reader import LIMITS, Reader


@pytest.fixture
def read(tmp_path):
    return Reader(tmp_path)


@pytest.fixture
def refusal(read):
    return read.refusal


def column(read, *values):
    """What becomes of a column `v` with these values: its type and what is read."""
    table = read("n,v\n" + "".join(f"x,{value}\n" for value in values))
    return table.types[1], [row[1] for row in table.rows]


# --- Values keep what they say ----------------------------------------------------------------


def test_names_and_rows_are_read(read):
    table = read("region,amount\nNorth,4\nSouth,5\n")
    assert table.columns == ["region", "amount"]
    assert table.rows == [["North", 4], ["South", 5]]


@pytest.mark.parametrize(
    ("values", "type_name", "found"),
    [
        (["1", "-2", "0"], "integer", [1, -2, 0]),
        (["999999999999999"], "integer", [999999999999999]),
        (["1.5", "2", "0.1"], "number", [1.5, 2, 0.1]),
        (["1.0", "2.5", "10.25"], "number", [1.0, 2.5, 10.25]),
        (["1.10", "2.35", "-0.50"], "number", [1.1, 2.35, -0.5]),
        (["1e-05", "0.5"], "number", [1e-05, 0.5]),
    ],
)
def test_what_can_only_be_numbers_is_numbers(read, values, type_name, found):
    assert column(read, *values) == (type_name, found)


@pytest.mark.parametrize(
    "values",
    [
        ["00501", "10001"],
        ["9223372036854775808"],
        ["1234567890123456"],
        ["NA", "1"],
        ["NULL", "2"],
        ["nan", "1.5"],
        ["inf", "-inf"],
        ["true", "false"],
        ["+34", "12"],
        ["-0"],
        ["1.9", "1.10"],
        ["5", "1.10"],
        ["0.1234567890123456789"],
        ["1e5"],
        ["1" + "0" * 400 + ".0"],
        ["0." + "0" * 400 + "1"],
        [" 5", "6"],
        ["5%"],
        ["1 000"],
        ["٣"],
        ["2026-11-30"],
        ["=SUM(A1:A2)"],
    ],
)
def test_everything_else_stays_text_for_the_whole_column(read, values):
    assert column(read, *values) == ("text", values)


def test_a_value_far_below_decides_for_the_first_row_too(read):
    table = read("id\n" + "".join(f"{n}\n" for n in range(2_000)) + "x7\n")
    assert table.types == ["text"]
    assert table.rows[0] == ["0"]


def test_zip_codes_and_long_numbers_are_kept(read):
    assert read("zip,big\n00501,9223372036854775808\n").rows == [["00501", "9223372036854775808"]]


def test_namibia_stays_on_the_map(read):
    assert read("cc,v\nNA,1\nNULL,2\n").rows == [["NA", 1], ["NULL", 2]]


def test_infinity_is_text(read):
    table = read("v\ninf\n-inf\n\n")
    assert table.rows == [["inf"], ["-inf"]]
    assert table.notes["blank_lines"]["first"] == "line 4"


def test_a_missing_value_is_null_and_leaves_numbers_numbers(read):
    table = read("id,v,w\n1,,a\n2,5,\n")
    assert table.types == ["integer", "integer", "text"]
    assert table.rows == [[1, None, "a"], [2, 5, None]]


def test_a_column_without_a_value_is_empty(read):
    assert read("a,b\n1,\n").types == ["integer", "empty"]


def test_decimal_commas_stay_text_and_are_noted(read):
    table = read("item;price\npen;1,5\ninkwell;1.234,50\n")
    assert table.rows == [["pen", "1,5"], ["inkwell", "1.234,50"]]
    assert table.notes["decimal_commas"]["first"] == "price"


def test_nothing_is_a_number_where_text_is_asked_for(read):
    assert read("v,w\n1,2.50\n", types="text").rows == [["1", "2.50"]]


# --- Delimiters -------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(read, delimiter):
    table = read(f"id{delimiter}name\n1{delimiter}a\n2{delimiter}b\n")
    assert table.about["delimiter"] == delimiter
    assert table.rows == [[1, "a"], [2, "b"]]


def test_commas_in_values_do_not_make_a_delimiter(read):
    table = read("name;note\nAna;one, two\nBob;three, four, five\n")
    assert table.about["delimiter"] == ";"


def test_delimiters_between_quotes_do_not_count(read):
    table = read('name,note\nAna,"a;b;c"\nBob,"d;e;f"\n')
    assert table.rows == [["Ana", "a;b;c"], ["Bob", "d;e;f"]]


def test_excels_own_line_about_the_delimiter_is_no_row(read):
    table = read("sep=;\nid;name\n1;a,b\n")
    assert (table.about["delimiter"], table.about["header"]) == (";", 2)
    assert table.rows == [[1, "a,b"]]


@pytest.mark.parametrize("first", ["sep=;x", "sep=x", "sep="])
def test_a_first_line_that_only_begins_so_is_the_header(read, first):
    assert read(f"{first}\nx\n").columns[0].startswith("sep=")


@pytest.mark.parametrize("named", ["tab", "\t"])
def test_the_delimiter_may_be_named(read, named):
    assert read("a,b\tc\n1,2\t3\n", delimiter=named).columns == ["a,b", "c"]


def test_one_column_needs_no_delimiter(read):
    assert read("name\nAna\nBob\n").rows == [["Ana"], ["Bob"]]


# --- Encodings --------------------------------------------------------------------------------

DASHED = "id;name\n1;Straße – ok\n2;Muñoz\n"


@pytest.mark.parametrize(
    ("codec", "reported", "decided_by"),
    [
        ("utf-8", "utf-8", "content"),
        ("utf-8-sig", "utf-8", "bom"),
        ("utf-16", "utf-16", "bom"),
        ("utf-16-le", "utf-16-le", "content"),
        ("utf-16-be", "utf-16-be", "content"),
        ("utf-32", "utf-32", "bom"),
        ("cp1252", "cp1252", "guess"),
    ],
)
def test_what_excel_saves_is_read_as_it_was_written(read, codec, reported, decided_by):
    table = read(DASHED.encode(codec))
    assert table.columns == ["id", "name"]
    assert table.rows == [[1, "Straße – ok"], [2, "Muñoz"]]
    assert table.about["encoding"] == reported
    assert table.about["encoding_decided_by"] == decided_by


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("a,b\nПривет,мир\nМосква,Россия\n", "cp1251"),
        ("a,b\nzażółć,gęślą jaźń\n", "cp1250"),
        ("όνομα,πόλη\nΑθήνα,Θεσσαλονίκη\n", "cp1253"),
        ("名前,値\n東京,1\n大阪,2\n", "cp932"),
        ("名字,值\n北京,1\n上海,2\n", "gb18030"),
    ],
)
def test_other_scripts_are_told_apart(read, text, codec):
    table = read(text.encode(codec))
    assert table.about["encoding"] == codec
    assert ",".join(table.columns) == text.splitlines()[0]


def test_an_uncertain_guess_says_what_else_it_could_be(read):
    note = read("nom,ville\nÉlise,Orléans\n".encode("cp1252")).notes["encoding_guessed"]
    assert "cp1250" in note["first"]
    assert "option encoding" in note["detail"]


def test_the_encoding_may_be_named(read):
    table = read("город\nКазань\n".encode("koi8-r"), encoding="KOI8-R")
    assert table.rows == [["Казань"]]
    assert table.about["encoding_decided_by"] == "option"


def test_a_bom_is_no_part_of_the_first_name_when_the_encoding_is_named(read):
    for codec, named in (("utf-8-sig", "utf-8"), ("utf-16", "utf-16-le")):
        assert read(DASHED.encode(codec), encoding=named).columns[0] == "id"


@pytest.mark.parametrize("named", ["utf-16", "utf-32"])
def test_the_usual_order_of_bytes_is_meant_where_none_is_named(read, named):
    assert read(DASHED.encode(f"{named}-le"), encoding=named).rows[1] == [2, "Muñoz"]


def test_bytes_that_the_named_encoding_has_no_meaning_for_are_named_with_their_line(refusal):
    refused = refusal(DASHED.encode("cp1252"), encoding="utf-8")
    assert refused.code == "file_encoding"
    assert "Line 2" in refused.sentence
    assert "utf-8" in refused.sentence
    assert "0xdf" in refused.sentence


def test_a_fault_in_what_is_surely_utf_8_is_no_reason_to_read_it_as_something_else(refusal):
    refused = refusal("name\nÄäÖöÜü\n".encode() + b"\xff\n")
    assert refused.code == "file_encoding"
    assert "Line 3" in refused.sentence


def test_a_file_that_ends_within_a_letter_is_refused(refusal):
    assert refusal("name\nÄäÖö€".encode()[:-1]).code == "file_encoding"


@pytest.mark.parametrize("named", ["rot13", "base64", "unicode_escape", "klingon", "a\0b"])
def test_only_encodings_of_text_may_be_named(refusal, named):
    assert refusal("a\n1\n", encoding=named).code == "file_bad_option"


# --- Headers ----------------------------------------------------------------------------------


def test_names_that_stand_twice_or_not_at_all_become_unique(read):
    table = read("id,,id,id (2)\nx,1,2,3\n")
    assert table.columns == ["id", "column_2", "id (3)", "id (2)"]
    assert table.notes["blank_names"]["first"] == "line 1, column 2"
    assert table.notes["repeated_names"]["count"] == 1


def test_white_space_around_names_goes(read):
    assert read(' id ,"first\nname"\nx,1\n').columns == ["id", "first name"]


def test_years_are_names(read):
    assert read("country,2020,2021\nFrance,3,4\n").columns == ["country", "2020", "2021"]


@pytest.mark.parametrize("content", ["1,2\n3,4\n", "a,1\nb,2\n"])
def test_a_first_line_of_data_is_a_row(read, content):
    table = read(content)
    assert table.columns == ["column_1", "column_2"]
    assert len(table.rows) == 2
    assert (table.about["header"], table.notes["no_header"]["first"]) == (0, "line 1")


def test_the_header_may_be_named(read):
    table = read("Report,2026\n\nid,name\n1,a\n", header="3")
    assert table.columns == ["id", "name"]
    assert table.rows == [[1, "a"]]
    assert table.notes["before_header"]["count"] == 2


def test_there_may_be_said_to_be_none(read):
    table = read("id,name\nx,a\n", header="none")
    assert table.rows == [["id", "name"], ["x", "a"]]


def test_a_header_on_a_line_without_one_is_refused(refusal):
    assert refusal("a,b\n1,2\n", header="7").code == "file_bad_option"


def test_a_header_alone_is_a_table_without_rows(read):
    table = read("a,b\n")
    assert (table.columns, table.rows) == (["a", "b"], [])
    assert "no_rows" in table.notes


# --- Rows that do not fit ---------------------------------------------------------------------


@pytest.mark.parametrize(("content", "line"), [("a,b\n1,2,3\n", 2), ("a,b\n1,2\n3,4,5\n", 3)])
def test_a_field_too_many_is_refused_with_its_line(refusal, content, line):
    refused = refusal(content)
    assert refused.code == "file_row_too_long"
    assert f"Line {line} has 3 fields" in refused.sentence


def test_the_line_is_counted_past_line_breaks_in_values(refusal):
    assert "Line 4" in refusal('a,b\n"x\ny",2\n3,4,5\n').sentence


def test_delimiters_at_the_end_of_a_line_are_no_fields(read):
    table = read("a,b\n1,2,\n3,4,,\n")
    assert table.rows == [[1, 2], [3, 4]]
    assert table.notes["empty_extra_fields"]["first"] == "line 2"


def test_a_short_row_is_filled_with_nulls_and_told(read):
    table = read("a,b,c\nx,2,3\ny\n")
    assert table.rows == [["x", 2, 3], ["y", None, None]]
    assert table.notes["short_rows"] == {
        "code": "short_rows",
        "count": 1,
        "first": "line 3",
        "detail": table.notes["short_rows"]["detail"],
    }


def test_line_breaks_between_quotes_are_part_of_the_value(read):
    assert read('a,b\n"one\ntwo",2\n').rows == [["one\ntwo", 2]]


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_lines_end_as_they_like(read, line_end):
    assert read(line_end.join(["a,b", "x,2", ""])).rows == [["x", 2]]


def test_a_quote_that_is_never_closed_is_refused_with_its_line(refusal):
    refused = refusal('a,b\n1,2\n"3,4\n5,6\n')
    assert refused.code == "file_quotes"
    assert "line 3" in refused.sentence


def test_a_stray_quote_is_refused(refusal):
    assert refusal('a,b\n"x"y,2\n').code == "file_quotes"


def test_a_quote_within_an_unquoted_value_is_a_character(read):
    assert read('a,b\n5" pipe,2\n').rows == [['5" pipe', 2]]


def test_a_nul_is_visible_and_told(read):
    table = read("a,b\nx\0y,2\n")
    assert table.rows == [["x\ufffdy", 2]]
    assert table.notes["nul_characters"]["first"] == "line 2"


@pytest.mark.parametrize("content", ["", "\n\n", " \n", ",,\n,,\n"])
def test_a_file_without_a_value_is_refused(refusal, content):
    assert refusal(content).code == "file_empty"


# --- What is no CSV ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"%PDF-1.7 ...", "a PDF"),
        (b"<!DOCTYPE html><table><tr><td>1</td></tr></table>", "a web page"),
        (b"  <html><body>", "a web page"),
        (b'<?xml version="1.0"?><Workbook/>', "an XML document"),
        (b"\x1f\x8b\x08\0\0\0", "a gzip archive"),
        (b"PAR1\0\0", "a Parquet file"),
        (b"\x89PNG\r\n\x1a\n", "a picture"),
    ],
)
def test_what_is_no_table_is_named(refusal, content, what):
    refused = refusal(content, name="report.xls")
    assert refused.code == "file_not_a_table"
    assert what in refused.sentence


def test_bytes_that_are_no_text_are_refused(refusal):
    assert refusal(bytes(range(256)) * 40).code == "file_not_a_table"


def test_text_that_is_named_xlsx_is_read_and_told(read):
    table = read("a,b\nx,2\n", name="report.xlsx")
    assert table.about["kind"] == "csv"
    assert "named .xlsx" in table.notes["name_says_otherwise"]["first"]


# --- Limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "setting"),
    [
        ({"bytes": 10}, "MAX_UPLOAD_BYTES"),
        ({"rows": 2}, "MAX_UPLOAD_ROWS"),
        ({"columns": 2}, "MAX_UPLOAD_COLUMNS"),
        ({"cells": 8}, "MAX_UPLOAD_CELLS"),
        ({"cell_chars": 4}, "MAX_UPLOAD_CELL_CHARS"),
    ],
)
def test_what_is_over_a_limit_is_refused_by_its_name(read, refusal, limit, setting):
    content = "a,b,c\nx,1,2\ny,3,4\nz,5,55555\n"
    assert len(read(content).rows) == 3
    refused = refusal(content, limits=replace(LIMITS, **limit))
    assert (refused.code, refused.setting) == ("file_too_large", setting)
    assert setting in refused.sentence
    assert str(*limit.values()) in refused.sentence


def test_just_what_the_limits_allow_is_read(read):
    limits = replace(LIMITS, bytes=12, rows=2, columns=2, cells=4, cell_chars=1)
    assert len(read("a,b\nx,1\ny,2\n", limits=limits).rows) == 2


@pytest.mark.parametrize(
    "options",
    [
        *({"delimiter": "x"}, {"header": "first"}, {"header": "-1"}, {"header": "9" * 30}),
        *({"types": "dates"}, {"colour": "red"}, {"sheet": ["a"]}),
    ],
)
def test_options_that_mean_nothing_are_refused_by_their_name(refusal, options):
    refused = refusal("a\nx\n", **options)
    assert refused.code == "file_bad_option"
    assert next(iter(options)) in refused.sentence
