"""What can go wrong with long-term history in DynamoDB, and what is worth another try.

| raised | status | when | another try |
|---|---|---|---|
| `HistoryUnavailable` | 503 | away, too slow, throttled, a fault of its own | helps |
| `HistoryRefused` | 502 | rights, table or item are not right; `reason` is AWS's code | does not |

Neither holds what was said, nor is chained to the error of a library that does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import structlog
from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

from config.errors import Problem, Unavailable

_PASSING = frozenset(
    {
        "InternalServerError",
        "LimitExceededException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "ThrottlingException",
        "TransactionInProgressException",
    }
)


class HistoryUnavailable(Unavailable):
    """DynamoDB does not answer, or asks for patience."""

    code = "history_unavailable"

    def __init__(self, detail: str = "Earlier sessions are not available for the moment.") -> None:
        super().__init__(detail, headers={"Retry-After": "2"})


class HistoryRefused(Problem):
    """DynamoDB refused: missing rights, a missing table, an item that it will not have."""

    status = 502
    code = "history_refused"
    title = "Long-term history refused the request"

    def __init__(self, reason: str) -> None:
        super().__init__("The store of earlier sessions refuses; an operator has to look.")
        self.reason = reason


@contextmanager
def translated() -> Iterator[None]:
    """Raise what boto3 raises as one of the two."""
    try:
        yield
    except ParamValidationError:
        raise _refused("ParamValidation") from None
    except BotoCoreError as error:
        structlog.get_logger(__name__).warning("history_unavailable", error=type(error).__name__)
        raise HistoryUnavailable from None
    except ClientError as error:
        raise _of(error) from None


def code_of(error: ClientError) -> str:
    """Return AWS's name of the error: `ConditionalCheckFailedException`."""
    return error.response.get("Error", {}).get("Code", "")


def _of(error: ClientError) -> Problem:
    code = code_of(error)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code not in _PASSING and status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return _refused(code)
    structlog.get_logger(__name__).warning("history_unavailable", error=code)
    return HistoryUnavailable()


def _refused(reason: str) -> HistoryRefused:
    structlog.get_logger(__name__).error("history_refused", reason=reason)
    return HistoryRefused(reason)
