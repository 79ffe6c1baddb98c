from pathlib import Path

import pytest

from embedded.exceptions import CannotStart
from embedded.settings import Settings, entries_of


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    return tmp_path / ".env"


def read(**environment: str) -> Settings:
    return Settings.from_environment({"RETHREAD_ENV_FILE": "", **environment})


def test_defaults_are_loopback_and_8000() -> None:
    assert read().address == "http://127.0.0.1:8000"


@pytest.mark.parametrize("port", ["eighty", "0", "65536", "-1"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    with pytest.raises(CannotStart, match=f"PORT is '{port}': set it to a number from 1 to 65535"):
        read(PORT=port)


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),  # noqa: S104 - an input
        ("::1", "http://[::1]:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_the_address_is_one_that_a_browser_can_open(host: str, address: str) -> None:
    assert read(HOST=host).address == address


def test_the_environment_wins_over_the_file(env_file: Path) -> None:
    env_file.write_text("PORT=9000\nHOST=::1\n")
    settings = read(RETHREAD_ENV_FILE=str(env_file), PORT="9001")
    assert (settings.host, settings.port) == ("::1", 9001)


def test_a_file_may_hold_comments_quotes_and_exports(env_file: Path) -> None:
    env_file.write_text("# about\nexport A=1\nB='two words'\nC=\"x=y\"\nD=\n\nnonsense\n")
    assert entries_of(env_file) == {"A": "1", "B": "two words", "C": "x=y", "D": ""}
