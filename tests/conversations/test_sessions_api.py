"""Live sessions over HTTP: what an agent is answered, and what nobody else is."""

from __future__ import annotations

import json
import uuid

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from conversations.models import ConversationThread, ThreadMessage
from conversations.session_records import SessionMessage, SessionRecord
from conversations.session_turns import thread_id_of, turn_id_of
from conversations.uploads import get_upload_store
from embedded.services import Valkey
from rbac.models import User
from tests.conversations.conftest import Caller
from tests.conversations.session_world import SessionCaller, let_time_pass

CSV = b"zip,amount\n00501,12.5\n00502,7\n"
ROWS = [{"region": "North", "revenue": 4100000}]


@pytest.fixture
def talk(agent):
    """A session of Ana's that is open."""
    talk = SessionCaller(agent)
    assert talk.open().status_code == 201
    return talk


@pytest.fixture
def bobs(agent, bob):
    """The same session id, sent for Bob."""
    return SessionCaller(Caller(agent.user, acts_for="bob"))


def upload(talk, content=CSV, name="report.csv", **form):
    file = SimpleUploadedFile(name, content, "text/csv")
    query = f"?user_id={talk.caller.acts_for}" if talk.caller.acts_for else ""
    return talk.caller.client.post(
        f"/api/v1/{talk.path}/files{query}", {"file": file, **form}, format="multipart"
    )


def code_of(answer):
    return answer.status_code, answer.json()["code"]


# --- Opening ----------------------------------------------------------------------------------


def test_a_session_is_created_once_and_then_found(agent):
    talk = SessionCaller(agent)
    first, again = talk.open(), talk.open()

    assert (first.status_code, again.status_code) == (201, 200)
    assert {name: first.json()[name] for name in ("session_id", "user_id", "thread_id", "created", "reopened")} == {
        "session_id": "s-81", "user_id": "ana", "thread_id": str(thread_id_of(talk.key)),
        "created": True, "reopened": False,
    }  # fmt: skip
    assert (again.json()["created"], again.json()["reopened"]) == (False, False)


def test_the_body_may_name_whom_it_is_for(agent):
    answer = agent.client.put("/api/v1/sessions/s-1", {"user_id": "ana"}, format="json")

    assert answer.json()["user_id"] == "ana"


def test_a_person_opens_a_session_of_their_own(ana):
    talk = SessionCaller(Caller(User.objects.get(pk=ana.pk)))

    assert talk.open().json()["user_id"] == "ana"
    assert talk.ask(1).status_code == 201


def test_a_given_thread_must_be_the_persons_or_absent(agent, bobs, thread_id):
    agent.put_turn(thread_id, agent_type="copilot")
    talk = SessionCaller(agent)

    opened = talk.open(thread_id=str(thread_id)).json()
    assert (opened["thread_id"], opened["agent_type"]) == (str(thread_id), "copilot")
    assert SessionCaller(agent, "s-2").open(thread_id=str(uuid.uuid4())).status_code == 201
    assert code_of(SessionCaller(bobs.caller, "s-3").open(thread_id=str(thread_id))) == (
        404,
        "not_found",
    )
    assert talk.ask(1).json()["position"] == 2


def test_another_thread_for_an_open_session_is_a_conflict(talk, thread_id):
    answer = talk.open(thread_id=str(thread_id))

    assert code_of(answer) == (409, "thread_conflict")
    assert answer.json()["thread_id"] == str(thread_id_of(talk.key))


def test_a_deleted_thread_is_as_an_absent_one(agent, thread_id):
    agent.put_turn(thread_id)
    agent.delete(f"threads/{thread_id}")

    assert code_of(SessionCaller(agent).open(thread_id=str(thread_id))) == (404, "not_found")


def test_a_copilot_takes_a_session_over(talk):
    talk.ask(1)
    assert talk.open(agent_type="copilot").json()["agent_type"] == "copilot"
    talk.ask(2)

    types = ThreadMessage.objects.order_by("position").values_list("agent_type", flat=True)
    assert list(types) == ["chat", "copilot"]


@pytest.mark.parametrize("session_id", ["a%23b", "a%7Bb", "a%00b", "x" * 201, "%20a"])
def test_an_id_that_can_be_none(agent, session_id):
    talk = SessionCaller(agent)
    talk.path = f"sessions/{session_id}"

    assert code_of(talk.open()) == (422, "bad_id")
    assert code_of(talk.read()) == (422, "bad_id")


# --- Messages ---------------------------------------------------------------------------------


def test_a_question_and_its_answer_become_a_turn(talk):
    asked = talk.say("user", "Revenue by region", message_id="m-1")
    answered = talk.say(
        "assistant", "North leads.", message_id="m-2",
        metadata={"sql": "SELECT 1", "query_results": ROWS, "kpis": {"Total": "$4.1M"}},
    )  # fmt: skip

    thread_id, turn_id = str(thread_id_of(talk.key)), str(turn_id_of(talk.key, 1))
    assert (asked.status_code, asked.json()["turn_id"], asked.json()["position"]) == (
        201,
        None,
        None,
    )
    assert answered.status_code == 201
    assert answered.json() == {
        "thread_id": thread_id, "turn_id": turn_id, "position": 1,
        "messages": [{"message_id": "m-2", "number": 2, "created": True}],
        "turns": [{"thread_id": thread_id, "turn_id": turn_id, "position": 1, "status": "complete"}],
    }  # fmt: skip
    assert SessionMessage.objects.count() == 0


def test_the_turn_is_on_the_thread_for_views_and_transcript(talk, agent):
    talk.ask(1, sql="SELECT 1 AS n", query_results=[{"n": 1}])
    thread_id = thread_id_of(talk.key)

    assert "SELECT 1 AS n" in agent.context(thread_id, focus="sql").json()["text"]
    turn = agent.get(f"threads/{thread_id}/turns").json()["results"][0]
    assert (turn["session_id"], turn["written_by"]) == ("s-81", str(agent.user.pk))
    assert turn["response_payload"]["messages"][1]["metadata"]["query_results"] == [{"n": 1}]


def test_the_same_again_is_a_200_that_says_the_same(talk):
    first, again = talk.ask(1), talk.ask(1)

    assert (first.status_code, again.status_code) == (201, 200)
    for name in ("thread_id", "turn_id", "position", "turns"):
        assert first.json()[name] == again.json()[name]


def test_an_object_of_messages_may_name_whom_they_are_for(talk):
    body = {"user_id": "ana", "messages": [{"role": "user", "content": "a"}]}
    answer = talk.caller.client.post(f"/api/v1/{talk.path}/messages", body, format="json")

    assert answer.status_code == 201


def test_the_same_id_with_other_words(talk):
    talk.ask(1)

    assert code_of(talk.say("user", "Other words", message_id="u-1")) == (409, "message_conflict")


def test_out_of_turn_names_what_is_waited_for(talk):
    talk.say("user", "a")
    talk.say(
        "assistant", tool_calls=[{"id": "c-1", "type": "function", "function": {"name": "sql"}}]
    )
    answer = talk.say("user", "b")

    assert code_of(answer) == (409, "out_of_turn")
    assert (answer.json()["waiting_for"], answer.headers["Retry-After"]) == (["c-1"], "1")


def test_a_list_is_taken_whole_or_not_at_all(talk):
    answer = talk.say_all(
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "1"},
        {"role": "tool", "tool_call_id": "c-9"},
    )  # fmt: skip

    assert code_of(answer) == (409, "out_of_turn")
    assert talk.texts() == []
    assert not ConversationThread.objects.exists()


BAD = {
    "no role": ({"content": "a"}, "role"),
    "a role that there is not": ({"role": "robot"}, "role"),
    "content that is no text": ({"role": "user", "content": 3}, "content"),
    "metadata that is a list": ({"role": "user", "metadata": []}, "metadata"),
    "a field that there is not": ({"role": "user", "text": "a"}, "text"),
    "an empty id": ({"role": "user", "message_id": ""}, "message_id"),
    "an id with a quote": ({"role": "user", "message_id": 'a"b'}, "message_id"),
    "a tool without its call": ({"role": "tool"}, "body"),
    "a user who calls": ({"role": "user", "tool_calls": [{"id": "c"}]}, "body"),
    "a call without an id": ({"role": "assistant", "tool_calls": [{}]}, "tool_calls"),
    "two calls of one id": ({"role": "assistant", "tool_calls": [{"id": "c"}, {"id": "c"}]}, "tool_calls"),
    "final and calling": ({"role": "assistant", "final": True, "tool_calls": [{"id": "c"}]}, "body"),
    "a user who is final": ({"role": "user", "final": True}, "body"),
}  # fmt: skip


@pytest.mark.parametrize(("message", "field"), BAD.values(), ids=BAD)
def test_a_message_that_is_none(talk, message, field):
    alone, listed = talk.send("post", "/messages", message), talk.say_all(message)

    assert code_of(alone) == code_of(listed) == (422, "invalid")
    assert list(alone.json()["errors"]) == [field]
    assert next(iter(listed.json()["errors"])).startswith("messages.0")
    assert talk.texts() == []


@pytest.mark.parametrize("body", [[], {"messages": []}, "a", 3, None, [[]]])
def test_a_body_that_holds_no_messages(talk, body):
    assert talk.send("post", "/messages", body).status_code in (400, 422)


def test_limits_name_their_numbers(talk, settings):
    settings.SESSION_MAX_MESSAGE_BYTES = 2000
    large = talk.say("user", "x" * 2000)
    assert code_of(large) == (413, "too_large")
    assert "2000 bytes (SESSION_MAX_MESSAGE_BYTES)" in large.json()["detail"]

    settings.SESSION_MAX_MESSAGES = 3
    many = talk.say_all(*[{"role": "user", "content": "a"}] * 4)
    assert "3 messages (SESSION_MAX_MESSAGES)" in many.json()["detail"]


@pytest.mark.parametrize("text", ["a\u0000b", "a\ud800b"])
def test_characters_that_no_store_takes_are_replaced(talk, text):
    body = json.dumps({"role": "user", "content": text, "metadata": {text: text}})
    talk.caller.client.post(
        f"/api/v1/{talk.path}/messages?user_id=ana", body, content_type="application/json"
    )

    assert talk.texts() == ["a\ufffdb"]


def test_query_results_are_cut_and_counted(talk):
    talk.ask(1, query_results=[{"n": n} for n in range(60)])
    metadata = talk.read().json()["messages"][1]["metadata"]

    assert (len(metadata["query_results"]), metadata["query_results_cut"]) == (50, 10)


# --- Reading ----------------------------------------------------------------------------------


def test_a_session_as_it_is_read(talk):
    talk.ask(1, intent="query")
    read = talk.read().json()

    assert (read["source"], read["message_count"], read["agent_type"]) == ("cache", 2, "chat")
    final = read["messages"][1]
    assert final.pop("at").endswith("Z")
    assert final == {
        "message_id": "a-1", "number": 2, "role": "assistant", "content": "Answer 1",
        "metadata": {"intent": "query"}, "turn_seq": 1,
    }  # fmt: skip


def test_a_window(talk):
    for n in range(1, 4):
        talk.ask(n)

    five = [{"role": role, "content": f"{word} {n}"} for n in (2, 3) for role, word in (("user", "Question"), ("assistant", "Answer"))]  # fmt: skip
    assert talk.window().json() == five
    assert talk.window(max_messages=2).json() == five[2:]
    assert len(talk.window(max_messages=100).json()) == 6
    assert talk.window(max_messages=0).json() == []
    assert code_of(talk.window(max_messages=-1)) == (422, "invalid")


def test_a_window_of_tools_can_be_given_to_a_provider(talk):
    talk.say("user", "a")
    call = {"id": "c-1", "type": "function", "function": {"name": "sql", "arguments": "{}"}}
    talk.say("assistant", tool_calls=[call])
    talk.say("tool", "42", tool_call_id="c-1", name="sql")

    assert talk.window().json()[1:] == [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c-1", "name": "sql"},
    ]


def test_previous_results(talk):
    empty = talk.send("get", "/previous-results").json()
    talk.ask(1, query_results=ROWS, kpis={"Total": "$4.1M"})
    talk.ask(2)

    assert empty == {"previous_query_results": [], "previous_column_names": [], "previous_kpis": {}}
    assert talk.send("get", "/previous-results").json() == {
        "previous_query_results": ROWS,
        "previous_column_names": ["region", "revenue"],
        "previous_kpis": {"Total": "$4.1M"},
    }


# --- Ends -------------------------------------------------------------------------------------


def test_an_end_and_what_comes_after_it(talk, redis):
    talk.ask(1)
    first, again = talk.send("post", "/end"), talk.send("post", "/end")

    assert first.status_code == 200
    assert first.json() == again.json()
    assert code_of(talk.read()) == code_of(talk.window()) == (404, "session_not_found")
    reopened = talk.open().json()
    assert (reopened["created"], reopened["reopened"], reopened["message_count"]) == (
        False,
        True,
        2,
    )
    assert talk.texts() == ["Question 1", "Answer 1"]


def test_an_expired_session_is_not_found_and_reopens_under_its_id(talk, redis):
    talk.ask(1)
    let_time_pass(31, redis)

    assert code_of(talk.read()) == (404, "session_not_found")
    assert talk.open().json()["reopened"] is True
    assert talk.ask(2).json()["position"] == 2
    assert talk.texts() == ["Question 1", "Answer 1", "Question 2", "Answer 2"]


def test_use_at_half_of_its_time_keeps_all_of_it(talk, redis):
    """Session, checkpoint and files live on together (E10)."""
    upload(talk, file_id="f-1")
    talk.send("put", "/checkpoint", {"at": 1})
    for _ in range(6):
        let_time_pass(15, redis)
        assert talk.window().status_code == 200

    assert talk.send("get", "/files/f-1").status_code == 200
    assert talk.send("get", "/files/active").json() == {"file_id": "f-1"}
    assert talk.send("get", "/checkpoint").json() == {"at": 1}
    assert talk.read().status_code == 200
    assert all(redis.ttl(key) > 0 for key in redis.scan_iter("*s-81*"))


# --- Checkpoints (K1) -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [{"node": "clarify", "n": 2**70}, [1, None], "text", 3, None, False, {}]
)
def test_any_json_comes_back_as_it_was(talk, state):
    body = json.dumps(state)
    path = f"/api/v1/{talk.path}/checkpoint?user_id=ana"
    assert talk.caller.client.put(path, body, content_type="application/json").status_code == 200

    assert talk.send("get", "/checkpoint").json() == state
    assert talk.send("delete", "/checkpoint").status_code == 204
    assert code_of(talk.send("get", "/checkpoint")) == (404, "checkpoint_not_found")
    assert talk.send("delete", "/checkpoint").status_code == 204


def test_no_body_is_no_checkpoint(talk):
    path = f"/api/v1/{talk.path}/checkpoint?user_id=ana"

    assert code_of(talk.caller.client.put(path)) == (400, "malformed_json")


def test_a_checkpoint_has_a_time_of_its_own(talk, redis):
    talk.send("put", "/checkpoint", {})
    assert redis.ttl(talk.key.checkpoint) == 60 * 60
    talk.send("put", "/checkpoint", {}, keep_hours=168)
    assert redis.ttl(talk.key.checkpoint) == 168 * 3600
    talk.send("put", "/checkpoint", {}, keep_hours=0.1)  # never less than the session
    assert redis.ttl(talk.key.checkpoint) == 30 * 60
    for hours in (0, -1, 169, "x"):
        assert code_of(talk.send("put", "/checkpoint", {}, keep_hours=str(hours))) == (
            422,
            "invalid",
        )


def test_a_checkpoint_outlives_its_session(talk, redis):
    talk.send("put", "/checkpoint", {"at": 1}, keep_hours=100)
    let_time_pass(31, redis)

    assert talk.read().status_code == 404
    assert talk.send("get", "/checkpoint").json() == {"at": 1}
    assert talk.read().status_code == 404  # and opens nothing


def test_a_checkpoint_of_5_megabytes(talk, settings):
    state = {"text": "x" * 5_000_000}
    assert talk.send("put", "/checkpoint", state).status_code == 200
    assert talk.send("get", "/checkpoint").json() == state

    settings.MAX_CHECKPOINT_BYTES = 5_000_000
    refused = talk.send("put", "/checkpoint", state)
    assert code_of(refused) == (413, "too_large")
    assert "5000000 bytes (MAX_CHECKPOINT_BYTES)" in refused.json()["detail"]


@pytest.mark.parametrize("spoil", [b'{"a":', b"\xff\xfe"])
def test_a_checkpoint_that_is_none(talk, redis, spoil):
    redis.set(talk.key.checkpoint, spoil, ex=60)
    assert code_of(talk.send("get", "/checkpoint")) == (404, "checkpoint_not_found")

    redis.delete(talk.key.checkpoint)
    redis.lpush(talk.key.checkpoint, spoil)
    assert code_of(talk.send("get", "/checkpoint")) == (404, "checkpoint_not_found")


# --- Files ------------------------------------------------------------------------------------


def test_a_file_is_uploaded_and_read_in_pages(talk):
    stored = upload(talk, file_id="f-1")

    assert stored.status_code == 201
    assert (stored.json()["filename"], stored.json()["row_count"]) == ("report.csv", 2)
    page = talk.send("get", "/files/f-1", limit=1).json()
    assert (page["rows"], page["next_offset"]) == ([["00501", 12.5]], 1)
    assert talk.send("get", "/files/f-1", offset=1).json()["rows"] == [["00502", 7]]
    assert talk.send("get", "/files/active").json() == {"file_id": "f-1"}


def test_options_stand_in_the_form(talk):
    stored = upload(talk, b"1;2\n3;4\n", delimiter=";", header="none")

    assert (stored.json()["delimiter"], stored.json()["row_count"]) == (";", 2)
    assert code_of(upload(talk, colour="red")) == (422, "file_bad_option")


@pytest.fixture
def _small_uploads(talk, settings):
    """The store keeps the settings of its first use."""
    settings.MAX_UPLOAD_BYTES = 1000
    get_upload_store.cache_clear()
    yield
    get_upload_store.cache_clear()


@pytest.mark.usefixtures("_small_uploads")
def test_a_file_past_its_limit_is_refused_before_it_is_read(talk):
    small = upload(talk, CSV * 100)
    large = upload(talk, CSV * 10_000)

    assert code_of(small) == code_of(large) == (413, "file_too_large")
    assert small.json()["setting"] == large.json()["setting"] == "MAX_UPLOAD_BYTES"


def test_a_file_may_be_larger_than_a_json_body(talk, settings):
    settings.MAX_BODY_BYTES = settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10_000
    content = b"n\n" + b"1234567\n" * 5_000

    assert upload(talk, content).json()["row_count"] == 5_000


def test_no_file_two_files_and_no_form(talk):
    path = f"/api/v1/{talk.path}/files?user_id=ana"
    two = {name: SimpleUploadedFile("a.csv", CSV) for name in ("file", "other")}

    assert code_of(talk.caller.client.post(path, {}, format="multipart")) == (422, "invalid")
    assert code_of(talk.caller.client.post(path, two, format="multipart")) == (422, "invalid")
    assert code_of(talk.caller.client.post(path, {}, format="json")) == (
        415, "unsupported_media_type",
    )  # fmt: skip
    assert code_of(upload(talk, file_id="active")) == (422, "invalid")
    assert code_of(upload(talk, file_id="a#b")) == (422, "bad_id")


def test_files_that_are_not_there(talk):
    assert code_of(talk.send("get", "/files/f-1")) == (404, "file_not_found")
    assert code_of(talk.send("get", "/files/active")) == (404, "file_not_found")


# --- Whose it is (H1, H3) ---------------------------------------------------------------------

CALLS = {
    "open": lambda t: t.open(),
    "read": lambda t: t.read(),
    "say": lambda t: t.say("user", "Hello"),
    "window": lambda t: t.window(),
    "previous results": lambda t: t.send("get", "/previous-results"),
    "save checkpoint": lambda t: t.send("put", "/checkpoint", {"stolen": True}),
    "load checkpoint": lambda t: t.send("get", "/checkpoint"),
    "clear checkpoint": lambda t: t.send("delete", "/checkpoint"),
    "end": lambda t: t.send("post", "/end"),
    "upload": lambda t: upload(t, b"a\n1\n", file_id="f-1"),
    "file": lambda t: t.send("get", "/files/f-1"),
    "active file": lambda t: t.send("get", "/files/active"),
}


def body_without_request_id(answer):
    return {name: value for name, value in answer.json().items() if name != "request_id"}


@pytest.mark.parametrize("warm", [True, False], ids=["warm", "cold"])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_anothers_session_is_as_an_absent_one_and_stays_as_it_is(talk, bobs, redis, call, warm):
    talk.ask(1)
    upload(talk, file_id="f-1")
    talk.send("put", "/checkpoint", {"at": 1})
    if not warm:
        redis.delete(talk.key.session)
    absent = SessionCaller(bobs.caller, "s-none")
    before = {key: redis.dump(key) for key in redis.scan_iter("*s-81*")}
    for key in before:
        redis.expire(key, 100)

    foreign = call(bobs)

    assert code_of(foreign) == (404, "session_not_found")
    if call is not CALLS["open"]:
        assert body_without_request_id(foreign) == body_without_request_id(call(absent))
    assert {key: redis.dump(key) for key in redis.scan_iter("*s-81*")} == before
    assert {redis.ttl(key) for key in before} <= {99, 100}
    assert SessionRecord.objects.get(session_id="s-81").message_count == 2


def test_a_session_of_another_tenant_is_another_session(talk, outsider, redis):
    other = SessionCaller(
        Caller(User.objects.create_user("other", "bi", role="agent"), acts_for="ana"),
        tenant="other",
    )
    talk.ask(1)

    assert code_of(other.read()) == (404, "session_not_found")
    assert other.open().json()["created"] is True
    assert (other.texts(), len(talk.texts())) == ([], 2)
    assert set(redis.scan_iter("session:*")) == {b"session:{acme#s-81}", b"session:{other#s-81}"}


def test_a_refused_request_lets_nothing_live_on(talk, api, agent, bob, redis):
    redis.expire(talk.key.session, 100)
    assert api.get(f"/api/v1/{talk.path}").status_code == 401
    assert code_of(agent.client.get(f"/api/v1/{talk.path}")) == (422, "user_id_required")
    person = Caller(User.objects.get(pk=bob.pk))
    assert person.client.get(f"/api/v1/{talk.path}?user_id=ana").status_code == 403

    assert redis.ttl(talk.key.session) in (99, 100)


# --- Without Redis ----------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path, settings):
    with Valkey(tmp_path / "data", durable=False) as server:
        settings.REDIS_URL = server.url
        settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": server.url}}
        yield server


def test_without_redis_only_checkpoints_and_files_are_away(server, agent):
    talk = SessionCaller(agent)
    talk.open()
    talk.ask(1)
    server.kill()

    assert talk.open().status_code == 200
    assert talk.ask(2).json()["position"] == 2
    assert talk.ask(2).status_code == 200
    assert (talk.read().json()["source"], len(talk.texts())) == ("database", 4)
    assert len(talk.window().json()) == 4
    assert SessionCaller(agent, "s-2").open().status_code == 201
    for call in (
        "save checkpoint",
        "load checkpoint",
        "clear checkpoint",
        "upload",
        "file",
        "active file",
    ):
        assert code_of(CALLS[call](talk)) == (503, "unavailable"), call
    assert talk.send("post", "/end").status_code == 200
