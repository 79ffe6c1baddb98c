"""Servers for one command or one test run, on data that goes away with them.

What the developer's own environment, `.env` file or running launcher name is never touched.
"""

import fcntl
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from embedded.services import DynamoDB
from embedded.stack import Stack

_PREFIX = "rethread-"
_LEFT_OVER_AFTER_SECONDS = 60
# A key or endpoint of the developer's must never make a test talk to a vendor.
_VENDORS = ("LANGFUSE_", "OPENAI_")
_CREDENTIALS = ("AWS_",)


@contextmanager
def throwaway_environment(
    given: Mapping[str, str] | None = None, *, durable: bool
) -> Iterator[dict[str, str]]:
    """Give a whole environment that points at servers made for it, and remove them afterwards.

    Args:
        given: settings of servers to use instead, for example ``{"REDIS_URL": ...}``.
        durable: whether acknowledged writes reach the disk.

    Raises:
        CannotStart: a server can't be started.

    """
    given = dict(given or {})
    _remove_left_overs()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        with Stack(folder, skip=given, durable=durable) as own:
            hidden = _VENDORS if DynamoDB.variable in given else _VENDORS + _CREDENTIALS
            kept = {key: os.environ[key] for key in os.environ if not key.startswith(hidden)}
            yield {**kept, **_isolation(folder), **given, **own}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _isolation(folder: Path) -> dict[str, str]:
    return {
        "RETHREAD_DATA_DIR": str(folder),
        "RETHREAD_ENV_FILE": "",
        "SECRET_KEY": secrets.token_urlsafe(48),
    }


def _remove_left_overs() -> None:
    """Remove the folders of runs that were killed: old ones that nobody holds the lock of."""
    for lock in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/lock"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > _LEFT_OVER_AFTER_SECONDS and _unheld(lock):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _unheld(lock: Path) -> bool:
    with lock.open() as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
