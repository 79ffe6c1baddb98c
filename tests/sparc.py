"""The 422 conversations of SParC's development set, as threads of this service.

SParC (Yu et al., ACL 2019; CC BY-SA 4.0) is not part of this repository: SPARC_FILE names the
file, one line a conversation: `{"interaction", "database", "turns": [{"query", "sql"}]}`. It has
no answers, so each turn gets a sentence that its question determines.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

Grouping = Literal["database", "conversation"]

_BESIDE_THE_REPOSITORY = Path(__file__).resolve().parents[2] / "shared/data/sparc_dev.jsonl"
FILE = Path(os.environ.get("SPARC_FILE") or _BESIDE_THE_REPOSITORY)
ABSENT = "" if FILE.is_file() else "the SParC conversations are not here: set SPARC_FILE"


@dataclass(frozen=True)
class SparcTurn:
    """One question and the statement that answers it."""

    query: str
    sql: str

    @property
    def answer(self) -> str:
        """A sentence that is always the same for this question."""
        rows = hashlib.sha256(self.query.encode()).digest()[0]
        asked = self.query.strip().rstrip("?.! ")
        return f"There are {rows} rows for “{asked[:1].lower()}{asked[1:]}”."

    @property
    def artifacts(self) -> Sequence[Mapping[str, Any]]:
        """Its statement, as a turn's only artifact."""
        return [{"kind": "sql", "sql": self.sql}]


@dataclass(frozen=True)
class SparcThread:
    """A conversation, or all those about a database, one after the other."""

    name: str
    turns: Sequence[SparcTurn]

    @property
    def id(self) -> uuid.UUID:
        """An id that is always the same for this thread."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"sparc:{self.name}")


@lru_cache(maxsize=2)
def threads(grouping: Grouping) -> Sequence[SparcThread]:
    """Return 20 threads of 6 to 134 turns by database, or 422 of 1 to 5 by conversation."""
    turns: dict[str, list[SparcTurn]] = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        conversation = json.loads(line)
        name = conversation["database"]
        if grouping == "conversation":
            name += f" {conversation['interaction']}"
        turns.setdefault(name, []).extend(SparcTurn(**turn) for turn in conversation["turns"])
    return [SparcThread(f"{grouping} {name}", its_turns) for name, its_turns in turns.items()]
