"""Gives the tests servers of their own, before Django reads its settings.

Loaded with ``-p embedded.pytest_plugin``. The process that starts the run starts the servers
and stops them at its end; pytest-xdist's workers inherit their addresses, and each gets a Redis
database and a DynamoDB account of its own (pytest-django does the same for PostgreSQL).
TEST_DATABASE_URL, TEST_REDIS_URL and TEST_DYNAMODB_ENDPOINT_URL name servers to use instead.
"""

import os
from collections.abc import Generator
from contextlib import ExitStack
from urllib.parse import urlsplit

import pytest

from embedded.services import DynamoDB, Valkey
from embedded.stack import SERVICES, CannotStart
from embedded.throwaway import throwaway_environment

_REDIS_DATABASES = 64


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    """Set the environment; a wrapper runs before pytest-django's hook of the same name."""
    asked = early_config.known_args_namespace
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker:
        os.environ.update(environment_of_worker(os.environ, worker))
    elif not (asked.help or asked.version):
        _start_servers(early_config)
    return (yield)


def environment_of_worker(
    environment: dict[str, str] | os._Environ[str], worker: str
) -> dict[str, str]:
    """Return the settings in which worker `gw3` differs from the process that started it."""
    number = int(worker.removeprefix("gw")) + 1
    redis = urlsplit(environment[Valkey.variable])
    settings = {Valkey.variable: redis._replace(path=f"/{number % _REDIS_DATABASES}").geturl()}
    if environment.get("AWS_ACCESS_KEY_ID") == DynamoDB.access_key:
        settings["AWS_ACCESS_KEY_ID"] = f"{number:012d}"  # an id of twelve digits is an account
    return settings


def _start_servers(config: pytest.Config) -> None:
    given = {
        service.variable: url
        for service in SERVICES
        if (url := os.environ.get(f"TEST_{service.variable}"))
    }
    exits = ExitStack()
    config.add_cleanup(exits.close)
    try:
        environment = exits.enter_context(throwaway_environment(given, durable=False))
    except CannotStart as error:
        raise pytest.UsageError(str(error)) from error
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
