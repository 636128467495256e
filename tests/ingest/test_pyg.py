"""Graphs of PyG in files of torch.save: what PyG writes is read without it, and what is exported PyG reads."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError
from tasks.apply.graph_file import write_pyg
from tasks.readers.arrays.pyg_file import read_pyg_file
from tests.ingest.conftest import Ingest
from tests.ingest.test_dgl import AS_IT_IS, assert_same_graph, masks, preprocessed
from tests.needs import import_package

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")


@pytest.fixture
def pyg(monkeypatch: pytest.MonkeyPatch) -> Any:
    return import_package(monkeypatch, "PyG", "torch_geometric.data")


def stores() -> dict[Any, Any]:
    """Papers and authors with features of different widths, two relations, one with features, weights and times."""
    torch.manual_seed(0)
    seven, split = torch.arange(7), torch.tensor([0, 0, 0, 1, 2, 2, 3])
    paper = {"x": torch.randn(7, 3), "x_cat": seven.view(7, 1) % 2, "y": torch.tensor([0, 1, 2, 0, 1, 2, -1])}
    paper |= {"time": seven + 2000, "original_id": seven * 10}
    paper |= {name: split == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    writes = {"edge_index": torch.tensor([[0, 1, 4], [2, 3, 6]]), "edge_attr": torch.randn(3, 2)}
    writes |= {"edge_weight": torch.tensor([0.5, 1.0, 2.0]), "edge_time": torch.tensor([5, 6, 7])}
    cites = {"edge_index": torch.tensor([[0, 1], [1, 2]]), "edge_attr": torch.randn(2, 1)}
    nodes = {"paper": paper, "author": {"x": torch.randn(5, 2)}, "venue": {"num_nodes": 2}}
    return {**nodes, WRITES: writes, CITES: cites}


def save(path: Path, what: Any) -> str:
    torch.save(what, path)
    return str(path)


def check_store(store: Any) -> None:
    manifest = store.manifest
    assert (manifest.task, manifest.task_type, manifest.num_classes) == ("node", "multiclass", 3)
    assert [(one.name, one.num_nodes) for one in manifest.node_types] == [("paper", 7), ("author", 5), ("venue", 2)]
    features = [(f.column, f.dim) for one in manifest.node_types for f in one.features]
    assert features == [("paper.feat", 3), ("paper.feat_cat", 1), ("author.feat", 2)]
    assert [one.name for one in manifest.edge_types] == ["author__writes__paper", "paper__cites__paper"]
    assert store.column("ids/paper", "original_id").tolist() == [0, 10, 20, 30, 40, 50, 60]
    assert store.column("nodes/paper", "time").tolist() == list(range(2000, 2007))
    assert store.column("split/test", "node_id").tolist() == [4, 5]
    edges = "edges/author__writes__paper"
    assert store.column(edges, "dst").tolist() == [2, 3, 6]
    assert store.column(edges, "weight").tolist() == [0.5, 1.0, 2.0]
    assert store.column(edges, "time").tolist() == [5, 6, 7]


def test_a_dictionary_of_stores(ingest: Ingest, folder: Path) -> None:
    check_store(ingest(name="pyg", path=save(folder / "g.pt", stores())))


def test_hetero_data_as_pyg_saves_it(ingest: Ingest, folder: Path, pyg: Any) -> None:
    data = pyg.HeteroData(stores())
    data.note = "a field of the graph"
    for number, what in enumerate((data, data.to_dict(), (data, None), (data.to_dict(), None, type(data)))):
        check_store(ingest(name="pyg", path=save(folder / f"{number}.pt", what)))


def test_data_as_pyg_saves_it(ingest: Ingest, folder: Path, pyg: Any) -> None:
    """Nodes and edges in one store; of six nodes and five edges each array says by its rows what it is of."""
    ends = torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 5]])
    data = pyg.Data(x=torch.rand(6, 2), edge_index=ends, edge_attr=torch.rand(5, 3), y=torch.arange(6) % 3, **masks(6))
    store = ingest(name="pyg", path=save(folder / "g.pt", data))
    assert store.manifest.node_types[0].features[0].dim == 2
    assert store.manifest.edge_types[0].features[0].dim == 3
    edge_masks = {name: torch.arange(5) % 3 == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    data = pyg.Data(x=torch.rand(6, 2), edge_index=ends, **edge_masks)
    store = ingest(name="pyg", path=save(folder / "links.pt", data), task="link")
    assert store.manifest.splits == {"train": 2, "valid": 2, "test": 1}


def test_an_exported_graph_comes_back(home: Any, folder: Path) -> None:
    section = {"name": "pyg", "path": save(folder / "g.pt", stores())}
    first, dataset = preprocessed(home, section, **AS_IT_IS)
    assert write_pyg(first, dataset, folder / "again.pt")["nodes"] == 14
    exported = torch.load(folder / "again.pt", weights_only=True)
    assert exported["paper"]["x"].shape == (7, 3)  # its own columns, and not those of authors
    assert "x" not in exported["venue"]
    torch.testing.assert_close(exported[CITES]["edge_attr"], stores()[CITES]["edge_attr"])
    again, _ = preprocessed(home, {"name": "pyg", "path": str(folder / "again.pt")}, **AS_IT_IS)
    assert_same_graph(first, again)
    assert again.manifest.type_columns == first.manifest.type_columns


def test_pyg_reads_what_is_exported(home: Any, folder: Path, pyg: Any) -> None:
    first, dataset = preprocessed(home, {"name": "pyg", "path": save(folder / "g.pt", stores())}, **AS_IT_IS)
    write_pyg(first, dataset, folder / "again.pt")
    data = pyg.HeteroData.from_dict(torch.load(folder / "again.pt", weights_only=True))
    wanted = stores()
    assert (data.node_types, data.edge_types) == (["paper", "author", "venue"], [WRITES, CITES])
    for kind, field in [("paper", "x"), ("author", "x"), ("paper", "time"), (WRITES, "edge_time"), ("paper", "y")]:
        torch.testing.assert_close(data[kind][field], wanted[kind][field], check_dtype=False)
    ends = {tuple(pair) for pair in data[WRITES].edge_index.T.tolist()}
    assert ends == {tuple(pair) for pair in wanted[WRITES]["edge_index"].T.tolist()}


def test_a_graph_of_one_type_comes_back(home: Any, folder: Path) -> None:
    ring = {"x": torch.rand(6, 2), "y": torch.arange(6) % 3, **masks(6), "num_nodes": 6}
    ring["edge_index"] = torch.stack([torch.arange(5), torch.arange(5) + 1])
    ring["edge_time"] = torch.arange(5)
    first, dataset = preprocessed(home, {"name": "pyg", "path": save(folder / "g.pt", ring)}, **AS_IT_IS)
    write_pyg(first, dataset, folder / "again.pt")
    again, _ = preprocessed(home, {"name": "pyg", "path": str(folder / "again.pt")}, **AS_IT_IS)
    assert_same_graph(first, again)


def changed(kind: Any, field: str, value: Any) -> dict[Any, Any]:
    found = stores()
    if value is None:
        del found[kind][field]
    else:
        found[kind][field] = value
    return found


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (changed("venue", "num_nodes", None), r"how many nodes of venue there are; set data\['venue'\].num_nodes"),
        (changed("venue", "num_nodes", -2), r"venue say num_nodes=-2"),
        (changed("venue", "num_nodes", 10**11), r"100,000,000,000 nodes of venue takes .* GB of memory"),
        (changed("venue", "num_nodes", 10**13), r"venue say num_nodes=1000"),
        (changed("paper", "y", torch.zeros(3)), r"nodes of paper\['y'\].*\(3,\).*7 rows are needed"),
        (changed(WRITES, "edge_index", None), r"author writes paper\['edge_index'\].*is missing"),
        (changed(WRITES, "edge_index", torch.zeros(3, 2)), r"edge_index'\].*has the shape \(3, 2\)"),
        (changed(WRITES, "edge_index", torch.tensor([[0, 9, 1], [1, 1, 1]])), r"edges of author writes paper.*9"),
        (changed("paper", "x", torch.full((7, 3), torch.nan)), r"nodes of paper\['x'\].*row 0"),
        (changed("paper", "train_mask", torch.zeros(7).bool()), "the train split is empty"),
        (changed("author", "y", torch.zeros(5)), "paper, author have labels; say whose"),
        (changed("paper", "y", None), r"no nodes have 'y' in nodes"),
        (changed("paper", "train_mask", torch.arange(7)), r"train_mask'\].*row 2.*it holds 2; 0 and 1"),
        (changed("paper", "y", ["a"] * 7), r"nodes of paper\['y'\].*is a list; save a tensor"),
        (changed("paper", "original_id", [1] * 7), r"original_id'\].*is a list;.*or a list of texts as original_id"),
        (changed("paper", "original_id", ["a"] * 6), r"original_id'\].*\(6, 1\).*7 rows are needed"),
        (changed("paper", "original_id", ["a\0"] * 7), r"original_id'\].*zero byte"),
        ([stores(), stores()], "many graphs"),
        ({"a": torch.zeros(2)}, "holds no graph of PyG"),
        (torch.zeros(3), "holds no graph of PyG"),
    ],
)
def test_mistakes_are_named(ingest: Ingest, folder: Path, what: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ingest(name="pyg", path=save(folder / "g.pt", what))


def test_ids_may_be_a_list_of_texts_and_a_relation_empty(ingest: Ingest, folder: Path) -> None:
    names = ["é", "", "p2", "p3", "p4", "p5", "a long name"]
    what = changed("paper", "original_id", names)
    what[CITES] = {"edge_index": torch.zeros(2, 0, dtype=torch.long), "edge_attr": torch.zeros(0, 1)}
    store = ingest(name="pyg", path=save(folder / "g.pt", what))
    assert store.read("ids/paper", ["original_id"]).column(0).to_pylist() == names
    assert [one.num_edges for one in store.manifest.edge_types] == [3, 0]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


def test_nothing_that_a_file_names_is_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    torch.save(changed("paper", "x", Evil()), folder / "g.pt")
    with pytest.raises(DataError, match=r"(posix|os|nt)\.system is not allowed"):
        read_pyg_file(folder / "g.pt", ["x"])
    assert not (folder / "ran").exists()
    (folder / "plain.pkl").write_bytes(pickle.dumps(stores()))
    with pytest.raises(DataError):
        read_pyg_file(folder / "plain.pkl", ["x"])


def test_a_damaged_file_is_refused(folder: Path) -> None:
    content = Path(save(folder / "g.pt", stores())).read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(content[: rng.integers(1, len(content))] if rng.random() < 0.3 else content)
        for place in rng.integers(0, len(broken), 3):
            broken[place] = rng.integers(256)
        (folder / "b.pt").write_bytes(broken)
        try:
            read_pyg_file(folder / "b.pt", ["x", "y"])
        except DataError:
            continue


def test_labels_of_edges(ingest: Ingest, folder: Path) -> None:
    data = stores()
    labels = {"y": torch.tensor([1, 0, -1, 1, 0]), "edge_index": torch.tensor([[0, 1, 4, 0, 3], [2, 3, 6, 2, 0]])}
    split = torch.tensor([0, 1, 3, 2, 0])
    masks = {name: split == i for i, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    data[WRITES] = {**labels, **masks, "edge_attr": torch.arange(5.0)}
    path = save(folder / "g.pt", data)
    store = ingest(name="pyg", path=path, task="edge", scored_edges="keep")
    manifest, kind = store.manifest, store.manifest.labelled_edges
    assert (manifest.task, manifest.task_type, manifest.target_type) == ("edge", "binary", "author")
    assert (kind.name, manifest.keep_known_pairs, manifest.ordered_ends) == ("author__writes__paper", True, True)
    label = store.column(f"edge_labels/{kind.name}", "label")
    assert np.array_equal(label[:, 0], [1, 0, np.nan, 1, 0], equal_nan=True)
    splits = {name: store.column(f"split/{name}", "edge_id").tolist() for name in ("train", "valid", "test")}
    assert splits == {"train": [0, 4], "valid": [1], "test": [3]}
    with pytest.raises(DataError, match="edges that have labels, 'z' in edges: none; name their field"):
        ingest(name="pyg", path=path, task="edge", labels="z")
    data[CITES] |= {"y": torch.tensor([0, 1])}
    with pytest.raises(DataError, match=r"author writes paper, paper cites paper; .*of several relations one"):
        ingest(name="pyg", path=save(folder / "g.pt", data), task="edge")
    assert ingest(name="pyg", path=path, task="edge", target="writes").manifest.splits == manifest.splits
    with pytest.raises(ValueError, match="scored_edges is for edge tasks"):
        ingest(name="pyg", path=path, scored_edges="keep")
