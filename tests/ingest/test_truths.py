"""Yes and no, true and false in texts: 1 and 0 wherever numbers are read, as labels and as features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import UserError
from configs.load import build_recipe
from tasks.ingest.stage import STAGE
from tasks.stage import run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home

FLAGS = [i % 3 == 0 for i in range(40)]
FORMS = [*(("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("yes", "no"), ("Yes", "No")),
         *(("t", "f"), ("Y", "N"), ("y", " No "))]  # fmt: skip


def ingested(tmp_path: Path, cells: list[Any], *, csv: bool, source: str) -> tuple[list[float], list[float]]:
    """Return feature and label of the nodes, both from the cells."""
    write = pc.write_csv if csv else pq.write_table
    files = {name: f"{tmp_path}/{name}.{'csv' if csv else 'parquet'}" for name in ("nodes", "edges")}
    write(pa.table({"id": range(40), "flag": cells, "y": cells}), files["nodes"])
    write(pa.table({"src": range(39), "dst": range(1, 40)}), files["edges"])
    nodes = {"files": files["nodes"], "id": "id", "features": ["flag"], "label": "y"}
    dataset: dict[str, Any] = {
        "name": "tables", "task": "node", "task_type": "binary", "nodes": nodes, "edges": {"files": files["edges"]},
    }  # fmt: skip
    if source == "database":
        people = {"files": files["nodes"], "key": "id", "columns": {"flag": "number"}}
        edges = {"files": files["edges"], "foreign": {"src": "people", "dst": "people"}}
        split = {"table": "people", "label": "y", "split": {"valid": 0.2, "test": 0.2}}
        dataset = {"name": "database", "tables": {"people": people, "edges": edges}, "predict": split}
    model = {"name": "gcn" if source == "tables" else "heterosage"}
    recipe = build_recipe({"name": "t", "dataset": dataset, "model": model})
    made = run_stage(STAGE, recipe, {}, Home.open(str(tmp_path / "home")))
    store = DatasetStore(made.folder, made.manifest)
    table, column = ("nodes/people", "people.flag") if source == "database" else ("nodes/node", "flag")
    names = [one for one in store.read(table).column_names if one in (column, "flag", "feat")]
    features, labels = (store.read(table, [name]).column(0).to_pylist() for name in (names[0], "label"))
    return np.asarray(features, np.float64).ravel().tolist(), np.asarray(labels, np.float64).ravel().tolist()


@pytest.mark.parametrize("csv", [True, False])
@pytest.mark.parametrize("source", ["tables", "database"])
@pytest.mark.parametrize(("yes", "no"), FORMS)
def test_yes_and_no_are_one_and_zero(yes: str, no: str, source: str, csv: bool, tmp_path: Path) -> None:
    feature, label = ingested(tmp_path, [yes if flag else no for flag in FLAGS], csv=csv, source=source)
    assert feature == [float(flag) for flag in FLAGS]
    assert sorted(label) == sorted(float(flag) for flag in FLAGS)


@pytest.mark.parametrize("cells", [["7", "yes"] * 20, ["yes"] * 39 + ["maybe"], ["on", "off"] * 20])
def test_other_cells_are_no_truths(cells: list[str], tmp_path: Path) -> None:
    for source in ("tables", "database"):
        with pytest.raises(UserError, match=r"is not a number|label 7 is not 0 or 1"):
            ingested(tmp_path, cells, csv=True, source=source)


def test_ones_and_zeros_may_stand_among_them(tmp_path: Path) -> None:
    feature, _ = ingested(tmp_path, ["1", "yes", "0", "no"] * 10, csv=True, source="tables")
    assert feature == [1.0, 1.0, 0.0, 0.0] * 10
