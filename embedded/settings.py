"""What ``make up`` can be told through the environment or a `.env` file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from embedded.exceptions import CannotStart
from embedded.running import REPOSITORY, data_folder

_ENTRY = re.compile(r"^\s*(?:export\s+)?(\w+)\s*=\s*(.*?)\s*$")
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - read, not bound to


@dataclass(frozen=True)
class Settings:
    """Where to serve and where to keep data; `environment` is what the programs are given."""

    host: str
    port: int
    data_dir: Path
    environment: Mapping[str, str]

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Self:
        """Read HOST, PORT and RETHREAD_DATA_DIR; `environment` wins over the `.env` file.

        Raises:
            CannotStart: PORT is no port.

        """
        file = environment.get("RETHREAD_ENV_FILE", str(REPOSITORY / ".env"))
        merged = {**entries_of(Path(file)), **environment}
        port = merged.get("PORT") or "8000"
        if not port.isdigit() or not 0 < int(port) < 65_536:
            raise CannotStart(f"PORT is {port!r}: set it to a number from 1 to 65535.")
        return cls(merged.get("HOST") or "127.0.0.1", int(port), data_folder(merged), merged)

    @property
    def reachable_host(self) -> str:
        """A host of this machine under which the server answers."""
        return _ANY_ADDRESS.get(self.host, self.host)

    @property
    def address(self) -> str:
        """The server's address for people, without a slash at its end."""
        host = self.reachable_host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


def entries_of(env_file: Path) -> dict[str, str]:
    """Return the ``NAME=value`` lines of a `.env` file, unquoted; nothing where it is absent."""
    if not env_file.is_file():
        return {}
    found = (_ENTRY.match(line) for line in env_file.read_text().splitlines())
    return {entry[1]: _unquoted(entry[2]) for entry in found if entry}


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "'\""
    return value[1:-1] if is_quoted else value
