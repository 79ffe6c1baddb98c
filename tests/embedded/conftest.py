import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.services import Postgres, Valkey


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture(scope="session")
def made_cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a PostgreSQL that has been stopped: copying them is quicker than making them."""
    folder = tmp_path_factory.mktemp("made") / "data"
    with Postgres(folder, durable=False):
        pass
    return folder / "postgres"


@pytest.fixture
def data_with_cluster(data_dir: Path, made_cluster: Path) -> Path:
    """A data folder on which PostgreSQL has run before."""
    shutil.copytree(made_cluster, data_dir / "postgres")
    return data_dir


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """One for all tests of a file that leave it running."""
    with Valkey(tmp_path_factory.mktemp("valkey")) as server:
        yield server
