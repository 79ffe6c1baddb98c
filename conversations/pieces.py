"""How one turn reads in a context view: the pieces that views are put together from.

A turn renders the same at any age and from any store, so its pieces are made once, when it is
written, counted in tokens and kept in the working set; a cold view makes the same pieces again
from the row. Each piece starts with an ASCII label and ends in one newline, which is what lets
token counts add up exactly.

Stored text is data: what looks like a marker of ours is escaped, base64 and the tail of very long
texts are left out with a mark.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from conversations.turns import Status

# Raise it with any change of what this module writes: token counts stored under another one are
# counted anew, working sets written under another one are misses.
RENDER_VERSION = 1

FOCUSES = ("brief", "sql", "visualizations")

_FENCE_CHARS = 6
_ONE_LINE_SQL_CHARS = 80
_ONE_LINE_COLUMNS = 12
_ONE_LINE_TEXT_CHARS = 200

_LINE_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_INVISIBLE = re.compile("[\x00-\x08\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
_TAGS = re.compile(r"<(?=\s*/?\s*(?:memory|facts|summary|built)\b)", re.IGNORECASE)
_LABELS = re.compile(r"^(\s*)([\[(])(?=t\d)", re.MULTILINE | re.IGNORECASE)
_CLOSING_TAG = re.compile(r"<(?=\s*/\s*memory\b)", re.IGNORECASE)
_DATA_URI = re.compile(r"data:[\w.+/-]*(?:;[\w=.+-]+)*;base64,[A-Za-z0-9+/=_-]{64,}")
_BASE64_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{512,}={0,2}")
_BLANKS = re.compile(r"\s+")


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
    complete turn without an answer; one that is not complete keeps its label in both).
    `brief`, `sql` and `visualizations` hold the artifacts' lines in that focus, `clipped` what
    was too long: `[["answer", 8120]]`, in tokens, estimated.
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
    digest = hmac.new(key.encode(), thread_id.bytes, hashlib.sha256).hexdigest()
    return _base62(int(digest, 16))[:_FENCE_CHARS]


def render_version(key: str) -> int:
    """Return `RENDER_VERSION` with a fingerprint of the fence key: pieces depend on both."""
    fingerprint = int.from_bytes(hashlib.sha256(key.encode()).digest()[:2], "big")
    return RENDER_VERSION << 16 | fingerprint


def _base62(number: int) -> str:
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    word = ""
    while number:
        number, digit = divmod(number, 62)
        word += digits[digit]
    return word


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
    said, said_over = _clip(quoted(query, fence), part_max_chars)
    replied, replied_over = _clip(quoted(answer, fence), part_max_chars)
    asked_by = f"[t{position} {created_at:%Y-%m-%d}] user: "
    answered_by = f"[t{position}] you{_mark(status, waiting_for, error_code)}: "
    question = f"{asked_by}{said}\n"
    reply = f"{answered_by}{replied}\n" if replied or status != Status.COMPLETE else ""
    replied_at = len(answered_by) if status == Status.COMPLETE else 0
    forms = _artifact_forms(position, artifacts, fence)
    counts = (
        TurnTokens(*tokens)
        if tokens is not None
        else _count(count, question, reply, said, reply[replied_at:-1], forms)
    )
    clipped = [
        [part, _over_tokens(over, len(kept), kept_tokens)]
        for part, over, kept, kept_tokens in (
            ("query", said_over, said, counts.said),
            ("answer", replied_over, replied, counts.replied),
        )
        if over
    ]
    return TurnPieces(position, counts, question, len(asked_by), reply, replied_at, *forms, clipped)


def _count(
    count: Callable[[str], int], question: str, reply: str, said: str, replied: str, forms: Forms
) -> TurnTokens:
    brief, sql, visualizations = forms
    in_brief = count(brief) if brief else 0
    in_sql = count(sql) if sql else 0
    return TurnTokens(
        count(question),
        count(reply) if reply else 0,
        count(said),
        count(replied) if replied else 0,
        in_brief,
        in_sql,
        in_sql if visualizations == sql else count(visualizations),
    )


def _over_tokens(over_chars: int, kept_chars: int, kept_tokens: int) -> int:
    return max(1, round(over_chars * kept_tokens / max(1, kept_chars)))


def _mark(status: str, waiting_for: str | None, error_code: str | None) -> str:
    if status == Status.COMPLETE:
        return ""
    about = error_code if status == Status.FAILED else waiting_for
    detail = _one_line(about or "")
    if status == Status.PENDING:
        return f" (pending, waiting for {detail})" if detail else " (pending)"
    return f" ({status}: {detail})" if detail else f" ({status})"


# --- Stored text as quoted data -----------------------------------------------------------


def quoted(text: str, fence: str) -> str:
    """Return stored text as it may stand in a view: nothing in it can pass for a marker."""
    text = _LINE_BREAKS.sub("\n", text)
    text = _INVISIBLE.sub("", text).strip()
    if len(text) > 64:
        text = _without_base64(text)
    if "<" in text:
        text = _TAGS.sub("‹", text)
    if "[t" in text or "(t" in text or "[T" in text or "(T" in text:
        text = _LABELS.sub(lambda m: m[1] + ("⟦" if m[2] == "[" else "⟨"), text)
    return text.replace(fence, "·" * len(fence)) if fence in text else text


def _without_base64(text: str) -> str:
    text = _DATA_URI.sub(lambda m: f"(base64 data left out, {len(m[0]):,} characters)", text)
    return _BASE64_RUN.sub(_name_base64, text)


def _name_base64(match: re.Match[str]) -> str:
    run = match[0]
    if any(c.isdigit() for c in run) and any(c.isupper() for c in run) and not run.isupper():
        return f"(base64 data left out, {len(run):,} characters)"
    return run


def _clip(text: str, max_chars: int) -> tuple[str, int]:
    """Return the beginning of `text` and how many characters are over."""
    over = len(text) - max_chars
    if over <= 0:
        return text, 0
    return f"{whole_graphemes(text[:max_chars])} (… {over:,} characters left out)", over


def whole_graphemes(text: str) -> str:
    """Return `text` without a last character that the cut may have torn."""
    while text and (text[-1] == "\u200d" or text[-1] in "\ufe0e\ufe0f" or _joins(text[-1])):
        text = text[:-1]
    return text.rstrip()


def _joins(character: str) -> bool:
    return "\u0300" <= character <= "\u036f" or "\U0001f3fb" <= character <= "\U0001f3ff"


def _one_line(text: str, max_chars: int = _ONE_LINE_TEXT_CHARS) -> str:
    line = _BLANKS.sub(" ", text).strip()
    return line if len(line) <= max_chars else whole_graphemes(line[:max_chars]) + "…"


# --- Artifacts ----------------------------------------------------------------------------

Forms = tuple[str, str, str]


def _artifact_forms(position: int, artifacts: Sequence[Mapping[str, Any]], fence: str) -> Forms:
    if not artifacts:
        return "", "", ""
    brief, sql, visualizations = [], [], []
    for number, artifact in enumerate(artifacts, start=1):
        label = f"[t{position}.{number}] "
        brief.append(f"{label}{quoted(_brief(artifact), fence)}")
        line = label + quoted(_line(artifact, position), fence)
        sql.append(_with_sql(line, artifact, fence))
        visualizations.append(_with_descriptor(line, label, artifact, fence))
    return "; ".join(brief) + "\n", "".join(sql), "".join(visualizations)


def _titled(artifact: Mapping[str, Any], *names: str) -> str:
    title = next((str(artifact[name]) for name in names if artifact.get(name)), "")
    return ' "' + _one_line(title.replace('"', "'")) + '"' if title else ""


def _brief(artifact: Mapping[str, Any]) -> str:
    kind = artifact["kind"]
    if kind == "chart":
        return f"chart {artifact['chart_type']}{_titled(artifact, 'title')}"
    if kind == "definition":
        return f"definition{_titled(artifact, 'term')}"
    if kind == "file":
        return f"file{_titled(artifact, 'name', 'file_id')}"
    return f"{kind}{_titled(artifact, 'title', 'id')}"


def _line(artifact: Mapping[str, Any], position: int) -> str:
    kind = artifact["kind"]
    detail = _DETAILS[kind](artifact, position)
    type_name = artifact.get("visualization_type")
    head = (
        f"visualization {type_name}{_titled(artifact, 'title')}" if type_name else _brief(artifact)
    )
    return head + detail


def _sql_detail(artifact: Mapping[str, Any], position: int) -> str:
    rows = artifact.get("row_count")
    parts = [" → " + _columns(artifact)] if artifact.get("columns") else []
    if rows is not None:
        parts.append(f"{rows} row" if rows == 1 else f"{rows} rows")
    return ("; " if len(parts) > 1 else "").join(parts) if artifact.get("columns") else _rows(parts)


def _rows(parts: Sequence[str]) -> str:
    return f" → {parts[0]}" if parts else ""


def _columns(artifact: Mapping[str, Any]) -> str:
    columns = [str(column) for column in artifact["columns"]]
    over = len(columns) - _ONE_LINE_COLUMNS + int(artifact.get("more_columns") or 0)
    shown = ", ".join(_one_line(column, 60) for column in columns[:_ONE_LINE_COLUMNS])
    return f"{shown} (+{over} columns)" if over > 0 else shown


def _chart_detail(artifact: Mapping[str, Any], position: int) -> str:
    axes = " × ".join(
        part for part in (artifact.get("x"), ", ".join(artifact.get("y") or [])) if part
    )
    parts = [axes] if axes else []
    if artifact.get("series"):
        parts.append(f"by {artifact['series']}")
    if artifact.get("data"):
        parts.append(f"data t{position}.{artifact['data']}")
    return ": " + ", ".join(_one_line(part) for part in parts) if parts else ""


def _visualization_detail(artifact: Mapping[str, Any], position: int) -> str:
    columns = f": {_columns(artifact)}" if artifact.get("columns") else ""
    return f" {_one_line(str(artifact['id']))}{columns}"


def _dashboard_detail(artifact: Mapping[str, Any], position: int) -> str:
    items = [str(item) for item in artifact.get("items") or []]
    return f" {_one_line(str(artifact['id']))}" + (
        ": " + _one_line(", ".join(items)) if items else ""
    )


def _definition_detail(artifact: Mapping[str, Any], position: int) -> str:
    return ": " + _one_line(str(artifact["meaning"]), 500)


_DETAILS: dict[str, Callable[[Mapping[str, Any], int], str]] = {
    "sql": _sql_detail,
    "file": _sql_detail,
    "chart": _chart_detail,
    "visualization": _visualization_detail,
    "dashboard": _dashboard_detail,
    "definition": _definition_detail,
}


def _with_sql(line: str, artifact: Mapping[str, Any], fence: str) -> str:
    sql = artifact.get("sql")
    if not sql:
        return line + "\n"
    longest = max((len(run) for run in re.findall("`+", sql)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{line}\n{ticks}sql\n{_verbatim(sql, fence)}\n{ticks}\n"


def _verbatim(sql: str, fence: str) -> str:
    """Return SQL as it is; only what would close the memory is defused."""
    if "<" in sql:
        sql = _CLOSING_TAG.sub("‹", sql)
    return sql.replace(fence, "·" * len(fence)) if fence in sql else sql


def _with_descriptor(line: str, label: str, artifact: Mapping[str, Any], fence: str) -> str:
    kind = artifact["kind"]
    if kind in {"chart", "visualization", "dashboard"}:
        whole = {name: value for name, value in artifact.items() if name != "kind"}
        return f"{label}{kind} {quoted(orjson.dumps(whole).decode(), fence)}\n"
    sql = artifact.get("sql")
    if not sql:
        return line + "\n"
    shown = _BLANKS.sub(" ", sql).strip()
    over = len(shown) - _ONE_LINE_SQL_CHARS
    more = f" (+{over} characters)" if over > 0 else ""
    return f"{line}: {quoted(shown[:_ONE_LINE_SQL_CHARS], fence)}{more}\n"
