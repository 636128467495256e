"""Tables that are predicted for alone: no row trains, and labels may be missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import GraphmillError
from configs.load import build_recipe
from configs.schema import Recipe
from flows.apply.model_use import without_splits
from tasks.kinds.measurable import check_graph
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.publish.line import Line, customers, write_customers


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
