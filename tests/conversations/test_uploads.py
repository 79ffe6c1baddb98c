"""Uploaded files: stored whole or not at all, for as long as their session, and at no one's cost."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import asdict, replace
from pathlib import Path

import orjson
import pytest
from django.core.cache import caches
from redis import Redis

from config import redis as redis_gate
from config.errors import Problem
from conversations import file_pages
from conversations.file_pages import FileWriter, Head
from conversations.session_keys import BadId, SessionKey
from conversations.tables import TableLimits, TableRefused
from conversations.tables.child import Job
from conversations.tables.process import Parsing
from conversations.upload_problems import (
    FileNotFound,
    FileTooLarge,
    FileUnreadable,
    StorageFull,
    UploadsUnavailable,
)
from conversations.uploads import UploadSettings, UploadStore, get_upload_store
from embedded.services import Valkey
from tests.conversations.workbooks import Sheet, xlsx

KEY = SessionKey("acme", "s-81")
HOUR = 3600
ROWS = [[n, f"name {n}"] for n in range(250)]
CSV = ("id,name\n" + "".join(f"{n},{name}\n" for n, name in ROWS)).encode()


def store_with(**changes):
    """A store with other settings: of its own, of the tables' limits or of what is stored."""
    given = UploadSettings.current()
    for part in ("limits", "stored"):
        held = getattr(given, part)
        of_part = {name: changes.pop(name) for name in list(changes) if name in asdict(held)}
        given = replace(given, **{part: replace(held, **of_part)})
    return UploadStore(replace(given, **changes))


@pytest.fixture
def store():
    return store_with()


@pytest.fixture
def stored(store):
    store.store_file(KEY, "f-1", "report.csv", io.BytesIO(CSV))
    return store


@pytest.fixture(autouse=True)
def _every_key_has_a_time_to_live(redis) -> Iterator[None]:
    yield
    assert [key for key in redis.scan_iter() if redis.ttl(key) == -1] == []


def keys(redis):
    return sorted(key.decode() for key in redis.scan_iter())


# --- Storing and reading ----------------------------------------------------------------------


def test_the_metadata_is_the_references_and_more(store):
    found = store.store_file(KEY, "f-1", "C:\\Temp\\report.csv", io.BytesIO(CSV))
    assert {name: found[name] for name in ("filename", "columns", "row_count")} == {
        "filename": "report.csv",
        "columns": ["id", "name"],
        "row_count": 250,
    }
    assert (found["file_id"], found["bytes"], found["kind"]) == ("f-1", len(CSV), "csv")
    assert found["types"] == {"id": "integer", "name": "text"}


def test_what_was_stored_is_read(stored):
    found = stored.get_file_data(KEY, "f-1")
    assert found["rows"] == ROWS[:100]
    assert found["metadata"]["filename"] == "report.csv"
    assert (found["offset"], found["next_offset"]) == (0, 100)


@pytest.mark.parametrize(
    ("offset", "limit"),
    [(0, 1), (99, 2), (100, 100), (150, 100), (40, 200), (249, 5), (250, 5), (9_999, 5), (0, 0)],
)
def test_any_rows_may_be_asked_for(stored, offset, limit):
    assert stored.get_file_data(KEY, "f-1", offset, limit)["rows"] == ROWS[offset : offset + limit]


@pytest.mark.parametrize(
    ("offset", "limit", "goes_on"), [(0, 249, 249), (0, 250, None), (300, 9, None)]
)
def test_the_end_is_told(stored, offset, limit, goes_on):
    assert stored.get_file_data(KEY, "f-1", offset, limit)["next_offset"] == goes_on


@pytest.mark.parametrize("offset", [0, 130])
def test_all_rows_may_be_asked_for(stored, offset):
    assert stored.get_file_data(KEY, "f-1", offset, limit=None)["rows"] == ROWS[offset:]


def test_a_file_of_more_pages_than_are_fetched_at_once_is_read_whole():
    store = store_with(page_rows=2)
    store.store_file(KEY, "f-1", "report.csv", io.BytesIO(CSV))
    assert store.get_file_data(KEY, "f-1", limit=None)["rows"] == ROWS


def test_files_cut_otherwise_are_read_as_well(stored):
    other = store_with(page_rows=7)
    assert other.get_file_data(KEY, "f-1", 95, 20)["rows"] == ROWS[95:115]


def test_less_is_read_where_rows_are_large(stored):
    page_bytes = len(orjson.dumps(ROWS[:100])) + 500
    found = store_with(page_bytes=page_bytes).get_file_data(KEY, "f-1", 0, 250)
    assert (found["rows"], found["next_offset"]) == (ROWS[:100], 100)


def test_a_table_without_rows_is_a_file(store):
    store.store_file(KEY, "f-1", "empty.csv", io.BytesIO(b"a,b\n"))
    assert store.get_file_data(KEY, "f-1")["rows"] == []


def test_a_workbook_is_read_from_the_disk(store, tmp_path):
    path = tmp_path / "budget.xlsx"
    path.write_bytes(xlsx(Sheet("Budget", {1: ["zip"], 2: ["00501"]})))
    store.store_file(KEY, "f-1", "budget.xlsx", path)
    assert store.get_file_data(KEY, "f-1")["rows"] == [["00501"]]


def test_options_reach_the_reader(store):
    content = xlsx(Sheet("A", {1: ["a"], 2: ["x"]}), Sheet("B", {1: ["b"], 2: ["y"]}))
    found = store.store_file(KEY, "f-1", "two.xlsx", io.BytesIO(content), {"sheet": "B"})
    assert found["columns"] == ["b"]


def test_the_newest_file_is_the_active_one(stored):
    stored.store_file(KEY, "f:2", "other.csv", io.BytesIO(b"a\nx\n"))
    assert stored.get_active_file_id(KEY) == "f:2"


def test_a_file_with_the_same_id_takes_the_place_of_the_one_before(stored):
    stored.store_file(KEY, "f-1", "other.csv", io.BytesIO(b"a\nx\n"))
    assert stored.get_file_data(KEY, "f-1", limit=None)["rows"] == [["x"]]


def test_pages_are_compressed_json(stored, redis):
    fields = redis.hgetall(KEY.file("f-1"))
    assert orjson.loads(fields.pop(b"m"))[:2] == [100, 250]
    assert orjson.loads(zlib.decompress(fields[b"p:2"])) == ROWS[200:]
    assert sorted(fields) == [b"p:0", b"p:1", b"p:2"]


def test_the_keys_are_the_references_with_the_session_in_braces(stored, redis):
    assert keys(redis) == [
        "file:active:{acme#s-81}",
        "file:index:{acme#s-81}",
        "file:{acme#s-81}:f-1",
    ]


# --- Rows that an agent has read itself -------------------------------------------------------


def test_rows_come_back_as_they_were_given(store):
    data = {
        "rows": [{"zip": "00501", "n": 1.5, "b": None}, {"zip": "NA", "n": 2, "b": True}],
        "metadata": {"filename": "report.xlsx", "columns": ["zip", "n", "b"], "row_count": 2},
    }
    store.store_file_data(KEY, "f-1", data)
    found = store.get_file_data(KEY, "f-1")
    assert {"rows": found["rows"], "metadata": found["metadata"]} == data


def test_rows_may_be_lists_of_many_pages(store):
    store.store_file_data(KEY, "f-1", {"rows": ROWS, "metadata": {}})
    assert store.get_file_data(KEY, "f-1", 90, 20)["rows"] == ROWS[90:110]
    assert store.get_active_file_id(KEY) == "f-1"


def test_the_number_of_rows_is_added_where_it_is_missing(store):
    store.store_file_data(KEY, "f-1", {"rows": ROWS})
    assert store.get_file_data(KEY, "f-1")["metadata"] == {"row_count": 250}


def test_what_json_has_no_word_for_takes_its_documented_form(store):
    row = [float("nan"), float("inf"), 2**64 - 1, 2**70, "a\0b", {"deep": [-(2**63) - 1]}]
    store.store_file_data(KEY, "f-1", {"rows": [row]})
    assert store.get_file_data(KEY, "f-1")["rows"] == [
        [None, None, 2**64 - 1, str(2**70), "a\ufffdb", {"deep": [str(-(2**63) - 1)]}]
    ]


@pytest.mark.parametrize("data", [{}, {"rows": "x"}, {"rows": [1]}, {"rows": [], "metadata": []}])
def test_what_is_no_table_is_refused(store, redis, data):
    with pytest.raises(FileUnreadable):
        store.store_file_data(KEY, "f-1", data)
    assert keys(redis) == []


@pytest.mark.parametrize(
    ("bound", "setting"),
    [
        ({"rows": 9}, "MAX_UPLOAD_ROWS"),
        ({"cells": 19}, "MAX_UPLOAD_CELLS"),
        ({"unpacked_bytes": 50}, "MAX_UPLOAD_UNPACKED_BYTES"),
        ({"page_bytes": 50}, "MAX_PAGE_BYTES"),
        ({"session_bytes": 50}, "MAX_SESSION_UPLOAD_BYTES"),
    ],
)
def test_rows_are_bounded_too(bound, setting):
    with pytest.raises(FileTooLarge) as refused:
        store_with(**bound).store_file_data(KEY, "f-1", {"rows": ROWS[:10]})
    assert refused.value.extra == {"setting": setting}


# --- Whose file it is -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [SessionKey("default", "s-81"), SessionKey("other", "s-81"), SessionKey("acme", "s-8")],
)
def test_another_session_has_no_such_file(stored, other):
    with pytest.raises(FileNotFound) as refused:
        stored.get_file_data(other, "f-1")
    assert (refused.value.status, refused.value.code) == (404, "file_not_found")
    assert stored.get_active_file_id(other) is None


def test_ids_that_can_not_be_one_are_refused_before_anything_is_read(store):
    source = io.BytesIO(CSV)
    with pytest.raises(BadId):
        store.store_file(KEY, "f}1", "report.csv", source)
    assert source.tell() == 0


# --- How long it stays ------------------------------------------------------------------------


def ttls(redis):
    return {redis.ttl(key) for key in redis.scan_iter()}


def test_all_keys_live_as_long(stored, redis):
    assert ttls(redis) <= {HOUR - 1, HOUR}


def test_use_of_the_session_lets_all_its_files_live_on(stored, redis):
    stored.store_file(KEY, "f:2", "other.csv", io.BytesIO(b"a\nx\n"))
    for key in redis.scan_iter():
        redis.expire(key, 60)
    assert stored.renew(KEY) == 2
    assert ttls(redis) <= {HOUR - 1, HOUR}


def test_they_live_as_long_as_a_longer_session(stored, redis):
    stored.renew(KEY, at_least_seconds=5 * HOUR)
    assert ttls(redis) <= {5 * HOUR - 1, 5 * HOUR}


def test_reading_alone_prolongs_nothing(stored, redis):
    redis.expire(KEY.file("f-1"), 60)
    stored.get_file_data(KEY, "f-1")
    assert redis.ttl(KEY.file("f-1")) <= 60


def test_a_session_without_files_has_nothing_to_renew(store, redis):
    assert store.renew(KEY) == 0
    assert keys(redis) == []


def test_a_file_that_redis_has_lost_no_longer_counts(stored, redis):
    redis.delete(KEY.file("f-1"))
    assert stored.renew(KEY) == 0
    assert redis.hgetall(KEY.file_index) == {}


def test_all_files_of_a_session_may_be_deleted(stored, redis):
    stored.store_file(KEY, "f:2", "other.csv", io.BytesIO(b"a\nx\n"))
    assert stored.delete_files(KEY) == 2
    assert keys(redis) == []


def test_one_file_may_be_deleted(stored):
    stored.store_file(KEY, "f:2", "other.csv", io.BytesIO(b"a\nx\n"))
    assert stored.delete_files(KEY, "f-1") == 1
    assert stored.get_active_file_id(KEY) == "f:2"
    assert stored.get_file_data(KEY, "f:2")["rows"] == [["x"]]


def test_a_deleted_file_is_no_longer_active(stored):
    stored.delete_files(KEY, "f-1")
    assert stored.get_active_file_id(KEY) is None


# --- Whole or not at all ----------------------------------------------------------------------

PAGE = zlib.compress(orjson.dumps([["x"]]))


def writer(file_id="f-1"):
    return FileWriter(KEY, file_id, UploadSettings.current().stored)


def write_half(into):
    for _ in range(file_pages._BATCH_PAGES + 1):
        into.add(PAGE)


def test_a_reader_sees_the_file_before_until_the_new_one_is_whole(stored):
    with writer() as half:
        write_half(half)
        assert stored.get_file_data(KEY, "f-1")["rows"] == ROWS[:100]
        half.publish(Head(1, 501, {}))
    assert stored.get_file_data(KEY, "f-1")["rows"] == [["x"]] * 100


def test_a_file_is_not_active_before_it_is_whole(store):
    with writer() as half:
        write_half(half)
        assert store.get_active_file_id(KEY) is None
        half.publish(Head(1, 501, {}))
    assert store.get_active_file_id(KEY) == "f-1"


def test_what_has_been_written_of_a_file_expires_by_itself(redis):
    half = writer()
    with half:
        write_half(half)
    (unfinished,) = keys(redis)
    assert unfinished.startswith("file:new:{acme#s-81}:")
    assert 0 < redis.ttl(unfinished) <= 60


def test_an_upload_that_fails_leaves_nothing(redis):
    with suppress(KeyboardInterrupt), writer() as half:
        write_half(half)
        assert keys(redis) != []
        raise KeyboardInterrupt
    assert keys(redis) == []


def test_a_file_of_which_redis_has_lost_pages_is_not_put_in_place(store, redis):
    half = writer()
    with half:
        write_half(half)
        redis.delete(*redis.scan_iter("file:new:*"))
        with pytest.raises(StorageFull):
            half.publish(Head(1, 501, {}))
    assert keys(redis) == []


def _without_page(redis, key):
    redis.hdel(key, "p:0")


def _as_text(redis, key):
    redis.set(key, "x", ex=60)


@pytest.mark.parametrize(
    "spoil",
    [
        _without_page,
        _as_text,
        lambda redis, key: redis.hdel(key, "m"),
        lambda redis, key: redis.hset(key, "m", b"[100"),
        lambda redis, key: redis.hset(key, "m", b"[0, 250, {}]"),
        lambda redis, key: redis.hset(key, "m", b'["100", 250, {}]'),
        lambda redis, key: redis.hset(key, "p:0", b"\x80\x04not zlib"),
        lambda redis, key: redis.hset(key, "p:0", zlib.compress(b"[[1]")),
        lambda redis, key: redis.hset(key, "p:0", zlib.compress(b'"text"')),
        lambda redis, key: redis.hset(key, "p:0", zlib.compress(orjson.dumps([["x"]]))[:-3]),
        lambda redis, key: redis.hset(key, "p:0", zlib.compress(b" " * 20_000_000)),
    ],
)
def test_what_was_not_written_here_is_no_file(stored, redis, spoil):
    spoil(redis, KEY.file("f-1"))
    with pytest.raises(FileNotFound):
        stored.get_file_data(KEY, "f-1")


def test_a_pointer_of_another_type_points_nowhere(stored, redis):
    redis.delete(KEY.active_file)
    redis.hset(KEY.active_file, "a", "b")
    redis.expire(KEY.active_file, 60)
    assert stored.get_active_file_id(KEY) is None


# --- What is refused --------------------------------------------------------------------------


def refused_file(store, content, name="report.csv", **options):
    with pytest.raises(Problem) as refused:
        store.store_file(KEY, "f-1", name, io.BytesIO(content), options)
    return refused.value


def test_what_can_not_be_read_is_a_422_with_its_code_and_place(store, redis):
    refused = refused_file(store, b"a,b\n1,2\n3,4,5\n")
    assert (refused.status, refused.code) == (422, "file_row_too_long")
    assert "Line 3" in refused.detail
    assert keys(redis) == []


def test_a_bad_option_is_a_422(store):
    assert refused_file(store, CSV, header="first").code == "file_bad_option"


def test_too_many_rows_are_a_413_that_names_the_setting(redis):
    refused = refused_file(store_with(rows=249), CSV)
    assert (refused.status, refused.code) == (413, "file_too_large")
    assert refused.extra == {"setting": "MAX_UPLOAD_ROWS"}
    assert "249" in refused.detail
    assert keys(redis) == []


def test_a_file_over_its_bytes_is_not_even_copied_to_its_end():
    source = io.BytesIO(b"a\n" + b"x\n" * 4_000_000)
    with pytest.raises(FileTooLarge) as refused:
        store_with(bytes=1_000).store_file(KEY, "f-1", "report.csv", source)
    assert refused.value.extra == {"setting": "MAX_UPLOAD_BYTES"}
    assert source.tell() < 3_000_000


def test_rows_that_are_too_large_for_a_page_are_refused():
    refused = refused_file(store_with(page_bytes=500), CSV)
    assert refused.extra == {"setting": "MAX_PAGE_BYTES"}


def test_a_session_has_a_budget_for_its_files(stored):
    (size,) = map(int, redis_gate.client().hvals(KEY.file_index))
    store = store_with(session_bytes=2 * size - 1)
    with pytest.raises(FileTooLarge) as refused:
        store.store_file(KEY, "f-2", "report.csv", io.BytesIO(CSV))
    assert refused.value.extra == {"setting": "MAX_SESSION_UPLOAD_BYTES"}
    assert stored.get_file_data(KEY, "f-1")["rows"] == ROWS[:100]


def test_a_file_that_takes_anothers_place_counts_once(stored):
    (size,) = map(int, redis_gate.client().hvals(KEY.file_index))
    store = store_with(session_bytes=size)
    assert store.store_file(KEY, "f-1", "again.csv", io.BytesIO(CSV))["row_count"] == 250


def test_more_files_than_are_read_at_once_are_asked_to_wait():
    store = store_with(at_once=1)
    second: list[Problem] = []

    class Slow(io.BytesIO):
        def read(self, *size):
            if not second:
                second.append(refused_file(store, CSV))
            return super().read(*size)

    store.store_file(KEY, "f-2", "report.csv", Slow(CSV))
    assert (second[0].status, second[0].headers["Retry-After"]) == (503, "2")
    assert store.store_file(KEY, "f-3", "report.csv", io.BytesIO(CSV))["row_count"] == 250


# --- The process that reads -------------------------------------------------------------------


def job(**changes):
    limits = asdict(TableLimits())
    given = Job("", "report.csv", {}, limits, 30, 512 * 2**20, page_rows=100, page_bytes=2**24)
    return replace(given, **changes)


def test_it_loads_neither_django_nor_a_client():
    program = "import sys, conversations.tables.child; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "conversations" in loaded
    assert not loaded & {"django", "redis", "structlog", "psycopg", "boto3", "python_calamine"}


def test_it_is_given_no_environment_of_ours():
    with open_pipe() as (file, _), Parsing(file, job(seconds=5)) as parsing:
        environment = Path(f"/proc/{parsing.pid}/environ").read_bytes()
    assert b"SECRET_KEY" in b"\0".join(os.environb)
    for name in (b"SECRET_KEY", b"DATABASE_URL", b"REDIS_URL"):
        assert name not in environment


def test_a_file_that_would_need_much_memory_is_refused_and_the_rest_goes_on(store):
    """Two cells, seventeen thousand million in between: calamine makes room for all of them."""
    far = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    content = xlsx(Sheet("Far", {1: ["a"]}, extra=far))
    refused = refused_file(store, content, name="far.xlsx")
    assert (refused.status, refused.extra) == (413, {"setting": "UPLOAD_PARSE_MEMORY_BYTES"})
    assert store.store_file(KEY, "f-2", "report.csv", io.BytesIO(CSV))["row_count"] == 250


def test_python_running_out_of_memory_is_refused_alike():
    store = store_with(parse_memory_bytes=64 * 2**20)
    refused = refused_file(store, b"," * 10_000_000)
    assert refused.extra == {"setting": "UPLOAD_PARSE_MEMORY_BYTES"}


def test_a_file_that_takes_too_long_is_refused():
    with (
        open_pipe() as (file, _),
        Parsing(file, job(seconds=1)) as parsing,
        pytest.raises(TableRefused) as refused,
    ):
        list(parsing.pages())
    assert (refused.value.code, refused.value.setting) == ("file_too_large", "UPLOAD_PARSE_SECONDS")


def test_it_ends_with_the_block_whatever_it_is_doing():
    with open_pipe() as (file, _), Parsing(file, job()) as parsing:
        pid = parsing.pid
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


class open_pipe:  # noqa: N801  reads as a verb
    """A file that says nothing, and so is read for as long as one likes."""

    def __enter__(self):
        self._read, self._write = os.pipe()
        self._file = os.fdopen(self._read, "rb")
        return self._file, self._write

    def __exit__(self, *_):
        self._file.close()
        os.close(self._write)


# --- Redis full, away, hung -------------------------------------------------------------------


@pytest.fixture
def server(tmp_path, settings) -> Iterator[Valkey]:
    with Valkey(tmp_path / "valkey", durable=False) as valkey:
        caches_of = {**settings.CACHES["default"], "LOCATION": valkey.url}
        settings.REDIS_URL = valkey.url
        settings.CACHES = {"default": caches_of}
        yield valkey
        caches.close_all()


@pytest.fixture
def its(server) -> Iterator[Redis]:
    with closing(Redis.from_url(server.url)) as client:
        yield client


def fill_with_sessions(client):
    kept = {f"session:{{s-{n}}}": os.urandom(4_000) for n in range(40)}
    kept |= {f"chat_conversation:{{t-{n}}}": os.urandom(4_000) for n in range(40)}
    for key, value in kept.items():
        client.set(key, value, ex=HOUR)
    return kept


@pytest.mark.parametrize(
    ("policy", "maxmemory", "first"),
    [
        ("noeviction", "2mb", 507),
        ("noeviction", "3mb", 200),
        ("allkeys-lru", "2mb", 507),
        ("allkeys-lru", "3mb", 200),
        ("volatile-ttl", "3mb", 200),
    ],
)
def test_uploads_are_refused_before_sessions_have_to_go(server, its, policy, maxmemory, first):
    its.config_set("maxmemory-policy", policy)
    its.config_set("maxmemory", maxmemory)
    kept = fill_with_sessions(its)
    store, noise = store_with(), os.urandom(150_000).hex()
    content = "n,v\n" + "".join(f"{n},{noise[n : n + 300]}\n" for n in range(0, 150_000, 300))

    statuses = []
    for number in range(12):
        try:
            store.store_file(KEY, f"f-{number}", "noise.csv", io.BytesIO(content.encode()))
            statuses.append(200)
        except StorageFull as refused:
            statuses.append(refused.status)

    assert statuses[0] == first
    assert statuses[-1] == 507
    assert {key: its.get(key) for key in kept} == kept
    assert its.info("stats")["evicted_keys"] == 0
    its.set("session:{new}", "x" * 4_000, ex=HOUR)


def test_a_redis_that_is_full_of_other_things_is_a_507(server, its):
    its.config_set("maxmemory-policy", "noeviction")
    its.config_set("maxmemory", 1)
    refused = refused_file(store_with(), CSV)
    assert (refused.status, refused.code) == (507, "storage_full")
    assert "Retry-After" in refused.headers


def test_a_redis_that_refuses_in_the_middle_is_a_507(server, its):
    its.config_set("maxmemory-policy", "noeviction")
    with suppress(StorageFull), writer() as half:
        write_half(half)
        its.config_set("maxmemory", 1)
        write_half(half)
        pytest.fail("it was taken")
    its.config_set("maxmemory", 0)
    assert list(its.scan_iter()) == []


def test_a_redis_that_is_away_is_a_503_for_each_call(server):
    store = store_with()
    store.store_file(KEY, "f-1", "report.csv", io.BytesIO(CSV))
    server.kill()
    for call in (
        lambda: store.store_file(KEY, "f-1", "report.csv", io.BytesIO(CSV)),
        lambda: store.get_file_data(KEY, "f-1"),
        lambda: store.get_active_file_id(KEY),
        lambda: store.renew(KEY),
        lambda: store.delete_files(KEY),
    ):
        with pytest.raises(UploadsUnavailable) as refused:
            call()
        assert (refused.value.status, refused.value.code) == (503, "unavailable")
    server.revive()


def test_nothing_is_parsed_while_redis_is_away(server):
    server.kill()
    refused = refused_file(store_with(), b"a,b\n1,2,3\n")  # which would be a 422
    assert refused.status == 503
    server.revive()


# --- Settings ---------------------------------------------------------------------------------


def test_the_process_has_one_store_tuned_by_the_settings(settings):
    get_upload_store.cache_clear()
    settings.FILE_DATA_TTL_MINUTES = 5
    assert get_upload_store() is get_upload_store()
    get_upload_store().store_file_data(KEY, "f-1", {"rows": []})
    assert redis_gate.client().ttl(KEY.file("f-1")) <= 300
    get_upload_store.cache_clear()
