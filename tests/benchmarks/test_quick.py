"""The smallest run of each benchmark that needs no site of its own, so that none of them rots."""

from __future__ import annotations

import json
import socketserver
import threading
from pathlib import Path
from typing import Any

import pytest

from benchmarks import in_process, lengths, material, report, rows, sizes
from benchmarks.bench import Bench, Scale
from benchmarks.load import Client, Job
from benchmarks.report import Line
from benchmarks.rounds import Sides
from conversations.models import DatabaseEpoch

TINY = Scale(rounds=1, calls=2, lengths=(3, 50), stored=20)


@pytest.fixture
def bench(transactional_db: None) -> Bench:
    DatabaseEpoch.objects.get_or_create(id=1)
    return Bench(TINY)


@pytest.mark.parametrize("row", [in_process.append, in_process.context, sizes.measure])
def test_rows_give_a_figure_and_a_goal(bench: Bench, row: Any) -> None:
    lines = list(row(bench))
    assert lines
    assert all(line.figure > 0 and line.verdict in {"ok", "missed"} for line in lines)


def test_lengths_compare_with_the_shortest(bench: Bench) -> None:
    lines = list(lengths.measure(bench))
    assert {line.against for line in lines} == {"at 3 turns"}


def test_rows_are_measured_in_the_order_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {name: (lambda _, name=name: [Line(name, "")]) for name in ("a", "b", "c")}
    monkeypatch.setattr(rows, "ROWS", made)
    assert [line.what for line in rows.measure(Bench(TINY), ["c", "a"])] == ["a", "c"]


def test_a_turn_is_about_a_kilobyte_and_always_the_same() -> None:
    sizes_in_bytes = [material.text_bytes(turn) for turn in material.turns()]
    assert all(900 < size < 1_300 for size in sizes_in_bytes)
    assert material.turn(7) == material.turns()[7]


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    sides = Sides({"ours": [2.0, 30.0, 3.0], "theirs": [1.0, 10.0, 2.0]})
    assert sides.ratio("ours", "theirs") == 2.0


@pytest.mark.parametrize(
    ("figure", "goal", "least", "verdict"),
    [(1.5, 1.5, False, "ok"), (1.51, 1.5, False, "missed"), (0.8, 0.75, True, "ok"),
     (0.7, 0.75, True, "missed"), (None, None, False, "")],
)  # fmt: skip
def test_verdicts(figure: float | None, goal: float | None, least: bool, verdict: str) -> None:
    assert Line("it", "", "", figure, goal, least).verdict == verdict


def test_the_table_shows_goal_and_figure_and_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [Line("append", "2 ms : 1 ms", "bare", 2.0, 1.5)]
    report.show(lines)
    assert "≤ 1.50  2.00    missed" in capsys.readouterr().out
    report.save(lines, tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text())[0]["verdict"] == "missed"


class _Answering(socketserver.StreamRequestHandler):
    """Answers each request with 200 `{}`, one for /gone with 404."""

    def handle(self) -> None:
        while line := self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            status = b"404 Not Found" if b"/gone" in line else b"200 OK"
            self.wfile.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")


@pytest.fixture
def port() -> Any:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Answering) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def test_the_client_measures_and_refuses_what_is_not_answered_well(port: int) -> None:
    with Client() as client:
        for connections in (1, 4):
            answer = client.run(Job(port, ["/x/{turn}"], 20, connections=connections))
            assert answer.count == 20
            assert 0 < answer.p50 <= answer.p95 < answer.seconds
        with pytest.raises(RuntimeError, match="404"):
            client.run(Job(port, ["/gone"], 1))
