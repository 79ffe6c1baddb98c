"""The one DynamoDB client: made once, bounded in time, with made-up keys only on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from config import dynamodb


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def key_of_client() -> str | None:
    credentials = dynamodb.client()._request_signer._credentials
    return credentials and credentials.access_key


def test_all_threads_share_one_client() -> None:
    with ThreadPoolExecutor(8) as pool:
        clients = list(pool.map(lambda _: dynamodb.client(), range(32)))

    assert len({id(client) for client in clients}) == 1


def test_importing_makes_no_client() -> None:
    dynamodb.forget_client()

    assert dynamodb._client is None


def test_a_forked_process_makes_its_own() -> None:
    dynamodb.client()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, b"none" if dynamodb._client is None else b"parent's")
        os._exit(0)
    os.waitpid(child, 0)

    assert os.read(read, 10) == b"none"


def test_every_wait_is_bounded() -> None:
    config = dynamodb.client().meta.config

    assert (config.connect_timeout, config.read_timeout) == (1, 2)
    assert config.retries["total_max_attempts"] == 3


def test_region_and_endpoint_are_those_of_the_settings(settings: Any) -> None:
    settings.AWS_REGION = "eu-central-1"
    dynamodb.forget_client()

    meta = dynamodb.client().meta

    assert (meta.region_name, meta.endpoint_url) == (
        "eu-central-1",
        settings.DYNAMODB_ENDPOINT_URL,
    )


def test_without_an_endpoint_it_is_aws_itself(use_dynamodb: Callable[[str], None]) -> None:
    use_dynamodb("")

    assert ".amazonaws.com" in dynamodb.client().meta.endpoint_url


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_a_server_on_this_machine_needs_no_credentials(
    no_credentials: None, use_dynamodb: Callable[[str], None], host: str
) -> None:
    use_dynamodb(f"http://{host}:8000")

    assert key_of_client() == "rethread"


@pytest.mark.parametrize(
    "url", ["", "http://dynamodb:8000", "http://10.0.0.1:8000", "http://127.0.0.1.example.org"]
)
def test_any_other_server_is_never_given_made_up_credentials(
    no_credentials: None, use_dynamodb: Callable[[str], None], url: str
) -> None:
    use_dynamodb(url)

    assert key_of_client() is None


def test_credentials_of_the_environment_win(
    no_credentials: None, use_dynamodb: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    use_dynamodb("http://127.0.0.1:8000")

    assert key_of_client() == "mine"


def test_a_server_that_answers_is_reachable() -> None:
    assert dynamodb.is_reachable()


def test_a_server_that_is_away_is_not(
    use_dynamodb: Callable[[str], None], closed_port: int
) -> None:
    use_dynamodb(f"http://127.0.0.1:{closed_port}")

    assert not dynamodb.is_reachable()


def test_a_server_that_hangs_costs_no_more_than_its_attempts(
    use_dynamodb: Callable[[str], None], silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamodb, "READ_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(dynamodb, "ATTEMPTS", 1)
    use_dynamodb(f"http://127.0.0.1:{silent_port}")
    dynamodb.client()  # reading boto3's own files takes a busy machine longer than all the rest
    started = time.monotonic()

    assert not dynamodb.is_reachable()
    assert time.monotonic() - started < 1.5


def test_missing_credentials_are_not_reachable(
    no_credentials: None, use_dynamodb: Callable[[str], None]
) -> None:
    use_dynamodb("")

    assert not dynamodb.is_reachable()


def test_an_address_that_is_none_is_not_reachable(use_dynamodb: Callable[[str], None]) -> None:
    use_dynamodb("not an address")

    assert not dynamodb.is_reachable()
