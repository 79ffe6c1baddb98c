"""Long-term history in DynamoDB: what an item holds, which write stays, what is read back."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import time_machine

from config import dynamodb
from conversations import history, history_async
from conversations.history import Owner
from conversations.history_table import ensure_table_exists
from conversations.session_keys import BadId
from rbac.names import BadName
from tests.conversations.history_world import NOW, at, ended, put, raw


@pytest.fixture(autouse=True)
def _table():
    ensure_table_exists()


@pytest.fixture
def ana():
    """Somebody whom no other test knows."""
    return Owner("acme", f"ana-{uuid.uuid4()}")


# --- The item -----------------------------------------------------------------------------


def test_every_attribute_has_the_name_and_type_of_the_document(ana):
    history.save_session_summary(ended(ana))

    assert raw(ana) == {
        "user_id": {"S": f"acme#{ana.user_id}"},
        "session_id": {"S": "s-1"},
        "summary": {"S": "## Queries\nQuestion"},
        "message_count": {"N": "12"},
        "queries_executed": {"N": "3"},
        "topics": {"SS": ["costos", "ingresos"]},
        "first_message": {"S": history._written(NOW - dt.timedelta(hours=1))},
        "last_message": {"S": history._written(NOW)},
        "ttl": {"N": str(int(NOW.timestamp()) + 90 * 86_400)},
    }


def test_the_default_tenants_key_is_the_plain_user_id():
    assert history.partition_key(Owner("default", "ana")) == "ana"


def test_it_expires_in_seconds_after_its_own_last_message(ana, settings):
    """B5: milliseconds would never expire; the time of the write would make a rebuild eternal."""
    settings.DYNAMODB_TTL_DAYS = 7
    history.save_session_summary(ended(ana, last_message=at(-6 * 86_400)))

    assert raw(ana)["ttl"] == {"N": str(int(NOW.timestamp()) + 86_400)}


def test_without_topics_the_attribute_is_absent(ana):
    history.save_session_summary(ended(ana, topics=frozenset({"", " "})))

    assert "topics" not in raw(ana)


def test_topics_that_have_gone_are_taken_away(ana):
    history.save_session_summary(ended(ana))
    history.save_session_summary(ended(ana, topics=frozenset()))

    assert "topics" not in raw(ana)


def test_too_many_or_too_long_topics_do_not_fill_the_item(ana):
    history.save_session_summary(
        ended(ana, topics=frozenset(f"{n}{'é' * 900}" for n in range(999)))
    )

    topics = raw(ana)["topics"]["SS"]
    assert len(topics) == 100
    assert {len(topic) for topic in topics} == {100}


@pytest.mark.parametrize("zone", [dt.timezone(dt.timedelta(hours=-8)), None])
def test_moments_are_one_instant_everywhere(ana, zone, monkeypatch):
    """C8: aware ones are brought to UTC, naive ones are in it, whatever the machine's zone."""
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    given = NOW.astimezone(zone) if zone else NOW.replace(tzinfo=None)
    history.save_session_summary(ended(ana, last_message=given))
    monkeypatch.undo()
    time.tzset()

    assert raw(ana)["last_message"]["S"] == NOW.strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    assert history.get_user_history(ana)[0].last_message == NOW


def test_what_no_store_holds_is_replaced_visibly(ana):
    history.save_session_summary(ended(ana, summary="a\x00b\ud800c", topics=frozenset({"x\ud800"})))

    [read] = history.get_user_history(ana)
    assert (read.summary, read.topics) == ("a\ufffdb\ufffdc", {"x\ufffd"})


def test_it_reads_back_as_it_was_written(ana):
    summary = ended(ana, summary="Pregunta: «¿cuánto?» 🇲🇽", first_message=at(-0.25))

    history.save_session_summary(summary)

    assert history.get_user_history(ana) == [summary]


# --- Whose it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tenant", "user_id"),
    [("A#B", "C"), ("A", "B#C"), ("default", "SYSTEM"), ("system", "ana"), ("acme", ""), ("", "ana"),
     ("acme", "a" * 300)],
)  # fmt: skip
def test_names_that_could_meet_in_one_key_are_refused(tenant, user_id):
    """B8: `A#B` and `C` would share a key with `A` and `B#C`."""
    with pytest.raises(BadName):
        history.save_session_summary(ended(Owner(tenant, user_id)))


@pytest.mark.parametrize("session_id", ["", "a#b", "x" * 201, "a\nb"])
def test_a_session_id_that_can_be_none_is_refused(ana, session_id):
    with pytest.raises(BadId):
        history.save_session_summary(ended(ana, session_id))


@pytest.mark.parametrize("name", ["auth0|5f:7c", "Señora Ana", "ANA", "a" * 128])
def test_odd_names_are_people_of_their_own(name):
    tenant = f"t-{uuid.uuid4()}"
    history.save_session_summary(ended(Owner(tenant, name)))

    assert len(history.get_user_history(Owner(tenant, name))) == 1
    assert history.get_user_history(Owner(tenant, name.swapcase())) == []


def test_tenants_do_not_see_each_other(ana):
    history.save_session_summary(ended(ana))

    assert history.get_user_history(Owner("default", ana.user_id)) == []
    assert history.get_user_history(Owner("other", ana.user_id)) == []


# --- Which write stays --------------------------------------------------------------------


def test_a_repeated_write_leaves_the_same_item(ana):
    history.save_session_summary(ended(ana))
    before = raw(ana)

    assert history.save_session_summary(ended(ana))
    assert raw(ana) == before


def test_a_late_write_leaves_the_newer_item(ana):
    history.save_session_summary(ended(ana, summary="new"))

    assert not history.save_session_summary(ended(ana, summary="old", last_message=at(-1)))
    assert raw(ana)["summary"] == {"S": "new"}


def test_a_session_that_went_on_is_written_over(ana):
    history.save_session_summary(ended(ana, summary="old"))

    assert history.save_session_summary(ended(ana, summary="new", last_message=at(0.000001)))
    assert raw(ana)["summary"] == {"S": "new"}


def test_of_fifty_racing_writers_the_newest_stays_and_the_row_keeps_the_rest(ana):
    """B9: no read-modify-write, and nothing is wiped that others have put there."""
    put(ana, role={"S": "analyst"})
    writes = [
        ended(ana, summary=str(n), message_count=n, last_message=at(n / 1000)) for n in range(50)
    ]
    random.Random(4).shuffle(writes)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(history.save_session_summary, writes))

    item = raw(ana)
    assert (item["summary"]["S"], item["message_count"]["N"]) == ("49", "49")
    assert item["role"] == {"S": "analyst"}


def test_fifty_sessions_of_one_person_written_at_once_are_all_there(ana):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: history.save_session_summary(ended(ana, f"s-{n}")), range(50)))

    assert len(history.get_user_history(ana, limit=100)) == 50


def test_a_used_session_id_a_week_later_is_the_same_item(ana):
    """B6: the update sets `ttl`, which DynamoDB refuses unless it goes by another name."""
    history.save_session_summary(ended(ana))
    history.save_session_summary(ended(ana, last_message=at(7 * 86_400)))

    assert raw(ana)["ttl"] == {"N": str(int(NOW.timestamp()) + 97 * 86_400)}


# --- Size ---------------------------------------------------------------------------------


def test_390_kilobytes_round_trip(ana):
    summary = "é" * (390 * 1024 // 2)

    history.save_session_summary(ended(ana, summary=summary))

    assert history.get_user_history(ana)[0].summary == summary


@pytest.mark.parametrize("text", ["é" * 210_000, "a" * 410 * 1024, "🇲🇽" * 60_000])
def test_more_than_an_item_holds_is_cut_by_bytes_with_a_mark(ana, text):
    """B2: 210,000 × é are 420 kB."""
    history.save_session_summary(ended(ana, summary=text))

    stored = raw(ana)["summary"]["S"]
    mark, _, kept = stored.partition("\n")
    cut = int(mark.removeprefix("(… ").removesuffix(" bytes left out)").replace(",", ""))
    assert text.endswith(kept)
    assert cut + len(kept.encode()) == len(text.encode())
    assert len(kept.encode()) > 400_000


def test_a_cut_digest_keeps_its_heading_and_its_newest_whole_lines(ana):
    lines = [f'Question: "{n}" | Result: {n} rows' for n in range(20_000)]

    history.save_session_summary(ended(ana, summary="\n".join(["## Queries", *lines])))

    heading, mark, *kept = raw(ana)["summary"]["S"].split("\n")
    assert heading == "## Queries"
    assert mark.endswith(" bytes left out)")
    assert kept == lines[-len(kept) :]


def test_a_large_digest_leaves_the_others_readable(ana):
    for n in range(5):
        history.save_session_summary(
            ended(ana, f"s-{n}", summary="é" * 300_000, last_message=at(n))
        )
    history.save_session_summary(ended(ana, "small", last_message=at(9)))

    found = history.get_user_history(ana)
    assert [one.session_id for one in found] == ["small", "s-4", "s-3", "s-2", "s-1", "s-0"]


# --- Reading ------------------------------------------------------------------------------


def test_the_newest_come_first_by_their_last_message(ana):
    for n in [3, 1, 4, 2]:
        history.save_session_summary(ended(ana, f"s-{9 - n}", last_message=at(n)))

    found = history.get_user_history(ana, limit=3)
    assert [one.last_message for one in found] == [at(4), at(3), at(2)]


def test_nobody_has_no_history(ana):
    assert history.get_user_history(ana) == []


def test_no_session_is_asked_for(ana):
    history.save_session_summary(ended(ana))

    assert history.get_user_history(ana, limit=0) == []


def test_what_has_expired_is_not_shown_although_it_is_still_there(ana):
    """B4: DynamoDB deletes some time later."""
    history.save_session_summary(ended(ana, "old", last_message=at(-91 * 86_400)))
    history.save_session_summary(ended(ana, "new", last_message=at(-89 * 86_400)))

    assert [one.session_id for one in history.get_user_history(ana)] == ["new"]
    assert raw(ana, "old")


def test_an_item_expires_for_readers_at_its_second(ana):
    history.save_session_summary(ended(ana))
    with time_machine.travel(at(90 * 86_400 - 1), tick=False):
        [read] = history._read(history.partition_key(ana))
    with time_machine.travel(at(90 * 86_400), tick=False):
        gone = list(history._read(history.partition_key(ana)))

    assert (read.session_id, gone) == ("s-1", [])


def test_pages_are_followed_past_what_is_filtered(ana):
    """A page of ten may hold ten that have expired."""
    for n in range(12):
        put(ana, f"x-{n}", last_message={"S": history._written(at(n))}, ttl={"N": "1"})
    history.save_session_summary(ended(ana, last_message=at(-1)))

    assert [one.session_id for one in history.get_user_history(ana, limit=5)] == ["s-1"]


def test_items_of_other_programs_are_read_as_far_as_they_go(ana):
    put(ana, "bare", last_message={"S": "2026-11-30T09:00:00"}, message_count={"N": "4.0"})
    put(ana, "strange", last_message={"S": "yesterday"})
    put(ana, "cost_tracker", total={"N": "0.1"})

    [read] = history.get_user_history(ana)
    assert (read.session_id, read.summary, read.message_count, read.topics) == (
        "bare",
        "",
        4,
        set(),
    )
    assert read.first_message == dt.datetime(2026, 11, 30, 9, tzinfo=dt.UTC)


def many_sessions(owner, count):
    """Write sessions whose ids say nothing about their times, as fast as DynamoDB takes them."""
    times = random.Random(7).sample(range(count), count)
    requests = [
        {"PutRequest": {"Item": {**history._key(owner, f"s-{n:05}"), **history._values(
            ended(owner, last_message=at(second - count), summary=f"digest {second} " * 100))}}}
        for n, second in enumerate(times)
    ]  # fmt: skip
    batches = [requests[n : n + 25] for n in range(0, count, 25)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(history._delete, batches))


@pytest.fixture
def requests_seen():
    """Names of the requests that the client has sent meanwhile."""
    seen = []
    dynamodb.client().meta.events.register(
        "before-call.dynamodb", lambda model, **_: seen.append(model.name)
    )
    return seen


def test_the_newest_of_5000_sessions_take_one_request(ana, requests_seen):
    many_sessions(ana, 5_000)
    requests_seen.clear()

    found = history.get_user_history(ana, limit=10)

    assert [one.last_message for one in found] == [at(-1 - n) for n in range(10)]
    assert requests_seen == ["Query"]


def test_all_5000_can_be_read_page_by_page_and_deleted(ana):
    many_sessions(ana, 5_000)

    assert len(history.get_user_history(ana, limit=10_000)) == 5_000
    assert history.delete_user(ana) == 5_000
    assert history.get_user_history(ana) == []


# --- Deleting -----------------------------------------------------------------------------


def test_a_person_is_deleted_with_all_that_has_expired_and_nobody_else(ana):
    """H7: nothing of them is left, and the next of that name inherits nothing."""
    bob = Owner(ana.tenant, f"{ana.user_id}b")
    for n in range(30):
        history.save_session_summary(ended(ana, f"s-{n}", last_message=at(-91 * 86_400)))
    history.save_session_summary(ended(bob))

    assert history.delete_user(ana) == 30
    assert [raw(ana, f"s-{n}") for n in range(30)] == [None] * 30
    assert raw(bob)


def test_deleting_again_finds_nothing(ana):
    assert history.delete_user(ana) == 0


@pytest.mark.parametrize(
    "owner", [Owner("acme", ""), Owner("default", "SYSTEM"), Owner("a", "*#b")]
)
def test_nobody_can_be_deleted_by_what_is_no_name(owner):
    with pytest.raises(BadName):
        history.delete_user(owner)


def test_one_session_is_deleted_alone(ana):
    history.save_session_summary(ended(ana, "s-1"))
    history.save_session_summary(ended(ana, "s-2"))

    history.delete_session(ana, "s-1")
    history.delete_session(ana, "s-1")

    assert [one.session_id for one in history.get_user_history(ana)] == ["s-2"]


# --- For await ----------------------------------------------------------------------------


async def live_by_document(user_id):
    written = await history_async.save_session_summary(
        user_id=user_id,
        session_id="s-1",
        summary='## Queries made in this session\nQuestion: "total revenue Q4"',
        message_count=2,
        queries_executed=1,
        topics={"revenue"},
        first_message=NOW.isoformat(),
        last_message=NOW,
    )
    read = await history_async.get_user_history(user_id, limit=10)
    return written, read, await history_async.delete_user(user_id)


def test_document_bs_calls_work_as_they_stand_there(ana):
    written, read, deleted = asyncio.run(live_by_document(ana.user_id))

    digest = history_async.build_cross_session_context(read)
    assert (written, deleted) == (True, 1)
    assert f'- {NOW.date()}: Question: "total revenue Q4"' in digest
    assert read == [
        replace(read[0], tenant="default", user_id=ana.user_id, topics=frozenset({"revenue"}))
    ]
