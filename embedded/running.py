"""How a ``manage.py`` command finds the servers of a ``make up`` that runs beside it.

The launcher writes its settings to `running.env` in the data folder and removes them when it
stops. What a killed launcher left there is not believed.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from embedded.private import write_private
from embedded.proc import is_alive, own_identity

REPOSITORY = Path(__file__).resolve().parent.parent
_PID, _STARTED = "LAUNCHER_PID", "LAUNCHER_STARTED"


def data_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the data folder: RETHREAD_DATA_DIR, counted from the repository, or `.data` there."""
    return REPOSITORY / (environment.get("RETHREAD_DATA_DIR") or ".data")


def running_environment(data_dir: Path) -> dict[str, str]:
    """Return the settings of the launcher that runs on `data_dir` now.

    For example ``{"DATABASE_URL": "postgres://...", "SECRET_KEY": "..."}``; empty where none
    runs, or where its file is not ours to read.
    """
    with suppress(OSError):
        lines = _file(data_dir).read_text().splitlines()
        settings = dict(line.split("=", 1) for line in lines if "=" in line)
        pid, started = settings.pop(_PID, ""), settings.pop(_STARTED, "")
        if pid.isdigit() and is_alive(int(pid), started):
            return settings
    return {}


def announce(data_dir: Path, settings: Mapping[str, str]) -> None:
    """Publish `settings` for as long as this process lives, or until `withdraw`."""
    pid, started = own_identity()
    entries = {_PID: str(pid), _STARTED: started, **settings}
    write_private(_file(data_dir), "".join(f"{key}={entries[key]}\n" for key in entries))


def withdraw(data_dir: Path) -> None:
    """Undo `announce`."""
    _file(data_dir).unlink(missing_ok=True)


def _file(data_dir: Path) -> Path:
    return data_dir / "running.env"
