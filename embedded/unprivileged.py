"""PostgreSQL refuses to run as root: how root starts it as somebody else."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from embedded.exceptions import CannotStart

NOBODY = 65534
_IN_NAMESPACE = ("unshare", "--user", f"--map-user={NOBODY}", f"--map-group={NOBODY}")
_AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


@dataclass(frozen=True)
class Identity:
    """A command prefix that changes the user, and whether files must then change owner."""

    prefix: tuple[str, ...] = ()
    owns_files: bool = False

    def give(self, folder: Path) -> None:
        """Hand `folder` and what is in it to this identity, where it needs that."""
        if self.owns_files:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


@cache
def namespaces_work() -> bool:
    """Return whether this process may make a user namespace."""
    if shutil.which(_IN_NAMESPACE[0]) is None:
        return False
    return (
        subprocess.run([*_IN_NAMESPACE, "true"], capture_output=True, check=False).returncode == 0
    )


def identity_for(data: Path, binaries: Path) -> Identity:
    """Return how this process runs the programs in `binaries` on the files in `data`.

    An ordinary user changes nothing. Root becomes nobody inside a user namespace, where root's
    own files count as nobody's; where namespaces are blocked root becomes nobody for real, which
    only works on paths that are open to everybody.

    Raises:
        CannotStart: root, no user namespaces, and a path that nobody can't reach.

    """
    if os.geteuid() != 0:
        return Identity()
    if namespaces_work():
        return Identity(_IN_NAMESPACE)
    for path in (data.parent, binaries):
        if not _open_to_nobody(path):
            raise CannotStart(
                f"PostgreSQL does not run as root, and user namespaces are blocked here: "
                f"open {path} to other users, run this as an ordinary user, or set DATABASE_URL."
            )
    return Identity(_AS_NOBODY, owns_files=True)


def _open_to_nobody(path: Path) -> bool:
    command = [*_AS_NOBODY, "test", "-x", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
