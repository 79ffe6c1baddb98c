"""The store of live sessions: what an agent in this process sees of it."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from decimal import Decimal

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.models.functions import Now

from config.errors import Invalid
from conversations.exceptions import ThreadNotFound, TooLarge
from conversations.messages import OPENING_MAX
from conversations.models import ConversationThread, ThreadMessage
from conversations.session_keys import BadId, SessionKey
from conversations.session_problems import MessageConflict, OutOfTurn, SessionNotFound
from conversations.session_records import SessionMessage, SessionRecord
from conversations.session_turns import thread_id_of, turn_id_of
from conversations.sessions import SessionStore
from tests.conversations.session_world import let_time_pass, line, question, tool_turn

KEY = SessionKey("acme", "s-81")


@pytest.fixture
def store():
    return SessionStore("acme")


@pytest.fixture
def session(store, ana):
    return store.get_or_create_sync("s-81", "ana")


def copy_of(redis, key=KEY):
    return redis.hgetall(key.session)


def numbers_in(redis):
    return sorted(int(name[2:]) for name in copy_of(redis) if name[:2] == b"m:")


# --- As in document B -------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_the_lifecycle_of_document_b(store, ana):
    async def run():
        session = await store.get_or_create("s-81", "ana")
        session.add_message(role="user", content="Revenue by region")
        session.add_message(
            role="assistant", content="North leads.",
            metadata={"sql": "SELECT 1", "query_results": [{"n": 1}], "kpis": {"Total": 1}},
        )  # fmt: skip
        await store.save(session)
        context = (await store.get_or_create("s-81", "ana")).get_context(max_messages=5)
        await sync_to_async(connections.close_all)()
        return context

    assert asyncio.run(run()) == [
        {"role": "user", "content": "Revenue by region"},
        {"role": "assistant", "content": "North leads."},
    ]


def test_a_session_that_is_not_there(store, ana):
    assert store.get_sync("s-81", "ana") is None


def test_a_finished_turn_stands_on_the_sessions_thread(store, session, ana):
    for message in question(1):
        session.add_message(message.role, message.content, {"intent": "query"})
    added = store.save_sync(session)

    turn = ThreadMessage.objects.get()
    assert (turn.query, turn.answer, turn.position) == ("Question 1", "Answer 1", 1)
    assert turn.session_uuid == added.turns[0].turn_id == turn_id_of(KEY, 1)
    assert turn.thread_id == session.thread_id == thread_id_of(KEY)
    assert turn.session_id == "s-81"
    assert turn.digest == {"kind": "conversation", "question": "Question 1", "intent": "query"}
    assert ConversationThread.objects.get().title == "Question 1"


def test_live_values_are_taken(store, session):
    session.add_message("user", "Sales?")
    session.add_message(
        "assistant", "1.10", {"query_results": [{"day": date(2026, 1, 2), "sum": Decimal("1.10")}]}
    )
    store.save_sync(session)

    again = store.get_sync("s-81", "ana")
    assert again.previous_results()["previous_query_results"] == [
        {"day": "2026-01-02", "sum": "1.10"}
    ]


def test_integers_past_64_bits_keep_their_digits(store, session, redis):
    session.add_message("user", "Id?", {"id": 2**70})
    store.save_sync(session)

    assert store.get_sync("s-81", "ana").messages[0].metadata == {"id": str(2**70)}


def test_the_default_window_has_five_messages(store, session, settings):
    for n in range(1, 5):
        for message in question(n):
            session.add_message(message.role, message.content)
    store.save_sync(session)

    texts = [one["content"] for one in session.get_context()]
    assert texts == ["Question 3", "Answer 3", "Question 4", "Answer 4"]


def test_what_was_refused_is_still_unsaved(store, session):
    session.add_message("tool", "?", tool_call_id="c1")
    with pytest.raises(OutOfTurn):
        store.save_sync(session)

    assert [one.role for one in session.unsaved] == ["tool"]
    assert SessionMessage.objects.count() == 0


@pytest.mark.parametrize("opening", [0, 2])
@pytest.mark.parametrize("calls", [0, 1, 12])
def test_a_window_that_is_read_in_part_is_the_window_of_all(store, session, ana, opening, calls):
    store.add(ana, "s-81", [line("system", "Terse.") for _ in range(opening)])
    for n in range(1, 5):
        store.add(ana, "s-81", question(f"{n}.0"))
        looks = [line("user", f"Look {n}")]
        for look in range(calls):
            looks.append(line("assistant", tool_calls=[{"id": f"c{look}"}]))
            looks.append(line("tool", tool_call_id=f"c{look}"))
        store.add(ana, "s-81", [*looks, line("assistant", "Found.")])
    session = store.read(ana, "s-81")

    for most in range(70):
        assert store.window(ana, "s-81", most) == session.get_context(most)


@pytest.mark.parametrize("role", ["", "robot"])
def test_a_role_that_there_is_not(session, role):
    with pytest.raises(Invalid):
        session.add_message(role, "x")


def test_a_message_over_its_limit(session, settings):
    settings.SESSION_MAX_MESSAGE_BYTES = 1000
    with pytest.raises(TooLarge, match=r"1000 bytes .SESSION_MAX_MESSAGE_BYTES."):
        session.add_message("user", "x" * 1000)


@pytest.mark.parametrize("session_id", ["", "a{b}", "a#b", "a/b", 1])
def test_an_id_that_can_be_none(store, ana, session_id):
    with pytest.raises(BadId):
        store.get_or_create_sync(session_id, "ana")


def test_a_colon_in_an_id_makes_no_other_session(store, ana, redis):
    store.open(ana, "a:b")
    store.open(ana, "a")
    store.add(ana, "a:b", question(1))

    assert store.read(ana, "a").messages == []
    assert len(store.read(ana, "a:b").messages) == 2


# --- Whole or not at all, and again -----------------------------------------------------------


def test_a_list_with_a_fault_is_not_taken_at_all(store, session, ana, redis):
    before = copy_of(redis)
    with pytest.raises(OutOfTurn):
        store.add(ana, "s-81", [*question(1), line("tool", tool_call_id="c9")])

    assert store.read(ana, "s-81").messages == []
    assert copy_of(redis) == before
    assert not ThreadMessage.objects.exists()


@pytest.mark.parametrize("lost", [False, True], ids=["with its copy", "without"])
@pytest.mark.parametrize("turn", [question(1), tool_turn(1), question(1)[:1], tool_turn(1)[:2]])
def test_the_same_again_is_harmless(store, session, ana, redis, lost, turn):
    first = store.add(ana, "s-81", turn)
    if lost:
        redis.flushdb()
    again = store.add(ana, "s-81", turn)

    assert (first.created, again.created) == (True, False)
    assert [one.number for one in again.messages] == [one.number for one in first.messages]
    assert again.turns == first.turns
    assert [one.message_id for one in store.read(ana, "s-81").messages] == [
        one.message_id for one in turn
    ]


@pytest.mark.parametrize("lost", [False, True], ids=["with its copy", "without"])
@pytest.mark.parametrize("message_id", ["u-1", "a-1", "u-2"])
def test_the_same_id_with_another_content_is_a_conflict(
    store, session, ana, redis, lost, message_id
):
    store.add(ana, "s-81", [*question(1), question(2)[0]])
    if lost:
        redis.flushdb()
    with pytest.raises(MessageConflict):
        store.add(ana, "s-81", [line("user", "Something else", message_id=message_id)])


def test_a_list_may_hold_what_is_known_and_what_is_new(store, session, ana):
    store.add(ana, "s-81", question(1)[:1])
    added = store.add(ana, "s-81", question(1))

    assert [(one.number, one.created) for one in added.messages] == [(1, False), (2, True)]


def test_a_list_may_finish_several_turns(store, session, ana):
    added = store.add(ana, "s-81", [*question(1), *tool_turn(2), *question(3)])

    assert [turn.position for turn in added.turns] == [1, 2, 3]


def test_a_final_message_older_than_the_session_shows_is_still_known(store, session, ana, redis):
    settings_most = 100
    first = store.add(ana, "s-81", question(1))
    for n in range(2, 40):
        store.add(ana, "s-81", tool_turn(n))
    assert len(store.read(ana, "s-81").messages) <= settings_most
    redis.flushdb()

    again = store.add(ana, "s-81", question(1)[1:])

    assert (again.created, again.turns) == (False, first.turns)


# --- Trimming and TTL -------------------------------------------------------------------------


def test_the_oldest_turns_are_trimmed_whole(store, session, ana, redis, settings):
    settings.SESSION_MAX_MESSAGES = 10
    store.add(ana, "s-81", [line("system", "Terse.")])
    for n in range(1, 8):
        store.add(ana, "s-81", tool_turn(n))

    read = store.read(ana, "s-81")
    assert read.source == "cache"
    assert [one.number for one in read.messages] == [1, *range(22, 30)] == numbers_in(redis)
    assert sum(name[:2] == b"i:" for name in copy_of(redis)) == 9


def test_what_is_trimmed_from_the_copy_is_trimmed_from_the_rebuilt(
    store, session, ana, redis, settings
):
    settings.SESSION_MAX_MESSAGES = 10
    for _ in range(OPENING_MAX + 1):
        store.add(ana, "s-81", [line("system", "Terse.")])
    for n in range(1, 8):
        store.add(ana, "s-81", [*tool_turn(n)])
    warm = store.read(ana, "s-81")
    redis.flushdb()
    cold = store.read(ana, "s-81")

    assert (warm.source, cold.source) == ("cache", "database")
    assert warm.messages == cold.messages


def test_a_single_turn_past_the_limit_is_shown_within_it(store, session, ana, settings):
    settings.SESSION_MAX_MESSAGES = 6
    store.add(ana, "s-81", [line("user", "Go")])
    for n in range(10):
        store.add(ana, "s-81", [line("assistant", tool_calls=[{"id": f"c{n}"}])])
        store.add(ana, "s-81", [line("tool", tool_call_id=f"c{n}")])

    assert [one.role for one in store.read(ana, "s-81").messages] == ["user"] + [
        "assistant",
        "tool",
    ] * 2


def test_a_turn_that_never_ends_is_refused_by_its_number_and_can_still_end(
    store, session, ana, settings
):
    settings.SESSION_MAX_TURN_MESSAGES = 3
    store.add(ana, "s-81", tool_turn(1)[:3])
    with pytest.raises(TooLarge, match=r"3 messages .SESSION_MAX_TURN_MESSAGES."):
        store.add(ana, "s-81", [line("user", "More")])

    assert store.add(ana, "s-81", tool_turn(1)[3:]).turns


def test_every_key_of_a_session_has_its_time(store, session, ana, redis, settings):
    settings.SESSION_TTL_MINUTES = 7
    store.add(ana, "s-81", question(1))

    assert {key: redis.ttl(key) for key in redis.scan_iter()} == {KEY.session.encode(): 7 * 60}


def test_reading_rolls_the_time(store, session, ana, redis):
    redis.expire(KEY.session, 5)
    store.read(ana, "s-81")

    assert redis.ttl(KEY.session) == 30 * 60


def test_a_use_lets_the_checkpoint_live_as_long_and_shortens_none(store, session, ana, redis):
    redis.set(KEY.checkpoint, "1", ex=5)
    store.read(ana, "s-81")
    assert redis.ttl(KEY.checkpoint) == 30 * 60

    redis.set(KEY.checkpoint, "1", ex=9_000)
    store.read(ana, "s-81")
    assert redis.ttl(KEY.checkpoint) == 9_000


def test_another_persons_reading_rolls_nothing(store, session, bob, redis):
    redis.expire(KEY.session, 5)
    with pytest.raises(SessionNotFound):
        store.read(bob, "s-81")

    assert redis.ttl(KEY.session) == 5


def test_reading_notes_the_use_on_the_row_now_and_then(store, session, ana, settings):
    settings.MEMORY_CHECK_SECONDS = 0
    seen = SessionRecord.objects.get().last_seen_at
    store.read(ana, "s-81")
    assert SessionRecord.objects.get().last_seen_at > seen


# --- Whose it is ------------------------------------------------------------------------------


def test_anothers_session_is_not_found_and_stays_as_it_is(store, session, ana, bob, redis):
    store.add(ana, "s-81", question(1))
    before = copy_of(redis)

    for call in (
        lambda: store.open(bob, "s-81"),
        lambda: store.read(bob, "s-81"),
        lambda: store.add(bob, "s-81", question(2)),
        lambda: store.end(bob, "s-81"),
        lambda: store.use(bob, "s-81"),
        lambda: store.turn_digests(bob, "s-81"),
    ):
        with pytest.raises(SessionNotFound):
            call()
    assert copy_of(redis) == before
    assert len(store.read(ana, "s-81").messages) == 2


def test_the_same_id_in_another_tenant_is_another_session(store, session, outsider, ana):
    store.add(ana, "s-81", question(1))
    theirs = SessionStore("other").open(outsider, "s-81")

    assert (theirs.created, theirs.session.messages) == (True, [])
    assert theirs.session.thread_id != session.thread_id


def test_a_session_may_sit_on_a_thread_of_its_persons_only(store, ana, bob, agent, thread_id):
    agent.put_turn(thread_id)
    assert store.open(ana, "s-1", thread_id=thread_id).session.thread_id == thread_id
    with pytest.raises(ThreadNotFound):
        store.open(bob, "s-2", thread_id=thread_id)
    assert not SessionRecord.objects.filter(session_id="s-2").exists()


# --- Ends -------------------------------------------------------------------------------------


def test_an_end_makes_the_digest_due_and_a_late_message_due_again(store, session, ana):
    store.add(ana, "s-81", question(1))
    assert not SessionRecord.objects.due().exists()
    ended_at = store.end(ana, "s-81")

    assert store.end(ana, "s-81") == ended_at
    assert SessionRecord.objects.due().count() == 1
    with pytest.raises(SessionNotFound):
        store.read(ana, "s-81")

    store.add(ana, "s-81", question(2))
    assert not SessionRecord.objects.due().exists()
    let_time_pass(31)
    assert SessionRecord.objects.due().get().turn_seq == 2


def test_a_session_without_turns_is_never_due(store, session, ana):
    store.end(ana, "s-81")

    assert not SessionRecord.objects.due().exists()


def test_one_that_somebody_is_at_is_not_due(store, session, ana):
    store.add(ana, "s-81", question(1))
    store.end(ana, "s-81")
    SessionRecord.objects.update(claimed_until=Now() + timedelta(minutes=1))

    assert not SessionRecord.objects.due().exists()


@pytest.mark.parametrize("over", ["ended", "expired"])
def test_what_was_not_answered_becomes_a_stopped_turn(store, session, ana, redis, over):
    store.add(ana, "s-81", tool_turn(1)[:3])
    if over == "ended":
        store.end(ana, "s-81")
    let_time_pass(31, redis)
    store.open(ana, "s-81")

    turn = ThreadMessage.objects.get()
    assert (turn.query, turn.answer, turn.status) == ("Question 1", "", "stopped")
    assert len(store.read(ana, "s-81").messages) == 3
    assert store.add(ana, "s-81", question(2)).turns[0].position == 2


def test_the_facts_of_a_sessions_digest_in_their_order(store, session, ana):
    store.add(ana, "s-81", [*question(1), *question(2)])
    store.open(ana, "s-82", thread_id=session.thread_id)
    store.add(ana, "s-82", [line("user", "Other"), line("assistant", "!")])

    told = store.turn_digests(ana, "s-81")
    assert [(one.position, one.told["question"]) for one in told] == [
        (1, "Question 1"),
        (2, "Question 2"),
    ]


def test_a_session_takes_nothing_that_its_caller_takes_back(store, session, ana, redis):
    with transaction.atomic():
        store.add(ana, "s-81", question(1))
        transaction.set_rollback(True)

    assert store.read(ana, "s-81").messages == []
    assert not ThreadMessage.objects.exists()


# --- A thread that is deleted takes its sessions along -----------------------------------------


def test_deleting_the_thread_leaves_nothing_of_the_session(store, session, ana, redis):
    store.add(ana, "s-81", [*question(1), question(2)[0]])
    redis.set(KEY.checkpoint, "1", ex=60)
    with transaction.atomic():
        ConversationThread.objects.get().forget()

    assert list(redis.scan_iter("*s-81*")) == []
    assert SessionMessage.objects.count() == 0
    assert not SessionRecord.objects.due().exists()


def test_a_session_of_a_deleted_thread_begins_anew(store, session, ana):
    store.add(ana, "s-81", question(1))
    with transaction.atomic():
        ConversationThread.objects.get().forget()
    opened = store.open(ana, "s-81")

    assert (opened.reopened, opened.session.messages) == (True, [])
    assert opened.session.thread_id != session.thread_id
    turn = store.add(ana, "s-81", question(2)).turns[0]
    assert (turn.position, turn.turn_id) == (1, turn_id_of(KEY, 2))
