"""The names of a session's keys: one slot, and never two sessions under one name."""

from __future__ import annotations

import re

import pytest

from conversations.session_keys import ID_MAX_CHARS, BadId, SessionKey, checked_id

PLAIN = SessionKey("default", "s-81")
TENANTS = SessionKey("acme", "s-81")


def names(key):
    return [
        key.session,
        key.checkpoint,
        key.active_file,
        key.file_index,
        key.file("f-1"),
        key.unfinished_file("ab12"),
    ]


def test_the_default_tenants_keys_are_the_references_with_the_id_in_braces():
    assert names(PLAIN)[:3] == ["session:{s-81}", "checkpoint:{s-81}", "file:active:{s-81}"]
    assert PLAIN.file("f-1") == "file:{s-81}:f-1"


def test_other_tenants_keys_carry_the_tenant():
    assert TENANTS.session == "session:{acme#s-81}"
    assert TENANTS.file("f-1") == "file:{acme#s-81}:f-1"


def test_all_keys_of_a_session_share_a_hash_tag():
    assert {re.search(r"\{(.*?)\}", name)[1] for name in names(TENANTS)} == {"acme#s-81"}


def test_a_files_key_begins_with_what_the_keys_of_all_files_do():
    assert TENANTS.file("f-1").startswith(TENANTS.files)


def test_no_two_names_of_a_session_are_one():
    assert len(set(names(PLAIN))) == len(names(PLAIN))


def test_ids_may_hold_colons_without_meeting_others():
    keys = [
        SessionKey("default", "a").file("b:c"),
        SessionKey("default", "a:b").file("c"),
        SessionKey("default", "active").file("a"),
        SessionKey("default", "a").active_file,
        SessionKey("default", "index").file("a"),
        SessionKey("default", "new").file("a"),
    ]
    assert len(set(keys)) == len(keys)


def test_a_tenant_can_not_be_written_into_an_id_of_the_default_tenant():
    with pytest.raises(BadId):
        _ = SessionKey("default", "acme#s-81").session


@pytest.mark.parametrize(
    "bad",
    [
        *("", " ", ".", "..", "a b ", "a{b", "a}b", "a#b", "a/b", "a\x00b", "a\nb", "a\ud800b"),
        *(1, None, "x" * (ID_MAX_CHARS + 1)),
    ],
)
def test_ids_that_can_not_be_told_apart_or_end_a_tag_are_refused(bad):
    with pytest.raises(BadId) as refused:
        checked_id("session_id", bad)
    assert (refused.value.status, refused.value.code) == (422, "bad_id")
    assert list(refused.value.errors) == ["session_id"]


@pytest.mark.parametrize("good", ["s-81", "a:b", "señora", "x" * ID_MAX_CHARS, "a b", "[1]*?"])
def test_other_ids_stay_as_they_are(good):
    assert checked_id("session_id", good) == good


def test_every_name_is_refused_with_a_bad_id():
    for name in ("session", "checkpoint", "active_file", "file_index", "files"):
        with pytest.raises(BadId):
            getattr(SessionKey("default", "a{b"), name)


def test_a_bad_file_id_is_refused():
    with pytest.raises(BadId):
        PLAIN.file("f}1")


def test_a_tenant_that_can_not_be_one_is_refused():
    with pytest.raises(BadId):
        _ = SessionKey("a:b", "s-81").session


def test_two_installations_on_one_redis_keep_apart_by_a_prefix(settings):
    settings.SESSION_KEY_PREFIX = "staging:"
    assert PLAIN.session == "staging:session:{s-81}"
    assert PLAIN.file("f-1") == "staging:file:{s-81}:f-1"
