import os
import tempfile
from pathlib import Path

import pytest

from embedded.lock import DataLock
from embedded.stack import SERVICES
from embedded.throwaway import throwaway_environment

NO_SERVERS = {service.variable: "elsewhere" for service in SERVICES}
LONG_AGO = (0, 0)


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_given_servers_are_used_instead() -> None:
    with throwaway_environment(NO_SERVERS, durable=False) as environment:
        assert {name: environment[name] for name in NO_SERVERS} == NO_SERVERS


def test_credentials_stay_with_a_given_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    with throwaway_environment(NO_SERVERS, durable=False) as environment:
        assert environment["AWS_ACCESS_KEY_ID"] == "AKIA"


def test_what_a_killed_run_left_is_removed(temporary: Path) -> None:
    left = temporary / "rethread-left"
    with DataLock(left):
        pass
    os.utime(left / "lock", LONG_AGO)
    with throwaway_environment(NO_SERVERS, durable=False):
        assert not left.exists()


def test_what_another_run_uses_stays(temporary: Path) -> None:
    used = temporary / "rethread-used"
    with DataLock(used):
        os.utime(used / "lock", LONG_AGO)
        with throwaway_environment(NO_SERVERS, durable=False):
            assert used.exists()
