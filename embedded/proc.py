"""Who a process id belongs to, as Linux tells it under /proc."""

import os
from pathlib import Path

_STATE, _START_TIME = 0, 19  # proc(5): fields 3 and 22, counted behind the command's bracket


def start_time(pid: int) -> str | None:
    """Return when process `pid` started, in clock ticks since boot; None if it has ended.

    A process id together with its start time names one process for good, a bare id does not.
    A zombie counts as ended.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[_STATE] in "ZX" else fields[_START_TIME]


def own_identity() -> tuple[int, str]:
    """Return this process's id and start time."""
    return os.getpid(), start_time(os.getpid()) or ""


def is_alive(pid: int, started: str) -> bool:
    """Return whether the process that had this id and start time still runs."""
    return start_time(pid) == started


def works_in(pid: int, folder: Path) -> bool:
    """Return whether process `pid` runs with `folder` as its working directory."""
    try:
        return Path(f"/proc/{pid}/cwd").samefile(folder)
    except OSError:
        return False
