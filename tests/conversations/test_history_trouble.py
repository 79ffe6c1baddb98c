"""A DynamoDB that is away, throttles or refuses: what is raised, and what is not told."""

from __future__ import annotations

import uuid

import pytest

from config import dynamodb
from conversations import history
from conversations.history import Owner
from conversations.history_problems import HistoryRefused, HistoryUnavailable
from conversations.history_table import ensure_table_exists
from tests.conversations.history_world import ended


@pytest.fixture
def ana():
    """Somebody whom no other test knows."""
    ensure_table_exists()
    return Owner("acme", f"ana-{uuid.uuid4()}")


@pytest.fixture
def away(settings):
    settings.DYNAMODB_ENDPOINT_URL = "http://127.0.0.1:9"
    dynamodb.forget_client()
    yield
    dynamodb.forget_client()


CALLS = {
    "save": lambda owner: history.save_session_summary(ended(owner, summary="secret words")),
    "read": history.get_user_history,
    "delete": history.delete_user,
    "delete_session": lambda owner: history.delete_session(owner, "s-1"),
    "ensure": lambda _: ensure_table_exists(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_dynamodb_that_is_away_is_unavailable(ana, call, away):
    with pytest.raises(HistoryUnavailable) as raised:
        call(ana)
    assert raised.value.status == 503


@pytest.mark.parametrize("call", [call for name, call in CALLS.items() if name != "ensure"])
def test_a_missing_table_is_a_refusal(ana, call, settings):
    settings.HISTORY_TABLE = "nowhere"
    with pytest.raises(HistoryRefused) as raised:
        call(ana)
    assert raised.value.reason == "ResourceNotFoundException"


def test_throttling_is_worth_another_try(ana, answers):
    answers("ProvisionedThroughputExceededException", 400)
    with pytest.raises(HistoryUnavailable):
        history.get_user_history(ana)


def test_a_fault_of_the_service_is_worth_another_try(ana, answers):
    answers("SomethingNew", 500)
    with pytest.raises(HistoryUnavailable):
        history.get_user_history(ana)


def test_missing_rights_are_not(ana, answers):
    answers("AccessDeniedException", 400)
    with pytest.raises(HistoryRefused):
        history.get_user_history(ana)


def test_what_was_said_stands_in_no_log_and_no_error(ana, answers, caplog, capsys):
    answers("ValidationException", 400, message="secret words")
    with pytest.raises(HistoryRefused) as raised:
        CALLS["save"](ana)

    told = f"{raised.value!r} {raised.value.detail} {raised.value.__cause__}"
    assert "secret" not in told + caplog.text + capsys.readouterr().out
    assert raised.value.__suppress_context__


def test_a_cut_is_logged_by_its_size_alone(ana, caplog):
    history.save_session_summary(ended(ana, summary="secret words " * 40_000))

    assert "session_summary_cut" in caplog.text
    assert "secret" not in caplog.text


@pytest.fixture
def answers(httpserver, settings):
    """Let an endpoint stand in that refuses everything by this error."""

    def use(code, status, message="no"):
        body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
        httpserver.expect_request("/").respond_with_json(body, status=status)
        settings.DYNAMODB_ENDPOINT_URL = httpserver.url_for("/")
        dynamodb.forget_client()

    yield use
    dynamodb.forget_client()
