import signal
from pathlib import Path

import pytest

from config.management.commands import release
from embedded import launcher
from embedded.children import Surroundings
from embedded.exceptions import CannotStart
from embedded.launcher import Launcher
from embedded.logs import LogFile
from embedded.programs import Program
from embedded.settings import Settings
from embedded.stack import SERVICES
from embedded.waiting import wait_until
from embedded.welcome import welcome

ELSEWHERE = {service.variable: "elsewhere" for service in SERVICES}


@pytest.fixture
def without_servers(data_dir: Path) -> Launcher:
    return Launcher(Settings("127.0.0.1", 8000, data_dir, {**ELSEWHERE, "PATH": "/usr/bin:/bin"}))


def test_a_command_that_hangs_ends_in_a_sentence(without_servers: Launcher, data_dir: Path) -> None:
    with without_servers._stack, pytest.raises(CannotStart) as refusal:
        without_servers._manage("release", seconds=0.05)
    says = "`manage.py release` took longer than 0.05 s and was ended. Look into "
    assert str(refusal.value).startswith(f"{says}{data_dir}/log/release.log")


def test_a_command_that_fails_ends_in_a_sentence(without_servers: Launcher) -> None:
    with without_servers._stack, pytest.raises(CannotStart) as refusal:
        without_servers._manage("nonsense")
    assert str(refusal.value).startswith("`manage.py nonsense` failed. Look into ")


def test_a_release_may_wait_for_another_and_then_still_work() -> None:
    parser = release.Command().create_parser("manage.py", "release")
    waits = parser.parse_args(launcher._RELEASE[1:]).wait
    assert waits + 600 < launcher._RELEASE_SECONDS


def test_the_password_stands_beside_what_it_is_good_for(tmp_path: Path) -> None:
    text = welcome("http://127.0.0.1:8000", "hunter2", tmp_path)
    pages = next(line for line in text.splitlines() if "Pages" in line)
    assert pages.split() == ["Pages", "http://127.0.0.1:8000/"]
    assert "token for the API as tenant demo, user ana, password hunter2:\n\n  curl" in text


@pytest.mark.parametrize(("slow_after", "told"), [(0.05, True), (60, False)])
def test_who_waits_for_long_for_the_worker_is_told_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    slow_after: float,
    told: bool,
) -> None:
    monkeypatch.setattr(launcher, "_SLOW_STOP_SECONDS", slow_after)
    script = "trap '' TERM; touch ready; sleep 600; sleep 600"
    around = Surroundings(tmp_path, {"PATH": "/usr/bin:/bin"}, LogFile(tmp_path / "it.log"))
    worker = Program("It", ["sh", "-c", script], around, stop_steps=[(signal.SIGTERM, 0.5)])
    worker.revive()
    assert wait_until((tmp_path / "ready").exists, seconds=5)

    launcher._stop_worker(worker)

    assert not worker.is_alive
    assert ("a job that still runs gets 30 s at most" in capsys.readouterr().out) is told
