"""Stands between the launcher and one of its programs, and ends the program's whole group.

Run as ``python keeper.py COMMAND...`` by `embedded.children.Group`, in a session of its own.
The kernel sends it SIGHUP when the launcher dies.
"""

import os
import signal
import subprocess
import sys
from types import FrameType


def _kill_group(_number: int, _frame: FrameType | None) -> None:
    os.killpg(0, signal.SIGKILL)


def main(command: list[str]) -> int:
    """Run `command` to its end and return its exit status, as a shell would."""
    signal.signal(signal.SIGHUP, _kill_group)
    # Until the child can take them, a request to stop must not end the keeper alone.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    child = subprocess.Popen(command, preexec_fn=_unblock)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _frame: child.send_signal(received))
    _unblock()
    status = child.wait()
    return 128 - status if status < 0 else status


def _unblock() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
