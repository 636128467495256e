from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.raylets import Cluster, begun, running


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short name, in which sockets may lie."""
    folder = Path(tempfile.mkdtemp(prefix="gm-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose second machine has not joined yet."""
    with begun(tmp_path_factory.mktemp("homes")) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(head: Cluster) -> Iterator[Cluster]:
    """Both machines see all homes."""
    with running(head.second):
        head.join()
        yield head


@pytest.fixture(scope="module")
def apart(head: Cluster) -> Iterator[Cluster]:
    """The second machine sees no home but its own."""
    with running(head.second):
        head.join(apart=True)
        yield head
