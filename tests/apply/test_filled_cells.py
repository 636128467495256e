"""Empty cells that `missing: mean` fills: by the training rows alone, and on other data as the training learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.storage.home import Home
from tests.apply.test_needs import Prepared, adapted

N = 60
NAMES = [f"n{i}" for i in range(N)]
PARTS = np.array(["train", "valid", "test"])[np.arange(N) % 3]
EMPTY = np.arange(N) % 4 == 1


def write(folder: Path, x: Any, empty: Any = None) -> Path:
    """`x` is empty where `empty` says; None: where EMPTY does."""
    folder.mkdir()
    cells = pa.array(np.asarray(x, np.float64), mask=EMPTY if empty is None else empty)
    nodes = {"id": NAMES, "x": cells, "y": list("ab" * (N // 2)), "part": PARTS, "t": np.arange(N)}
    pq.write_table(pa.table(nodes), folder / "n.parquet")
    pq.write_table(pa.table({"src": NAMES[:-1], "dst": NAMES[1:]}), folder / "e.parquet")
    return folder


def recipe_of(folder: Path, missing: str = "mean", transforms: tuple[str, ...] = (), **sections: Any) -> Recipe:
    nodes = {"files": str(folder / "n.parquet"), "features": ["x"], "label": "y", "time": "t", "missing": missing}
    dataset = {
        "name": "tables",
        "nodes": nodes,
        "edges": {"files": str(folder / "e.parquet")},
        "split": {"by": "column", "column": "part"},
    }
    preprocess = {"transforms": transforms, "workers": 1}
    return build_recipe({"name": "demo", "dataset": dataset, "model": "gcn", "preprocess": preprocess, **sections})


def test_held_out_rows_have_no_part_in_the_mean(home: Home, tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(50, 9, N).astype(np.float32)
    first = Prepared(home, recipe_of(write(tmp_path / "a", x), transforms=("standardize",)))
    other = Prepared(
        home, recipe_of(write(tmp_path / "b", np.where(PARTS == "train", x, 1e6 * x)), transforms=("standardize",))
    )
    trains = [name for name, part in zip(NAMES, PARTS, strict=True) if part == "train"]
    np.testing.assert_array_equal(first.rows("feat", trains), other.rows("feat", trains))
    plain = Prepared(home, recipe_of(tmp_path / "a")).rows("feat", NAMES)
    mean = x[(PARTS == "train") & ~EMPTY].mean(dtype=np.float64)
    np.testing.assert_allclose(plain[:, 0], np.where(EMPTY, mean, x), rtol=1e-6)
    assert plain[:, 1].tolist() == EMPTY.tolist()


def test_a_snapshot_learns_from_what_trains_then(home: Home, tmp_path: Path) -> None:
    x = np.arange(N, dtype=np.float64) ** 2
    snapshot = {"as_of": 29, "train": 0.5, "valid": 0.25, "test": 0.25}
    early = Prepared(home, recipe_of(write(tmp_path / "a", x), snapshot=snapshot))
    feat = early.rows("feat", NAMES[:30])
    mean = x[:15][~EMPTY[:15]].mean()
    np.testing.assert_allclose(feat[:, 0], np.where(EMPTY[:30], mean, x[:30]), rtol=1e-6)


@pytest.mark.parametrize("transforms", [(), ("standardize",)])
def test_other_data_is_filled_as_the_training_learned(home: Home, tmp_path: Path, transforms: tuple[str, ...]) -> None:
    x = np.random.default_rng(1).normal(50, 9, N)
    trained = Prepared(home, recipe_of(write(tmp_path / "old", x), transforms=transforms))
    needs = trained.needs(tmp_path / "model")
    new = adapted(home, trained, needs, recipe_of(write(tmp_path / "new", x + 1000), transforms=transforms))
    holes = [name for name, empty in zip(NAMES, EMPTY, strict=True) if empty]
    np.testing.assert_array_equal(new.rows("feat", holes), trained.rows("feat", holes))
    full = write(tmp_path / "full", x, np.zeros(N, bool))
    whole = adapted(home, trained, needs, recipe_of(full, transforms=transforms))
    assert whole.graph.manifest.feature_dim == trained.graph.manifest.feature_dim == 2
    with pytest.raises(DataError, match="empty cells filled by the mean"):
        adapted(home, trained, needs, recipe_of(full, missing="zero", transforms=transforms))


def test_a_column_that_no_training_row_has_is_zero(home: Home, tmp_path: Path) -> None:
    folder = write(tmp_path / "a", np.ones(N), PARTS == "train")
    feat = Prepared(home, recipe_of(folder)).rows("feat", NAMES)
    assert feat[:, 0].tolist() == (PARTS != "train").tolist()
