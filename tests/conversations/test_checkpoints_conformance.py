"""The package `langgraph-checkpoint-conformance` passes whole: nothing failed, nothing skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from django.db import connection

from conversations import checkpoint_tables, checkpoints

_REASON = "LangGraph or langgraph-checkpoint-conformance is not installed"
pytest.importorskip("langgraph.checkpoint.postgres", reason=_REASON)
pytest.importorskip("langgraph.checkpoint.conformance", reason=_REASON)

from langgraph.checkpoint.base import BaseCheckpointSaver  # noqa: E402
from langgraph.checkpoint.conformance import checkpointer_test, validate  # noqa: E402
from langgraph.checkpoint.conformance.capabilities import Capability  # noqa: E402
from langgraph.checkpoint.conformance.report import (  # noqa: E402
    CapabilityReport,
    ProgressCallbacks,
)

from conversations.checkpoints import AsyncRethreadSaver, RethreadSaver  # noqa: E402


class InThreads(BaseCheckpointSaver[str]):
    """The suite knows the async methods only: each calls its sync twin, elsewhere."""

    def __init__(self, saver: RethreadSaver) -> None:
        super().__init__()
        self._saver = saver

    async def aput(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.put, *args, **kwargs)

    async def aput_writes(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.put_writes, *args, **kwargs)

    async def aget_tuple(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.get_tuple, *args, **kwargs)

    async def alist(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        for one in await asyncio.to_thread(lambda: list(self._saver.list(*args, **kwargs))):
            yield one

    async def adelete_thread(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.delete_thread, *args, **kwargs)

    async def adelete_for_runs(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.delete_for_runs, *args, **kwargs)

    async def acopy_thread(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.copy_thread, *args, **kwargs)

    async def aprune(self, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(self._saver.prune, *args, **kwargs)


@checkpointer_test(name="AsyncRethreadSaver")
async def asynchronous() -> AsyncIterator[Any]:
    async with AsyncRethreadSaver.from_settings() as saver:
        yield saver


@checkpointer_test(name="RethreadSaver")
async def synchronous() -> AsyncIterator[Any]:
    with RethreadSaver.from_settings() as saver:
        yield InThreads(saver)


@pytest.fixture
def tables(transactional_db: None) -> None:
    checkpoints.ensure_checkpoint_tables()
    with connection.cursor() as cursor:
        for table in checkpoint_tables.TABLES:
            cursor.execute(f"TRUNCATE checkpoints.{table}")


@pytest.mark.parametrize("saver", [asynchronous, synchronous], ids=["async", "sync"])
def test_all_eight_capabilities_pass_whole(tables, saver, capsys):
    with capsys.disabled():
        print()
        report = asyncio.run(validate(saver, progress=ProgressCallbacks.verbose()))
        report.print_report()
        print(f"  {sum(r.tests_passed for r in report.results.values())} tests passed\n")

    assert_whole(report)


def assert_whole(report: CapabilityReport) -> None:
    """`report.passed_all()` alone would overlook what was skipped."""
    assert set(report.results) == {capability.value for capability in Capability}
    for name, result in report.results.items():
        assert (result.detected, result.passed) == (True, True), (name, result.failures)
        assert (result.tests_failed, result.tests_skipped) == (0, 0), name
        assert result.tests_passed > 0, name
    assert len(report.results) == 8
    assert report.conformance_level() == "FULL"


def test_a_capability_that_is_skipped_would_be_noticed(tables):
    @checkpointer_test(name="one short", skip_capabilities={"prune"})
    async def one_short() -> AsyncIterator[Any]:
        async with AsyncRethreadSaver.from_settings() as saver:
            yield saver

    report = asyncio.run(validate(one_short))
    assert report.passed_all()
    with pytest.raises(AssertionError, match="prune"):
        assert_whole(report)
