"""``python -m embedded.run -- COMMAND...`` runs a command on servers of its own.

They hold no data at first, keep what they acknowledge as in ``make up``, and are gone
afterwards. Benchmarks use it.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from embedded.children import Group, Surroundings
from embedded.exceptions import CannotStart
from embedded.signals import stop_on_signals
from embedded.throwaway import throwaway_environment

_STOP_SECONDS = 10


def main(arguments: Sequence[str], given: Mapping[str, str] | None = None) -> int:
    """Run the command in `arguments` and return its exit status.

    `given` are settings of servers to use instead, for example ``{"REDIS_URL": ...}``.
    """
    command = [word for word in arguments[:1] if word != "--"] + list(arguments[1:])
    if not command:
        print("Say what to run: python -m embedded.run -- COMMAND...", file=sys.stderr)
        return 2
    try:
        return _run(command, given)
    except CannotStart as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _run(command: Sequence[str], given: Mapping[str, str] | None) -> int:
    stop_on_signals()
    with throwaway_environment(given, durable=True) as environment:
        child = Group(command, Surroundings(Path.cwd(), environment, log=None))
        try:
            return child.wait()
        finally:
            child.stop([(signal.SIGTERM, _STOP_SECONDS)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
