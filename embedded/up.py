"""``python -m embedded.up`` (``make up``): the whole product on this machine until Ctrl-C.

In this order: embedded servers, ``manage.py release``, worker, web, the demo person. They stop
in the opposite order, and whatever kills this process ends all of them within moments.
"""

import os
import sys
from contextlib import ExitStack

from embedded.exceptions import CannotStart
from embedded.launcher import Launcher, say
from embedded.settings import Settings
from embedded.signals import stop_on_signals


def main() -> int:
    """Serve until asked to stop; return the exit status."""
    stop_on_signals()
    try:
        with ExitStack() as exits:
            launcher = Launcher(Settings.from_environment(os.environ))
            launcher.start(exits)
            launcher.look_after()
    except CannotStart as error:
        print(f"\n{error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        say("Stopped.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
