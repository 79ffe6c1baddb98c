"""Small files that only their owner may read: secrets, and addresses that hold secrets."""

import os
import secrets
from pathlib import Path

from embedded.exceptions import CannotStart


def make_private_folder(path: Path) -> Path:
    """Make `path` (mode 0700) where it is missing, and return it.

    Raises:
        CannotStart: it can't be made or written to.

    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CannotStart(_unusable(path, error.strerror)) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise CannotStart(_unusable(path, "no permission to write"))
    return path


def write_private(path: Path, text: str) -> None:
    """Put `text` at `path` with mode 0600; readers see the old file or the new one, whole."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def secret_in(path: Path, length_bytes: int = 32) -> str:
    """Return the secret kept at `path`, made at the first call from `length_bytes` random bytes."""
    if path.exists() and (kept := path.read_text().strip()):
        return kept
    made = secrets.token_urlsafe(length_bytes)
    write_private(path, made + "\n")
    return made


def _unusable(path: Path, reason: str | None) -> str:
    return (
        f"The data folder {path} can't be used ({reason}): "
        "make it writable, or set RETHREAD_DATA_DIR to another folder."
    )
