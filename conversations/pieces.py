"""How one turn reads in a context view: the pieces that views are put together from.

A turn renders the same at any age and from any store, so its pieces are made once, when it is
written, counted in tokens and kept in the working set; a cold view makes the same pieces again
from the row. Each piece starts with an ASCII label and ends in one newline, which is what lets
token counts add up exactly.

Stored text is data: what looks like a marker of ours is escaped, base64 and what is very long
are left out with a mark.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from conversations.quoting import (
    Part,
    beginning_of,
    one_line,
    quoted_json,
    quoted_line,
    quoted_part,
    verbatim,
    without_base64,
)
from conversations.tokenizer import count_framed
from conversations.turns import Status

# Raise it with any change of what this module writes: token counts stored under another one are
# counted anew, working sets written under another one are misses.
RENDER_VERSION = 1
PART_MAX_CHARS = 20_000

_FENCE_CHARS = 6
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_NO_TEXT = "(no text)"
_ONE_LINE_SQL_CHARS = 80
# Five turns' statements stand in each view after a fold: at 80 characters late views of a long
# thread grow by a fifth over early ones.
_KEPT_SQL_CHARS = 60
_ONE_LINE_COLUMNS = 12
_ONE_LINE_NAME_CHARS = 60
_ONE_LINE_MEANING_CHARS = 500
_STATUS_MARK = re.compile(r"\((?=(?:stopped|failed|pending)\b)", re.IGNORECASE)


class TurnTokens(NamedTuple):
    """Token counts of a turn's pieces.

    `question` and `answer` as they stand in a text, `said` and `replied` as the content of chat
    messages, then the artifacts in each focus.
    """

    question: int
    answer: int
    said: int
    replied: int
    brief: int
    sql: int
    visualizations: int


class TurnPieces(NamedTuple):
    r"""One turn as context views show it.

    `question` is `"[t18 2026-11-30] user: Only the north.\n"`, and from `said_at` to before its
    newline it is the content of a chat message; `answer` and `replied_at` likewise (`""` for a
    complete turn without an answer; one that is not complete says so in both).
    `brief`, `sql` and `visualizations` hold the artifacts' lines in that focus, `clipped` what
    was left out of "query", "answer" or a focus's lines, with an estimate of its tokens:
    `[["answer", 8120]]`.
    """

    position: int
    tokens: TurnTokens
    question: str
    said_at: int
    answer: str
    replied_at: int
    brief: str
    sql: str
    visualizations: str
    clipped: Sequence[Sequence[Any]]


def fence_of(thread_id: uuid.UUID, key: str) -> str:
    """Return the word that closes this thread's memory: nobody who lacks `key` can write it."""
    digest = hmac.digest(key.encode(), thread_id.bytes, "sha256")
    number = int.from_bytes(digest[:8], "big")
    return "".join(_BASE62[number // 62**place % 62] for place in range(_FENCE_CHARS))


def render_version(key: str, part_max_chars: int = PART_MAX_CHARS) -> int:
    """Return `RENDER_VERSION` with a fingerprint of the settings that pieces depend on."""
    digest = hashlib.sha256(f"{part_max_chars}|{key}".encode()).digest()
    return RENDER_VERSION << 16 | int.from_bytes(digest[:2], "big")


def turn_pieces(
    *,
    position: int,
    created_at: datetime,
    query: str,
    answer: str,
    artifacts: Sequence[Mapping[str, Any]],
    status: str,
    fence: str,
    part_max_chars: int,
    count: Callable[[str], int],
    waiting_for: str | None = None,
    error_code: str | None = None,
    tokens: Sequence[int] | None = None,
) -> TurnPieces:
    """Return a turn's pieces; `tokens` are its counts where they are known already."""
    asked = quoted_part(query, fence, part_max_chars)
    answered = quoted_part(answer, fence, part_max_chars)
    said = asked.text or _NO_TEXT
    replied = _with_status(answered.text, status, waiting_for or "", error_code or "", fence)
    asked_by = f"[t{position} {created_at.astimezone(UTC).isoformat()[:10]}] user: "
    # "[t7] you: …" and, where the turn is not complete, "[t7] you (stopped): …"
    answered_by = f"[t{position}] you{':' if status == Status.COMPLETE else ''} "
    lines = _artifact_lines(position, artifacts, fence, part_max_chars) if artifacts else _NO_LINES
    counts = (
        _count(asked_by, said, answered_by, replied, lines, count)
        if tokens is None
        else TurnTokens._make(tokens)
    )
    return TurnPieces(
        position, counts,
        f"{asked_by}{said}\n", len(asked_by),
        f"{answered_by}{replied}\n" if replied else "", len(answered_by),
        lines.brief, lines.sql.text, lines.visualizations.text,
        _clipped(asked, answered, lines),
    )  # fmt: skip


def _count(
    asked_by: str, said: str, answered_by: str, replied: str, lines: _Lines,
    count: Callable[[str], int],
) -> TurnTokens:  # fmt: skip
    question, said_tokens = count_framed(asked_by, said, "\n", count)
    answer, replied_tokens = count_framed(answered_by, replied, "\n", count) if replied else (0, 0)
    brief, sql, visualizations = lines.brief, lines.sql.text, lines.visualizations.text
    in_sql = count(sql) if sql else 0
    return TurnTokens(
        question,
        answer,
        said_tokens,
        replied_tokens,
        count(brief) if brief else 0,
        in_sql,
        in_sql if visualizations == sql else count(visualizations),
    )


def _with_status(text: str, status: str, waiting_for: str, error_code: str, fence: str) -> str:
    """Return an answer with the mark of a turn that is not complete before it."""
    if status == Status.COMPLETE:
        return "⟨" + text[1:] if _STATUS_MARK.match(text) else text
    about = error_code if status == Status.FAILED else waiting_for
    mark = str(status)
    if about:
        mark += ", waiting for " if status == Status.PENDING else ": "
        mark += quoted_line(one_line(about), fence)
    return f"({mark}): {text}" if text else f"({mark}):"


# --- Artifacts ----------------------------------------------------------------------------


class _Lines(NamedTuple):
    """The artifacts of a turn in each focus."""

    brief: str
    sql: Part
    visualizations: Part


_NO_LINES = _Lines("", Part(""), Part(""))


def _clipped(asked: Part, answered: Part, lines: _Lines) -> list[list[Any]]:
    parts = (
        ("query", asked), ("answer", answered),
        ("sql", lines.sql), ("visualizations", lines.visualizations),
    )  # fmt: skip
    return [[name, tokens] for name, part in parts if (tokens := part.missing_tokens())]


def _artifact_lines(
    position: int, artifacts: Sequence[Mapping[str, Any]], fence: str, max_chars: int
) -> _Lines:
    labels = _labels(position, artifacts)
    brief = [quoted_line(_brief(artifact), fence) for artifact in artifacts]
    lines = [
        label + quoted_line(_line(artifact, position), fence)
        for label, artifact in zip(labels, artifacts, strict=True)
    ]
    return _Lines(
        "; ".join(label + text for label, text in zip(labels, brief, strict=True)) + "\n",
        _bounded(_sql_forms(lines, artifacts, fence), max_chars),
        _bounded(_descriptor_forms(labels, lines, artifacts, fence), max_chars),
    )


def _labels(position: int, artifacts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [f"[t{position}.{number}] " for number in range(1, len(artifacts) + 1)]


def artifact_lines(position: int, artifacts: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return each artifact in one line, label first, as a fold keeps it: not yet quoted.

    `[t11.2] chart line "Revenue, north": month × revenue, data t11.1`; a statement that has neither
    title nor columns is told by its beginning: `[t11.1] sql: SELECT region, SUM(amount) FROM sales`
    """
    labelled = zip(_labels(position, artifacts), artifacts, strict=True)
    return [label + _telling_line(artifact, position) for label, artifact in labelled]


def _telling_line(artifact: Mapping[str, Any], position: int) -> str:
    line = _line(artifact, position)
    if artifact["kind"] != "sql" or artifact.get("title") or artifact.get("columns"):
        return line
    begun, over = _begun_in_one_line(artifact["sql"], _KEPT_SQL_CHARS)
    return f"{line}: {begun}{over}"


class _ArtifactForm(NamedTuple):
    """An artifact in one focus: in one line, and whole where there is room."""

    line: str
    whole: str
    base64_chars: int = 0


def _bounded(forms: Iterator[_ArtifactForm], max_chars: int) -> Part:
    """Return each artifact whole as long as the whole ones fit in `max_chars`, then in a line."""
    shown: list[str] = []
    room, base64_chars, over_chars = max_chars, 0, 0
    for line, whole, left_out in forms:
        if whole is line:
            shown.append(line)
        elif len(whole) <= room:
            room -= len(whole)
            base64_chars += left_out
            shown.append(whole)
        else:
            over = len(whole) - len(line)
            over_chars += over
            shown.append(f"{line} (… {over:,} characters left out)")
    return Part("".join(f"{text}\n" for text in shown), base64_chars, over_chars)


def _sql_forms(
    lines: Sequence[str], artifacts: Sequence[Mapping[str, Any]], fence: str
) -> Iterator[_ArtifactForm]:
    for line, artifact in zip(lines, artifacts, strict=True):
        sql = artifact.get("sql")
        if not sql:
            yield _ArtifactForm(line, line)
            continue
        shown = without_base64(verbatim(sql, fence))
        whole = f"{line}\n{_in_ticks(shown.text)}"
        yield _ArtifactForm(line, whole, shown.base64_chars)


def _in_ticks(sql: str) -> str:
    longest = max(map(len, re.findall("`+", sql)), default=0) if "`" in sql else 0
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}sql\n{sql}\n{ticks}"


def _descriptor_forms(
    labels: Sequence[str],
    lines: Sequence[str],
    artifacts: Sequence[Mapping[str, Any]],
    fence: str,
) -> Iterator[_ArtifactForm]:
    for label, line, artifact in zip(labels, lines, artifacts, strict=True):
        kind, sql = artifact["kind"], artifact.get("sql")
        if kind in {"chart", "visualization", "dashboard"}:
            descriptor = _descriptor(artifact, fence)
            whole = f"{label}{kind} {descriptor.text}"
            yield _ArtifactForm(line, whole, descriptor.base64_chars)
        elif sql:
            with_sql = f"{line}: {_sql_in_one_line(sql, fence)}"
            yield _ArtifactForm(with_sql, with_sql)
        else:
            yield _ArtifactForm(line, line)


def _sql_in_one_line(sql: str, fence: str) -> str:
    begun, over = _begun_in_one_line(sql, _ONE_LINE_SQL_CHARS)
    return quoted_line(begun, fence) + over


def _begun_in_one_line(sql: str, max_chars: int) -> tuple[str, str]:
    """Return the beginning of a statement, and how much it lacks: `" (+96 characters)"`."""
    line = " ".join(sql.split())
    begun = beginning_of(line, max_chars)
    over = len(line) - len(begun)
    return begun, f" (+{over:,} characters)" if over else ""


def _descriptor(artifact: Mapping[str, Any], fence: str) -> Part:
    whole = {name: value for name, value in artifact.items() if name != "kind"}
    return without_base64(quoted_json(whole, fence))


# --- What is said of an artifact ------------------------------------------------------------


def _titled(artifact: Mapping[str, Any], *names: str) -> str:
    title = next((str(artifact[name]) for name in names if artifact.get(name)), "")
    return ' "' + one_line(title.replace('"', "'")) + '"' if title else ""


def _brief(artifact: Mapping[str, Any]) -> str:
    kind = artifact["kind"]
    if kind == "chart":
        return f"chart {one_line(artifact['chart_type'])}{_titled(artifact, 'title')}"
    if kind == "definition":
        return f"definition{_titled(artifact, 'term')}"
    if kind == "file":
        return f"file{_titled(artifact, 'name', 'file_id')}"
    return f"{kind}{_titled(artifact, 'title', 'id')}"


def _line(artifact: Mapping[str, Any], position: int) -> str:
    if type_name := artifact.get("visualization_type"):
        named = f"visualization {one_line(type_name)}{_titled(artifact, 'title')}"
    else:
        named = _brief(artifact)
    return named + _DETAILS[artifact["kind"]](artifact, position)


def _table_detail(artifact: Mapping[str, Any], position: int) -> str:
    rows = artifact.get("row_count")
    parts = [_columns(artifact)] if artifact.get("columns") else []
    if rows is not None:
        parts.append(f"{rows} row" if rows == 1 else f"{rows} rows")
    return f" → {'; '.join(parts)}" if parts else ""


def _columns(artifact: Mapping[str, Any]) -> str:
    columns = artifact["columns"]
    over = len(columns) - _ONE_LINE_COLUMNS + int(artifact.get("more_columns") or 0)
    shown = ", ".join(
        one_line(str(column), _ONE_LINE_NAME_CHARS) for column in columns[:_ONE_LINE_COLUMNS]
    )
    return f"{shown} (+{over} columns)" if over > 0 else shown


def _chart_detail(artifact: Mapping[str, Any], position: int) -> str:
    axes = (artifact.get("x"), ", ".join(artifact.get("y") or []))
    parts = [" × ".join(axis for axis in axes if axis)]
    if artifact.get("series"):
        parts.append(f"by {artifact['series']}")
    if artifact.get("data"):
        parts.append(f"data t{position}.{artifact['data']}")
    said = ", ".join(one_line(part) for part in parts if part)
    return f": {said}" if said else ""


def _visualization_detail(artifact: Mapping[str, Any], position: int) -> str:
    columns = f": {_columns(artifact)}" if artifact.get("columns") else ""
    return f" {one_line(str(artifact['id']))}{columns}"


def _dashboard_detail(artifact: Mapping[str, Any], position: int) -> str:
    items = ", ".join(str(item) for item in artifact.get("items") or [])
    return f" {one_line(str(artifact['id']))}" + (f": {one_line(items)}" if items else "")


def _definition_detail(artifact: Mapping[str, Any], position: int) -> str:
    return ": " + one_line(str(artifact["meaning"]), _ONE_LINE_MEANING_CHARS)


_DETAILS: dict[str, Callable[[Mapping[str, Any], int], str]] = {
    "sql": _table_detail,
    "file": _table_detail,
    "chart": _chart_detail,
    "visualization": _visualization_detail,
    "dashboard": _dashboard_detail,
    "definition": _definition_detail,
}
