"""Both models score the same rows, as serving would: nodes, links, graphs; what the champion knows is left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from tasks.apply.measure import as_classes, predict
from tasks.apply.run import OutputRequest, prepare_for, write_outputs
from tasks.controls.suite import Controls
from tasks.kinds.base import TaskRows
from tasks.publish.champion.comparison import Challenge, champion_files
from tasks.publish.tracking.registered import find_version
from tasks.publish.tracking.registry import open_tracker
from tasks.stage import Parent, StageContext
from tasks.storage.controls import CONTROLS
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.ids import IdMap
from tests.ingest.ogb_folders import put
from tests.publish.line import Line, customers, write_customers

OWN_CONTROLS = Controls.measured  # the fixture below takes them away

pytestmark = pytest.mark.usefixtures("whole_line_in_this_process")


@dataclass
class Case:
    """Two published models, the second after the first."""

    line: Line
    recipes: list[Recipe]
    parents: list[dict[str, Parent]]

    @property
    def gate(self) -> dict[str, Any]:
        gate: dict[str, Any] = self.parents[1]["publish"].manifest.gate
        return gate

    def files(self, number: int) -> Any:
        tracker = open_tracker(self.line.home)
        return champion_files(tracker, find_version(tracker, f"{self.recipes[0].name}@{number + 1}"))

    def context(self, folder: Path) -> StageContext:
        return StageContext("publish", folder, self.line.home, PickleCache(self.line.home), self.line.ears)

    def challenge(self, number: int, folder: Path) -> Challenge:
        recipe, parents = self.recipes[number], self.parents[number]
        return Challenge(self.context(folder), recipe, parents, self.files(number).folder, self.gate.metric)

    def served(self, folder: Path, pairs: Path | None = None) -> pa.Table:
        """What serving says of the second one's data with the first model."""
        published, parents = self.files(0), self.parents[1]
        graph = prepare_for(published, self.recipes[1], parents["ingest"], self.context(folder))
        given = {} if pairs is None else {"pairs": str(pairs)}
        wanted = OutputRequest("predictions", str(folder / "p.parquet"), "parquet", given)
        both = {"ingest": parents["ingest"], "partition": graph}
        write_outputs(self.line.home, self.line.ears, published, wanted, self.recipes[1], both)
        return pq.read_table(folder / "p.parquet")


def publish_both(home: Home, *recipes: Recipe) -> Case:
    line = Line(home)
    return Case(line, list(recipes), [line.run(recipe) for recipe in recipes])


def small(model: str, **dataset: Any) -> Recipe:
    return build_recipe(
        {
            "name": "demo",
            "dataset": dataset,
            "model": {"name": model, "hidden_dim": 8, "num_layers": 2},
            "preprocess": {"transforms": ["standardize"], "workers": 1},
            "train": {"epochs": 1, "threads": 1, "device": "cpu"},
            "tracking": {"system_metrics": False},
        }
    )


def test_nodes(tracked_home: Home, tmp_path: Path) -> None:
    """Another recipe under the same name: other options, other transforms, classes in another order."""
    write_customers(tmp_path / "old")
    write_customers(tmp_path / "new", seed=1, classes=("good", "bad", "able"))
    second = customers(
        tmp_path / "new",
        "name=others",
        "tracking.model_name=customers",
        "preprocess.symmetrize=false",
        "preprocess.transforms=[]",
        "partition.name=metis",
        "partition.num_parts=3",
        "model.name=gcn",
        "dataset.split.seed=1",
    )
    case = publish_both(tracked_home, customers(tmp_path / "old"), second)
    table = case.served(tmp_path).to_pandas()
    rows = table[table.split == "valid"]
    known = IdMap(*_opened(case.parents[0])).lookup(np.asarray(_opened(case.parents[0])[0]["train_idx"])).to_pylist()
    fresh = rows[~rows.id.isin(known)]
    gate = case.gate
    assert gate.champion == pytest.approx((fresh.label == fresh.prediction).mean())
    assert (gate.rows, gate.trained_on) == (len(fresh), len(rows) - len(fresh))
    assert 0 < gate.trained_on < len(rows)
    assert f"without {gate.trained_on:,} that the champion was trained on" in gate.reason


def test_a_champion_that_knows_all_rows_is_compared_on_them_with_a_word(tracked_home: Home, tmp_path: Path) -> None:
    write_customers(tmp_path, count=200)
    train, valid, test = ([split] * 40 for split in ("train", "valid", "test"))
    table = pq.read_table(tmp_path / "customers.parquet")
    for name, splits in (("first", [train, train, train, valid, test]), ("second", [valid, train, train, train, test])):
        table = table.append_column(name, pa.array(np.concatenate(splits)))
    pq.write_table(table, tmp_path / "customers.parquet")
    recipes = [customers(tmp_path, split={"by": "column", "column": name}) for name in ("first", "second")]
    case = publish_both(tracked_home, *recipes)
    assert (case.gate.rows, case.gate.trained_on) == (40, 40)
    assert "of which the champion was trained on 40: that favours it" in case.gate.reason


def test_links(tracked_home: Home, tmp_path: Path) -> None:
    """The same positive and negative pairs, though the champion's graph has an order of its own."""
    sizes = {"num_nodes": 150, "num_edges": 900, "num_classes": 4, "community_size": 40, "num_negatives": 60}
    first, second = (small("graphsage", name="synthetic", task="link", feature_dim=8, seed=s, **sizes) for s in (1, 2))
    metis = build_recipe({**dump_recipe(second), "partition": {"name": "metis", "num_parts": 2}})
    case = publish_both(tracked_home, first, metis)
    store, _ = _opened(case.parents[1])
    ids = np.asarray(store["node_ids"])
    pairs = np.concatenate([ids[np.asarray(store["valid_edges"])], ids[np.asarray(store["valid_negative"])]])
    pc.write_csv(pa.table({"source": pairs[:, 0], "target": pairs[:, 1]}), tmp_path / "pairs.csv")
    scores = case.served(tmp_path, tmp_path / "pairs.csv").column("score").to_numpy()
    positive, negative = np.split(scores, [len(store["valid_edges"])])
    gate = case.gate
    k = int(gate.metric.removeprefix("valid/hits@"))
    assert gate.champion == pytest.approx((positive > np.sort(negative)[-k]).mean())
    assert (gate.rows, gate.trained_on) == (len(positive), None)
    assert "which of them the champion was trained on is not known" in gate.reason, "numbers of other data"


def molecules(folder: Path, seed: int) -> None:
    """Sixty rings and paths in OGB's layout, told apart by their degrees and a feature."""
    rng = np.random.default_rng(seed)
    sizes, label = rng.integers(3, 8, 60), rng.integers(0, 2, 60)
    edges = [
        [(i, i + 1) for i in range(n - 1)] + ([(n - 1, 0)] if ring else [])
        for n, ring in zip(sizes, label, strict=True)
    ]
    raw = folder / "rings" / "raw"
    put(raw / "edge.csv.gz", np.array([edge for one in edges for edge in one]))
    put(raw / "node-feat.csv.gz", rng.standard_normal((sizes.sum(), 2)) + np.repeat(label, sizes)[:, None])
    put(raw / "graph-label.csv.gz", label.astype(float))
    put(raw / "num-node-list.csv.gz", sizes)
    put(raw / "num-edge-list.csv.gz", [len(one) for one in edges])
    for split, rows in {"train": range(30), "valid": range(30, 45), "test": range(45, 60)}.items():
        put(folder / "rings" / "split" / "random" / f"{split}.csv.gz", list(rows))


def test_graphs(tracked_home: Home, tmp_path: Path) -> None:
    for seed in (0, 1):
        molecules(tmp_path / str(seed), seed)
    data = {"name": "ogb", "dataset": "rings", "task": "graph", "task_type": "binary", "metric": "rocauc"}
    first, second = (small("gin", root=str(tmp_path / str(seed)), **data) for seed in (0, 1))
    case = publish_both(tracked_home, first, second)
    table = case.served(tmp_path).to_pandas()
    rows = table[table.split == "valid"]
    ones, others = rows.score[rows.label == 1], rows.score[rows.label == 0]
    assert case.gate.champion == pytest.approx(np.mean([(one > others).mean() for one in ones]), abs=1e-9)
    assert (case.gate.rows, case.gate.recorded) == (15, False)


@pytest.mark.parametrize("kind", ["multiclass", "regression"])
def test_recorded_values_are_what_serving_measures(tracked_home: Home, tmp_path: Path, kind: str) -> None:
    """The same prepared rows: nothing is scored again, and scoring would give the very same numbers."""
    write_customers(tmp_path / "data", count=200)
    case = publish_both(tracked_home, *(customers(tmp_path / "data", f"seed={s}", task_type=kind) for s in (0, 1)))
    gate = case.gate
    assert (gate.recorded, gate.rows) == (True, 40)
    assert "as recorded on the same 40 validation rows" in gate.reason
    challenge = case.challenge(1, tmp_path)
    both = [challenge.own(), replace(challenge.own(), model=str(case.files(0).folder))]
    measured = challenge.measure(both, None)
    assert [one["value"] for one in measured["models"]] == [gate.challenger, gate.champion]
    low, high = measured["models"][1]["interval"]
    assert low < gate.champion < high
    assert measured["telling"] == measured["rows"] == 40
    if kind == "multiclass":
        by_class = replace(challenge, metric="valid/f1_macro").measure(both, None)
        labels = np.load(case.parents[1]["partition"].folder / "label.npy")
        assert by_class["telling"] < 20 < len(labels)
        assert "interval" not in by_class["models"][1], "draws are of the metric that evaluation judges by"


def test_the_gate_measures_the_validation_split_where_only_test_was_evaluated(
    tracked_home: Home, tmp_path: Path
) -> None:
    write_customers(tmp_path, count=200)
    splits = ("evaluate.splits=[test]", "evaluate.splits=[valid]")
    case = publish_both(tracked_home, *(customers(tmp_path, override) for override in splits))
    first, second = (parents["publish"].manifest for parents in case.parents)
    evaluated = [parents["evaluate"].manifest.metrics for parents in case.parents]
    assert set(evaluated[0]) == {"test"}
    assert first.gate.metric == "valid/accuracy"
    assert first.gate.value == evaluated[1]["valid"]["accuracy"]
    assert second.gate.short == "is champion", "the same model, evaluated otherwise"


@pytest.mark.parametrize("task", ["node", "link"])
def test_so_it_does_the_controls_there(
    tracked_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str
) -> None:
    monkeypatch.setattr(Controls, "measured", OWN_CONTROLS)
    write_customers(tmp_path, count=200)
    links = {"num_nodes": 150, "num_edges": 900, "community_size": 40, "num_negatives": 60, "feature_dim": 8}
    recipe = customers(tmp_path) if task == "node" else small("mlp", name="synthetic", task="link", **links)
    recipes = [
        build_recipe(dump_recipe(recipe), ["train.epochs=1", "train.learning_rate=1e-6", f"evaluate.splits=[{splits}]"])
        for splits in ("test", "valid,test")
    ]
    line = Line(tracked_home)
    first = line.run(recipes[0])["publish"].manifest.gate
    both = line.run(recipes[1], until="evaluate")["evaluate"].manifest
    assert sum(CONTROLS[name].gates for name in both.controls) == 2
    assert len(both.controls) == (2 if task == "node" else 5)
    assert first.controls == {name: splits["valid"][both.metric] for name, splits in both.controls.items()}
    assert not first.promoted
    assert "is below a linear model" in first.reason


def test_classes_go_by_their_names() -> None:
    scores = np.array([[3.0, 1.0], [0.0, 2.0]], np.float32)
    assert as_classes(scores, ["a", "b"], ["a", "b"], 2) is scores
    assert as_classes(scores, ["a", "b"], ["b", "a"], 2).tolist() == [[1.0, 3.0], [2.0, 0.0]]
    more = as_classes(scores, ["a", "c"], ["a", "b", "c"], 3)
    assert more[:, [0, 2]].tolist() == scores.tolist()
    chance = np.exp(more) / np.exp(more).sum(1, keepdims=True)
    assert (chance[:, 1] < 1e-12).all()
    fewer = as_classes(scores, ["a", "x"], ["a", "b"], 2)
    assert fewer.argmax(1).tolist() == [0, 2], "a class that is no more is a wrong answer"
    assert as_classes(scores, None, None, 3).shape == (2, 3)


@pytest.mark.parametrize("task_type", ["multilabel", "regression"])
def test_label_columns_go_by_their_names(tracked_home: Home, tmp_path: Path, task_type: str) -> None:
    write_customers(tmp_path, count=200)
    table = pq.read_table(tmp_path / "customers.parquet")
    first, second = np.array(table.column("x").to_pylist()).T
    for name, x in (("one", first), ("other", second), ("third", first)):
        table = table.append_column(name, pa.array((x > 0) * 1.0 if task_type == "multilabel" else x))
    pq.write_table(table, tmp_path / "customers.parquet")
    data = {"task_type": task_type, "metric": "accuracy" if task_type == "multilabel" else "r2"}
    nodes = {"files": str(tmp_path / "customers.parquet"), "features": ["x"]}
    recipes = [
        customers(tmp_path, "model.name=mlp", *more, **data, nodes={**nodes, "label": labels})
        for labels, more in (
            (["one", "other"], ["train.epochs=60"]),
            (["other", "one"], ["train.epochs=1", "dataset.split.seed=1"]),
            (["other", "third"], ["train.epochs=1", "dataset.split.seed=2"]),
        )
    ]
    case = publish_both(tracked_home, *recipes[:2])
    gate = case.gate
    assert gate.champion > 0.85
    assert not gate.promoted
    served = case.served(tmp_path / "served")
    label, found = (np.array(served.column(name).to_pylist()) for name in ("label", "prediction"))
    right = (label == found) if task_type == "multilabel" else np.abs(label - found) < np.abs(label - found[:, ::-1])
    assert right.mean() > 0.7, "each prediction stands where its label does"
    gate = Line(tracked_home).run(recipes[2])["publish"].manifest.gate
    said = "it predicts the label columns one, other, and those of this data are other, third"
    assert (gate.champion, gate.why_not) == (None, said)
    case.parents[1] = Line(tracked_home).run(recipes[2])
    case.recipes[1] = recipes[2]
    with pytest.raises(DataError, match=said):
        case.served(tmp_path / "refused")
    assert not [*(tmp_path / "refused").glob(".p*")], "nothing half-written stays"


@pytest.mark.parametrize("names", [["a", "b"], None])
def test_classes_that_the_data_has_not_are_told_from_its_own(names: list[str] | None) -> None:
    scores = np.array([[3.0, 1.0, 7.0], [0.0, 2.0, 1.0]], np.float32)
    manifest = SimpleNamespace(kind="node", num_nodes=2, num_classes=2)
    store = SimpleNamespace(manifest=manifest, get=lambda _: None)
    opened: Any = SimpleNamespace(
        model=None, store=store, predictor=SimpleNamespace(node_scores=lambda model, nodes: scores[nodes])
    )
    found = predict(opened, TaskRows(np.array([1, 0]), None, np.array([1, 0])), names and [*names, "c"], names)
    assert found.num_classes == 2
    _, logit = found.columns()
    assert logit.tolist() == [[2.0], [-2.0]]
    assert found.classes()[1].tolist() == [1, 2]


def _opened(parents: dict[str, Parent]) -> Any:
    from tasks.storage.dataset_store import DatasetStore

    graph, ingest = parents["partition"], parents["ingest"]
    return GraphStore(graph.folder, graph.manifest), DatasetStore(ingest.folder, ingest.manifest)
