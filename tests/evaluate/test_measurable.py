"""Splits that a metric is not defined on are refused before anything is trained; what nobody can learn is said."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, RecipeError, UserError
from configs.load import build_recipe
from configs.schema import STAGES, EvaluateConfig
from tasks.calls import load_stage
from tasks.evaluate.intervals import Measuring
from tasks.evaluators.evaluators import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.kinds.measurable import check_graph, representatives
from tasks.kinds.of import kind_of
from tasks.stage import Listener, Parent, run_stage
from tasks.storage.graph_facts import relations_of
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import TaskHead
from tasks.train.prepared import check_labels
from tests.evaluate.test_evaluators import graph
from tests.preprocess.ears import Ears
from tests.support import as_partition, link_graph, multiplex_graph, node_graph

METRICS = ("accuracy", "f1", "rocauc", "ap")


class Labels(dict[str, Any]):
    """A graph that has labels and splits only, rows of one split behind those of the other."""

    def __init__(self, manifest: Any, labels: dict[str, Any]) -> None:
        first = np.cumsum([0, *map(len, labels.values())])
        super().__init__(
            {f"{split}_idx": np.arange(a, b) for split, a, b in zip(labels, first[:-1], first[1:], strict=True)}
        )
        self.manifest = manifest
        self["label"] = np.concatenate(list(labels.values()))


def check_splits(config: Any, manifest: Any, labels: Any, warn: Any, names: Any = None) -> None:
    evaluator = make_evaluator(config.evaluator, manifest)
    store: Any = Labels(manifest, labels)
    kind_of(manifest).measurable(evaluator, store, names, config.splits, warn)


def column(*values: float) -> np.ndarray:
    return np.array(values)[:, None]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(8))
def test_a_few_labels_tell_as_much_as_all(metric: str, seed: int) -> None:
    """A metric is defined on the representatives exactly where it is on the labels."""
    rng = np.random.default_rng(seed)
    evaluator = make_evaluator(EvaluateConfig().evaluator, graph(task_type="multilabel", metric=metric))
    high = rng.integers(1, 3, 3)
    label = np.where(rng.random((20, 3)) < 0.4, np.nan, rng.integers(0, high, (20, 3)))
    label[:, rng.random(3) < 0.3] = np.nan

    def defined(values: np.ndarray) -> bool:
        try:
            evaluator(Prediction(scores=np.zeros(values.shape), label=values))
        except DataError:
            return False
        return True

    assert defined(representatives(label)) == defined(label)


CASES: list[tuple[str, str, str | None, Any, str]] = [
    ("binary", "rocauc", None, column(1, 1, 1), r"test split of 3 rows cannot be measured by rocauc: .*only of class"),
    ("binary", "ap", None, column(0, 0), "the test split of 2 rows cannot be measured by ap"),
    ("binary", "rmse", None, column(0, 1), r"names rmse as its metric, which does not measure binary .*\(metric\)"),
    ("binary", "accuracy", None, column(1, 1), ""),
    ("binary", "rocauc", "accuracy", column(1, 1), ""),
    ("multiclass", "rocauc", None, np.array([2, 2]), "only of class c"),
    ("multiclass", "accuracy", None, np.array([2, 2]), ""),
    ("multiclass", "accuracy", "rmse", np.array([1, 2]), "rmse measures regression tasks"),
    ("multiclass", "acuracy", None, np.array([1, 2]), "unknown metric 'acuracy'"),
]


@pytest.mark.parametrize(("task_type", "metric", "evaluator", "test", "message"), CASES)
def test_splits(task_type: str, metric: str, evaluator: str | None, test: Any, message: str) -> None:
    train = np.array([0, 1, 2]) if test.ndim == 1 else column(0, 1, 0)
    labels = {"train": train, "valid": train, "test": test}
    recipe = build_recipe(
        {"name": "x", "dataset": "synthetic", "model": "gcn"}, [f"evaluate.evaluator={evaluator or 'auto'}"]
    )
    manifest = graph(task_type=task_type, metric=metric).model_copy(update={"num_classes": 3 if test.ndim == 1 else 2})
    said: list[str] = []
    if not message:
        check_splits(recipe.evaluate, manifest, labels, said.append, ["a", "b", "c"])
        assert not said
        return
    with pytest.raises(ValueError, match=message):
        check_splits(recipe.evaluate, manifest, labels, said.append, ["a", "b", "c"])


def test_rows_at_moments_are_split_otherwise_and_what_nobody_reports_may_be_of_one_class() -> None:
    both = column(0, 1)
    labels = {"train": both, "valid": both, "test": column(1, 1)}
    manifest = graph(task_type="binary", metric="rocauc")
    for changes, words in (({}, "dataset.split, snapshot"), ({"fit_before": 9}, "predict.at")):
        with pytest.raises(DataError, match=words):
            check_splits(EvaluateConfig(), manifest.model_copy(update=changes), labels, print)
    check_splits(EvaluateConfig(splits=("valid",)), manifest, labels, print)


def test_classes_that_training_never_shows() -> None:
    labels = {"train": np.array([0, 1, 1]), "valid": np.array([0, 1]), "test": np.array([0, 2, 3, 2])}
    manifest = graph().model_copy(update={"num_classes": 4})
    said: list[str] = []
    check_splits(EvaluateConfig(), manifest, labels, said.append, ["a", "b", "c", "d"])
    assert said == [
        "3 of 4 rows of the test split are of classes that the train split never shows (c, d): no model can get them "
        "right"
    ]
    labels["train"] = np.array([1, 1])
    check_splits(EvaluateConfig(), manifest, labels, said.append, ["a", "b", "c", "d"])
    assert said[1].startswith("the 2 rows of the train split are all of one class (b): there is nothing to learn")


def test_a_task_that_training_has_no_label_of_is_said_by_its_name() -> None:
    heads = (
        TaskHead(name="good", task_type="binary", num_classes=2, metric="rocauc"),
        TaskHead(name="size", task_type="regression", metric="rmse"),
        TaskHead(name="tags", task_type="multilabel", num_tasks=3, metric="ap"),
    )
    rows = np.array([[0, 1, 1, 0, 0], [1, 2, 0, 1, 1]], np.float32)
    train = rows.copy()
    train[:, 1], train[:, 3], train[:, 4] = np.nan, 1, np.nan
    manifest = graph(task_type="several", metric="good.rocauc").model_copy(update={"heads": heads, "num_tasks": 5})
    said: list[str] = []
    check_splits(EvaluateConfig(), manifest, {"train": rows, "valid": rows, "test": rows}, said.append)
    assert not said
    check_splits(EvaluateConfig(), manifest, {"train": train, "valid": rows, "test": rows}, said.append)
    assert said == [
        "size: the 2 rows of the train split have no label at all: there is nothing to learn",
        "tags: the 2 rows of the train split have no label at all in 1 of 3 columns of labels (2): there is nothing to "
        "learn",
        "tags: the 2 rows of the train split have one and the same label in 1 of 3 columns of labels (1): there is "
        "nothing to learn",
    ]


def test_a_run_ends_behind_preprocess_and_serving_does_not_mind(home: Home, tmp_path: Path) -> None:
    parts = ["train", "valid", "test"] * 10
    label = [1 if part == "test" else i % 2 for i, part in enumerate(parts)]
    pq.write_table(pa.table({"id": range(30), "y": label, "part": parts}), tmp_path / "n.parquet")
    pq.write_table(pa.table({"src": [0], "dst": [1]}), tmp_path / "e.parquet")
    dataset = {
        "name": "tables",
        "task_type": "binary",
        "metric": "rocauc",
        "nodes": {"files": str(tmp_path / "n.parquet"), "label": "y"},
        "edges": {"files": str(tmp_path / "e.parquet")},
        "split": {"by": "column", "column": "part"},
    }
    recipe = build_recipe({"name": "x", "dataset": dataset, "model": "gcn"})
    parents: dict[str, Parent] = {}
    for name in ("ingest", "preprocess"):
        parents[name] = run_stage(load_stage(name), recipe, parents, home, listener=Ears()).parent
    keys = {name: parent.manifest.key for name, parent in parents.items()}
    with pytest.raises(DataError, match="the test split of 10 rows cannot be measured by rocauc"):
        check_labels(recipe, keys, home)
    check_labels(recipe.model_copy(update={"evaluate": EvaluateConfig(splits=("valid",))}), keys, home)


def test_a_metric_of_pairs_has_to_fit_before_anything_is_trained(tmp_path: Path) -> None:
    parent = link_graph(tmp_path)
    for metric, message in (
        ("hits@0", "unknown metric 'hits@0'"),
        ("rmse", "names rmse as its metric, which does not measure link"),
    ):
        store = GraphStore(parent.folder, parent.manifest.model_copy(update={"metric": metric}))
        with pytest.raises(UserError, match=message):
            check_graph(EvaluateConfig(), store, None, print)
    store = GraphStore(parent.folder, parent.manifest)
    check_graph(EvaluateConfig(), store, None, print, "valid/hits@10")
    with pytest.raises(RecipeError, match=r"gate_metric=valid/rmse is not measured; there are valid/hits@20, valid/ap"):
        check_graph(EvaluateConfig(), store, None, print, "valid/rmse")


def test_the_pipeline_asks_before_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from flows.pipeline.train import _Run

    done: list[str] = []
    record = SimpleNamespace(stages={}, write=lambda _: None, parent_keys=lambda _: {})
    selection = SimpleNamespace(all=STAGES, stages=STAGES)

    def refuse(*_: object) -> None:
        raise DataError("no metric")

    monkeypatch.setattr("flows.pipeline.train.check_labels", refuse)
    monkeypatch.setattr("flows.pipeline.train._Run._run", lambda _, name: done.append(name))
    run: Any = _Run.__new__(_Run)
    run._watch, run.listener = SimpleNamespace(look=lambda *_: None), Listener()
    run.home, run.recipe, run.selection, run.record, run.here = None, None, selection, record, None
    with pytest.raises(DataError):
        run.stages()
    assert done == ["ingest", "preprocess"]


def multiplex(tmp_path: Path) -> GraphStore:
    """Links of two relations, of one of which a single pair validates."""
    parent = as_partition(multiplex_graph(tmp_path / "graph"))
    relation = np.load(parent.folder / "valid_relation.npy")
    relation[:] = 0
    relation[-1] = 1
    np.save(parent.folder / "valid_relation.npy", relation)
    return GraphStore(parent.folder, parent.manifest)


def test_relations_that_hardly_validate_are_named(tmp_path: Path) -> None:
    store, said = multiplex(tmp_path), list[str]()
    check_graph(EvaluateConfig(), store, None, said.append)
    words = "fewer than 30 rows of 1 of 2 relations (knows: 1): the epoch is chosen by the mean of their rocauc"
    assert words in " ".join(said)
    assert "evaluate.evaluator.relations" in said[0]
    names = relations_of(store.manifest)
    said.clear()
    check_graph(EvaluateConfig(evaluator={"name": "auto", "relations": [names[0]]}), store, None, said.append)
    assert not said
    with pytest.raises(RecipeError, match=r"unknown relation 'liked' \(did you mean"):
        check_graph(EvaluateConfig(evaluator={"name": "rocauc", "relations": ["liked"]}), store, None, said.append)


def test_relations_that_judge(tmp_path: Path) -> None:
    links = multiplex(tmp_path).manifest
    relations = np.array([0, 0, 1, 1]), np.array([0, 0, 1, 1])
    right, wrong = np.array([2.0, 2, -1, -1], np.float32), np.array([1.0, 1, 1, 1], np.float32)
    prediction = Prediction(positive=right, negative=wrong, relations=relations)
    names = relations_of(links)
    for judging, expected in (([], 0.5), ([names[0]], 1.0), ([names[1]], 0.0), (names[:2], 0.5)):
        config = EvaluateConfig(evaluator={"name": "auto", "relations": list(judging)}).evaluator
        evaluator = make_evaluator(config, links)
        assert evaluator(prediction)["rocauc"] == expected
        assert [extra(prediction)["f1"] for extra in Measuring.of(config, links).further if extra.metric == "f1"] == [
            pytest.approx(expected, abs=0.01)
        ]
    plain = as_partition(link_graph(tmp_path / "plain")).manifest
    with pytest.raises(RecipeError, match="are not predicted by relation"):
        make_evaluator(EvaluateConfig(evaluator={"name": "rocauc", "relations": ["x"]}).evaluator, plain)


@pytest.mark.parametrize(
    ("evaluator", "task_type", "valid", "said"),
    [
        ({"name": "f1"}, "multiclass", np.repeat([0, 1, 2], [40, 29, 30]), "1 of 3 classes (b: 29): the epoch"),
        ({"name": "f1", "average": "micro"}, "multiclass", np.repeat([0, 1, 2], [40, 29, 30]), ""),
        ({"name": "accuracy"}, "multiclass", np.repeat([0, 1, 2], [40, 29, 30]), ""),
        ({"name": "rocauc"}, "binary", np.repeat([[0.0], [1.0]], [500, 5], 0), "1 of 2 classes (b: 5)"),
        (
            {"name": "rocauc"},
            "multilabel",
            np.tile([[0.0, 1], [1, np.nan]], (20, 1)),
            "2 of 2 label columns (a: 20, b: 20)",
        ),
        ({"name": "rocauc"}, "multilabel", np.tile([[0.0, 1.0], [1, 0]], (40, 1)), ""),
    ],
)
def test_classes_that_hardly_validate_are_named(
    tmp_path: Path, evaluator: dict[str, Any], task_type: str, valid: Any, said: str
) -> None:
    fields = {"task_type": task_type, "num_classes": 3 if task_type == "multiclass" else 2}
    nodes = node_graph(tmp_path / "graph").manifest.model_copy(update=fields)
    told: list[str] = []
    config = EvaluateConfig(evaluator=evaluator)
    check_splits(config, nodes, {"train": valid, "valid": valid, "test": valid}, told.append, ["a", "b", "c"])
    assert said in " ".join(told)
    assert bool(told) == bool(said)


@pytest.mark.parametrize(
    ("task_type", "metric", "rare", "said"),
    [
        ("multiclass", "accuracy", 2, "98.0% of the labelled rows of valid are of class a"),
        ("multiclass", "f1_micro", 2, "98.0% of the labelled rows of valid are of class a"),
        ("multiclass", "accuracy", 20, ""),
        ("multiclass", "f1", 2, ""),
        ("multiclass", "rocauc", 2, ""),
        ("binary", "accuracy", 2, "98.0% of the labelled rows of valid are of class 0"),
        ("binary", "ap", 2, ""),
        ("multilabel", "accuracy", 2, "on average 99.0% of a column's labels of valid are alike"),
        ("multilabel", "f1_micro", 2, ""),
    ],
)
def test_where_accuracy_tells_nothing_it_is_said(task_type: str, metric: str, rare: int, said: str) -> None:
    label: Any = (np.arange(100) < rare).astype(np.int64)
    if task_type == "binary":
        label = np.append(label, [-1]).astype(np.float64)[:, None]
        label[-1] = np.nan
    if task_type == "multilabel":
        label = np.stack([label, np.roll(label, 3), np.full(100, np.nan)], 1).astype(np.float64)
        label[50:, 1], label[3:5, 1] = 0, 0
    recipe = build_recipe({"name": "x", "dataset": "synthetic", "model": "gcn"}, [])
    warned: list[str] = []
    names = list("ab") if task_type == "multiclass" else None
    manifest = graph(task_type=task_type, metric=metric)
    check_splits(recipe.evaluate, manifest, {"train": label, "valid": label}, warned.append, names)
    texts = [text for text in warned if "says nothing about the other" in text]
    assert len(texts) == (said != "")
    reached = f"{said}: always predicting that reaches {metric} 0.9"
    assert not said or (texts[0].startswith(reached) and "evaluate.evaluator=average_precision" in texts[0])


@pytest.mark.parametrize("metric", ["accuracy", "f1_macro"])
def test_a_class_that_looks_like_a_common_one_is_named(metric: str) -> None:
    said: list[str] = []
    names = ["fraud", "fruad", "ok", "OK ", "code-1", "code-2", "new", "bot", "bto", "bat", "but", "cat"]
    counts = [200, 3, 9000, 2, 4000, 2, 5, 300, 1, 3, 4, 1]
    labels = {"train": np.repeat(np.arange(12), counts), "valid": np.array([0, 2])}
    check_splits(EvaluateConfig(), graph(metric=metric), labels, said.append, names)
    found = [text for text in said if "misspelt" in text]
    # 'bat' may be 'bot', 100 times as frequent, and not 'but' of 4.
    own = " f1_macro takes it for a class of its own" if metric == "f1_macro" else ""
    assert found == [
        f"{text}{own}"
        for text in (
            "class 'fruad' of 3 rows looks like 'fraud' of 201: is it misspelt in the data?",
            "class 'bat' of 3 rows looks like 'bot' of 300: is it misspelt in the data?",
            "class 'OK ' of 2 rows looks like 'ok' of 9,001: is it misspelt in the data?",
            "class 'bto' of 1 rows looks like 'bot' of 300: is it misspelt in the data?",
        )
    ]
