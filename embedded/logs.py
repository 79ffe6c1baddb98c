"""Log files of children: appended to, bounded in size, quoted in errors."""

from pathlib import Path
from typing import IO

KEPT_BYTES = 5_000_000


class LogFile:
    """One child's output on disk, with one older part beside it (`name.log.1`)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.bound()
        self._start = self._size()

    def bound(self) -> None:
        """Move what has been written to the older part once it is above `KEPT_BYTES`.

        Children append, so one that is writing goes on at the start of the emptied file.
        """
        if self._size() > KEPT_BYTES:
            older = self.path.with_name(self.path.name + ".1")
            older.write_bytes(self.path.read_bytes()[-KEPT_BYTES:])
            with self.path.open("r+b") as file:
                file.truncate(0)

    def open(self) -> IO[bytes]:
        """Open for a child that starts now; `recent` counts from here."""
        self._start = self._size()
        return self.path.open("ab")

    def recent(self) -> str:
        """Return what has been written since `open`, at most its last 64 kB."""
        size = self._size()
        with self.path.open("rb") as file:
            file.seek(max(min(self._start, size), size - 65_536))
            return file.read().decode(errors="replace")

    def last_lines(self, count: int = 8) -> str:
        """Return the last `count` lines since `open`, indented, for an error's text."""
        lines = [line for line in self.recent().splitlines() if line.strip()][-count:]
        return "\n".join(f"    {line}" for line in lines) or "    (it wrote nothing)"

    def _size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0
