"""The site's own pages, and the policy that they are served under."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

ADDRESSES = ["/", "/api/docs/", "/health/?format=html"]
INLINE = re.compile(
    r"<script(?![^>]*\ssrc=)[^>]*>|<style|\sstyle=|\son[a-z]+=|javascript:", re.IGNORECASE
)


@pytest.fixture(params=ADDRESSES)
def page(request: pytest.FixtureRequest, client: Client, db: None) -> Any:
    return client.get(request.param)


def test_the_front_page_leads_to_everything(client: Client) -> None:
    text = client.get("/").text

    for address in (reverse("api-docs"), reverse("health"), reverse("admin:index")):
        assert f'href="{address}"' in text


def test_nothing_on_a_page_is_inline(page: Any) -> None:
    assert not INLINE.search(page.text)


def test_nothing_on_a_page_comes_from_elsewhere(page: Any) -> None:
    sources = re.findall(r'(?:src|href)="([^"]*)"', page.text)

    assert sources
    assert all(not source.startswith(("http:", "https:", "//")) for source in sources)


def test_the_policy_lets_nothing_else_in(page: Any) -> None:
    policy = page["Content-Security-Policy"]

    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_a_page_has_landmarks_a_language_and_one_heading_at_most(page: Any) -> None:
    assert '<html lang="en">' in page.text
    assert "<main" in page.text
    assert "<header" in page.text
    assert "<nav aria-label=" in page.text
    assert page.text.count("<h1") <= 1


def test_a_page_fits_small_screens(page: Any) -> None:
    assert 'name="viewport" content="width=device-width' in page.text


def test_the_documentation_s_script_names_our_schema(client: Client) -> None:
    address = re.search(r'<script src="(/api/docs/[^"]*)"', client.get("/api/docs/").text)
    assert address

    script = client.get(address[1])

    assert script["Content-Type"].startswith("application/javascript")
    assert reverse("schema") in script.text


def test_the_documentation_needs_no_login_even_with_a_bad_token(client: Client) -> None:
    answer = client.get("/api/docs/", headers={"authorization": "Token no-such-token"})

    assert answer.status_code == 200


def test_the_documentation_s_library_is_installed() -> None:
    assert "drf_spectacular_sidecar" in settings.INSTALLED_APPS


@pytest.mark.parametrize("address", ["/", "/health/live", "/health/", "/metrics"])
def test_pages_can_only_be_read(client: Client, address: str) -> None:
    assert client.post(address).status_code == 405
