"""Running the commands that fold, with a summariser of a test's choice."""

from __future__ import annotations

import io
import json
from contextlib import suppress
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from conversations.summaries import SummarizationFailed, Summary, SummaryRequest
from tests.conversations.fold_world import ScriptedSummarizer

OFFLINE = "Summaries offline, by rules.\n"


def run(command: str, *args: Any) -> tuple[str, str]:
    """Return what a command writes to stdout and to stderr."""
    out, err = io.StringIO(), io.StringIO()
    call_command(command, *map(str, args), stdout=out, stderr=err, no_color=True)
    return out.getvalue(), err.getvalue()


def failure(command: str, *args: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        run(command, *args)
    return caught.value


def lines(command: str, *args: Any) -> list[dict[str, Any]]:
    """Return the JSON lines of a command, also of one that fails in the end."""
    out = io.StringIO()
    with suppress(CommandError):
        call_command(command, *map(str, args), "--json", stdout=out, stderr=io.StringIO())
    return [json.loads(line) for line in out.getvalue().splitlines()]


class SometimesFailing(ScriptedSummarizer):
    """Fails with a code while there is one in `code`."""

    def __init__(self, code: str = "") -> None:
        super().__init__()
        self.code = code

    def summarize(self, request: SummaryRequest) -> Summary:
        if self.code:
            self.requests.append(request)
            raise SummarizationFailed(self.code)
        return super().summarize(request)


def use(monkeypatch: pytest.MonkeyPatch, summarizer: Any) -> Any:
    """Have all folds made by this summariser; return it."""
    monkeypatch.setattr("conversations.models.get_summarizer", lambda: summarizer)
    return summarizer
