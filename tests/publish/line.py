"""The whole pipeline in the test's own process, from tables to a published model: seconds for a snapshot."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.load import build_recipe, dump_recipe
from configs.schema import STAGES, Recipe
from tasks import supervise
from tasks.calls import load_stage
from tasks.stage import Parent, run_stage
from tasks.storage.home import Home
from tests.preprocess.ears import Ears
from tests.train.in_process import own_settings, run_job

YEARS = (2022, 2023, 2024, 2025)


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train, evaluate and score here: a process of its own spends seconds on imports."""

    def work(module: str, job: Path, context: Any, *_: Any) -> None:
        with own_settings():
            importlib.import_module(module).main(job)

    # What trains for a second need not beat controls; tests of that give the controls themselves.
    monkeypatch.setattr("tasks.controls.suite.Controls.measured", lambda *_: iter(()))
    # Drawing takes longer than all the rest; `test_stage.py` looks at real pages.
    monkeypatch.setattr("tasks.publish.build.render", lambda *_: "<html></html>")
    monkeypatch.setattr("tasks.train.stage.run_training", run_job)
    monkeypatch.setattr(supervise, "run_worker", work)


def write_customers(
    folder: Path, count: int = 600, turn: int = 2024, seed: int = 0, classes: tuple[str, ...] = ("good", "bad")
) -> None:
    """Customers of the years 2022 to 2025, ever more of them, and who knows whom.

    What the first feature means changes with the year `turn`: whoever learnt it before is wrong afterwards. Classes
    behind the first two are those of a few.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    year = np.sort(rng.choice(YEARS, count, p=(0.1, 0.1, 0.4, 0.4)))
    label = rng.integers(0, 2, count)
    side = np.where(year < turn, label, 1 - label)
    x = np.stack([side * 2 - 1, rng.standard_normal(count)], 1) + 0.7 * rng.standard_normal((count, 2))
    names = [f"c{i}" for i in range(count)]
    rare = len(classes) - 2
    kinds = [classes[2 + i % 20] if i % 20 < rare else classes[label[i]] for i in range(count)]
    spent = 150 + 40 * label + rng.standard_normal(count) + 10 * (side - label)
    born = pa.array([f"{one}-06-01" for one in year]).cast("date32")
    rows = {"id": names, "x": x.tolist(), "kind": kinds, "spent": spent, "since": born}
    pq.write_table(pa.table(rows), folder / "customers.parquet")
    src = rng.integers(0, count, 3 * count)
    dst = np.clip(src + rng.integers(-9, 10, 3 * count), 0, count - 1)  # of about the same age
    pq.write_table(pa.table({"src": [names[i] for i in src], "dst": [names[i] for i in dst]}), folder / "knows.parquet")


def customers(folder: Path, *overrides: str, **dataset: Any) -> Recipe:
    """A recipe of theirs that trains in a second; `dataset` replaces options of its data."""
    label = "spent" if dataset.get("task_type") == "regression" else "kind"
    nodes = {"files": str(folder / "customers.parquet"), "features": ["x"], "label": [label], "time": "since"}
    edges = {"files": str(folder / "knows.parquet")}
    loader = "full_edge" if dataset.get("task") == "link" else "full"
    sections = {
        "name": "customers",
        "dataset": {"name": "tables", "nodes": nodes, "edges": edges, **dataset},
        "preprocess": {"transforms": ["standardize"], "workers": 1},
        "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 1},
        "train": {"loader": loader, "epochs": 30, "threads": 1, "learning_rate": 0.05, "device": "cpu"},
        "tracking": {"system_metrics": False},
    }
    return build_recipe(sections, overrides)


class Line:
    """Runs recipes in a home."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.ears = Ears()

    def run(self, recipe: Recipe, *, until: str = "publish", force: bool = False) -> dict[str, Parent]:
        """Run all stages (to one), as a flow does; returns the artifacts."""
        recipe = build_recipe(dump_recipe(recipe))
        parents: dict[str, Parent] = {}
        for name in STAGES[: STAGES.index(until) + 1]:
            last = name == until
            parents[name] = run_stage(
                load_stage(name), recipe, parents, self.home, listener=self.ears, force=force and last
            ).parent
        return parents
