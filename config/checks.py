"""Checks of the settings; Django runs them before commands, `manage.py check` runs nothing else.

An error (`rethread.E…`) stops the command with its sentence and a hint, a warning (`rethread.W…`)
is shown. Those tagged `deploy` come with `manage.py check --deploy` only. Those tagged `OURS`
are also what a web process asks before it serves. `config.environment` has refused by then what
can't be read at all.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured
from redis.connection import parse_url

# The tag of this project's own checks, whichever app they are in.
OURS = "rethread"

SECRET_KEY_MIN_CHARS = 50
_SLOW_REDIS_SECONDS = 1.0
# What a summary may take beside its two calls: the prompt from Langfuse, and storing it.
_PROMPT_SECONDS = 5

_POSITIVE = (
    "MAX_BODY_BYTES",
    "MAX_QUERY_CHARS",
    "MAX_ANSWER_CHARS",
    "MAX_PAYLOAD_BYTES",
    "MAX_JSON_DEPTH",
    "MAX_JSON_CONTAINERS",
    "MAX_ARTIFACTS",
    "MAX_ARTIFACT_BYTES",
    "MAX_METADATA_KEYS",
    "MAX_PAGE_BYTES",
    "MAX_UPLOAD_BYTES",
    "MAX_UPLOAD_UNPACKED_BYTES",
    "MAX_UPLOAD_ROWS",
    "MAX_UPLOAD_COLUMNS",
    "MAX_UPLOAD_CELLS",
    "MAX_UPLOAD_CELL_CHARS",
    "MAX_SESSION_UPLOAD_BYTES",
    "UPLOAD_REDIS_SHARE",
    "UPLOAD_PARSE_SECONDS",
    "UPLOAD_PARSE_MEMORY_BYTES",
    "UPLOADS_AT_ONCE",
    "UPLOAD_PAGE_ROWS",
    "FILE_DATA_TTL_MINUTES",
    "DYNAMODB_TTL_DAYS",
    "HISTORY_SESSIONS",
    "HISTORY_CONTEXT_SESSIONS",
    "HISTORY_CONTEXT_BYTES",
    "SESSION_DIGEST_BYTES",
    "MEMORY_TTL_HOURS",
    "MEMORY_MAX_RECENT_MESSAGES",
    "MEMORY_COMPRESSION_THRESHOLD",
    "MEMORY_WINDOW_TURNS",
    "MEMORY_LEASE_SECONDS",
    "FOLD_INPUT_TOKENS",
    "FOLD_CLAIM_SECONDS",
    "FOLD_BACKOFF_SECONDS",
    "FOLD_BACKOFF_MAX_SECONDS",
    "FACTS_MAX_TOKENS",
    "CONTEXT_TOKEN_BUDGET",
    "CONTEXT_MAX_TOKEN_BUDGET",
    "CONTEXT_PART_MAX_CHARS",
    "REDIS_TIMEOUT_SECONDS",
    "SUMMARY_MAX_OUTPUT_TOKENS",
    "SUMMARY_MAX_WORDS",
    "SUMMARY_TIMEOUT_SECONDS",
    "TOKEN_TTL_HOURS",
    "WORKER_FROZEN_AFTER_SECONDS",
    "CHECKPOINT_POOL_SIZE",
    "SESSION_TTL_MINUTES",
    "SESSION_MAX_MESSAGES",
    "MAX_HISTORY_MESSAGES",
    "SESSION_RESULT_ROWS",
    "SESSION_MAX_MESSAGE_BYTES",
    "SESSION_MAX_TURN_MESSAGES",
    "SESSION_TOOL_WAIT_SECONDS",
    "CHECKPOINT_TTL_MINUTES",
    "MAX_CHECKPOINT_BYTES",
)
# Zero means: every time, or no limit.
_NOT_NEGATIVE = (
    "DATABASE_PREPARE_THRESHOLD",
    "DATABASE_STATEMENT_TIMEOUT_SECONDS",
    "DATABASE_LOCK_TIMEOUT_SECONDS",
    "DATABASE_CONN_MAX_AGE_SECONDS",
    "FOLD_KEPT_ARTIFACT_TURNS",
    "CHECKPOINT_RETENTION_DAYS",
    "MEMORY_CHECK_SECONDS",
    "NUM_PROXIES",
    "PRINCIPAL_CACHE_SECONDS",
    "REDIS_BREAKER_SECONDS",
    "SUMMARY_PROMPT_CACHE_SECONDS",
    "SUMMARY_PROMPT_RETRY_SECONDS",
)
_TAKE_IT_OUT = "Take it out of the environment for its default (.env.example)."
# Each must not be larger than the one after it.
_ASCENDING = (
    ("MEMORY_MAX_RECENT_MESSAGES", "MEMORY_COMPRESSION_THRESHOLD", "MEMORY_WINDOW_TURNS"),
    ("CONTEXT_TOKEN_BUDGET", "CONTEXT_MAX_TOKEN_BUDGET"),
    ("HISTORY_CONTEXT_SESSIONS", "HISTORY_SESSIONS"),
    ("FOLD_BACKOFF_SECONDS", "FOLD_BACKOFF_MAX_SECONDS"),
    ("MAX_PAYLOAD_BYTES", "MAX_BODY_BYTES"),
    ("MAX_ARTIFACT_BYTES", "MAX_BODY_BYTES"),
    ("MAX_CHECKPOINT_BYTES", "MAX_BODY_BYTES"),
    ("SESSION_MAX_MESSAGE_BYTES", "MAX_PAYLOAD_BYTES"),
    ("MAX_HISTORY_MESSAGES", "SESSION_MAX_MESSAGES"),
)


@checks.register(OURS)
def secret_key(**_: Any) -> list[CheckMessage]:
    """E001 no SECRET_KEY; W001 one that could be guessed."""
    try:
        key = settings.SECRET_KEY
    except ImproperlyConfigured:
        key = ""
    make_one = (
        "Set SECRET_KEY in the environment or in .env to a random text that stays the same, as "
        "`python -c 'import secrets; print(secrets.token_urlsafe(64))'` prints one."
    )
    if not key:
        return [checks.Error("SECRET_KEY is not set.", hint=make_one, id="rethread.E001")]
    if len(key) < SECRET_KEY_MIN_CHARS:
        says = f"SECRET_KEY has {len(key)} characters; it needs {SECRET_KEY_MIN_CHARS}."
        return [checks.Warning(says, hint=make_one, id="rethread.W001")]
    return []


@checks.register(OURS)
def database_url(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """E002 nothing says where the database is: an error for what needs it, else a remark."""
    if os.environ.get("DATABASE_URL"):
        return []
    kind = checks.Error if databases else checks.Info
    return [
        kind(
            "DATABASE_URL is not set, and no `make up` is running on RETHREAD_DATA_DIR.",
            hint="Start `make up`, or set DATABASE_URL to postgres://user:password@host/name.",
            id="rethread.E002",
        )
    ]


@checks.register(OURS)
def too_small_numbers(**_: Any) -> Iterator[CheckMessage]:
    """E003 a limit, time or budget that is too small to mean anything."""
    for name in (*_POSITIVE, *_NOT_NEGATIVE):
        value = getattr(settings, name)
        must_be = "0 or more" if name in _NOT_NEGATIVE else "more than 0"
        if value < 0 or (value == 0 and name in _POSITIVE):
            says = f"{name} is {value}; it must be {must_be}."
            yield checks.Error(says, hint=_TAKE_IT_OUT, id="rethread.E003")


@checks.register(OURS)
def ascending_numbers(**_: Any) -> Iterator[CheckMessage]:
    """E004 a number that may not be larger than another is."""
    for names in _ASCENDING:
        for smaller, larger in pairwise(names):
            low, high = getattr(settings, smaller), getattr(settings, larger)
            if low > high:
                yield checks.Error(
                    f"{smaller} is {low}, more than {larger}, which is {high}.",
                    hint=f"Lower {smaller} or raise {larger}.",
                    id="rethread.E004",
                )


@checks.register(OURS)
def jobs(**_: Any) -> Iterator[CheckMessage]:
    """E005 jobs that would run twice at once; E006 nobody to run them."""
    timeout, retry = settings.Q_CLUSTER["timeout"], settings.Q_CLUSTER["retry"]
    if retry <= timeout:
        yield checks.Error(
            f"JOB_RETRY_SECONDS is {retry}, not more than JOB_TIMEOUT_SECONDS, which is {timeout}: "
            "a slow job would be started again while it runs.",
            hint=f"Set JOB_RETRY_SECONDS to {timeout * 3 // 2} or more.",
            id="rethread.E005",
        )
    if min(timeout, settings.Q_CLUSTER["workers"]) < 1:
        says = "WORKERS and JOB_TIMEOUT_SECONDS must be 1 or more."
        yield checks.Error(says, hint=_TAKE_IT_OUT, id="rethread.E006")


@checks.register(OURS)
def redis_url(**_: Any) -> list[CheckMessage]:
    """E009 an address that no client can be made for, where a Redis that is away is no matter."""
    try:
        parse_url(settings.REDIS_URL)  # type: ignore[no-untyped-call]
    except ValueError:
        way_out = "Write it as redis://:password@host:6379/0, or rediss:// for TLS."
        return [checks.Error("REDIS_URL can't be read.", hint=way_out, id="rethread.E009")]
    return []


@checks.register(OURS)
def redis_waits(**_: Any) -> Iterator[CheckMessage]:
    """W002 a Redis that hangs would hold up every request."""
    wait = settings.REDIS_TIMEOUT_SECONDS
    if wait > _SLOW_REDIS_SECONDS:
        yield checks.Warning(
            f"REDIS_TIMEOUT_SECONDS is {wait}: that long a request waits for a Redis that hangs.",
            hint="Redis is a cache here; 0.2 is enough in one data centre.",
            id="rethread.W002",
        )


@checks.register(OURS)
def key_prefix(**_: Any) -> Iterator[CheckMessage]:
    """E007 a prefix with a brace takes the thread id's place in choosing the cluster slot."""
    if set("{}") & set(settings.MEMORY_KEY_PREFIX) or not settings.MEMORY_KEY_PREFIX:
        yield checks.Error(
            "MEMORY_KEY_PREFIX is empty or has a brace in it.",
            hint="Use letters, digits, `_`, `-` and `:`.",
            id="rethread.E007",
        )
    if set("{}") & set(settings.SESSION_KEY_PREFIX):
        yield checks.Error(
            "SESSION_KEY_PREFIX has a brace in it.",
            hint="Use letters, digits, `_`, `-` and `:`.",
            id="rethread.E007",
        )


@checks.register(OURS)
def history_table(**_: Any) -> Iterator[CheckMessage]:
    """E012 a name that DynamoDB gives no table."""
    if not re.fullmatch(r"[A-Za-z0-9_.-]{3,255}", settings.HISTORY_TABLE):
        yield checks.Error(
            "HISTORY_TABLE is no name of a table in DynamoDB.",
            hint="Use 3 to 255 letters, digits, `_`, `-` and `.`.",
            id="rethread.E012",
        )


@checks.register(OURS)
def summary_time(**_: Any) -> Iterator[CheckMessage]:
    """E010 a summary that may take longer than what waits for it."""
    longest = 2 * settings.SUMMARY_TIMEOUT_SECONDS + _PROMPT_SECONDS
    waiting = {
        "FOLD_CLAIM_SECONDS": settings.FOLD_CLAIM_SECONDS,
        "JOB_TIMEOUT_SECONDS": settings.Q_CLUSTER["timeout"],
    }
    for name, seconds in waiting.items():
        if longest > seconds:
            yield checks.Error(
                f"{name} is {seconds}, too little for two calls of SUMMARY_TIMEOUT_SECONDS, which "
                f"is {settings.SUMMARY_TIMEOUT_SECONDS:g}: summaries of slow models would be lost.",
                hint=f"Set {name} to {longest:g} or more.",
                id="rethread.E010",
            )


@checks.register(OURS)
def summary_servers(**_: Any) -> Iterator[CheckMessage]:
    """E011 an address that is none; W006 half of Langfuse."""
    for name in ("OPENAI_BASE_URL", "LANGFUSE_HOST"):
        address = getattr(settings, name)
        if address and not address.startswith(("http://", "https://")):
            way_out = "Write it with https:// or http://, as in http://localhost:11434/v1."
            yield checks.Error(f"{name} can't be read.", hint=way_out, id="rethread.E011")
    if bool(settings.LANGFUSE_PUBLIC_KEY) != bool(settings.LANGFUSE_SECRET_KEY):
        yield checks.Warning(
            "Only one of LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY is set: Langfuse is not used.",
            hint="Set both or none.",
            id="rethread.W006",
        )


@checks.register(OURS, deploy=True)
def https(**_: Any) -> Iterator[CheckMessage]:
    """W003 plain HTTP; W004 an origin that HTTPS makes useless."""
    if not settings.HTTPS:
        yield checks.Warning(
            "HTTPS is off: tokens and conversations would cross the network readable.",
            hint="Put TLS in front and set HTTPS=1 (TRUST_FORWARDED_PROTO=1 behind a proxy that "
            "sets X-Forwarded-Proto itself).",
            id="rethread.W003",
        )
    elif any(origin.startswith("http://") for origin in settings.CSRF_TRUSTED_ORIGINS):
        yield checks.Warning(
            "CSRF_TRUSTED_ORIGINS trusts an http:// origin although HTTPS is on.",
            hint="Write the origins with https://.",
            id="rethread.W004",
        )


@checks.register(OURS, deploy=True)
def any_host(**_: Any) -> Iterator[CheckMessage]:
    """W005 the Host header of any caller is believed."""
    if "*" in settings.ALLOWED_HOSTS:
        yield checks.Warning(
            "ALLOWED_HOSTS has `*`: links in answers would name whatever host a caller sends.",
            hint="List the names that the site is reached by.",
            id="rethread.W005",
        )
