"""What Django would misread is refused, and what is refused is read to its end."""

import io
import uuid

import pytest
from django.test import Client, RequestFactory

from config.middleware import drain
from rbac.models import User


def test_a_trailing_slash_does_not_matter(client: Client) -> None:
    with_slash = client.get("/api/v1/me/")

    assert with_slash.status_code == client.get("/api/v1/me").status_code == 401


def test_a_refused_body_is_read_to_its_end() -> None:
    body = io.BytesIO(b"a" * 200_000)
    request = RequestFactory().generic("PUT", "/", CONTENT_LENGTH=str(200_000))
    request._stream = body  # type: ignore[attr-defined]

    drain(request, 1_000_000)

    assert body.read() == b""


def test_no_more_is_read_than_the_bound() -> None:
    body = io.BytesIO(b"a" * 1_000_000)
    request = RequestFactory().generic("PUT", "/", CONTENT_LENGTH=str(1_000_000))
    request._stream = body  # type: ignore[attr-defined]

    drain(request, 100_000)

    assert len(body.read()) > 800_000


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address",
    [
        "rbac/user/?role__exact=%00", "rbac/user/?user_id=%00", "rbac/user/?role__in=%00",
        "rbac/authtoken/?user__role__exact=%00", "rbac/authtoken/%00/change/",
    ],
)  # fmt: skip
def test_a_nul_in_a_page_of_the_admin_is_no_fault_of_ours(client: Client, address: str) -> None:
    boss = User.objects.create_user("default", f"boss-{uuid.uuid4()}", role="admin")
    boss.is_superuser = True
    boss.save()
    client.force_login(boss)

    assert client.get(f"/admin/{address}").status_code in {200, 302, 400, 404}


def test_the_title_of_a_refused_verb_is_plain(client: Client) -> None:
    assert client.post("/api/v1/me").json()["title"] in {"Unauthorized", "Method Not Allowed"}
