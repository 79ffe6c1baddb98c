"""From the messages of a live session to a turn of its thread, and back.

A user's message with its final answer becomes a turn: the question and the answer themselves,
artifacts taken from the messages' metadata, and everything else as `response_payload`:

    {"messages": [{"message_id": "m-1", "number": 1, "role": "user", "at": "…"},
                  {"message_id": "m-2", "number": 2, "role": "assistant", "content": "",
                   "tool_calls": [{"id": "c-1", …}]}, …]}

A message has no `content` there where the turn's own query or answer is it. So a session can be
put together again from its turns, message by message, when Redis has lost it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from config.plain_json import to_plain
from conversations.artifact_derivation import derive_artifacts
from conversations.artifacts import ArtifactLimits
from conversations.messages import Message
from conversations.session_keys import SessionKey
from conversations.turns import AgentType, Status, TurnBody

# Turn ids and thread ids are made of it: a change would make others of the same sessions.
_NAMESPACE = uuid.UUID("6d0f3f5e-3c1c-5f0a-9b43-8f2d6a1f7e51")

_QUESTION_CHARS = 500
_TEXT_CHARS = 200
_KPIS = 10
_COLUMNS = 50
_FINAL = {status.value: status for status in (Status.COMPLETE, Status.STOPPED, Status.FAILED)}
# Rows are data, and kpis values: a column of theirs called `sql` is no statement.
_NOT_BUILT = ("query_results", "kpis")


def thread_id_of(key: SessionKey) -> uuid.UUID:
    """Return the id of the thread that a session makes for itself."""
    return uuid.uuid5(_NAMESPACE, f"{key.tenant}#{key.session_id}")


def turn_id_of(key: SessionKey, seq: int) -> uuid.UUID:
    """Return the session UUID of a session's turn `seq`: 1, 2, 3 and so on, never again 1."""
    return uuid.uuid5(_NAMESPACE, f"{key.tenant}#{key.session_id}#{seq}")


# --- To a turn --------------------------------------------------------------------------------


def turn_body(
    messages: Sequence[Message],
    session_id: str,
    agent_type: AgentType | None,
    limits: ArtifactLimits,
    status: Status | None = None,
) -> TurnBody:
    """Return the turn that these messages are, the final answer last.

    `status` where they were broken off: then the answer is what had been said of one.
    """
    last = messages[-1]
    stands = status or _status(last.metadata)
    return TurnBody(
        query=_query(messages),
        answer=_partial_answer(messages) if status else last.content,
        derived=_artifacts(messages, limits),
        response_payload={"messages": [_kept(one, messages, status) for one in messages]},
        status=stands,
        agent_type=agent_type,
        error_code=_error_code(last.metadata) if stands is Status.FAILED else None,
        session_id=session_id,
        digest=digest_facts(messages),
    )


def queries_executed(messages: Iterable[Message]) -> int:
    """Return how many statements these messages ran: one that is repeated at once counts once."""
    statements = [sql for one in messages if (sql := one.metadata.get("sql"))]
    return sum(before != sql for before, sql in zip([None, *statements], statements, strict=False))


def digest_facts(messages: Sequence[Message]) -> dict[str, Any]:
    """Return what a line of the session's digest is made of.

    {"kind": "query", "question": "ingresos del ultimo periodo", "intent": "query",
     "row_count": 1, "kpis": {"Total Ingresos": "$8.2M"}}
    {"kind": "file", "question": "…", "file": {"name": "b.xlsx", "columns": […], "row_count": 120}}
    {"kind": "conversation", "question": "…"}
    """
    said = _merged(messages)
    file, kpis = _file(said.get("file")), _kpis(said.get("kpis"))
    asked_data = bool(said.get("sql")) or "query_results" in said
    facts = {
        "kind": "query" if asked_data else "file" if file else "conversation",
        "question": _clipped(_query(messages), _QUESTION_CHARS),
        "intent": _clipped(said["intent"]) if isinstance(said.get("intent"), str) else None,
        "row_count": _row_count(said) if asked_data else None,
        "kpis": kpis or None,
        "file": file,
    }
    return {name: value for name, value in facts.items() if value is not None}


def _query(messages: Sequence[Message]) -> str:
    return "\n\n".join(one.content for one in messages if one.role == "user")


def _partial_answer(messages: Sequence[Message]) -> str:
    said = (one.content for one in messages if one.role == "assistant" and not one.tool_calls)
    return "\n\n".join(filter(None, said))


def _status(metadata: Mapping[str, Any]) -> Status:
    said = metadata.get("status")
    if isinstance(said, str) and said in _FINAL:
        return _FINAL[said]
    return Status.FAILED if metadata.get("error") else Status.COMPLETE


def _error_code(metadata: Mapping[str, Any]) -> str:
    said = metadata.get("error_code")
    return said[:_TEXT_CHARS] if isinstance(said, str) and said else "error"


def _kept(message: Message, messages: Sequence[Message], status: Status | None) -> dict[str, Any]:
    """Return a message without the text that the turn has as its query or its answer."""
    stored = message.to_dict()
    questions = sum(one.role == "user" for one in messages)
    is_question = message.role == "user" and questions == 1
    if is_question or (message is messages[-1] and status is None):
        del stored["content"]
    return stored


def _artifacts(messages: Sequence[Message], limits: ArtifactLimits) -> list[dict[str, Any]]:
    """Derive artifacts from metadata; paths lead to where it stands in the payload."""
    shown = [{"metadata": _shown(one.metadata)} for one in messages]
    derived: list[dict[str, Any]] = to_plain(derive_artifacts({"messages": shown}, limits))
    return derived


def _shown(metadata: Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: value for name, value in metadata.items() if name not in _NOT_BUILT}
    if "query_results" in metadata or "sql" in metadata:
        shown = {**shown, "columns": columns_of(metadata), "row_count": _row_count(metadata)}
    if isinstance(metadata.get("file"), str):
        shown["file"] = {"name": metadata["file"]}
    return {name: value for name, value in shown.items() if value is not None}


# --- What metadata says -----------------------------------------------------------------------


def rows_of(metadata: Mapping[str, Any]) -> list[Any] | None:
    """Return the rows of `query_results`; None where there are none, not even no rows."""
    results = metadata.get("query_results")
    rows = results.get("rows") if isinstance(results, Mapping) else results
    return rows if isinstance(rows, list) else None


def columns_of(metadata: Mapping[str, Any]) -> list[str] | None:
    """Return the column names that metadata names, or that its first row has."""
    results = metadata.get("query_results")
    named = metadata.get("columns") or metadata.get("column_names")
    if named is None and isinstance(results, Mapping):
        named = results.get("columns")
    if isinstance(named, list):
        return [str(_name(one)) for one in named]
    first = next(iter(rows_of(metadata) or ()), None)
    return list(first) if isinstance(first, dict) else None


def previous_results(messages: Sequence[Message]) -> dict[str, Any]:
    """Return what the last query that succeeded gave.

    {"previous_query_results": [{"region": "North"}], "previous_column_names": ["region"],
     "previous_kpis": {"Total": "$4.1M"}}
    """
    for message in reversed(messages):
        said = message.metadata
        rows = rows_of(said)
        if rows is not None and not said.get("error"):
            kpis = said.get("kpis")
            return _previous(rows, columns_of(said) or [], kpis if kpis is not None else {})
    return _previous([], [], {})


def _previous(rows: list[Any], columns: list[str], kpis: Any) -> dict[str, Any]:
    return {
        "previous_query_results": rows,
        "previous_column_names": columns,
        "previous_kpis": kpis,
    }


def _merged(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the metadata of all messages as one, the newest that says something of a thing."""
    merged: dict[str, Any] = {}
    for message in messages:
        merged.update({k: v for k, v in message.metadata.items() if v not in (None, "")})
    return merged


def _row_count(metadata: Mapping[str, Any]) -> int | None:
    said = metadata.get("row_count")
    if type(said) is int and said >= 0:
        return said
    rows = rows_of(metadata)
    return None if rows is None else len(rows)


def _file(said: Any) -> dict[str, Any] | None:
    if isinstance(said, str) and said:
        return {"name": _clipped(said)}
    if not isinstance(said, Mapping):
        return None
    names = (said.get(name) for name in ("name", "filename", "file_name"))
    name = next((one for one in names if isinstance(one, str) and one), None)
    if name is None:
        return None
    columns = columns_of(said)
    file = {
        "name": _clipped(name),
        "columns": [_clipped(one) for one in columns[:_COLUMNS]] if columns else None,
        "row_count": _row_count(said),
    }
    return {key: value for key, value in file.items() if value is not None}


def _kpis(said: Any) -> dict[str, Any]:
    """Return single values by name, of an object or of `[{"name": "Total", "value": 4.1}]`."""
    if isinstance(said, list):
        named = [one for one in said if isinstance(one, Mapping)]
        said = {_name(one): one.get("value") for one in named}
    if not isinstance(said, Mapping):
        return {}
    single = {str(name): value for name, value in said.items() if _is_single(value)}
    return {
        _clipped(name): _clipped(value) if isinstance(value, str) else value
        for name, value in list(single.items())[:_KPIS]
    }


def _is_single(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _name(said: Any) -> Any:
    """Return the name of something that may be an object with one."""
    if not isinstance(said, Mapping):
        return said
    return next((said[key] for key in ("name", "label", "title") if said.get(key)), "")


def _clipped(text: str, most: int = _TEXT_CHARS) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1].rstrip() + "…"


# --- And back ---------------------------------------------------------------------------------


def messages_of(query: str, answer: str, payload: Any) -> list[Message]:
    """Return the messages that a stored turn was made of; none where it was not made here."""
    try:
        return [_whole(one, query, answer) for one in payload["messages"]]
    except (LookupError, TypeError, ValueError, AttributeError):
        return []


def _whole(stored: Mapping[str, Any], query: str, answer: str) -> Message:
    text = query if stored["role"] == "user" else answer
    return Message.from_dict({"content": text, **stored})
