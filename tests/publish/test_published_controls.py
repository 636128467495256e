"""A control becomes a version in place of the model: it scores as it was measured, and rows of other data too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from tasks.apply.run import OutputRequest, prepare_for, write_outputs
from tasks.controls.suite import Controls
from tasks.publish.champion import comparison
from tasks.publish.champion.comparison import champion_files
from tasks.publish.gate.rules import best_control
from tasks.publish.tracking.registered import find_version
from tasks.publish.tracking.registry import open_tracker
from tasks.stage import Parent, StageContext
from tasks.storage.controls import CONTROLS
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tests.publish.line import Line, customers
from tests.publish.test_categories_by_day import KINDS, write_day
from tests.publish.test_same_rows import OWN_CONTROLS, molecules, small

pytestmark = pytest.mark.usefixtures("whole_line_in_this_process")

BAD = ("train.epochs=1", "train.learning_rate=1e-6", "tracking.publish=best")


def of_tables(folder: Path, day: int, **dataset: Any) -> Recipe:
    files = write_day(folder / f"day{day}-{len(dataset)}", day, KINDS, ("bonn", "kiel", "ulm")[: day + 1])
    table = {"files": str(files / "customers.parquet"), "features": ["x"], "categorical": ["city"], "label": ["kind"]}
    edges = {"files": str(files / "transfers.csv"), "categorical": ["how"]}
    if dataset.get("task_type") == "regression":
        table |= {"features": [], "label": ["x"]}
    return customers(files, *BAD, edges=edges, nodes=table, **dataset)


def of_links(folder: Path, day: int) -> Recipe:
    links = {"num_nodes": 150, "num_edges": 900, "community_size": 40, "num_negatives": 60, "feature_dim": 8}
    recipe = small("mlp", name="synthetic", task="link", seed=day, **links)
    return build_recipe(dump_recipe(recipe), BAD)


def of_graphs(folder: Path, day: int) -> Recipe:
    molecules(folder / str(day), day)
    data = {"name": "ogb", "dataset": "rings", "task": "graph", "task_type": "binary", "metric": "rocauc"}
    return build_recipe(dump_recipe(small("gin", root=str(folder / str(day)), **data)), BAD)


def of_shop(folder: Path, day: int, **options: Any) -> Recipe:
    data = {"name": "synthetic_shop", "num_customers": 300, "num_products": 40, "reviews_a_quarter": 200, "seed": day}
    loader = {"name": "ranking"} if options else {"name": "relational", "fanout": [2, 2], "choose": "recent"}
    model = {"name": "heterosage", "hidden_dim": 8, "num_layers": 2}
    sections = {
        "name": "demo",
        "dataset": {**data, **options},
        "model": model,
        "preprocess": {"transforms": ["standardize"], "workers": 1},
        "train": {"loader": loader, "threads": 1, "device": "cpu"},
        "tracking": {"system_metrics": False},
    }
    return build_recipe(sections, BAD)


CASES = {
    "tables": (of_tables, {}, {"majority", "features"}),
    "numbers": (of_tables, {"task_type": "regression"}, {"mean", "features"}),
    "links": (of_links, {}, {"degree", "common_neighbors", "adamic_adar"}),
    "graphs": (of_graphs, {}, {"majority", "features"}),
    "shop": (of_shop, {}, {"majority", "features", "boosted", "last_value", "own_mean"}),
    "lists": (of_shop, {"predict": "products"}, {"popular", "popular_recent", "own_past", "had_together"}),
}


@pytest.mark.parametrize("case", CASES)
def test_each_control_scores_as_it_was_measured_and_other_data(
    tracked_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.setattr(Controls, "measured", OWN_CONTROLS)
    make, options, expected = CASES[case]
    line, recipe, other = Line(tracked_home), make(tmp_path, 1, **options), make(tmp_path, 2, **options)
    evaluated = line.run(recipe, until="evaluate")["evaluate"].manifest
    unable = {"features"} if case == "links" else set()
    served = {name for name in evaluated.controls if CONTROLS[name].serves} - unable
    assert served == expected & evaluated.controls.keys()
    assert served
    data = line.run(other, until="ingest")["ingest"]
    for name in sorted(served):
        monkeypatch.setattr(comparison, "best_control", lambda *_, name=name, **__: (name, []))
        gate = line.run(recipe, force=True)["publish"].manifest.gate
        bar = evaluated.controls[name]["valid"][evaluated.metric]
        assert gate.value == pytest.approx(bar, abs=1e-6), name
        assert gate.control == name
        predict(line, recipe, other, data, tmp_path / f"{name}.parquet", name)


def predict(line: Line, recipe: Recipe, other: Recipe, data: Parent, output: Path, name: str) -> None:
    """Score the other data with the newest version."""
    tracker = open_tracker(line.home)
    newest = max(int(one.version) for one in tracker.versions(recipe.name))
    version = find_version(tracker, f"{recipe.name}@{newest}")
    assert version.gate.control == name
    files = champion_files(tracker, version)
    assert not list(files.folder.glob("*.pkl"))
    context = StageContext("publish", output.parent, line.home, PickleCache(line.home), line.ears)
    graph = prepare_for(files, other, data, context)
    given = {}
    if graph.manifest.task == "link":
        pairs = np.asarray(GraphStore(graph.folder, graph.manifest)["valid_edges"][:20])
        output.with_suffix(".csv").write_text("source,target\n" + "".join(f"{a},{b}\n" for a, b in pairs))
        given = {"pairs": str(output.with_suffix(".csv"))}
    wanted = OutputRequest("predictions", str(output), "parquet", given)
    write_outputs(line.home, line.ears, files, wanted, other, {"ingest": data, "partition": graph})
    table = pq.read_table(output).to_pandas()
    assert len(table)
    assert np.isfinite(table.select_dtypes("number").to_numpy(np.float64, na_value=0.0)).all()
    vectors = OutputRequest("embeddings", str(output.with_name("v.parquet")), "parquet", {})
    with pytest.raises(RecipeError, match="published in place of a model: it has predictions only"):
        write_outputs(line.home, line.ears, files, vectors, other, {"ingest": data, "partition": graph})


def test_the_better_one_is_published_and_compared(
    tracked_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Controls, "measured", OWN_CONTROLS)
    line = Line(tracked_home)
    first = line.run(of_tables(tmp_path, 1))["publish"].manifest
    assert first.champion
    assert (
        first.gate.reason.startswith("the first version with valid/accuracy 0.6")
        or "of a linear model that sees only the rows' own features, published in place" in first.gate.reason
    )
    assert (first.gate.control, "graphsage" in first.gate.controls) == ("features", True)
    second = line.run(of_tables(tmp_path, 2))["publish"].manifest
    assert second.gate.champion is not None, "both scored the same rows"
    assert second.gate.why_not == ""


def test_which_control_is_the_best() -> None:
    controls = {"edge_bank": 0.9, "boosted": 0.8, "features": 0.85, "majority": 0.5}
    assert best_control("valid/rocauc", True, 0.7, controls, is_link=False) == ("features", ["edge_bank"])
    of_pairs = best_control("valid/rocauc", True, 0.7, controls, is_link=True)
    assert of_pairs == ("boosted", ["edge_bank", "features"])
    assert best_control("valid/rocauc", True, 0.95, controls, is_link=False) == (None, [])
    assert best_control("valid/mae", False, 0.7, {"mean": 0.5, "features": 0.9}, is_link=False) == ("mean", [])
