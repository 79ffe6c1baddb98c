"""GET /me."""

from __future__ import annotations

from rest_framework.test import APIClient

from tests.rbac.conftest import Bearer


def test_it_says_who_is_calling(bi: Bearer, ana_bearer: Bearer) -> None:
    assert bi.api.get("/api/v1/me").json() == {"tenant": "acme", "user_id": "bi", "role": "agent"}
    assert ana_bearer.api.get("/api/v1/me").json() == {
        "tenant": "acme", "user_id": "ana", "role": "user",
    }  # fmt: skip


def test_it_needs_somebody(api: APIClient) -> None:
    assert api.get("/api/v1/me").status_code == 401


def test_it_is_only_read(bi: Bearer) -> None:
    for call in (bi.api.post, bi.api.put, bi.api.patch, bi.api.delete):
        assert call("/api/v1/me").status_code == 405
