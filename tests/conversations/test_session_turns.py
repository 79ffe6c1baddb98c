"""From messages to a turn and back: nothing that was said is lost on the way."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta

import pytest

from conversations.artifacts import ArtifactLimits
from conversations.message_input import message_of
from conversations.messages import Dialogue, Head, Message, trimmed, window
from conversations.session_keys import SessionKey
from conversations.session_problems import OutOfTurn
from conversations.session_turns import (
    digest_facts,
    messages_of,
    previous_results,
    queries_executed,
    thread_id_of,
    turn_body,
    turn_id_of,
)
from conversations.turns import AgentType, Status

ROWS = [{"region": "North", "revenue": 4_100_000}, {"region": "South", "revenue": 3_000_000}]
SQL = "SELECT region, SUM(amount) AS revenue FROM sales GROUP BY region"


def said(*lines):
    """Messages with numbers: `("user", "Revenue?")`, `("call", "c1")`, `("tool", "c1")`."""
    messages = []
    for number, (role, text, *rest) in enumerate(lines, start=1):
        metadata = rest[0] if rest else {}
        fields = {"role": role, "content": text}
        if role == "call":
            fields = {"role": "assistant", "tool_calls": [{"id": one} for one in text.split()]}
        if role == "tool":
            fields["tool_call_id"] = text
        message = message_of(message_id=f"m-{number}", metadata=metadata, **fields)
        messages.append(replace(message, number=number))
    return messages


def body_of(messages, status=None):
    return turn_body(messages, "s-81", AgentType.CHAT, ArtifactLimits(), status)


def shown(messages):
    return " ".join(f"{one.role[0]}{one.number}" for one in messages)


# --- A turn -----------------------------------------------------------------------------------


def test_the_question_and_the_final_answer_are_the_turn():
    body = body_of(said(("user", "Revenue by region"), ("assistant", "North leads.")))

    assert (body.query, body.answer, body.status) == (
        "Revenue by region",
        "North leads.",
        Status.COMPLETE,
    )
    assert (body.session_id, body.agent_type, body.artifacts) == ("s-81", AgentType.CHAT, None)


def test_several_questions_before_an_answer_are_one_query():
    body = body_of(said(("user", "Revenue"), ("user", "by region"), ("assistant", "North.")))

    assert body.query == "Revenue\n\nby region"


def test_sql_becomes_an_artifact_with_columns_and_row_count():
    body = body_of(
        said(("user", "Revenue"), ("assistant", "North.", {"sql": SQL, "query_results": ROWS}))
    )

    assert list(body.stored_artifacts) == [
        {"kind": "sql", "sql": SQL, "columns": ["region", "revenue"], "row_count": 2}
    ]


def test_a_row_count_counts_rows_that_were_cut_too():
    results = [{"n": n} for n in range(60)]
    messages = said(("user", "All"), ("assistant", "60.", {"sql": SQL, "query_results": results}))

    kept = messages[-1].metadata
    assert (len(kept["query_results"]), kept["query_results_cut"], kept["row_count"]) == (
        50,
        10,
        60,
    )
    assert body_of(messages).stored_artifacts[0]["row_count"] == 60


def test_a_chart_points_at_its_spec_in_the_payload():
    spec = {"mark": "bar", "encoding": {"x": {"field": "region"}, "y": {"field": "revenue"}}}
    metadata = {"sql": SQL, "query_results": ROWS, "charts": [{"spec": spec}]}
    body = body_of(said(("user", "Draw it"), ("assistant", "Here.", metadata)))

    chart = body.stored_artifacts[1]
    assert (chart["kind"], chart["chart_type"], chart["data"]) == ("chart", "bar", 1)
    assert chart["spec_path"] == "/messages/1/metadata/charts/0/spec"
    assert body.response_payload["messages"][1]["metadata"]["charts"][0]["spec"] == spec


@pytest.mark.parametrize(
    "file",
    [
        {"name": "b.xlsx", "columns": ["period"], "row_count": 120},
        {"filename": "b.xlsx", "columns": ["period"], "row_count": 120},
    ],
)
def test_a_file_becomes_an_artifact(file):
    body = body_of(said(("user", "Deviations?"), ("assistant", "None.", {"file": file})))

    artifact = {"kind": "file", "name": "b.xlsx", "columns": ["period"], "row_count": 120}
    assert list(body.stored_artifacts) == [artifact]


def test_a_column_called_sql_is_no_statement():
    metadata = {"sql": SQL, "query_results": [{"sql": "SELECT 2 FROM t", "chart": "x"}]}
    body = body_of(said(("user", "Log"), ("assistant", "One.", metadata)))

    assert [one["sql"] for one in body.stored_artifacts] == [SQL]


def test_an_answer_that_says_it_failed_is_a_failed_turn():
    body = body_of(
        said(("user", "?"), ("assistant", "", {"error": "timed out", "error_code": "timeout"}))
    )

    assert (body.status, body.error_code) == (Status.FAILED, "timeout")


def test_a_turn_that_was_broken_off_keeps_what_had_been_said():
    messages = said(("user", "Plan?"), ("assistant", "First I look."), ("call", "c1"))
    body = body_of(messages, Status.STOPPED)

    assert (body.answer, body.status) == ("First I look.", Status.STOPPED)
    assert messages_of(body.query, body.answer, body.response_payload) == messages


def test_a_stored_turn_gives_its_messages_back():
    messages = said(
        ("system", "You are terse."),
        ("user", "Revenue"),
        ("call", "c1 c2"),
        ("tool", "c1", {"sql": SQL, "query_results": ROWS}),
        ("tool", "c2"),
        ("assistant", "North.", {"kpis": {"Total": "$4.1M"}, "intent": "query"}),
    )
    body = body_of(messages)

    assert messages_of(body.query, body.answer, body.response_payload) == messages


def test_question_and_answer_are_not_stored_twice():
    payload = body_of(said(("user", "Revenue"), ("assistant", "North."))).response_payload

    assert "content" not in payload["messages"][0]
    assert "content" not in payload["messages"][1]


@pytest.mark.parametrize(
    "payload", [None, [], {}, {"messages": [{"role": "user"}]}, {"messages": 3}]
)
def test_a_turn_of_another_shape_gives_no_messages(payload):
    assert messages_of("Revenue", "North.", payload) == []


# --- Its digest -------------------------------------------------------------------------------


def test_the_digest_of_a_query():
    metadata = {
        "sql": SQL, "query_results": ROWS[:1], "kpis": {"Total Ingresos": "$8.2M"}, "intent": "query",
    }  # fmt: skip
    messages = said(("user", "ingresos del ultimo periodo"), ("assistant", "8.2", metadata))

    assert digest_facts(messages) == {
        "kind": "query",
        "question": "ingresos del ultimo periodo",
        "intent": "query",
        "row_count": 1,
        "kpis": {"Total Ingresos": "$8.2M"},
    }


def test_the_digest_of_a_file_analysis():
    file = {"name": "presupuesto.xlsx", "columns": ["periodo", "monto"], "row_count": 120}
    messages = said(("user", "analiza"), ("assistant", "Bien.", {"file": file}))

    assert digest_facts(messages) == {"kind": "file", "question": "analiza", "file": file}


def test_the_digest_of_a_conversation():
    messages = said(("user", "What is EBITDA?"), ("assistant", "Earnings before …"))

    assert digest_facts(messages) == {"kind": "conversation", "question": "What is EBITDA?"}


def test_the_digest_finds_what_a_tool_brought():
    messages = said(
        ("user", "?"), ("call", "c1"), ("tool", "c1", {"sql": SQL, "query_results": ROWS}),
        ("assistant", "Two."),
    )  # fmt: skip

    assert digest_facts(messages)["row_count"] == 2


def test_a_statement_on_the_call_and_on_the_answer_is_one_query():
    messages = said(
        ("user", "?"),
        ("call", "c1"),
        ("tool", "c1", {"sql": SQL}),
        ("assistant", "!", {"sql": SQL}),
    )

    assert queries_executed(messages) == 1


@pytest.mark.parametrize("odd", [{}, {"file": 3}, {"kpis": [1, None]}, {"intent": {"a": 1}}, {"row_count": -1}])  # fmt: skip
def test_odd_metadata_is_kept_and_not_stumbled_over(odd):
    body = body_of(said(("user", "?"), ("assistant", "!", {"query_results": "none", **odd})))

    assert body.digest["kind"] == "query"


# --- Previous results -------------------------------------------------------------------------


def test_previous_results_are_those_of_the_last_query_that_succeeded():
    messages = said(
        ("user", "a"), ("assistant", "1", {"query_results": ROWS, "kpis": {"Total": 7}}),
        ("user", "b"), ("assistant", "2", {"query_results": [], "error": "no such table"}),
        ("user", "c"), ("assistant", "3"),
    )  # fmt: skip

    assert previous_results(messages) == {
        "previous_query_results": ROWS,
        "previous_column_names": ["region", "revenue"],
        "previous_kpis": {"Total": 7},
    }


def test_rows_as_lists_with_columns_beside_them():
    results = {"columns": ["n"], "rows": [[1], [2]]}
    previous = previous_results(said(("user", "a"), ("assistant", "1", {"query_results": results})))

    assert previous["previous_query_results"] == [[1], [2]]
    assert previous["previous_column_names"] == ["n"]


# --- Ids --------------------------------------------------------------------------------------


def test_ids_are_the_same_for_the_same_session_and_no_other():
    keys = [SessionKey("default", "s-1"), SessionKey("acme", "s-1"), SessionKey("acme", "s-2")]
    ids = [turn_id_of(key, seq) for key in keys for seq in (1, 2)] + list(map(thread_id_of, keys))

    assert len(set(ids)) == len(ids)
    assert turn_id_of(keys[0], 1) == turn_id_of(SessionKey("default", "s-1"), 1)
    assert all(isinstance(one, uuid.UUID) and one.version == 5 for one in ids)


# --- Windows (D1, D3) -------------------------------------------------------------------------

MIXED = said(
    ("system", "Terse."), ("user", "a"), ("assistant", "1"),
    ("user", "b"), ("call", "c1 c2"), ("tool", "c1"), ("tool", "c2"), ("assistant", "2"),
    ("user", "c"), ("call", "c3"), ("tool", "c3"), ("assistant", "3"),
)  # fmt: skip


@pytest.mark.parametrize("most", range(13))
def test_a_window_of_any_size_is_one_that_a_provider_takes(most):
    shown_ = window(MIXED, most)

    assert len(shown_) <= most
    dialogue = [one for one in shown_ if one.role != "system"]
    assert not dialogue or dialogue[0].role == "user"
    calls = [call for one in shown_ if one.role == "assistant" for call in one.calls]
    results = [call for one in shown_ if one.role == "tool" for call in one.calls]
    assert calls == results


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        (1, "u9"),
        (2, "s1 u9"),
        (3, "s1 u9 a12"),
        (4, "s1 u9 a12"),
        (5, "s1 u9 a10 t11 a12"),
        (6, "s1 u9 a10 t11 a12"),
        (7, "s1 u4 a8 u9 a10 t11 a12"),
        (10, "s1 u4 a5 t6 t7 a8 u9 a10 t11 a12"),
        (12, "s1 u2 a3 u4 a5 t6 t7 a8 u9 a10 t11 a12"),
    ],
)
def test_a_window_shows_the_newest_and_parts_no_call_from_its_results(most, expected):
    assert shown(window(MIXED, most)) == expected


@pytest.mark.parametrize("most", [2, 3])
def test_a_call_and_its_result_go_together(most):
    messages = said(("user", "a"), ("call", "c1"), ("tool", "c1"), ("assistant", "1"))

    assert shown(window(messages, most)) == "u1 a4"


def test_a_call_without_its_result_is_not_shown():
    messages = said(("user", "a"), ("call", "c1 c2"), ("tool", "c1"), ("user", "b"))

    assert shown(window(messages, 10)) == "u1 u4"


def test_a_greeting_before_any_question_is_not_shown():
    messages = said(("assistant", "Hello"), ("user", "a"), ("assistant", "1"))

    assert shown(window(messages, 10)) == "u2 a3"


def test_an_empty_session_has_an_empty_window():
    assert window([], 5) == []


# --- Trimming ---------------------------------------------------------------------------------


def test_trimming_takes_whole_turns_and_leaves_what_opened_the_session():
    assert shown(trimmed(MIXED, 9)) == "s1 u9 a10 t11 a12"
    assert shown(trimmed(MIXED, 10)) == "s1 u4 a5 t6 t7 a8 u9 a10 t11 a12"


def test_a_turn_that_is_too_long_alone_keeps_its_question_and_the_newest():
    messages = said(("user", "a"), ("call", "c1"), ("tool", "c1"), ("call", "c2"), ("tool", "c2"))

    assert shown(trimmed(messages, 4)) == "u1 a4 t5"


# --- What may follow what (C9) ----------------------------------------------------------------


def dialogue(*messages, patience=timedelta(minutes=5), later=timedelta(0)):
    from datetime import UTC, datetime

    at = datetime(2026, 11, 30, tzinfo=UTC)
    heads = [Head(m.number, m.message_id, m.digest(), m.role, m.calls, at, 1) for m in messages]
    following = Dialogue(heads, patience)
    return lambda message: following.take(message, at + later)


def line(role, text="", **more) -> Message:
    return message_of(role=role, content=text, **more)


CALL = said(("user", "a"), ("call", "c1 c2"))


@pytest.mark.parametrize(
    "message",
    [
        line("user", "b"),
        line("assistant", "1"),
        line("system", "x"),
        line("assistant", tool_calls=[{"id": "c3"}]),
        line("tool", tool_call_id="c9"),
    ],
)
def test_after_a_call_only_its_results_may_follow(message):
    with pytest.raises(OutOfTurn) as refused:
        dialogue(*CALL)(message)
    assert refused.value.extra["waiting_for"] == ["c1", "c2"]


def test_results_come_in_any_order_and_each_once():
    take = dialogue(*CALL)
    assert take(line("tool", tool_call_id="c2")) is False
    with pytest.raises(OutOfTurn):
        take(line("tool", tool_call_id="c2"))
    assert take(line("tool", tool_call_id="c1")) is False
    assert take(line("assistant", "Done.")) is True


def test_a_user_may_go_on_when_whoever_called_has_died():
    take = dialogue(*CALL, later=timedelta(minutes=6))

    assert take(line("user", "b")) is False
    assert take(line("assistant", "1")) is True


def test_an_answer_to_nothing_finishes_no_turn():
    take = dialogue()

    assert take(line("assistant", "Hello, how can I help?")) is False
    with pytest.raises(OutOfTurn):
        take(line("assistant", "Hello again", final=True))


def test_an_answer_that_is_said_not_to_be_final_is_not():
    take = dialogue(*said(("user", "a")))

    assert take(line("assistant", "Which year?", final=False)) is False
    assert take(line("user", "2025")) is False
    assert take(line("assistant", "4.1 M")) is True
