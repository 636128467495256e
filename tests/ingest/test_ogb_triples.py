"""Knowledge graphs in OGB's layout, as ogbl-wikikg2 and ogbl-biokg lie on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, RecipeError
from tasks.ingest.ogb import triples
from tasks.storage.dataset_store import DatasetStore
from tests.ingest.conftest import Ingest
from tests.ingest.ogb_folders import BIOKG, biokg_folder, put, wikikg_folder

WIKI: dict[str, Any] = {"name": "ogb", "dataset": "ogbl-wikikg2"}
BIO: dict[str, Any] = {"name": "ogb", "dataset": "ogbl-biokg"}
FIRST = dict(zip(BIOKG, (0, 3, 5), strict=True))
"""Where each type begins when all lie end to end."""


def rows(store: DatasetStore, table: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = store.read(table).to_pydict()
    return found


def test_one_type(ingest: Ingest, folder: Path) -> None:
    made = wikikg_folder(folder / "ogbl_wikikg2")
    store = ingest(**WIKI, root=str(folder))
    manifest = store.manifest
    assert (manifest.task, manifest.task_type, manifest.metric) == ("triple", "triple", "mrr")
    assert (manifest.ogb_name, manifest.num_relations, manifest.directed) == ("ogbl-wikikg2", 3, True)
    assert manifest.splits == {"train": 9, "valid": 3, "test": 2}
    assert manifest.warnings == ()
    for split, data in made.items():
        found = rows(store, f"split/{split}")
        for column, key in (("src", "head"), ("relation", "relation"), ("dst", "tail")):
            assert found[column] == data[key].tolist()
        if split != "train":
            for column, key in (("src", "head_neg"), ("dst", "tail_neg")):
                np.testing.assert_array_equal(store.column(f"split/{split}_negative", column), data[key])
    assert "split/train_negative" not in store
    assert store.table("split/train").columns == {"src": "int32", "relation": "int32", "dst": "int32"}
    edges = rows(store, "edges/node__to__node")
    assert (edges["src"], edges["dst"]) == (made["train"]["head"].tolist(), made["train"]["tail"].tolist())
    assert rows(store, "relations") == {"relation": [0, 1, 2], "name": ["P0", "P1", "P2"]}
    assert rows(store, "ids/node")["original_id"] == [f"Q{i}" for i in range(6)]
    assert store.table("nodes/node").num_rows == 6


def test_several_types(ingest: Ingest, folder: Path) -> None:
    made = biokg_folder(folder / "ogbl_biokg")
    store = ingest(**BIO, root=str(folder))
    assert [(kind.name, kind.num_nodes) for kind in store.manifest.node_types] == list(BIOKG.items())
    for split, data in made.items():
        found = rows(store, f"split/{split}")
        for column, end in (("src", "head"), ("dst", "tail")):
            first = np.array([FIRST[kind] for kind in data[f"{end}_type"]])
            assert found[column] == (data[end] + first).tolist()
            if split != "train":
                expected = data[f"{end}_neg"] + first[:, None]
                np.testing.assert_array_equal(store.column(f"split/{split}_negative", column), expected)
    train = made["train"]
    edges = rows(store, "edges/disease__to__protein")
    chosen = train["relation"] == 0
    assert (edges["src"], edges["dst"]) == (train["head"][chosen].tolist(), train["tail"][chosen].tolist())
    edge_types = {kind.name for kind in store.manifest.edge_types}
    assert edge_types == {"disease__to__protein", "drug__to__drug", "drug__to__protein"}
    assert store.manifest.num_edges == 6
    assert rows(store, "relations")["name"] == ["disease-protein", "drug-drug_x", "p"]
    assert rows(store, "ids/drug")["original_id"] == ["dr0", "dr1"]


def test_candidates_in_many_portions(ingest: Ingest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = biokg_folder(folder / "ogbl_biokg")
    monkeypatch.setattr(triples, "_CHUNK_BYTES", 1)
    monkeypatch.setattr(triples, "_ROWS", 2)
    store = ingest(**BIO, root=str(folder))
    for column, end in (("src", "head"), ("dst", "tail")):
        first = np.array([FIRST[kind] for kind in made["test"][f"{end}_type"]])
        expected = made["test"][f"{end}_neg"] + first[:, None]
        np.testing.assert_array_equal(store.column("split/test_negative", column), expected)
    assert rows(store, "split/train")["relation"] == [0, 0, 1, 1, 2, 0]


def test_a_folder_of_ones_own(ingest: Ingest, folder: Path) -> None:
    made = wikikg_folder(folder / "mine")
    for name in ("valid", "test"):
        change(folder / f"mine/split/time/{name}.pt", lambda data: (data.pop("head_neg"), data.pop("tail_neg")))
    (folder / "mine/mapping/reltype2relid.csv.gz").unlink()
    store = ingest(name="ogb", dataset="mine", root=str(folder), task="triple")
    assert (store.manifest.metric, store.manifest.ogb_name) == ("mrr", None)
    assert "split/valid_negative" not in store
    assert rows(store, "split/test")["src"] == made["test"]["head"].tolist()
    assert rows(store, "relations")["name"] == ["0", "1", "2"]
    with pytest.raises(RecipeError, match="multiclass does not fit a triple task"):
        ingest(name="ogb", dataset="mine", root=str(folder), task="triple", task_type="multiclass")
    with pytest.raises(RecipeError, match="triple does not fit a node task"):
        ingest(name="ogb", dataset="mine", root=str(folder), task="node", task_type="triple")


def change(path: Path, how: Callable[[dict[str, Any]], Any]) -> None:
    data = torch.load(path, weights_only=False)
    how(data)
    torch.save(data, path, pickle_protocol=4)


def setting(key: str, value: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda data: data.__setitem__(key, value)


@pytest.mark.parametrize(
    ("split", "how", "message"),
    [
        ("train", setting("head", np.arange(9)), r"train\.pt \(row 6\): head 6 is not in 0\.\.5; there are 6 node"),
        ("train", setting("tail", np.arange(9) - 1), r"train\.pt \(row 0\): tail -1 is not in"),
        ("train", setting("tail", np.arange(8) % 6), r"train\.pt: 'tail' and 'relation' differ in length"),
        ("train", setting("relation", np.full(9, -2)), r"train\.pt \(row 0\): relation -2 is not in"),
        ("train", setting("relation", np.full(9, 0.5)), r"train\.pt\[relation\] \(row 0, column 0\): 0\.5 does not"),
        ("train", setting("head", np.zeros((9, 2), int)), r"'head' has the shape \(9, 2\); one value a triple"),
        ("valid", lambda data: data.pop("tail"), r"valid\.pt: has no 'tail'; it has head, relation"),
        ("valid", lambda data: data.pop("tail_neg"), r"valid\.pt: has no 'tail_neg'"),
        ("valid", setting("tail_neg", np.zeros((2, 4), int)), r"tail_neg has the shape \(2, 4\); \(3, candidates\)"),
        ("test", setting("head_neg", np.full((2, 4), 6)), r"test\.pt \(row 0\): head_neg 6 is not in 0\.\.5"),
        ("test", setting("head_neg", np.full((2, 4), np.nan)), r"test\.pt\[head_neg\] \(row 0, column 0\): nan does"),
        ("test", lambda data: data.update({k: v[:0] for k, v in data.items()}), r"test\.pt: the split is empty"),
    ],
)
def test_mistakes(ingest: Ingest, folder: Path, split: str, how: Any, message: str) -> None:
    wikikg_folder(folder / "ogbl_wikikg2")
    change(folder / f"ogbl_wikikg2/split/time/{split}.pt", how)
    with pytest.raises(DataError, match=message):
        ingest(**WIKI, root=str(folder))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (setting("head_type", ["drug", "dragon"]), r"valid\.pt \(row 1, column head_type\): unknown type 'dragon';"),
        (setting("head_type", ["drug", None]), r"valid\.pt \(row 1, column head_type\): unknown type None"),
        (setting("head_type", ["drug"]), r"'head' and 'relation' differ in length"),
        (setting("tail_type", 5), r"'tail_type' is no list of types: disease, drug, protein"),
        (lambda data: data.pop("tail_type"), r"'tail_type' is no list of types"),
        (setting("head", np.array([0, 2])), r"valid\.pt \(row 1\): head 2 is not in 0\.\.1; there are 2 drug entities"),
        (setting("tail_neg", np.full((2, 3), 3)), r"valid\.pt \(row 1\): tail_neg 3 is not in 0\.\.1"),
    ],
)
def test_mistakes_in_types(ingest: Ingest, folder: Path, how: Any, message: str) -> None:
    biokg_folder(folder / "ogbl_biokg")
    change(folder / "ogbl_biokg/split/random/valid.pt", how)
    with pytest.raises(DataError, match=message):
        ingest(**BIO, root=str(folder))


def test_what_does_not_fit_together_is_said(ingest: Ingest, folder: Path) -> None:
    wikikg_folder(folder / "ogbl_wikikg2")
    put(folder / "ogbl_wikikg2/raw/num-edge-list.csv.gz", [8])
    put(folder / "ogbl_wikikg2/mapping/reltype2relid.csv.gz", "reltype,rel id\n0,P0\n2,P2\n")
    change(folder / "ogbl_wikikg2/split/time/train.pt", setting("head", np.array([0, 1, 2, 0, 4, 5, 0, 1, 2])))
    change(folder / "ogbl_wikikg2/split/time/train.pt", setting("tail", np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])))
    said = " ".join(ingest(**WIKI, root=str(folder)).manifest.warnings)
    assert "raw/ has 8 triples, split/ 9 to train on" in said
    assert "does not name each of 0..2 exactly once" in said
    assert "1 triples are repeated within a split or between two" in said
