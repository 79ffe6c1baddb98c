import os
import tempfile

from embedded.pytest_plugin import environment_of_worker

BASE = {"REDIS_URL": "redis://:secret@127.0.0.1:4000/0", "AWS_ACCESS_KEY_ID": "embedded"}


def test_tests_keep_away_from_the_developers_data() -> None:
    assert os.environ["RETHREAD_DATA_DIR"].startswith(tempfile.gettempdir())
    assert os.environ["RETHREAD_ENV_FILE"] == ""


def test_each_worker_has_a_redis_database_of_its_own() -> None:
    urls = {environment_of_worker(BASE, f"gw{n}")["REDIS_URL"] for n in range(4)}
    assert urls == {f"redis://:secret@127.0.0.1:4000/{n}" for n in (1, 2, 3, 4)}


def test_each_worker_has_a_dynamodb_account_of_its_own() -> None:
    assert environment_of_worker(BASE, "gw0")["AWS_ACCESS_KEY_ID"] == "000000000001"


def test_credentials_for_a_given_endpoint_are_left_alone() -> None:
    base = {**BASE, "AWS_ACCESS_KEY_ID": "AKIA"}
    assert "AWS_ACCESS_KEY_ID" not in environment_of_worker(base, "gw0")
