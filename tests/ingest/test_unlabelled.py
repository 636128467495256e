"""What stands for no label in every format, numbers that are no label, and tables that are predicted for alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import torch

from configs.errors import DataError, GraphmillError
from configs.load import build_recipe
from configs.schema import Recipe
from flows.apply.model_use import without_splits
from models.dgl.adapter import load_dgl
from tasks.kinds.measurable import check_graph
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.ingest.conftest import Ingest
from tests.ingest.small_databases import database, write
from tests.ingest.small_tables import save, section
from tests.publish.line import Line, customers, write_customers
from tests.support import WITHOUT_DGL

NUM = 12
CLASSES = [0, 1, 2] * 3 + [0]
SPLIT = np.array([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 3, 3])
EDGES = np.stack([np.arange(NUM), (np.arange(NUM) + 1) % NUM])


def save_graph(kind: str, path: Path, labels: Any) -> dict[str, Any]:
    """Write a graph whose last two nodes are in no split; returns the section."""
    masks = {name: code == SPLIT for code, name in enumerate(("train", "valid", "test"))}
    if kind == "npz":
        np.savez(path, edge_index=EDGES, y=labels, **masks)
        return {"name": "npz", "path": f"{path}.npz"}
    names = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
    fields = {names[split]: torch.from_numpy(mask) for split, mask in masks.items()}
    if kind == "pyg":
        data = {"edge_index": torch.from_numpy(EDGES), "y": torch.as_tensor(labels), "num_nodes": NUM, **fields}
        torch.save(data, path)
    else:
        if WITHOUT_DGL:
            pytest.skip("DGL has no wheel for this Python")
        dgl = load_dgl()
        graph = dgl.graph((torch.from_numpy(EDGES[0]), torch.from_numpy(EDGES[1])))
        graph.ndata.update({"label": torch.as_tensor(labels), **fields})
        dgl.save_graphs(str(path), [graph])
    return {"name": kind, "path": str(path)}


@pytest.mark.parametrize("kind", ["pyg", "dgl", "npz"])
@pytest.mark.parametrize("none", [[-100, -100], [-1, -100], [-1, -1]])
def test_ignored_rows_have_no_label(kind: str, none: list[int], ingest: Ingest, folder: Path) -> None:
    store = ingest(**save_graph(kind, folder / "g", np.array(CLASSES + none)))
    assert (store.manifest.task_type, store.manifest.num_classes) == ("multiclass", 3)
    assert store.column("nodes/node", "label").tolist() == [*CLASSES, -1, -1]


@pytest.mark.parametrize("kind", ["pyg", "dgl"])
def test_ignored_rows_of_floats_and_of_several_labels(kind: str, ingest: Ingest, folder: Path) -> None:
    store = ingest(**save_graph(kind, folder / "f", np.array([*CLASSES, -100, np.nan], np.float32)))
    assert store.manifest.task_type == "multiclass"
    several = np.stack([[0, 1] * 5 + [-100] * 2, [1, 1, 0, 0, 1, 1, 0, 0, 1, 1, -100, -1]], 1)
    store = ingest(**save_graph(kind, folder / "s", several))
    assert store.manifest.task_type == "multilabel"
    label = np.stack(store.column("nodes/node", "label"))
    assert np.isnan(label).sum() == 4


@pytest.mark.parametrize("kind", ["pyg", "dgl", "npz"])
def test_other_whole_numbers_below_0_are_refused(kind: str, ingest: Ingest, folder: Path) -> None:
    with pytest.raises(DataError, match=r"\(row 10.*label -5 is below 0 \(2 such rows\): classes count from 0"):
        ingest(**save_graph(kind, folder / "g", np.array([*CLASSES, -5, -5])))


def test_amounts_are_told_apart_by_the_option(ingest: Ingest, folder: Path) -> None:
    source = save_graph("pyg", folder / "g", np.array([*CLASSES, -5, -100]))
    store = ingest(**source, task_type="regression")
    assert np.stack(store.column("nodes/node", "label"))[-2:].tolist() == [[-5], [-100]]
    with pytest.raises(DataError, match=r"dataset.task_type=regression"):
        ingest(**source)
    with pytest.raises(DataError, match=r"label -5 is not 0..2; where there is no label"):
        ingest(**source, task_type="multiclass")
    two = save_graph("pyg", folder / "two", np.array([1, -1] * 6))
    with pytest.raises(DataError, match="holds -1, 1 alone; the two classes are 0 and 1"):
        ingest(**two)


@pytest.mark.parametrize("options", [{}, {"num_classes": 3}])
def test_tables(options: dict[str, Any], ingest: Ingest, folder: Path) -> None:
    save("e.csv", pa.table({"src": EDGES[0], "dst": EDGES[1]}))
    for none in ([-100, -100], [-1, -100]):
        save("n.csv", pa.table({"id": np.arange(NUM), "y": np.array(CLASSES + none)}))
        store = ingest(**section(nodes={"files": "n.csv", "label": "y"}, **options))
        assert store.column("nodes/node", "label").tolist() == [*CLASSES, -1, -1]
        assert f"{' and '.join(map(str, sorted(set(none))))} stand" in store.manifest.warnings[0]


def test_a_group_below_0(ingest: Ingest, folder: Path) -> None:
    groups = np.ones((NUM, 2))
    groups[10, 1] = -100
    scipy.io.savemat("g.mat", {"network": np.ones((NUM, NUM)), "group": groups})
    with pytest.raises(DataError, match=r"\[group\] \(row 10, column 1\): holds -100 \(1 such entries\)"):
        ingest(name="mat", path="g.mat")


@pytest.mark.parametrize(("figure", "amount"), [("sum", 3e38), ("sum", 1e308), ("mean", 1e308)])
def test_a_computed_target_beyond_float32(figure: str, amount: float, ingest: Ingest, folder: Path) -> None:
    days = ["2022-05-01"] * 4 + ["2023-02-01", "2023-04-01", "2023-08-01", "2023-12-31"]
    paid = [amount, amount, amount, 8.0, 4.0, 3.0, 6.0, 7.0]
    write(folder, buys={"day": days, "who": [10, 10, 10, 12, 10, 13, 12, 10], "paid": paid})
    options = database(predict={"target": {figure: "buys.paid"}})
    with pytest.raises(DataError, match=rf"buys.csv \(column paid\): the {figure} from 2022-04-01 .* people 10 is"):
        ingest(**options)


def test_a_label_of_a_task_table_below_0(ingest: Ingest, folder: Path) -> None:
    write(folder)
    save("l.csv", pa.table({"who": [10, 11, 12], "at": ["2022-05-01", "2022-08-01", "2022-11-01"], "y": [0, 1, -100]}))
    labels = {"files": "l.csv", "key": "who", "time": "at", "label": "y", "task_type": "multiclass"}
    options = database(predict={"target": None, "at": None, "labels": labels, "horizon": "30d"})
    with pytest.raises(DataError, match=r"l.csv \(row 2, column y\): label -100 is no class, .*leave the cell empty"):
        ingest(**options)


def without_labels(folder: Path, *, column_stays: bool) -> None:
    path = folder / "customers.parquet"
    rows = pq.read_table(path)
    if not column_stays:
        pq.write_table(rows.drop_columns(["kind", "spent"]), path)
        return
    for column in ("kind", "spent"):
        place = rows.column_names.index(column)
        rows = rows.set_column(place, column, pa.nulls(len(rows), rows.schema.field(column).type))
    pq.write_table(rows, path)


@pytest.mark.parametrize(
    "changes", [{}, {"task_type": "regression"}, {"split": {"by": "stratified"}}, {"num_classes": 2}]
)
@pytest.mark.parametrize("column_stays", [True, False])
def test_data_without_a_label_is_prepared(
    tmp_path: Path, home: Home, changes: dict[str, Any], column_stays: bool
) -> None:
    write_customers(tmp_path, count=90)
    without_labels(tmp_path, column_stays=column_stays)
    recipe: Recipe = customers(tmp_path, "preprocess.transforms=[]", **changes)
    with pytest.raises(GraphmillError):
        Line(home).run(recipe, until="ingest")
    recipe = without_splits(recipe)
    assert recipe.dataset.split.by == "none"  # type: ignore[attr-defined]
    parents = Line(home).run(recipe, until="partition")
    graph = GraphStore(parents["partition"].folder, parents["partition"].manifest)
    assert graph.manifest.splits == {"train": 0, "valid": 0, "test": 0}
    assert graph.manifest.num_nodes == 90
    assert not len(np.asarray(graph["train_idx"]))
    ingest = parents["ingest"]
    with pytest.raises(GraphmillError, match="cannot be measured by"):
        check_graph(recipe.evaluate, graph, DatasetStore(ingest.folder, ingest.manifest), lambda _: None)


def test_other_data_sets_are_left_as_they_are(tmp_path: Path) -> None:
    links = customers(tmp_path, task="link", nodes={"files": "x.parquet"})
    drawn = build_recipe({"name": "x", "dataset": "synthetic", "model": "gcn"})
    assert without_splits(links) == links
    assert without_splits(drawn) == drawn
    with pytest.raises(GraphmillError, match=r"split\.by: none is for nodes and graphs"):
        customers(tmp_path, task="link", nodes={"files": "x.parquet"}, split={"by": "none"})
