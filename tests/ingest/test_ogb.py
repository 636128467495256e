"""OGB's layouts, small copies of each, and the real folders where they lie beside the checkout."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe, dump_recipe, load_recipe
from configs.registry import DATASETS
from tasks.ingest.ogb.meta import atom_cardinalities, bond_cardinalities, listed_meta, listed_names
from tests.ingest.conftest import Ingest
from tests.ingest.ogb_folders import link_folder, mag_folder, molecules_folder, node_folder, papers_folder, put

OWN: dict[str, Any] = {"name": "ogb", "dataset": "mine", "task": "node", "num_classes": 3}


def test_node_task(ingest: Ingest, folder: Path) -> None:
    made = node_folder(folder / "mine")
    store = ingest(**OWN, root=str(folder))
    manifest = store.manifest
    assert (manifest.task, manifest.metric, manifest.ogb_name, manifest.directed) == ("node", "accuracy", None, True)
    np.testing.assert_array_equal(store.column("edges/node__to__node", "src"), made["edge"][:, 0])
    np.testing.assert_array_equal(store.column("edges/node__to__node", "dst"), made["edge"][:, 1])
    np.testing.assert_array_equal(store.column("nodes/node", "feat"), made["feat"].astype(np.float32))
    np.testing.assert_array_equal(store.column("nodes/node", "label"), made["label"])
    np.testing.assert_array_equal(store.column("nodes/node", "time"), made["year"])
    assert store.read("ids/node").column("original_id").to_pylist() == [f"n{i}" for i in range(12)]
    assert store.column("split/valid", "node_id").tolist() == [6, 7, 8]
    pairs = [tuple(pair) for pair in made["edge"].tolist()]
    assert manifest.num_self_loops == sum(a == b for a, b in pairs)
    assert manifest.num_duplicate_edges == len(pairs) - len(set(pairs))


def test_heterogeneous(ingest: Ingest, folder: Path) -> None:
    made = mag_folder(folder / "mine")
    store = ingest(**{**OWN, "num_classes": 4}, root=str(folder))
    assert {t.name: t.num_nodes for t in store.manifest.node_types} == {"author": 5, "field": 3, "paper": 8}
    assert store.manifest.target_type == "paper"
    for name in ("author__writes__paper", "paper__has__field", "paper__cites__paper"):
        relation = name.split("__")[1]
        np.testing.assert_array_equal(store.column(f"edges/{name}", "src"), made[relation][:, 0])
        np.testing.assert_array_equal(store.column(f"edges/{name}", "dst"), made[relation][:, 1])
    np.testing.assert_array_equal(store.column("nodes/paper", "feat"), made["feat"].astype(np.float32))
    assert store.table("nodes/author").columns == {"node_id": "int64"}
    assert store.column("nodes/paper", "time").tolist() == list(range(2010, 2018))
    assert store.read("ids/paper").column("original_id").to_pylist() == [i * 11 for i in range(8)]
    assert store.column("split/train", "node_id").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("compressed", [False, True])
def test_binary(ingest: Ingest, folder: Path, compressed: bool) -> None:
    made = papers_folder(folder / "mine", compressed)
    store = ingest(**{**OWN, "num_classes": 4}, root=str(folder))
    np.testing.assert_array_equal(store.column("edges/node__to__node", "src"), made["edge"][0])
    np.testing.assert_array_equal(store.column("edges/node__to__node", "dst"), made["edge"][1])
    np.testing.assert_array_equal(store.column("nodes/node", "feat"), made["feat"])
    assert store.column("nodes/node", "label").tolist() == [0, 1, 2, 3, 0, 1, 2, 3, -1, -1]


def test_molecules(ingest: Ingest, folder: Path) -> None:
    made = molecules_folder(folder / "ogbg_molclintox")
    store = ingest(name="ogb", dataset="ogbg-molclintox", root=str(folder))
    manifest = store.manifest
    assert (manifest.task_type, manifest.directed) == ("multilabel", False)
    assert (manifest.num_tasks, manifest.num_graphs) == (2, 3)
    assert manifest.node_types[0].features[0].cardinalities == atom_cardinalities()
    assert manifest.edge_types[0].features[0].cardinalities == bond_cardinalities()
    graphs = store.read("graphs")
    assert graphs.column("num_nodes").to_pylist() == made["sizes"]
    np.testing.assert_array_equal(store.column("graphs", "label"), made["label"].astype(np.float32))
    assert store.column("edges/node__to__node", "src").tolist() == [0, 1, 4, 5, 6]
    np.testing.assert_array_equal(store.column("nodes/node", "feat"), made["feat"])
    assert store.read("ids/graphs").column("original_id").to_pylist() == ["a, b", "c", "d"]
    assert store.column("split/test", "graph_id").tolist() == [2]


def test_own_codes_find_their_cardinalities(ingest: Ingest, folder: Path) -> None:
    molecules_folder(folder / "mine", tasks=1)
    put(folder / "mine/raw/graph-label.csv.gz", [[0.5], [1.5], [-2.25]])
    store = ingest(name="ogb", dataset="mine", root=str(folder), task="graph", task_type="regression", categorical=True)
    assert store.manifest.metric == "rmse"
    assert store.manifest.node_types[0].features[0].cardinalities == (13, 1, 5, 6, 4, 1, 3, 1, 1)
    assert store.column("graphs", "label").tolist() == [[0.5], [1.5], [-2.25]]


@pytest.mark.parametrize("tensors", [False, True])
def test_links_with_pools(ingest: Ingest, folder: Path, tensors: bool) -> None:
    link_folder(folder / "ogbl_collab", tensors=tensors)
    put(folder / "ogbl_collab/raw/node-feat.csv.gz", np.ones((10, 2)))
    store = ingest(name="ogb", dataset="ogbl-collab", root=str(folder))
    assert store.manifest.metric == "hits@50"
    assert store.manifest.splits == {"train": 9, "valid": 2, "test": 3}
    test = {"src": [3, 4, 5], "dst": [6, 7, 8], "weight": [1, 1, 1], "time": [2018, 2018, 2018]}
    assert store.read("split/test").to_pydict() == test
    assert store.table("split/valid_negative").num_rows == 5
    assert store.column("edges/node__to__node", "weight").tolist() == list(range(1, 10))


def test_links_with_candidates_of_their_own(ingest: Ingest, folder: Path) -> None:
    link_folder(folder / "ogbl_citation2", style="candidates")
    put(folder / "ogbl_citation2/raw/node-feat.csv.gz", np.ones((10, 2)))
    store = ingest(name="ogb", dataset="ogbl-citation2", root=str(folder))
    negative = store.column("split/test_negative", "dst")
    assert negative.shape == (3, 4)
    assert store.column("split/test_negative", "src").tolist() == store.column("split/test", "src").tolist()


def test_names_and_options(ingest: Ingest, folder: Path) -> None:
    assert {"ogbn-arxiv", "ogbl-ddi", "ogbg-molhiv"} <= set(listed_names())
    assert listed_meta("ogbn-papers100M").url.endswith("papers100M-bin.zip")
    with pytest.raises(RecipeError, match=r"did you mean 'ogbn-arxiv'"):
        ingest(name="ogb", dataset="ogbn-arxv")
    with pytest.raises(RecipeError, match="leave it out"):
        ingest(name="ogb", dataset="ogbn-arxiv", metric="f1")
    with pytest.raises(RecipeError, match="num_classes"):
        ingest(name="ogb", dataset="mine", root=str(folder), task="node")


def test_changed_files_are_read_again(ingest: Ingest, folder: Path) -> None:
    node_folder(folder / "mine")
    first = ingest(**OWN, root=str(folder))
    (folder / "elsewhere").mkdir()
    (folder / "mine").rename(folder / "elsewhere/mine")
    assert ingest(**OWN, root=str(folder / "elsewhere")).folder == first.folder
    put(folder / "elsewhere/mine/raw/node-label.csv.gz", np.zeros(12, int))
    assert ingest(**OWN, root=str(folder / "elsewhere")).folder != first.folder


REAL = [
    ("ogbn_debdeps", {"task": "node", "num_classes": 58}, (93649, 530413), (58653, 10876, 24120)),
    ("ogbg-molbace", {}, (51577, 55768), (1210, 151, 152)),
    ("ogbl-ddi", {}, (4267, 1067911), (1067911, 133489, 133489)),
]


@pytest.mark.parametrize(("name", "options", "size", "splits"), REAL)
def test_real_folders(
    ingest: Ingest,
    shared_data: Path,
    name: str,
    options: dict[str, Any],
    size: tuple[int, ...],
    splits: tuple[int, ...],
) -> None:
    store = ingest(name="ogb", dataset=name, root=str(shared_data / "ogb"), **options)
    assert (store.manifest.num_nodes, store.manifest.num_edges) == size
    assert tuple(store.manifest.splits.values()) == splits
    folder = shared_data / "ogb" / name.replace("-", "_")
    with gzip.open(folder / "raw/edge.csv.gz", "rt") as file:
        first = [tuple(map(int, next(file).split(","))) for _ in range(1000)]
    table = store.read("edges/node__to__node").slice(0, 1000).to_pydict()
    if store.manifest.task != "graph":
        assert list(zip(table["src"], table["dst"], strict=True)) == first


def test_the_damaged_folder_is_refused(ingest: Ingest, shared_data: Path) -> None:
    with pytest.raises(DataError, match=r"ogbn_arxiv: is incomplete: raw/ lacks edge\.csv\.gz, node-feat\.csv\.gz"):
        ingest(name="ogb", dataset="ogbn-arxiv", root=str(shared_data / "ogb"))


@pytest.mark.parametrize("name", ["ogbn-arxiv", "ogbl-ddi", "ogbg-molhiv"])
def test_a_recipe_that_was_written_out_whole_names_the_same_data(name: str) -> None:
    before = load_recipe(name)
    after = build_recipe(dump_recipe(before))
    assert DATASETS.create(after.dataset).meta == DATASETS.create(before.dataset).meta
