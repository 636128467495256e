"""A second machine that does not see the home: it fetches what its ranks and shards read, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.errors import IntegrityError, StageError
from tasks.cluster.settings import PART_BYTES
from tasks.storage.home import Home
from tests.cluster.raylets import Cluster
from tests.cluster.stages import (
    ON_CLUSTER,
    assert_equal_to_one_machine,
    assert_shards_equal_to_one_machine,
    graph_of,
    trained,
    two_ranks,
    vectors,
)


@pytest.fixture
def fetched(apart: Cluster) -> Iterator[Path]:
    """Folder of what the second machine fetches."""
    folder = apart.second.cache / "graphmill" / "cluster" / "artifacts"
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def files_in(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}


def test_a_training_in_parts_fetches_its_own_part(apart: Cluster, fetched: Path, tmp_path: Path) -> None:
    home = apart.new_home("parts")
    home.secret_key()
    graph = graph_of(home, num_nodes=12_000, dim=64)
    asked = ("train.strategy=partitioned", "train.loader=neighbor", "train.loader.batch_size=512", "train.epochs=2")
    outcome, said = trained(home, two_ranks(*asked, *ON_CLUSTER), graph)
    (own,) = (one["machine"]["name"] for one in apart.head.status() if one["machine"]["is_own"])
    assert f"127.0.0.2: rank 1; files come from {own}" in said
    parts = json.loads((fetched / "partition" / "graph" / ".feat.npy.parts").read_text())
    taken = sum(stop - start for start, stop in parts["parts"])
    assert parts["size"] / 2 <= taken <= parts["size"] / 2 + 2 * PART_BYTES
    names = {path.stem for path in files_in(fetched).values() if path.name[0] != "."}
    assert names == {"manifest", "feat", "csc_indptr", "csc_indices", "label", "train_idx", "valid_idx"}
    kept = apart.second.cache / "graphmill" / "cluster"
    assert {path.name for path in kept.iterdir()} == {"artifacts", "locks", "work"}
    assert not list((kept / "work").iterdir())
    assert_equal_to_one_machine(outcome, tmp_path / "alone", graph, two_ranks(*asked))


@pytest.mark.parametrize("transforms", [(), pytest.param(("standardize", "degree"), marks=pytest.mark.slow)])
def test_shards_are_computed_on_both_machines(
    apart: Cluster, fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transforms: tuple[str, ...]
) -> None:
    home = apart.new_home("shards")
    said = assert_shards_equal_to_one_machine(home, Home.open(tmp_path / "alone"), monkeypatch, *transforms)
    of_shards = [text for text in said if " shards " in text]
    assert all("computed, 0 reused" in text for text in of_shards)
    assert len(of_shards) == (5 if transforms else 1)
    tables = {name.split("/")[2] for name in files_in(fetched) if name.endswith(".parquet")}
    assert tables == ({"edges", "nodes"} if transforms else {"edges"})


def test_ranks_that_exchange_files_need_one_home(apart: Cluster, fetched: Path) -> None:
    home = apart.new_home("blocks")
    message = r"^127\.0\.0\.2 does not see .*/blocks.*, and the ranks of this training exchange files"
    with pytest.raises(StageError, match=message):
        trained(home, vectors(*ON_CLUSTER))
    assert not files_in(fetched)


@pytest.mark.slow
def test_what_only_a_rank_of_another_machine_sees_ends_the_training(apart: Cluster, fetched: Path) -> None:
    """Once, in its words: here the copy of a file was damaged there."""
    home = apart.new_home("damaged")
    graph = graph_of(home)
    (fetched / "partition" / "graph").mkdir(parents=True)
    (fetched / "partition" / "graph" / "feat.npy").write_bytes((graph.folder / "feat.npy").read_bytes()[:-700])
    with pytest.raises(IntegrityError, match=r"/cache-r1/.*/feat\.npy has .* bytes"):
        trained(home, two_ranks("train.strategy=partitioned", "train.loader=neighbor", *ON_CLUSTER), graph)
    assert not list(home.root.rglob("artifacts/train/*"))
