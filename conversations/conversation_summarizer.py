"""Makes running summaries: by a model over HTTP, or offline from what turns say of themselves.

Called by workers only, outside of any transaction: a call takes as long as a model does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, Protocol

from django.conf import settings

from conversations.chat_completions import ChatModel, Reply, Usage
from conversations.extractive_summary import extractive_summary
from conversations.langfuse_prompts import (
    BuiltInPrompts,
    LangfuseConnection,
    LangfusePrompts,
    LangfuseTracer,
    NoTracer,
    PromptSource,
    Tracer,
)
from conversations.summaries import (
    SummarizationFailed,
    Summary,
    SummaryLimits,
    SummaryRequest,
    cleaned,
    fault_of,
    is_too_long,
)
from conversations.summary_prompt import Messages, Prompt, messages_of, shorter

EXTRACTIVE: Final = "extractive"


class Summarizer(Protocol):
    """What makes a running summary."""

    def summarize(self, request: SummaryRequest) -> Summary:
        """Return the new summary; raises `SummarizationFailed`, and nothing is then folded."""


class ExtractiveSummarizer:
    """The offline summariser: no model, no network, the same notes for the same turns."""

    def __init__(self, *, max_words: int) -> None:
        self._limits = SummaryLimits(max_words)

    def summarize(self, request: SummaryRequest) -> Summary:
        """Return the new summary; it never fails."""
        return Summary(extractive_summary(request, self._limits), model=EXTRACTIVE)


class ConversationSummarizer:
    """Summaries by a model behind an OpenAI-compatible address.

    The parameters are those of `ChatModel`, `SummaryLimits` and `langfuse_prompts`.
    """

    def __init__(
        self,
        *,
        model: str,
        temperature: float | None,
        timeout_seconds: float,
        max_output_tokens: int,
        max_words: int,
        api_key: str,
        base_url: str,
        output_limit_name: str = "max_completion_tokens",
        prompts: PromptSource | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._model = ChatModel(
            name=model,
            temperature=temperature,
            timeout_seconds=timeout_seconds,
            max_output_tokens=max_output_tokens,
            output_limit_name=output_limit_name,
            api_key=api_key,
            base_url=base_url,
        )
        self._limits = SummaryLimits(max_words)
        self._prompts = prompts or BuiltInPrompts()
        self._tracer = tracer or NoTracer()

    def summarize(self, request: SummaryRequest) -> Summary:
        """Return the new summary; one that came out too long is asked for once more, shorter.

        Raises `SummarizationFailed` with a code of `summaries.FAILURES` and the tokens that it
        cost. Takes two time-outs at most, and two seconds for the prompt.
        """
        prompt = self._prompts.prompt()
        messages = messages_of(prompt, request, self._limits)
        replies = [self._ask(messages, request, prompt)]
        if replies[0].code == "too_long":
            again = shorter(messages, replies[0].text, self._limits)
            replies.append(self._ask(again, request, prompt))
        if replies[-1].code:
            raise self._failure(replies, prompt)
        return self._summary(replies, prompt)

    def _ask(self, messages: Messages, request: SummaryRequest, prompt: Prompt) -> Reply:
        """Return a reply with its text cleaned, and a code if it is no summary."""
        model = self._model
        trace = self._tracer.start(
            request.thread_id, model.name, model.parameters, messages, prompt
        )
        reply = model.ask(messages)
        text = cleaned(reply.text)
        code = self._judged(reply.code, text, request)
        trace.end(reply.text, reply.usage, code)
        return Reply(text, code, reply.detail, reply.usage)

    def _judged(self, code: str, text: str, request: SummaryRequest) -> str:
        # Cut off beyond the limit: however it would have ended, it is to be shorter.
        if code == "truncated" and is_too_long(text, self._limits):
            return "too_long"
        return code or fault_of(text, request, self._limits)

    def _summary(self, replies: Sequence[Reply], prompt: Prompt) -> Summary:
        usage = _total(replies)
        return Summary(
            replies[-1].text,
            model=self._model.name,
            prompt_name=prompt.name,
            prompt_version=prompt.version,
            prompt_source=prompt.source,
            prompt_problem=prompt.problem,
            input_tokens=usage.input,
            cached_input_tokens=usage.cached_input,
            output_tokens=usage.output,
            calls=len(replies),
        )

    def _failure(self, replies: Sequence[Reply], prompt: Prompt) -> SummarizationFailed:
        usage = _total(replies)
        return SummarizationFailed(
            replies[-1].code,
            detail=replies[-1].detail,
            model=self._model.name,
            prompt_problem=prompt.problem,
            input_tokens=usage.input,
            cached_input_tokens=usage.cached_input,
            output_tokens=usage.output,
            calls=len(replies),
        )


def _total(replies: Sequence[Reply]) -> Usage:
    used = [reply.usage for reply in replies]
    return Usage(
        sum(usage.input for usage in used),
        sum(usage.cached_input for usage in used),
        sum(usage.output for usage in used),
    )


# --- From the settings --------------------------------------------------------------------


@lru_cache(maxsize=1)
def get_summarizer() -> ConversationSummarizer | ExtractiveSummarizer:
    """Return this process's summariser: offline unless a key or an address of a model is set.

    It talks to nobody before its first `summarize`. `get_summarizer.cache_clear()` after a change
    of settings.
    """
    if not (settings.OPENAI_API_KEY or settings.OPENAI_BASE_URL):
        return ExtractiveSummarizer(max_words=settings.SUMMARY_MAX_WORDS)
    prompts, tracer = _langfuse()
    return ConversationSummarizer(
        model=settings.SUMMARY_MODEL,
        temperature=settings.SUMMARY_TEMPERATURE,
        timeout_seconds=settings.SUMMARY_TIMEOUT_SECONDS,
        max_output_tokens=settings.SUMMARY_MAX_OUTPUT_TOKENS,
        output_limit_name=settings.SUMMARY_OUTPUT_LIMIT_NAME,
        max_words=settings.SUMMARY_MAX_WORDS,
        api_key=settings.OPENAI_API_KEY,
        base_url=settings.OPENAI_BASE_URL,
        prompts=prompts,
        tracer=tracer,
    )


def _langfuse() -> tuple[PromptSource | None, Tracer | None]:
    if not (settings.LANGFUSE_PUBLIC_KEY and settings.LANGFUSE_SECRET_KEY):
        return None, None
    connection = LangfuseConnection(
        public_key=settings.LANGFUSE_PUBLIC_KEY,
        secret_key=settings.LANGFUSE_SECRET_KEY,
        host=settings.LANGFUSE_HOST,
    )
    prompts = LangfusePrompts(
        connection,
        name=settings.SUMMARY_PROMPT_NAME,
        cache_seconds=settings.SUMMARY_PROMPT_CACHE_SECONDS,
        retry_seconds=settings.SUMMARY_PROMPT_RETRY_SECONDS,
    )
    return prompts, LangfuseTracer(connection)
