from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError, IntegrityError
from configs.schema import EvaluateConfig
from configs.training import TrainConfig
from tasks import supervise
from tasks.evaluate import worker
from tasks.evaluate.stage import STAGE, build
from tasks.inference.predictor import Predictor
from tasks.kinds.of import predict
from tasks.processes.children import ROOT
from tasks.stage import Listener, Parent, PickleCache, StageContext
from tasks.storage.artifacts import describe_files
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.outcomes import EvalReport
from tasks.train.state.checkpoint import load_model
from tests.finished import dataset, trained
from tests.support import COMMON, as_partition, link_graph, molecule_graph, node_graph


class Recipe:
    """The sections that the stage reads."""

    is_layout = False
    seed = 0

    def __init__(self, **evaluate: Any) -> None:
        self.evaluate = EvaluateConfig(**evaluate)
        self.train = TrainConfig(device="cpu", threads=1)


class Heard(Listener):
    def __init__(self) -> None:
        self.steps: list[str] = []
        self.warnings: list[str] = []

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        self.steps.append(f"{done:g}/{total:g} {note}")

    def warning(self, stage: str, text: str) -> None:
        self.warnings.append(text)


def evaluate(home: Home, recipe: Recipe, parents: dict[str, Parent]) -> tuple[EvalReport, Path, Heard]:
    heard = Heard()
    work = home.root / "work-here"
    work.mkdir()
    context = StageContext("evaluate", work, home, PickleCache(home), heard)
    fields = build(context, recipe, parents)  # type: ignore[arg-type]
    return EvalReport(**COMMON, stage="evaluate", files=describe_files(work), **fields), work, heard


def shuffled(parent: Parent, seed: int = 5) -> Parent:
    """Give the graph another id space than the data set: node v was node_ids[v] there."""
    rng = np.random.default_rng(seed)
    np.save(parent.folder / "node_ids.npy", rng.permutation(parent.manifest.num_nodes).astype(np.int64))
    return parent


def test_node_metrics_and_predictions_under_the_users_ids(tmp_path: Path, home: Home) -> None:
    graph = as_partition(shuffled(node_graph(tmp_path / "graph", num_nodes=301)))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    ids = [f"user-{i}" for i in range(301)]
    train = trained(tmp_path / "train", graph, "graphsage")
    parents = {"partition": graph, "train": train}
    parents["ingest"] = dataset(tmp_path / "data", graph, ids, ["a", "b", "c", "d"])
    report, work, heard = evaluate(home, Recipe(splits="valid,test"), parents)

    store = GraphStore(graph.folder, graph.manifest)
    expected = predict(Predictor(store), load_model(train.folder / "best.pt"), "test")
    predicted = expected.scores.argmax(1)
    assert report.metric == "accuracy"
    assert list(report.metrics) == ["valid", "test"]
    train_label = np.asarray(store["label"][store["train_idx"]])
    share = float(np.mean(expected.label == np.bincount(train_label).argmax()))
    assert report.controls["majority"]["test"]["accuracy"] == share
    assert list(report.controls) == ["majority"]
    assert "no linear control" in report.report["notes"][0]
    bars = report.controls["majority"]
    lost = [split for split, own in report.metrics.items() if own["accuracy"] <= bars[split]["accuracy"]]
    told = [text for text in heard.warnings if text.startswith("the model does not beat the majority class")]
    assert len(told) == bool(lost)
    assert all(split in told[0] for split in lost)
    assert next(iter(report.metrics["test"])) == "accuracy"
    assert report.metrics["test"]["accuracy"] == pytest.approx((predicted == expected.label).mean())
    assert "f1_macro" in report.metrics["test"]
    assert heard.steps == ["1/2 valid", "2/2 test"]

    table = pq.read_table(work / report.predictions).to_pandas()
    assert list(table.columns) == ["id", "split", "label", "prediction", "score"]
    assert len(table) == report.rows == len(store["valid_idx"]) + len(store["test_idx"])
    test = table[table.split == "test"].set_index("id")
    node_ids = store["node_ids"]
    for node, label, guess in zip(store["test_idx"], expected.label, predicted, strict=True):
        row = test.loc[f"user-{node_ids[node]}"]
        assert (row.label, row.prediction) == ("abcd"[label], "abcd"[guess])
        assert 0.25 <= row.score <= 1
    degree = np.diff(np.load(graph.folder / "csc_indptr.npy"))[store["test_idx"]]
    groups = report.report["groups"]["degree"]
    assert sum(group["rows"] for group in groups) == len(degree)
    assert sum(group["rows"] * group["metric"] for group in groups) == pytest.approx(
        len(degree) * report.metrics["test"]["accuracy"]
    )
    worst = report.report["most_wrong"]
    assert len(worst["id"]) == 10
    of_test = table[table.split == "test"].set_index("id")
    assert of_test.loc[worst["id"], "prediction"].tolist() == worst["prediction"]
    assert of_test.loc[worst["id"], "label"].tolist() == worst["label"]
    assert worst["prediction"] != worst["label"]

    confusion = report.report["confusion"]
    assert confusion["classes"] == ["a", "b", "c", "d"]
    assert np.sum(confusion["counts"]) == len(store["test_idx"])
    assert sorted(report.files) == ["predictions.parquet"]


@pytest.mark.usefixtures("in_this_process")
def test_nodes_of_no_split_are_predicted(tmp_path: Path, home: Home) -> None:
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=100))
    for name in ("valid", "test"):
        index = np.load(graph.folder / f"{name}_idx.npy")[:-3]
        np.save(graph.folder / f"{name}_idx.npy", index)
    fields = graph.manifest.model_dump()
    for name in ("valid", "test"):
        fields["arrays"][f"{name}_idx"]["shape"] = (22,)
    graph = Parent(type(graph.manifest)(**fields), graph.folder)
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    parents = {"partition": graph, "train": trained(tmp_path / "train", graph, "gcn")}
    parents["ingest"] = dataset(tmp_path / "data", graph)
    report, work, _ = evaluate(home, Recipe(), parents)
    table = pq.read_table(work / "predictions.parquet").to_pandas()
    assert report.rows == len(table) == 50
    assert table.split.isna().sum() == 6
    assert table.id.is_unique
    assert table.prediction.notna().all()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch and DGL in a process of its own takes seconds; two tests do so, that is enough."""
    monkeypatch.setattr(supervise, "run_worker", lambda module, job, *_: worker.main(job))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("ids", [None, "str", "repeated"])
def test_links(tmp_path: Path, home: Home, ids: str | None) -> None:
    graph = as_partition(shuffled(link_graph(tmp_path / "graph", dim=8)))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    parents = {"partition": graph, "train": trained(tmp_path / "train", graph, "graphsage")}
    names = [f"n{max(i, 1) if ids == 'repeated' else i}" for i in range(200)] if ids else None
    parents["ingest"] = dataset(tmp_path / "data", graph, names)
    report, work, _ = evaluate(home, Recipe(), parents)
    assert report.metric == "hits@20"
    assert list(report.metrics["test"])[:2] == ["hits@20", "mrr"]
    store = GraphStore(graph.folder, graph.manifest)
    table = pq.read_table(work / "predictions.parquet").to_pandas()
    positives = table[(table.split == "test") & (table.label == 1)]
    assert len(positives) == len(store["test_edges"])
    assert (table.label == 0).sum() == 1000
    first = store["test_edges"][0]
    expected = [int(store["node_ids"][v]) for v in first]
    assert list(table.columns)[:2] == ["source", "source_row" if ids == "repeated" else "target"]
    if ids == "repeated":
        assert [positives.source_row.iloc[0], positives.target_row.iloc[0]] == expected
    assert [positives.source.iloc[0], positives.target.iloc[0]] == ([f"n{v}" for v in expected] if ids else expected)
    negatives = table[(table.split == "test") & (table.label == 0)].score.to_numpy()
    score = positives.score.iloc[0]
    assert positives["rank"].iloc[0] == 1 + (negatives > score).sum() + 0.5 * (negatives == score).sum()
    assert (positives["rank"] <= 20).mean() == pytest.approx(report.metrics["test"]["hits@20"], abs=0.02)
    assert sum(report.report["ranking"]["rank_counts"]) == len(positives)


@pytest.mark.usefixtures("in_this_process")
def test_graphs(tmp_path: Path, home: Home) -> None:
    graph = as_partition(molecule_graph(tmp_path / "graph"))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    parents = {"partition": graph, "train": trained(tmp_path / "train", graph, "gin")}
    parents["ingest"] = dataset(tmp_path / "data", graph, graphs=[f"mol-{i}" for i in range(120)])
    report, work, _ = evaluate(home, Recipe(splits="train,valid,test"), parents)
    assert report.metric == "rocauc"
    assert set(report.metrics) == {"train", "valid", "test"}
    assert set(report.metrics["test"]) == {"rocauc", "ap", "accuracy"}
    table = pq.read_table(work / "predictions.parquet").to_pandas()
    table["number"] = table.graph_id.str.removeprefix("mol-").astype(int)
    assert sorted(table.number) == list(range(120))
    assert table.row.tolist() == table.number.tolist()
    label = np.load(graph.folder / "graph_label.npy")[:, 0]
    np.testing.assert_array_equal(table.label, label[table.number])
    assert ((table.score > 0.5) == (table.prediction == 1)).all()
    assert {"confusion", "roc", "calibration"} <= set(report.report)
    assert report.report["groups"] == {}
    assert list(report.report["most_wrong"]) == ["graph_id", "row", "label", "prediction", "score"]


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(("splits", "chosen"), [("valid,test", True), ("valid", False), ("test", False)])
def test_nothing_is_chosen_and_shown_on_the_same_rows(tmp_path: Path, home: Home, splits: str, chosen: bool) -> None:
    graph = as_partition(molecule_graph(tmp_path / "graph"))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    parents = {"partition": graph, "train": trained(tmp_path / "train", graph, "gin")}
    parents["ingest"] = dataset(tmp_path / "data", graph, graphs=[f"mol-{i}" for i in range(120)])
    report, _, _ = evaluate(home, Recipe(splits=splits), parents)
    assert ("thresholds" in report.report) == chosen


def test_errors_of_the_worker_keep_their_class(tmp_path: Path, home: Home) -> None:
    graph = as_partition(node_graph(tmp_path / "graph", num_nodes=60))
    np.save(graph.folder / "label.npy", np.full(60, -1, np.int64))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    parents = {"partition": graph, "train": trained(tmp_path / "train", graph, "gcn")}
    parents["ingest"] = dataset(tmp_path / "data", graph)
    with pytest.raises(DataError, match="no labelled row"):
        evaluate(home, Recipe(), parents)
    (parents["train"].folder / "best.pt").write_bytes(b"not a checkpoint")
    (home.root / "work-here").rename(home.root / "before")
    with pytest.raises(IntegrityError, match=r"best\.pt is not a checkpoint of graphmill"):
        evaluate(home, Recipe(), parents)


def test_key_holds_what_is_measured_and_nothing_else() -> None:
    config = STAGE.config(Recipe(batch_size=7))  # type: ignore[arg-type]
    kept = {"splits": ["valid", "test"], "batch_size": 7, "predictions": True}
    assert kept.items() <= config["evaluate"].items()  # the batch size changes last bits of scores
    assert config["evaluate"]["evaluator"]["name"] == "auto"
    assert config.keys() == {"evaluate"}
    assert "memory" not in config["evaluate"]


def test_a_worker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    (tmp_path / "sleeper.py").write_text(
        "import os, time\ndef main(path):\n    path.write_text(str(os.getpid()))\n    time.sleep(60)\n    return 0\n"
    )
    script = (
        "from pathlib import Path\n"
        "from types import SimpleNamespace\n"
        "from tasks.supervise import run_worker\n"
        f"run_worker('sleeper', Path({str(pid_file)!r}), SimpleNamespace(stage='evaluate'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    with subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=ROOT) as parent:
        pid = wait_for(lambda: pid_file.exists() and pid_file.read_text())
        parent.kill()
    assert wait_for(lambda: not alive(int(pid)))


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and waits to be reaped does not)."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")
