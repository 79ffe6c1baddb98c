"""Prompts from Langfuse, and traces to it, where its keys are there.

The adapter for Langfuse; plain types in and out. It is a convenience: whatever it does or fails
to do, a fold goes on, at most about two seconds later, and that once a minute.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

import structlog

from conversations.chat_completions import Usage
from conversations.deadline import finished_within
from conversations.summary_prompt import Messages, Prompt, built_in_prompt, problem_of

if TYPE_CHECKING:
    from langfuse import Langfuse

logger = structlog.get_logger(__name__)

FETCH_SECONDS: Final = 2
# What is not sent by then is lost when a process ends: SIGTERM must not wait for a vendor.
LAST_FLUSH_SECONDS: Final = 2.0
_EXPORT_SECONDS = 5
_FLUSH_EVERY_SECONDS = 1.0
TRACE_NAME: Final = "conversation_summarizer"


class PromptSource(Protocol):
    """Where the prompt comes from."""

    def prompt(self) -> Prompt:
        """Return the prompt to use now; never raises."""


class Trace(Protocol):
    """One call that is being traced."""

    def end(self, text: str, usage: Usage, code: str) -> None:
        """Tell what came of the call; `code` is why it is not taken, "" if it is."""


class Tracer(Protocol):
    """Where calls are traced."""

    def start(
        self, thread_id: UUID, model: str, parameters: Mapping[str, Any], messages: Messages,
        prompt: Prompt,
    ) -> Trace:  # fmt: skip
        """Tell that a call begins; never raises, never waits."""


# --- Without Langfuse ---------------------------------------------------------------------


class BuiltInPrompts:
    """The built-in prompt, always."""

    def prompt(self) -> Prompt:
        """Return it."""
        return built_in_prompt()


class NoTrace:
    """A call that nobody traces."""

    def end(self, text: str, usage: Usage, code: str) -> None:
        """Do nothing."""


class NoTracer:
    """Traces nothing."""

    def start(
        self, thread_id: UUID, model: str, parameters: Mapping[str, Any], messages: Messages,
        prompt: Prompt,
    ) -> NoTrace:  # fmt: skip
        """Do nothing."""
        return NoTrace()


# --- The client ---------------------------------------------------------------------------


class LangfuseConnection:
    """One Langfuse client for prompts and traces, made when it is first needed."""

    def __init__(self, *, public_key: str, secret_key: str, host: str) -> None:
        self._public_key = public_key
        self._secret_key = secret_key
        self._host = host
        self._client: Langfuse | None = None
        self._closing: Callable[[], None] = lambda: None
        self._lock = threading.Lock()

    def client(self) -> Langfuse:
        """Return the client; it talks to nobody yet."""
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def close(self) -> None:
        """Send what is left, for two seconds at most; nothing is traced from then on."""
        self._closing()

    def _connect(self) -> Langfuse:
        # They take 0.4 s to import, and only workers that fold ever need them.
        from langfuse import Langfuse
        from opentelemetry.sdk.trace import TracerProvider

        client = Langfuse(
            public_key=self._public_key,
            secret_key=self._secret_key,
            base_url=self._host,
            timeout=_EXPORT_SECONDS,
            flush_interval=_FLUSH_EVERY_SECONDS,
            # Of our own: the process's stays what it is, and none waits 30 s at exit.
            tracer_provider=TracerProvider(shutdown_on_exit=False),
        )
        # Langfuse sends all that is left when a process ends, however long that takes. What is
        # registered later runs earlier, and takes its place. A worker of the cluster is a child
        # of multiprocessing, which ends without `atexit`, but not without its finalizers.
        self._closing = _Closing(client)
        atexit.register(self._closing)
        Finalize(None, self._closing, exitpriority=10)
        return client


class _Closing:
    """Sends what is left, once and not for long."""

    def __init__(self, client: Langfuse) -> None:
        self._shutdown: Callable[[], None] | None = client.shutdown

    def __call__(self) -> None:
        shutdown, self._shutdown = self._shutdown, None
        if shutdown is None:
            return
        try:
            finished_within(LAST_FLUSH_SECONDS, shutdown)
        except Exception:  # noqa: BLE001  the process ends, nobody can do anything about it
            return


# --- Prompts ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Kept:
    prompt: Prompt
    until: float


class LangfusePrompts:
    """The prompt as it stands in Langfuse, kept for a while, and so is that it can't be had.

    It is asked for again `cache_seconds` after it came, and `retry_seconds` after it did not;
    until then a call costs nothing. When Langfuse is away, the prompt that came last goes on
    being used, and the built-in one if none ever did; the prompt's `problem` says so.
    """

    def __init__(
        self,
        connection: LangfuseConnection,
        *,
        name: str,
        cache_seconds: float,
        retry_seconds: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._name = name
        self._cache_seconds = cache_seconds
        self._retry_seconds = retry_seconds
        self._now = now
        self._lock = threading.Lock()
        self._kept: _Kept | None = None
        self._came_last: Prompt | None = None

    def prompt(self) -> Prompt:
        """Return the prompt to use now; takes two seconds at most, and never raises."""
        with self._lock:
            if self._kept is None or self._now() >= self._kept.until:
                self._kept = self._fetched()
            return self._kept.prompt

    def _fetched(self) -> _Kept:
        try:
            client = self._connection.client()
            found = finished_within(FETCH_SECONDS + 0.5, lambda: _ask(client, self._name))
        except Exception as error:  # noqa: BLE001  a convenience fails, folding does not
            return self._without(_problem_of_asking(error))
        messages = _messages_of(found)
        if problem := problem_of(messages):
            return self._without(problem)
        prompt = Prompt(self._name, str(found.version), "langfuse", messages, link=found)
        self._came_last = prompt
        return _Kept(prompt, self._now() + self._cache_seconds)

    def _without(self, problem: str) -> _Kept:
        logger.warning("summary_prompt_not_from_langfuse", prompt=self._name, problem=problem)
        if self._came_last and problem == UNREACHABLE:
            prompt = replace(self._came_last, problem=problem)
        else:
            prompt = built_in_prompt(problem)
        return _Kept(prompt, self._now() + self._retry_seconds)


UNREACHABLE: Final = "langfuse_unreachable"


def _ask(client: Langfuse, name: str) -> Any:
    # Its own cache is not used: it remembers no failure, and fetches in a thread of its own.
    return client.get_prompt(
        name, cache_ttl_seconds=0, max_retries=0, fetch_timeout_seconds=FETCH_SECONDS
    )


def _problem_of_asking(error: Exception) -> str:
    status = getattr(error, "status_code", None)
    if status in {401, 403}:
        return "langfuse_unauthorized"
    return "prompt_not_found" if status == 404 else UNREACHABLE


def _messages_of(found: Any) -> Sequence[tuple[str, str]]:
    """Return a Langfuse prompt's messages; its text prompts are one message of the user."""
    if isinstance(found.prompt, str):
        return [("user", found.prompt)]
    # A placeholder for messages has neither role nor content: no model knows the role "".
    return [(part.get("role", ""), part.get("content", "")) for part in found.prompt]


# --- Traces -------------------------------------------------------------------------------


class LangfuseTracer:
    """One generation in Langfuse for each call: messages, answer, model, usage and prompt.

    What is told is put in a queue and sent by a thread of Langfuse's.
    """

    def __init__(self, connection: LangfuseConnection) -> None:
        self._connection = connection

    def start(
        self, thread_id: UUID, model: str, parameters: Mapping[str, Any], messages: Messages,
        prompt: Prompt,
    ) -> Trace:  # fmt: skip
        """Begin a generation."""
        try:
            generation = self._connection.client().start_observation(
                name=TRACE_NAME,
                as_type="generation",
                model=model,
                model_parameters=dict(parameters),
                input=messages,
                prompt=prompt.link,
                metadata={"thread_id": str(thread_id), "prompt_version": prompt.version},
            )
        except Exception as error:  # noqa: BLE001  a convenience fails, folding does not
            logger.warning("summary_not_traced", error=type(error).__name__)
            return NoTrace()
        return LangfuseTrace(generation)


class LangfuseTrace:
    """A generation that has begun."""

    def __init__(self, generation: Any) -> None:
        self._generation = generation

    def end(self, text: str, usage: Usage, code: str) -> None:
        """End the generation with what came of it."""
        uncached = usage.input - usage.cached_input
        try:
            self._generation.update(
                output=text,
                usage_details={
                    "input": uncached,
                    "input_cached_tokens": usage.cached_input,
                    "output": usage.output,
                },
                **({"level": "ERROR", "status_message": code} if code else {}),
            )
            self._generation.end()
        except Exception as error:  # noqa: BLE001  a convenience fails, folding does not
            logger.warning("summary_not_traced", error=type(error).__name__)
