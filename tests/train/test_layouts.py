"""Layouts: points that are trained on the engine of all tables, in blocks, after an interruption, from earlier ones."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.registry import MODELS
from configs.trust import own_files
from tasks.layout.edge_list import EdgeList
from tasks.layout.quality.measure import measure_layout
from tasks.processes.device import use_threads
from tasks.storage.graph_store import GraphStore
from tasks.train.families import family_of
from tasks.train.job import BEST, Job
from tasks.train.layout.engine import first_points, lay_out, place_among_neighbors, settled_job
from tasks.train.state.checkpoint import load_model
from tests.ranked_shop import store_of
from tests.registered import forget_registered, models_of
from tests.support import node_graph, written
from tests.train.in_process import make_job, own_settings, stopped_at
from tests.train.test_tables import train

SAMPLES = 400_000


def recipe(model: str | dict[str, Any] = "largevis", **options: Any) -> Any:
    sections = {"name": "demo", "dataset": "synthetic", "model": model}
    return build_recipe({**sections, "train": {"samples": SAMPLES, "threads": 1, **options}})


def layout_job(tmp_path: Path, *arguments: Any, **options: Any) -> Job[Any]:
    return make_job(recipe(*arguments, **options), written(node_graph(tmp_path / "graph")), tmp_path / "work")


def points_of(job: Job[Any]) -> Any:
    table = load_model(job.work / BEST).table
    return table.numpy()


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("name", models_of("layout"))
def test_points_of_one_class_lie_together(tmp_path: Path, name: str, dim: int) -> None:
    job = layout_job(tmp_path, {"name": name, "dim": dim})
    train(job)
    points, store = points_of(job), GraphStore.open(job.graph)
    assert points.shape == (300, dim)
    assert points.mean(0) == pytest.approx(np.zeros(dim), abs=1e-3 * float(points.std()))
    edges = EdgeList.of(store)
    found, _ = measure_layout(points, edges=(edges.indptr, edges.indices), labels=np.asarray(store["label"]))
    assert found["knn_accuracy"] > 0.6


def test_forces_of_a_users_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that the page on maps shows, as it stands there."""
    forget_registered(monkeypatch, MODELS)
    page = (Path(__file__).parents[2] / "docs" / "pages" / "maps.md").read_text()
    (shown,) = re.findall(r'^```python title="springs.py"\n(.*?)^```', page, re.MULTILINE | re.DOTALL)
    (tmp_path / "springs.py").write_text(shown)
    with own_files():
        job = layout_job(tmp_path, {"name": "springs", "file": str(tmp_path / "springs.py"), "stiffness": 0.2})
        train(job)
        points, store = points_of(job), GraphStore.open(job.graph)
    edges = EdgeList.of(store)
    found, _ = measure_layout(points, edges=(edges.indptr, edges.indices), labels=np.asarray(store["label"]))
    assert found["knn_accuracy"] > 0.6


@pytest.mark.parametrize("options", [{}, {"strategy": {"blocks": 4}, "threads": 2}, {"strategy": {"memory": 2_500}}])
def test_an_interrupted_layout_ends_with_the_same_bits(tmp_path: Path, options: dict[str, Any]) -> None:
    strategy = {"name": "block_grid", "pool": 50_000, **options.pop("strategy", {})}
    asked = recipe(checkpoint_minutes=1e-9, strategy=strategy, **options)
    graph = written(node_graph(tmp_path / "graph"))
    whole, broken = (make_job(asked, graph, tmp_path / name) for name in ("whole", "broken"))
    train(whole)
    with stopped_at(3):
        train(broken)
    train(broken)
    np.testing.assert_array_equal(points_of(whole), points_of(broken))


def test_a_layout_in_memory_is_that_of_a_training(tmp_path: Path) -> None:
    job = layout_job(tmp_path)
    train(job)
    store = GraphStore.open(job.graph)
    edges = EdgeList.of(store)
    start = first_points(job.train.start, store, edges, 2, job.seed)
    with own_settings():
        use_threads(1)
        found = lay_out(edges, job.model, start, seed=job.seed, samples=SAMPLES)
    np.testing.assert_array_equal(found, points_of(job))


def test_what_the_recipe_leaves_open_is_the_models(tmp_path: Path) -> None:
    job = layout_job(tmp_path, "umap", samples=None)
    edges = EdgeList.of(GraphStore.open(job.graph))
    settled, _ = settled_job(job, edges)
    assert settled.train.learning_rate == job.model.usual_rate
    assert settled.train.samples == job.model.least_samples > 300 * job.model.usual_samples
    job = layout_job(tmp_path, learning_rate=0.3, samples=None)
    settled, _ = settled_job(job, edges)
    assert settled.train.learning_rate == 0.3
    assert settled.train.samples == 1000 * len(edges.indices) / 2  # a thousand passes over a small graph
    assert settled.model.negative_power == 0  # whose forces reach far
    of_vectors = job.model.settled(300, 9000, is_mesh=None).options
    assert (of_vectors.gamma, of_vectors.epsilon, of_vectors.negative_power) == (7, 0.1, 0.75)


def test_new_points_begin_among_their_neighbors(tmp_path: Path) -> None:
    store = store_of(written(node_graph(tmp_path / "graph")))
    rng = np.random.default_rng(0)
    points = rng.standard_normal((300, 2)).astype(np.float32)
    is_placed = np.arange(300) % 5 > 0
    before = points.copy()
    place_among_neighbors(points, is_placed.copy(), store, 1)
    np.testing.assert_array_equal(points[is_placed], before[is_placed])
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    for new in np.flatnonzero(~is_placed):
        own = indices[indptr[new] : indptr[new + 1]]
        known = own[is_placed[own]]
        if len(known):
            assert points[new] == pytest.approx(before[known].mean(0), abs=0.1)


def test_points_that_nothing_joins_lie_around_the_others() -> None:
    from types import SimpleNamespace

    arrays: Any = {"csc_indptr": np.zeros(5, np.int64), "csc_indices": np.zeros(0, np.int32)}
    store: Any = type("Store", (dict,), {"manifest": SimpleNamespace(num_edges=0)})(arrays)
    points = np.zeros((4, 2), np.float32)
    points[:2] = [[1, 1], [3, 3]]
    place_among_neighbors(points, np.array([True, True, False, False]), store, 0)
    assert np.isfinite(points).all()
    assert points[:2].tolist() == [[1, 1], [3, 3]]
    distance = np.linalg.norm(points - 2, axis=1)
    assert (distance[2:] >= 1.099 * distance[0]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "adam"}, "unknown key 'optimizer'"),
        ({"precision": "bfloat16"}, "unknown key 'precision'"),
        ({"loader": "walks"}, "loader=walks is not for such models; use edge_passes or edges"),
        ({"strategy": "data_parallel"}, "strategy=data_parallel is not for such models; use block_grid"),
        ({"start": "pac"}, "start"),
    ],
)
def test_options_that_layouts_have_not(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe(**options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"name": "largevis", "dim": 4}}, "dim"),
        ({"model": {"name": "umap", "min_dist": 2.0}}, "min_dist=2 is more than spread=1"),
        ({"evaluate": {"layout": {"method": "umap"}}}, "evaluate.layout.method: model.name=largevis is the layout"),
    ],
)
def test_models_and_maps_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "demo", "dataset": "synthetic", "model": "largevis", **changes})


def test_data_to_look_at_predicts_nothing() -> None:
    edges = {"files": "edges.csv", "source": "0", "target": "1"}
    data = {"name": "tables", "task": "layout", "edges": edges}
    assert build_recipe({"name": "demo", "dataset": data, "model": "largevis"}).train.family == "layout"
    with pytest.raises(RecipeError, match="nothing is predicted, and model"):
        build_recipe({"name": "demo", "dataset": data, "model": "skipgram"})


def test_a_graph_without_edges_is_refused(tmp_path: Path) -> None:
    graph = written(node_graph(tmp_path / "graph"))
    empty = graph.manifest.model_copy(update={"num_edges": 0})
    asked = recipe()
    with pytest.raises(RecipeError, match="has no edges to lay out"):
        family_of(asked.train).announce(None, asked, empty)
    few = graph.manifest.model_copy(update={"num_nodes": 3})
    vectors = build_recipe({"name": "demo", "dataset": {"name": "vectors", "files": "x.npy"}, "model": "largevis"})
    with pytest.raises(RecipeError, match="has 3 vectors, and of fewer than 4 nothing says how good a layout is"):
        family_of(vectors.train).announce(None, vectors, few)
    bare = graph.manifest.model_copy(update={"feature_dim": 0})
    with pytest.raises(RecipeError, match="start=pca needs vectors"):
        family_of(asked.train).announce(None, recipe(start="pca"), bare)


def test_a_layout_that_diverges_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = layout_job(tmp_path, samples=20_000)

    def nowhere(*_: Any) -> Any:
        return np.full((300, 2), np.nan, np.float32)

    monkeypatch.setattr("tasks.train.layout.engine.first_points", nowhere)
    with pytest.raises(RecipeError, match="diverged"):
        train(job)
    assert json.loads((job.work / "progress.json").read_text())
