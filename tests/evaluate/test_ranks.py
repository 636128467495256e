"""An evaluation by two ranks, each on a machine of its own."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic_core import to_json

from tasks.evaluate import worker
from tasks.evaluate.worker import EvaluateJob
from tasks.inference.opened import device_of
from tasks.stage import Parent
from tasks.supervise import read_error
from tests.finished import dataset, trained
from tests.sampling.part_graphs import rich_graph
from tests.train.two_processes import run_program

ACCURACY: dict[str, Any] = {"name": "accuracy"}


def one_type(folder: Path) -> Parent:
    """A graph in parts, with nodes of one type."""
    parent = rich_graph(folder)
    manifest = parent.manifest.model_copy(update={"node_types": ("node",), "type_offsets": (0, 301)})
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Parent(manifest, folder)


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("parents")
    graph = one_type(folder / "graph")
    return {
        "graph": graph.folder,
        "train": trained(folder / "train", graph, "graphsage").folder,
        "data": dataset(folder / "data", graph, list(range(301))).folder,
    }


class Ended:
    """What a rank left in its work folder."""

    def __init__(self, work: Path) -> None:
        self.code = int((work / "code").read_text())
        path = work / "result.json"
        self.result = json.loads(path.read_text()) if path.exists() else None
        self.error = read_error(work / "error.json")
        self.predictions = path.with_name("predictions.parquet")
        self.computed = int((work / "computed").read_text())
        """How often it has computed its nodes' vectors."""


def make_job(work: Path, parents: dict[str, Path], **changes: Any) -> EvaluateJob:
    work.mkdir(parents=True)
    return EvaluateJob(
        checkpoint=parents["train"] / "best.pt",
        graph=changes.get("graph", parents["graph"]),
        dataset=parents["data"],
        work=work,
        evaluator=changes.get("evaluator", ACCURACY),
        splits=changes.get("splits", ["valid", "test"]),
        batch_size=64,
        predictions=True,
        label_shares=[],
        most_labelled=100,
        device="cpu",
        threads=1,
    )


def evaluated(folder: Path, parents: dict[str, Path], **changes: Any) -> list[Ended]:
    for rank in range(2):
        work = folder / str(rank)
        job = make_job(work, parents, **changes)
        (work / "job.json").write_bytes(to_json(job))
    run_program("tests.evaluate.ranked_evaluation", 2, str(folder))
    return [Ended(folder / str(rank)) for rank in range(2)]


def test_rank_0_alone_writes_the_outcome(tmp_path: Path, parents: dict[str, Path]) -> None:
    first, second = evaluated(tmp_path, parents)
    assert first.code == second.code == 0
    assert set(first.result["fields"]["metrics"]) == {"valid", "test"}
    assert first.predictions.exists()
    assert second.result is None
    assert not second.predictions.exists()


@pytest.mark.parametrize("mistake", ["metric", "labels", "split"])
def test_a_mistake_is_told_in_its_own_words(tmp_path: Path, parents: dict[str, Path], mistake: str) -> None:
    changes: dict[str, Any] = {}
    if mistake == "metric":  # all ranks see it
        changes["evaluator"], kind, said = {"name": "hits"}, "RecipeError", "hits"
    elif mistake == "split":  # only rank 0 looks
        changes["splits"], kind, said = ["extra"], "DataError", "has no extra_idx; leave that split out"
    else:  # when all ranks have computed
        graph = one_type(tmp_path / "graph").folder
        label = np.load(graph / "label.npy")
        label[np.load(graph / "test_idx.npy")] = -1
        np.save(graph / "label.npy", label)
        changes["graph"], kind, said = graph, "DataError", "the split holds no labelled row"
    first, second = evaluated(tmp_path, parents, **changes)
    assert first.result["error"] == kind
    assert said in first.result["message"]
    if mistake == "metric":
        assert str(second.error) == first.result["message"]
        assert second.code == 1
    else:
        assert (second.result, second.error, second.code) == (None, None, 0)


def test_pairs_that_only_rank_0_knows_are_scored_by_all(tmp_path: Path) -> None:
    """A split without negatives: rank 0 draws some."""
    graph = rich_graph(tmp_path / "graph", "link")
    manifest = graph.manifest.model_copy(update={"node_types": ("node",), "type_offsets": (0, 301)})
    (graph.folder / "manifest.json").write_text(manifest.model_dump_json())
    graph = Parent(manifest, graph.folder)
    found = {
        "graph": graph.folder,
        "train": trained(tmp_path / "train", graph, "graphsage").folder,
        "data": dataset(tmp_path / "data", graph, list(range(301))).folder,
    }
    options: dict[str, Any] = {"evaluator": {"name": "rocauc"}, "splits": ["train", "valid"]}
    first, second = evaluated(tmp_path / "two", found, **options)
    assert first.code == second.code == 0
    alone = worker.evaluate(make_job(tmp_path / "one", found, **options))["metrics"]
    for split, values in first.result["fields"]["metrics"].items():
        assert values == pytest.approx(alone[split], abs=1e-6)
    assert first.computed == second.computed == 2  # for train, and for valid


def test_ranks_score_on_gpus_of_their_own_and_tables_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """What describes vectors reads the model's lengths beside its table, which never leaves the CPU."""
    for name, stand_in in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    layered: Any = SimpleNamespace(table=None)
    vectors: Any = SimpleNamespace(table=torch.zeros(3, 2))
    for wanted in ("auto", "cuda"):
        assert [device_of(layered, wanted, rank).index for rank in range(3)] == [0, 1, 0]
        assert device_of(vectors, wanted, 1) == torch.device("cpu")
    assert device_of(layered, "cpu") == torch.device("cpu")
