"""Asks a model over the chat completions API, by the openai client: any server that speaks it.

The adapter for openai; plain types in and out. A call never raises for what a server does or
fails to do: its answer says what went wrong, as a code of `summaries.FAILURES`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import orjson

from conversations.deadline import finished_within

if TYPE_CHECKING:
    import httpx2

OPENAI_BASE_URL: Final = "https://api.openai.com/v1"
MAX_BODY_BYTES: Final = 1024 * 1024
_CONNECT_SECONDS = 5.0
# Local servers ask for no key, the client does.
_NO_KEY = "no-key"
_FINISHED_BY_ITSELF = frozenset({"stop", "eos", "eos_token", "end_turn"})
_MOST_TOKENS = 10_000_000
_PLAIN_WORD = re.compile(r"[a-z][a-z0-9_.]{0,59}")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a call as the server counts them; `cached_input` is a part of `input`."""

    input: int = 0
    cached_input: int = 0
    output: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a call: `text`, or `code` and `detail` say why there is none to be used.

    A reply that was cut off has both. `detail` is for operators and holds nothing that was said:
    "http_429 insufficient_quota".
    """

    text: str = ""
    code: str = ""
    detail: str = ""
    usage: Usage = field(default_factory=Usage)


class ChatModel:
    """A model behind an OpenAI-compatible address.

    `temperature` None is not sent, since reasoning models refuse it. `output_limit_name` is what
    the server calls the limit of its answer: "max_completion_tokens", or "max_tokens" with older
    ones. `base_url` "" is OpenAI's own; an empty `api_key` is for servers that ask for none.
    """

    def __init__(
        self,
        *,
        name: str,
        temperature: float | None,
        timeout_seconds: float,
        max_output_tokens: int,
        output_limit_name: str,
        api_key: str,
        base_url: str,
    ) -> None:
        self.name = name
        self.parameters: dict[str, Any] = {output_limit_name: max_output_tokens}
        if temperature is not None:
            self.parameters["temperature"] = temperature
        self._timeout_seconds = timeout_seconds
        self._api_key = api_key or _NO_KEY
        self._base_url = base_url or OPENAI_BASE_URL

    def ask(self, messages: Sequence[Mapping[str, str]]) -> Reply:
        """Return the model's reply; all of it must be there within the time-out.

        One request, not repeated: when to try again is decided where attempts are counted.
        """
        try:
            body = finished_within(self._timeout_seconds, lambda: self._post(messages))
        except Exception as error:  # noqa: BLE001  a client may raise anything, its texts hold keys
            return _failed(error)
        return _reply(body)

    def _post(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        # It takes 0.4 s to import, and only workers that fold ever need it.
        from openai import DefaultHttpxClient, OpenAI

        bounded = _Bounded(time.monotonic() + self._timeout_seconds)
        connect = min(_CONNECT_SECONDS, self._timeout_seconds)
        # A client a call: folds are minutes apart, and no connection outlives a fork or a fault.
        with OpenAI(
            api_key=self._api_key,
            base_url=self._base_url,
            max_retries=0,
            timeout=_timeout(self._timeout_seconds, connect),
            http_client=DefaultHttpxClient(event_hooks={"response": [bounded]}),
            default_headers={"Accept-Encoding": "identity"},
        ) as client:
            answer = client.chat.completions.with_raw_response.create(
                model=self.name,
                messages=list(messages),  # type: ignore[arg-type]  # roles are checked words
                **self.parameters,
            )
            return answer.content


def _timeout(seconds: float, connect: float) -> httpx2.Timeout:
    from openai import Timeout

    return Timeout(seconds, connect=connect)


# --- While it is read ---------------------------------------------------------------------


class _Unreadable(Exception):
    """A body that is too large, or compressed although that was not asked for."""


class _Bounded:
    """Bounds the bodies of responses, those of errors too, in bytes and in time."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def __call__(self, response: httpx2.Response) -> None:
        """Put a bound on a response whose body was not read yet."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise _Unreadable
        response.stream = _stream(response.stream, self._deadline)


def _stream(stream: Any, deadline: float) -> httpx2.SyncByteStream:
    from httpx2 import SyncByteStream

    class Bounded(SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in stream:
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise _Unreadable
                # Nobody waits any more: end the thread that reads.
                if time.monotonic() > deadline:
                    raise TimeoutError
                yield chunk

        def close(self) -> None:
            stream.close()

    return Bounded()


# --- What went wrong ----------------------------------------------------------------------

_BY_STATUS: Final = {401: "unauthorized", 403: "unauthorized", 429: "rate_limited"}


def _failed(error: Exception) -> Reply:
    from openai import APIConnectionError, APIStatusError, APITimeoutError

    if isinstance(error, APIStatusError):
        return _refused_by_status(error.status_code, error.response.content)
    cause = error.__cause__ if isinstance(error, APIConnectionError) else error
    if isinstance(error, APITimeoutError) or isinstance(cause, TimeoutError):
        return Reply(code="timeout")
    if isinstance(cause, _Unreadable):
        return Reply(code="invalid_response", detail="too large or compressed")
    return Reply(code="connection", detail=type(cause or error).__name__)


def _refused_by_status(status: int, body: bytes) -> Reply:
    code = _BY_STATUS.get(status) or ("bad_request" if 400 <= status < 500 else "provider_error")
    return Reply(code=code, detail=" ".join((f"http_{status}", *_said_by_server(body))))


def _said_by_server(body: bytes) -> list[str]:
    """Return the words by which a server names an error; never its sentences, they quote keys."""
    error = _mapping(_mapping(_json(body)).get("error"))
    words = (error.get("code") or error.get("type"), error.get("param"))
    return [word for word in words if isinstance(word, str) and _PLAIN_WORD.fullmatch(word)]


# --- What was answered --------------------------------------------------------------------


def _reply(body: bytes) -> Reply:
    completion = _mapping(_json(body))
    choices = completion.get("choices")
    choice = _mapping(choices[0]) if isinstance(choices, list) and choices else {}
    usage = _usage(_mapping(completion.get("usage")))
    if completion.get("error") and not choice:
        return Reply(code="provider_error", detail=" ".join(_said_by_server(body)), usage=usage)
    message = choice.get("message")
    text = _text(_mapping(message).get("content"))
    if text is None or not isinstance(message, dict):
        return Reply(code="invalid_response", usage=usage)
    code = _code(choice.get("finish_reason"), message)
    return Reply(text=text, code=code, usage=usage)


def _code(finish_reason: Any, message: Mapping[str, Any]) -> str:
    if message.get("refusal") or finish_reason == "content_filter":
        return "refused"
    return "" if str(finish_reason) in _FINISHED_BY_ITSELF else "truncated"


def _text(content: Any) -> str | None:
    """Return a message's text, which some servers give in parts; None if it is no text."""
    if content is None:
        return ""
    if isinstance(content, list):
        parts = [_mapping(part).get("text") for part in content]
        texts = [part for part in parts if isinstance(part, str)]
        return "".join(texts) if len(texts) == len(parts) else None
    return content if isinstance(content, str) else None


def _usage(usage: Mapping[str, Any]) -> Usage:
    given = _tokens(usage.get("prompt_tokens"))
    cached = _tokens(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens"))
    return Usage(given, min(cached, given), _tokens(usage.get("completion_tokens")))


def _tokens(count: Any) -> int:
    return count if type(count) is int and 0 <= count <= _MOST_TOKENS else 0


def _json(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
