"""Which names are refused, at the door and by the database."""

from __future__ import annotations

import unicodedata
import uuid

import pytest
from django.db import DatabaseError, connection, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rbac import names
from rbac.models import User

GOOD = [
    "ana", "Ana", "ANA", "a", "ana@acme.example", "auth0|5f7c", "arn:aws:iam::1:user", "Ana Núñez",
    "山田", "a b", "*", "{x}", "a%2Fb", "a?b", "ana.", "...", "system1", "a" * 128, "🙂", "a\\b",
]  # fmt: skip
BAD = [
    "", " ", " ana", "ana ", "\u00a0ana", "ana\u3000", "a#b", "#", "a/b", "/", ".", "..", "a\nb",
    "a\tb", "a\x7fb", "a\x85b", "a\x9fb", "a\u200bb", "a\u202eb", "a\u2028b", "\ufeffana",
    "a\ufffdb", "SYSTEM", "system", "SyStEm", "a" * 129,
]  # fmt: skip
NOT_TEXT = ["a\x00b", "\ud800", "a\udfffb"]
BAD_TENANT = ["a:b", "{a}", "a*", "a?", "[a]", "a\\b"]


@pytest.mark.parametrize("name", GOOD)
def test_good_user_ids_are_kept_as_they_are(name: str) -> None:
    assert names.user_id(name) == name


@pytest.mark.parametrize("name", BAD + NOT_TEXT)
def test_bad_names_are_refused_with_a_reason(name: str) -> None:
    for check in (names.user_id, names.tenant):
        with pytest.raises(names.BadName, match=r"\w"):
            check(name)


@pytest.mark.parametrize("name", BAD_TENANT)
def test_what_has_a_meaning_in_redis_keys_is_refused_in_tenants_only(name: str) -> None:
    assert names.user_id(name) == name
    with pytest.raises(names.BadName):
        names.tenant(name)


def test_names_are_brought_to_one_unicode_form() -> None:
    assert names.user_id("Jose\u0301") == "Jos\u00e9"
    assert names.user_id("ana") != names.user_id("Ana")


def test_normalising_can_not_smuggle_anything_past_the_check() -> None:
    # U+0340 and U+0341 decompose; U+FB1D grows under NFC
    with pytest.raises(names.BadName):
        names.user_id("\ufb1d" * 100)


def test_the_length_is_checked_before_a_megabyte_is_normalised() -> None:
    with pytest.raises(names.BadName, match="128"):
        names.user_id("é" * 1_000_000)


@pytest.mark.parametrize(
    ("username", "parts"),
    [
        ("ana", ("default", "ana")),
        ("acme/ana", ("acme", "ana")),
        ("default/ana", ("default", "ana")),
    ],
)
def test_a_username_is_split(username: str, parts: tuple[str, str]) -> None:
    assert names.split(username) == parts


@pytest.mark.parametrize("username", ["", "/", "acme/", "/ana", "acme/ana/x", "a#b/ana"])
def test_a_username_that_names_nobody_is_refused(username: str) -> None:
    with pytest.raises(names.BadName):
        names.split(username)


def _insert(tenant: str, user_id: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO rbac_user (id, password, is_superuser, tenant, user_id, role, is_active,"
            " created_at) VALUES (%s, '', false, %s, %s, 'user', true, now())",
            [uuid.uuid4(), tenant, user_id],
        )


@pytest.mark.parametrize("name", BAD)
def test_the_database_refuses_bad_names_too(db: None, name: str) -> None:
    for row in ((name, "ana"), ("acme", name)):
        with pytest.raises(DatabaseError):
            _insert(*row)


@pytest.mark.parametrize("name", BAD_TENANT)
def test_the_database_refuses_bad_tenants_too(db: None, name: str) -> None:
    with pytest.raises(DatabaseError, match="rbac_user_tenant_is_name"):
        _insert(name, "ana")


def test_the_database_refuses_other_unicode_forms(db: None) -> None:
    with pytest.raises(DatabaseError, match="rbac_user_user_id_is_name"):
        _insert("acme", unicodedata.normalize("NFD", "José"))


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(max_size=140))
def test_what_the_door_lets_in_the_database_takes(db: None, text: str) -> None:
    try:
        name = names.user_id(text)
    except names.BadName:
        return
    User.objects.named("acme", name).delete()
    _insert("acme", name)
    assert User.objects.person("acme", text).user_id == name


def test_two_pairs_that_would_join_to_one_key_can_not_both_exist(db: None) -> None:
    for tenant, user_id in (("A#B", "C"), ("A", "B#C"), ("A/B", "C"), ("A", "B/C")):
        with pytest.raises(names.BadName):
            User.objects.create_user(tenant, user_id)


def test_upper_and_lower_case_are_different_people(db: None) -> None:
    lower = User.objects.create_user("acme", "ana")
    upper = User.objects.create_user("acme", "ANA")
    assert User.objects.person("acme", "ana") == lower != upper
