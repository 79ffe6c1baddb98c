"""The one DynamoDB client of a process: made when first used, never waiting long.

    client().put_item(TableName="…", Item={"user_id": {"S": "ana"}})

Credentials and region are found the way every AWS program finds them. Only for an endpoint on
this machine, which checks none, are made-up ones used where the environment has none.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from urllib.parse import urlsplit

import boto3
import structlog
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from django.conf import settings

from config.addresses import is_loopback

CONNECT_TIMEOUT_SECONDS = 1
READ_TIMEOUT_SECONDS = 2
ATTEMPTS = 3  # all in all, the first one included

# What an account without the right to list tables answers: it is there, and it knows us.
_KNOWN_TO_US = {"AccessDeniedException"}
_CREDENTIAL_SOURCES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)

_lock = threading.Lock()
_client: Any = None


def client() -> Any:
    """Return the client, which all threads share; boto3 makes its methods at run time.

    A call takes at most `ATTEMPTS` times the two time-outs and short pauses between; it raises
    `BotoCoreError` when DynamoDB can't be reached and `ClientError` when it refuses.
    """
    global _client
    with _lock:
        if _client is None:
            _client = _make_client()
        return _client


def forget_client() -> None:
    """Make the next call build a new client, by the settings as they are then."""
    global _client, _lock
    _client, _lock = None, threading.Lock()


# A forked worker would share its parent's sockets, and a lock that nobody will ever release.
os.register_at_fork(after_in_child=forget_client)


def is_reachable() -> bool:
    """Whether DynamoDB answers and accepts our credentials; one request, never raises."""
    log = structlog.get_logger(__name__)
    try:
        client().list_tables(Limit=1)
    except ClientError as error:
        code = error.response["Error"].get("Code", "")
        if code not in _KNOWN_TO_US:
            log.warning("dynamodb_refuses", code=code)
        return code in _KNOWN_TO_US
    except (BotoCoreError, ValueError) as error:
        log.warning("dynamodb_unreachable", error=type(error).__name__)
        return False
    return True


def _make_client() -> Any:
    # A session of its own: boto3's default one may not be shared by threads.
    return boto3.session.Session(**_credentials()).client(
        "dynamodb",
        region_name=settings.AWS_REGION,
        endpoint_url=settings.DYNAMODB_ENDPOINT_URL or None,
        config=Config(
            connect_timeout=CONNECT_TIMEOUT_SECONDS,
            read_timeout=READ_TIMEOUT_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            max_pool_connections=32,
        ),
    )


def _credentials() -> dict[str, Any]:
    if any(os.environ.get(name) for name in _CREDENTIAL_SOURCES):
        return {}
    if not is_loopback(urlsplit(settings.DYNAMODB_ENDPOINT_URL).hostname or ""):
        return {}
    return {"aws_access_key_id": "rethread", "aws_secret_access_key": "rethread"}
