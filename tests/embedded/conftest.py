from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.services import Valkey


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def valkey(data_dir: Path) -> Iterator[Valkey]:
    with Valkey(data_dir) as server:
        yield server
