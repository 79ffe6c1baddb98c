from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from embedded.services import CannotStart, DynamoDB


def client(server: DynamoDB, account: str = "embedded") -> Any:
    return boto3.client(
        "dynamodb",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id=account,
        aws_secret_access_key="embedded",
    )


def make_table(dynamodb: Any) -> None:
    dynamodb.create_table(
        TableName="digests",
        KeySchema=[{"AttributeName": "user_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "user_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDB]:
    with DynamoDB(tmp_path_factory.mktemp("dynamodb")) as started:
        yield started


def test_it_keeps_its_items_when_it_is_stopped(server: DynamoDB) -> None:
    item = {"user_id": {"S": "ana"}}
    make_table(client(server))
    client(server).put_item(TableName="digests", Item=item)
    server.stop()
    server.revive()
    assert client(server).get_item(TableName="digests", Key=item)["Item"] == item


def test_accounts_of_test_workers_do_not_see_each_other(server: DynamoDB) -> None:
    make_table(client(server, account="000000000001"))
    assert client(server, account="000000000002").list_tables()["TableNames"] == []


def test_its_missing_environment_is_named_with_the_remedy(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RETHREAD_DYNAMODB_PYTHON", "/nowhere/python")
    with pytest.raises(CannotStart, match=r"/nowhere/python is missing.*make install"):
        DynamoDB(data_dir).start()
