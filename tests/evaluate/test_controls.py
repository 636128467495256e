"""What stands beside a model's scores, on whole evaluations of small graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.registry import EVALUATORS
from tasks.controls.features import ControlledGraph
from tasks.controls.suite import Controls
from tasks.evaluate.verdicts import lost_to_controls, one_class_predicted, secondary_below_controls
from tasks.evaluators.evaluators import Prediction, evaluator_for
from tasks.evaluators.several import make_evaluator
from tasks.inference.predictor import Predictor
from tasks.ingest.writer import DatasetWriter
from tasks.kinds.of import kind_of
from tasks.stage import Parent
from tasks.storage.artifacts import describe_files
from tasks.storage.controls import CONTROLS
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tasks.storage.manifests import FeatureColumn, NodeType
from tests.finished import dataset
from tests.publish.line import Line, customers, in_this_process, write_customers
from tests.support import as_partition, link_graph, molecule_graph, node_graph, planted_edges


def ingested(folder: Path, graph: Parent, columns: dict[str, Any], sizes: Any = None, kind: str = "node") -> Parent:
    """The data set that a graph was made of, with features: numbers, or codes where they are integers."""
    parent = dataset(folder, graph)
    with DatasetWriter(folder) as writer:
        writer.write(f"nodes/{kind}", {"node_id": np.arange(len(next(iter(columns.values())))), **columns})
        if sizes is not None:
            ids = np.arange(len(sizes))
            writer.write("graphs", {"graph_id": ids, "num_nodes": sizes, "num_edges": sizes})
        tables = writer.tables
    features = tuple(
        FeatureColumn(
            column=name,
            kind="categorical" if values.dtype.kind == "i" else "numeric",
            dim=1 if values.ndim == 1 else values.shape[1],
        )
        for name, values in columns.items()
    )
    own = NodeType(name="node", num_nodes=graph.manifest.num_nodes, features=features)
    changes = {"node_types": (own,), "tables": tables, "files": describe_files(folder)}
    return Parent(parent.manifest.model_copy(update=changes), folder)


def controls_of(graph: Parent, data: Parent, scratch: Path, num_scores: int) -> tuple[Controls, GraphStore]:
    store, tables = GraphStore(graph.folder, graph.manifest), DatasetStore(data.folder, data.manifest)
    scratch.mkdir(exist_ok=True)
    controlled = ControlledGraph(store, tables, IdMap(store, tables), Predictor(store), scratch)
    return kind_of(graph.manifest).controls(controlled, num_scores), store


def scored(controls: Controls, store: GraphStore, split: str, labels: str) -> dict[str, Prediction]:
    index = np.asarray(store[f"{split}_idx"])
    return dict(controls.predictions(split, Prediction(label=np.asarray(store[labels][index]))))


def accuracy(prediction: Prediction) -> float:
    label, predicted = prediction.classes()
    return float(np.mean(label == predicted))


def test_nodes_by_their_own_features(tmp_path: Path) -> None:
    graph = node_graph(tmp_path / "graph")
    order = np.random.default_rng(5).permutation(300)
    np.save(graph.folder / "node_ids.npy", order)  # node v was order[v] in the data set
    feat = np.empty((300, 16), np.float32)
    feat[order] = np.load(graph.folder / "feat.npy")
    np.save(graph.folder / "feat.npy", np.zeros((300, 16), np.float32))  # what transforms made of it counts for nothing
    data = ingested(tmp_path / "data", graph, {"feat": feat})
    controls, store = controls_of(graph, data, tmp_path / "scratch", 4)
    found = scored(controls, store, "test", "label")
    assert list(found) == ["majority", "features"]
    train, test = (np.asarray(store["label"][store[f"{split}_idx"]]) for split in ("train", "test"))
    assert accuracy(found["majority"]) == np.mean(test == np.bincount(train).argmax())
    assert accuracy(found["features"]) > 0.45  # of four classes
    assert controls.notes == []


def test_controls_learn_nothing_from_held_out_labels(tmp_path: Path) -> None:
    scores = []
    for number in range(2):
        graph = node_graph(tmp_path / f"graph-{number}")
        data = ingested(tmp_path / f"data-{number}", graph, {"feat": np.load(graph.folder / "feat.npy")})
        if number:
            label = np.load(graph.folder / "label.npy")
            held = np.setdiff1d(np.arange(300), np.load(graph.folder / "train_idx.npy"))
            label[held] = np.random.default_rng(1).permutation(label[held])
            np.save(graph.folder / "label.npy", label)
        controls, store = controls_of(graph, data, tmp_path / f"scratch-{number}", 4)
        scores.append([p.scores for p in scored(controls, store, "test", "label").values()])
    for one, other in zip(*scores, strict=True):
        np.testing.assert_array_equal(one, other)


def test_graphs_by_the_means_of_their_nodes(tmp_path: Path) -> None:
    graph = molecule_graph(tmp_path / "graph")
    label = np.load(graph.folder / "graph_label.npy")[:, 0]
    sizes = np.diff(np.load(graph.folder / "graph_offsets.npy"))
    rng = np.random.default_rng(0)
    code = (np.repeat(label, sizes) * (rng.random(sizes.sum()) < 0.5)).astype(np.int32)
    controls, store = controls_of(graph, ingested(tmp_path / "data", graph, {"code": code}, sizes), tmp_path / "s", 1)
    found = scored(controls, store, "test", "graph_label")
    truth, score = found["features"].columns()
    assert np.mean((score > 0) == (truth == 1)) > 0.9
    train = np.asarray(store["graph_label"][store["train_idx"]])
    np.testing.assert_allclose(found["majority"].scores, np.log((train.sum() + 1) / ((1 - train).sum() + 1)), rtol=1e-6)


def test_pairs_by_the_features_of_their_ends(tmp_path: Path) -> None:
    graph = as_partition(link_graph(tmp_path / "graph", dim=8))
    _, label = planted_edges(200, 4, 25)  # most edges join equal ones
    feat = np.eye(4)[label] + np.random.default_rng(2).standard_normal((200, 4)) / 5
    data = ingested(tmp_path / "data", graph, {"feat": feat.astype(np.float32)})
    controls, store = controls_of(graph, data, tmp_path / "scratch", 1)
    model = Prediction(positive=np.zeros(len(store["test_edges"])), negative=np.zeros(len(store["test_negative"])))
    found = dict(controls.predictions("test", model))
    assert list(found) == ["chance", "features", "degree", "common_neighbors", "adamic_adar"]
    near, far = found["common_neighbors"].pairs()
    assert near.mean() > 1.2 * far.mean()
    positive, negative = found["features"].pairs()
    assert positive.shape == model.positive.shape  # type: ignore[union-attr]
    assert positive.mean() > negative.mean() + 0.3  # ends of an edge are mostly alike


def test_pairs_of_two_types(tmp_path: Path) -> None:
    """Users buy by their own taste and the thing's quality; negatives may be drawn from nodes of the wrong type."""
    graph = as_partition(link_graph(tmp_path / "graph", num_nodes=200))
    rng = np.random.default_rng(0)
    users, things = rng.standard_normal((120, 1)), rng.standard_normal((80, 2))
    likely = np.flatnonzero(things[:, 0] > 0)
    edges = np.stack([rng.integers(0, 120, 400), 120 + rng.choice(likely, 400)], 1).astype(np.int32)
    negative = np.stack([rng.integers(0, 200, 200), rng.integers(0, 200, 200)], 1).astype(np.int32)
    changes: dict[str, Any] = {"node_types": ("user", "thing"), "type_offsets": (0, 120, 200)}
    arrays = dict(graph.manifest.arrays)
    for name, values in (("train_edges", edges[:300]), ("test_edges", edges[300:]), ("test_negative", negative)):
        np.save(graph.folder / f"{name}.npy", values)
        arrays[name] = arrays[name].model_copy(update={"shape": values.shape})
    graph = Parent(graph.manifest.model_copy(update={**changes, "arrays": arrays}), graph.folder)
    parent = dataset(tmp_path / "data", graph)
    with DatasetWriter(parent.folder) as writer:
        writer.write("nodes/user", {"node_id": np.arange(120), "x": users[:, 0].astype(np.float32)})
        writer.write("nodes/thing", {"node_id": np.arange(80), "y": things.astype(np.float32)})
        tables = writer.tables
    kinds = (
        NodeType(name="user", num_nodes=120, features=(FeatureColumn(column="x", kind="numeric", dim=1),)),
        NodeType(name="thing", num_nodes=80, features=(FeatureColumn(column="y", kind="numeric", dim=2),)),
    )
    told = {"node_types": kinds, "tables": tables, "files": describe_files(parent.folder)}
    data = Parent(parent.manifest.model_copy(update=told), parent.folder)
    controls, _ = controls_of(graph, data, tmp_path / "scratch", 1)
    model = Prediction(positive=np.zeros(100), negative=np.zeros(200))
    positive, false = dict(controls.predictions("test", model))["features"].pairs()
    good = np.isin(negative[:, 1], 120 + likely) & (negative[:, 0] < 120)
    assert positive.mean() > false[~good].mean() + 0.5


def test_without_features_there_is_no_linear_control(tmp_path: Path) -> None:
    graph = node_graph(tmp_path / "graph")
    controls, store = controls_of(graph, dataset(tmp_path / "data", graph), tmp_path / "scratch", 4)
    assert list(scored(controls, store, "valid", "label")) == ["majority"]
    assert controls.notes == ["the rows have no features of their own: there is no linear control"]
    links = as_partition(link_graph(tmp_path / "links"))
    controls, _ = controls_of(links, dataset(tmp_path / "more", links), tmp_path / "scratch", 1)
    model = Prediction(positive=np.ones(3), negative=np.ones((3, 5)))
    (name, chance), *others = controls.predictions("test", model)
    assert [other for other, _ in others] == ["degree", "common_neighbors", "adamic_adar"]
    assert name == "chance"
    assert chance.negative.shape == (3, 5)  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(19,), (40, 19)])
@pytest.mark.parametrize("metric", ["hits@5", "hits@20", "hits@50", "mrr"])
def test_chance_is_a_random_order_on_average(tmp_path: Path, metric: str, shape: tuple[int, ...]) -> None:
    """Against 3,000 random orders."""
    links = as_partition(link_graph(tmp_path / "links"))
    controls, _ = controls_of(links, dataset(tmp_path / "more", links), tmp_path / "scratch", 1)
    one = make_evaluator(EVALUATORS.config(evaluator_for(metric)), links.manifest)
    model = Prediction(positive=np.ones(40), negative=np.ones(shape))
    (name, values), *_ = controls.measured("test", model, one)
    rng = np.random.default_rng(0)
    orders = [one(Prediction(positive=rng.random(40), negative=rng.random(shape)))[metric] for _ in range(3000)]
    assert name == "chance"
    assert values[metric] == pytest.approx(np.mean(orders), abs=0.01)


@pytest.mark.parametrize(
    ("kind", "metric", "best"),
    [
        ("regression", "mae", "median"),
        ("regression", "rmse", "mean"),
        ("multilabel", "f1_macro", "yes"),
        ("multilabel", "f1_micro", "yes"),
        ("multilabel", "accuracy", "no"),
        ("often", "f1_micro", "no"),
    ],
)
def test_no_constant_of_the_training_split_beats_the_control(tmp_path: Path, kind: str, metric: str, best: str) -> None:
    """`often`: one label of two is nearly always there, the other nearly never."""
    graph = molecule_graph(tmp_path / "graph")
    rng = np.random.default_rng(0)
    count = graph.manifest.num_graphs
    values = rng.lognormal(0, 1.5, (count, 2))
    if kind != "regression":
        shares = (0.3, 0.2) if kind == "multilabel" else (0.95, 0.02)
        values = (rng.random((count, 2)) < shares) * 1.0
        values[:2] = [[1, 0], [0, 1]]
    values[5, 0] = np.nan
    np.save(graph.folder / "graph_label.npy", values.astype(np.float32))
    arrays = graph.manifest.arrays
    changes = {
        "task_type": kind if kind == "regression" else "multilabel",
        "num_tasks": 2,
        "arrays": arrays | {"graph_label": arrays["graph_label"].model_copy(update={"shape": (count, 2)})},
    }
    graph = Parent(graph.manifest.model_copy(update=changes), graph.folder)
    controls, store = controls_of(graph, dataset(tmp_path / "data", graph), tmp_path / "scratch", 2)
    train = np.asarray(store["graph_label"][store["train_idx"]])
    test = np.asarray(store["graph_label"][store["test_idx"]])
    one = make_evaluator(EVALUATORS.config(evaluator_for(metric)), graph.manifest)
    [(_, found)] = controls.measured("test", Prediction(label=test), one)
    scores = {
        "median": np.nanmedian(train, 0),
        "mean": np.nanmean(train, 0, dtype=np.float64),
        "yes": np.ones(2),
        "no": np.where(np.nanmean(train, 0) > 0.5, 1, -1),
    }[best]
    expected = one(Prediction(scores=np.broadcast_to(scores, test.shape).astype(np.float32), label=test))
    assert found[metric] == pytest.approx(expected[metric], rel=1e-5)


@pytest.mark.parametrize(
    ("own", "bar", "higher", "control", "rows", "interval", "lost"),
    [
        (0.5, 0.5, True, "majority", None, None, True),
        (0.6, 0.5, True, "majority", None, None, False),
        (0.6, 0.5, False, "majority", None, None, True),
        (float("nan"), 0.5, True, "majority", None, None, True),
        (0.8047, 0.8071, True, "degree", 3000, None, False),  # noise, of a control that does not gate
        (0.8047, 0.8071, True, "degree", 300_000, None, True),
        (0.8047, 0.8071, True, "degree", None, None, True),
        (0.8047, 0.8071, True, "features", 3000, None, True),
        (0.732, 0.778, True, "boosted", 50, (-0.08, -0.01), True),  # within two standard errors, but surely below
        (0.732, 0.778, True, "boosted", 50, (-0.08, 0.01), False),
        (0.778, 0.732, False, "boosted", 50, (0.01, 0.08), True),
        (0.778, 0.732, False, "boosted", 50, (-0.01, 0.08), False),
        (0.732, 0.778, True, "features", 50, (-0.08, 0.01), True),  # gates
    ],
)
def test_a_control_that_the_model_does_not_beat_is_told(
    own: float, bar: float, higher: bool, control: str, rows: int | None, interval: Any, lost: bool
) -> None:
    report: dict[str, Any] = {
        "metrics": {"valid": {"rocauc": own}},
        "controls": {control: {"valid": {"rocauc": bar}}},
        "report": {
            "telling_rows": {} if rows is None else {"valid": rows},
            "intervals": {} if interval is None else {"valid": {"above": {control: interval}}},
        },
    }
    said = f"the model does not beat {CONTROLS[control].what}: valid rocauc {own:.4f} against {bar:.4f}"
    assert list(lost_to_controls("rocauc", higher, report).values()) == ([said] if lost else [])


@pytest.mark.parametrize(
    ("metric", "own", "bar", "said"),
    [
        ("f1_micro", 0.0, 0.049, "beside rocauc, by which the model is judged, it is below the majority class: "),
        ("f1_micro", 0.048, 0.049, ""),  # noise
        ("f1_micro", 0.6, 0.049, ""),
        ("accuracy", 0.6, 0.8, "valid accuracy 0.6000 against 0.8000"),
        ("accuracy", 0.86, 0.98, ""),  # a rare class, of which accuracy tells nothing
        ("rmse", 2.0, 1.0, "valid rmse 2.0000 against 1.0000"),
        ("rmse", 1.0, 2.0, ""),
        ("r2", -0.8, 0.0, "valid r2 -0.8000 against 0.0000"),
    ],
)
def test_a_secondary_metric_below_a_control_is_told(metric: str, own: float, bar: float, said: str) -> None:
    report = {
        "metrics": {"valid": {"rocauc": 0.9, metric: own}},
        "controls": {"majority": {"valid": {"rocauc": 0.5, metric: bar}}, "degree": {"valid": {metric: bar}}},
        "report": {"telling_rows": {"valid": 200}},
    }
    found = secondary_below_controls("rocauc", report)
    assert len(found) == (said != "")
    assert not said or said in found[0]


def test_of_several_controls_the_best_one_is_told() -> None:
    report = {
        "metrics": {"valid": {"hits@50": 0.006, "rocauc": 0.55}},
        "controls": {"chance": {"valid": {"rocauc": 0.62}}, "adamic_adar": {"valid": {"rocauc": 0.74}}},
        "report": {"telling_rows": {"valid": 600}},
    }
    (line,) = secondary_below_controls("hits@50", report)
    assert "below Adamic-Adar" in line
    assert line.endswith(": valid rocauc 0.5500 against 0.7400")


def test_noise_goes_by_the_rarer_kind_of_rows() -> None:
    links = Prediction(positive=np.ones(30), negative=np.ones((30, 5)))
    classes = Prediction(label=np.array([0, 1, 2, -1]), scores=np.ones((4, 3), np.float32))
    columns = Prediction(label=np.array([[0.0, 1], [np.nan, 0], [0, 0]]), scores=np.ones((3, 2), np.float32))
    values = Prediction(label=np.array([[0.5], [1.0], [2.0]]), scores=np.ones((3, 1), np.float32))
    assert [one.telling_rows for one in (links, classes, columns, values)] == [30, 3, 1, 3]


@pytest.mark.parametrize(
    ("rocauc", "counts", "lost", "said"),
    [
        (0.9, [[90, 0], [10, 0]], [], "it ranks them (rocauc 0.9000), but all scores lie on one side"),
        (0.53, [[90, 0], [10, 0]], [], "it ranks them (rocauc 0.5300), but all scores lie on one side"),
        (
            0.96,
            [[90, 0], [10, 0]],
            ["boosted"],
            "it ranks them (rocauc 0.9600), though not better than gradient boosting that sees the entities' own",
        ),
        (0.52, [[90, 0], [10, 0]], ["majority"], "learnt nothing beyond the majority"),
        (None, [[90, 0], [10, 0]], [], "learnt nothing beyond the majority"),
        (0.9, [[90, 0], [9, 1]], [], None),
    ],
)
def test_one_class_for_every_row(
    rocauc: float | None, counts: list[list[int]], lost: list[str], said: str | None
) -> None:
    above = {"majority": [0.01 if rocauc == 0.53 else -0.01, 0.2]}  # beyond chance, by draws of the rows
    fields = {
        "metric": "rocauc",
        "metrics": {"test": {"accuracy": 0.9} | ({} if rocauc is None else {"rocauc": rocauc})},
        "controls": {"majority": {"test": {"accuracy": 0.9, "rocauc": 0.5}}},
        "report": {
            "split": "test",
            "confusion": {"counts": counts, "classes": ["0", "1"]},
            "telling_rows": {"test": 100},
            "intervals": {"test": {"above": above}},
        },
    }
    text = one_class_predicted(fields, dict.fromkeys(lost, "..."))
    assert text is None if said is None else text is not None and said in text and "class 0" in text


@pytest.mark.parametrize("task", ["node", "graph", "link"])
def test_empty_cells_are_filled_by_the_mean_of_training_rows(tmp_path: Path, task: str) -> None:
    if task == "link":
        graph = as_partition(link_graph(tmp_path / "graph"))
    else:
        graph = node_graph(tmp_path / "graph") if task == "node" else molecule_graph(tmp_path / "graph")
    sizes = np.diff(np.load(graph.folder / "graph_offsets.npy")) if task == "graph" else None
    train = np.load(graph.folder / ("train_edges.npy" if task == "link" else "train_idx.npy"))
    if sizes is not None:
        first = np.concatenate([[0], np.cumsum(sizes)])
        train = np.concatenate([np.arange(first[g], first[g + 1]) for g in train])
    train = np.unique(train)
    rng = np.random.default_rng(3)
    holes = rng.normal(50, 9, (graph.manifest.num_nodes, 3)).astype(np.float32)
    holes[rng.random(holes.shape) < 0.3] = np.nan
    holes[train, 2] = np.nan  # no training row has a value
    filled = np.where(np.isnan(holes), [*np.nanmean(holes[train, :2], axis=0, dtype=np.float64), 0], holes)
    found: list[tuple[Any, ...]] = []
    for name, x in (("holes", holes), ("filled", filled.astype(np.float32))):
        data = ingested(tmp_path / name, graph, {"x": x}, sizes)
        controls, store = controls_of(graph, data, tmp_path / f"scratch-{name}", 4 if task == "node" else 1)
        if task == "link":
            shapes = len(store["test_edges"]), len(store["test_negative"])
            model = Prediction(positive=np.zeros(shapes[0]), negative=np.zeros(shapes[1]))
            found.append(dict(controls.predictions("test", model))["features"].pairs())
        else:
            labels = "label" if task == "node" else "graph_label"
            found.append((scored(controls, store, "test", labels)["features"].scores,))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_table_with_empty_cells_is_evaluated(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    write_customers(tmp_path, 200)
    table = pq.read_table(tmp_path / "customers.parquet")
    worth = pa.array(np.arange(200.0), mask=np.arange(200) % 4 == 1)
    pq.write_table(table.append_column("worth", worth), tmp_path / "customers.parquet")
    recipe = customers(tmp_path, "train.epochs=1", "dataset.nodes.features=[worth]", "dataset.nodes.missing=mean")
    report = Line(home).run(recipe, until="evaluate")["evaluate"].manifest
    assert report.stage == "evaluate"
