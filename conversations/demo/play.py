"""The agent of the demo: it queries, answers, and leaves its memory to Rethread."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from conversations.conversation_memory import get_conversation_memory
from conversations.demo import sales
from conversations.demo.client import Client
from conversations.demo.script import Step

# More than the whole conversation takes.
_WHOLE = 8_000
FOCUSES = ("brief", "sql", "visualizations")
MARK = {"demo": "rethread"}

_LOOK_EVERY_SECONDS = 0.2
_BETWEEN_TURNS = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class Told:
    """A turn as it was stored, for people to see."""

    position: int
    query: str
    answer: str
    status: str
    built: Sequence[str]


@dataclass(slots=True)
class Analyst:
    """One thread of one person, played step by step."""

    client: Client
    user_id: str
    thread_id: uuid.UUID = field(default_factory=uuid.uuid4)

    def forget_earlier_demos(self) -> int:
        """Delete the person's threads of earlier demos; return how many."""
        query = {"user_id": self.user_id, "archived": "all", "metadata.demo": MARK["demo"]}
        found = self.client.call("GET", "threads", **query)["results"]
        for thread in found:
            self.client.call("DELETE", f"threads/{thread['thread_id']}", user_id=self.user_id)
        return len(found)

    def play(self, steps: Sequence[Step], begin: datetime | None = None) -> Iterator[Told]:
        """Play the steps as turns, two minutes apart from `begin` on, or now."""
        for number, step in enumerate(steps):
            turn_id = uuid.uuid4()
            at = (begin + number * _BETWEEN_TURNS).isoformat() if begin else None
            yield self._put(step, turn_id, {"created_at": at})
            if step.then:
                yield self._put(step.then, turn_id, {"created_at": at, "revision": 1})

    def view(self, focus: str, token_budget: int) -> dict[str, Any]:
        """Return the thread's context view."""
        query = {"user_id": self.user_id, "focus": focus, "token_budget": token_budget}
        view: dict[str, Any] = self.client.call("GET", f"threads/{self.thread_id}/context", **query)
        return view

    def warm_and_cold(self, focus: str, token_budget: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the view from the copy in Redis, and again once that has been taken away.

        Raises `config.redis.RedisUnavailable`.
        """
        self.view(focus, token_budget)  # the first reader fills the copy
        warm = self.view(focus, token_budget)
        get_conversation_memory().drop(self.thread_id)
        return warm, self.view(focus, token_budget)

    def whole_view(self) -> dict[str, Any]:
        """Return the sql view with room for everything."""
        return self.view("sql", _WHOLE)

    def view_once_folded(self, seconds: float) -> dict[str, Any] | None:
        """Wait so long for a worker's fold; return the whole view then, None where none came."""
        until = time.monotonic() + seconds
        while not (view := self.whole_view())["folded_through"]:
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK_EVERY_SECONDS)
        return view

    def _mark(self) -> None:
        """Have the thread found by the next demo, which takes its place."""
        body = {"user_id": self.user_id, "metadata": MARK}
        self.client.call("PATCH", f"threads/{self.thread_id}", body)

    def _put(self, step: Step, turn_id: uuid.UUID, more: Mapping[str, Any]) -> Told:
        turn = turn_of(step)
        body = {"user_id": self.user_id, **turn, **more}
        path = f"threads/{self.thread_id}/turns/{turn_id}"
        stored = self.client.call("PUT", path, body)
        if stored["position"] == 1:
            self._mark()
        built = [_named(artifact) for artifact in turn["artifacts"]]
        return Told(stored["position"], step.query, turn["answer"], stored["status"], built)


def three_days_ago() -> datetime:
    """Return when the first morning is."""
    return datetime.now(UTC).replace(microsecond=0) - timedelta(days=3)


def turn_of(step: Step) -> dict[str, Any]:
    """Run the step's query and return the turn's body, its answer filled in."""
    turn: dict[str, Any] = {
        "query": step.query,
        "agent_type": step.agent_type,
        "status": step.status,
        "waiting_for": step.waiting_for,
    }
    try:
        result = sales.run(step.sql) if step.sql else None
    except sales.QueryFailed as error:
        failed = {"error_code": error.code, "response_payload": {"error": str(error)}}
        return {**turn, **failed, "answer": step.answer, "artifacts": _artifacts(step, None)}
    figures = result.figures() if result else {}
    payload = result.payload() if result else None
    if payload and step.chart:
        payload["charts"] = [{"spec": _vega_lite(step.chart)}]
    return {
        **turn,
        "answer": step.answer.format(**figures),
        "artifacts": _artifacts(step, result),
        "response_payload": payload,
    }


def _artifacts(step: Step, result: sales.Result | None) -> list[dict[str, Any]]:
    built: list[dict[str, Any]] = []
    if step.sql:
        table = {"columns": result.columns, "row_count": len(result.rows)} if result else {}
        built.append({"kind": "sql", "sql": step.sql, "title": step.title, **table})
    if step.chart:
        where = {"data": 1, "spec_path": "/charts/0/spec"}
        built.append({"kind": "chart", "title": step.title, **step.chart, **where})
    return [*built, *map(dict, step.made)]


def _vega_lite(chart: Mapping[str, Any]) -> dict[str, Any]:
    if chart["chart_type"] == "pie":
        encoding = {"theta": {"field": chart["y"][0]}, "color": {"field": chart["x"]}}
        return {"mark": "arc", "encoding": encoding}
    encoding = {"x": {"field": chart["x"]}, "y": {"field": chart["y"][0]}}
    if len(chart["y"]) > 1:
        encoding = {"x": {"field": chart["x"]}, "y": {"field": "value"}}
        fold = [{"fold": chart["y"], "as": ["measure", "value"]}]
        offset = {"xOffset": {"field": "measure"}, "color": {"field": "measure"}}
        return {"transform": fold, "mark": "bar", "encoding": {**encoding, **offset}}
    if series := chart.get("series"):
        encoding["color"] = {"field": series}
    return {"mark": chart["chart_type"], "encoding": encoding}


def _named(artifact: Mapping[str, Any]) -> str:
    name = artifact.get("title") or artifact.get("term") or artifact.get("name")
    return f"{artifact['kind']} “{name}”"
