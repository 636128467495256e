"""The benchmarks of knowledge graphs: their sides without a peer, the lines of the table, how PyKEEN is timed."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import knowledge, knowledge_sides, ranking
from benchmarks.embeddings_peers import Done, Job


@pytest.fixture
def triples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "knowledge" / "toy").mkdir(parents=True)
    for module in (ranking, knowledge):
        monkeypatch.setattr(module, "DATA", tmp_path)
    rng = np.random.default_rng(1)
    for split in ranking.SPLITS:
        drawn = {"h": rng.integers(30, size=50), "r": rng.integers(4, size=50), "t": rng.integers(30, size=50)}
        pq.write_table(pa.table(drawn), tmp_path / "knowledge" / "toy" / f"{split}.parquet")
    return tmp_path


def test_triples_are_ranked_without_a_peer(triples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--graph", "toy", "--width", "6", "--triples", "20", "--rounds", "1", "--large", "0"]
    ranking.main([*words, "--out", str(triples)])
    assert "no --peers: left out" in capsys.readouterr().out
    written = json.loads((triples / "ranking.json").read_text())
    assert written["lines"] == []
    assert all(0 < found["graphmill"] <= 1 for found in written["mrr"].values())
    jobs = {f"graphmill on {threads}, {job}" for threads in (1, 2) for job in ("TransE", "RotatE, all", "candidates")}
    assert jobs < set(written["raw"])


def test_triples_are_trained_without_a_peer(
    triples: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge, "BATCHES", (20,))
    words = ["--graph", "toy", "--width", "6", "--negatives", "2,4", "--rounds", "2"]
    knowledge.main([*words, "--seconds", "0.02", "--home", str(triples / "home"), "--out", str(triples / "out")])
    told = capsys.readouterr().out
    assert "no --peers: left out" in told
    assert "graphmill, RotatE, 4 negatives a triple, not shared: " in told
    written = json.loads((triples / "out" / "knowledge.json").read_text())
    assert written["lines"] == []
    jobs = {
        f"graphmill, {model}, {count} negatives {variant}"
        for model in ("TransE", "ComplEx", "RotatE")
        for count in (2, 4)
        for variant in knowledge_sides.VARIANTS
    }
    assert set(written["raw"]) == jobs
    assert set(written["batches"]["graphmill"].values()) == {20}
    assert all(len(rounds) == 2 and done["done"] > 0 for rounds in written["raw"].values() for done in rounds)


@pytest.mark.parametrize("model", knowledge_sides.MODELS)
def test_trainings_of_triples_are_those_of_the_table(model: str) -> None:
    options = {"graph": "toy", "triples": "toy", "width": 200}
    drawn = {}
    for variant in knowledge_sides.VARIANTS:
        recipe = knowledge_sides.make_recipe(options, model, 64, variant)
        loader = recipe.train.loader
        drawn[variant] = 2 * loader.negatives, loader.share
        assert recipe.model.dim == (200 if model == "TransE" else 400)
        assert (recipe.train.optimizer, recipe.train.threads) == ("adagrad", 1)
        assert recipe.train.loss.name == ("softmax" if model == "ComplEx" else "logistic")
    assert drawn == {
        "a triple": (64, None),
        "an end": (128, None),
        "a triple, shared by 64": (64, 64),
        "a triple, not shared": (64, 1),
    }


def test_lines_of_trainings_of_triples() -> None:
    def side(name: str, variant: str, *cpu: float) -> tuple[tuple[str, str], list[Done]]:
        job = knowledge_sides.job_name("RotatE", 64, variant)
        waits = 2 if name == "graphmill" else 3
        return (name, job), [Done(10_000, seconds, waits * seconds) for seconds in cpu]

    found = dict(
        [
            side("graphmill", "a triple", 0.1, 0.2, 0.1),
            side("graphmill", "an end", 0.2, 0.2, 0.2),
            side("PyKEEN", "a triple", 4.0, 8.0, 40.0),
            side("PyKEEN tuned", "a triple", 2.0, 2.0, 2.0),
        ]
    )
    job = knowledge_sides.job_name("RotatE", 64)
    own = {job: 512, knowledge_sides.job_name("RotatE", 64, "an end"): 2048}
    batches = {"graphmill": own, "PyKEEN": {job: 256}, "PyKEEN tuned": {job: 1024}}
    lines = knowledge.compare("g", found, [64, 256], batches)
    told = [(line.head.measure, line.head.peer, line.ratio, line.head.target, line.verdict) for line in lines]
    assert told == [
        ("RotatE, 64 negatives a triple", "PyKEEN", 40.0, 30.0, "reached"),
        ("RotatE, 64 negatives a triple", "PyKEEN tuned", 20.0, 30.0, "below"),
        ("RotatE, 64 negatives an end", "PyKEEN tuned", 10.0, None, ""),
    ]
    assert (lines[0].ours, lines[0].peer, lines[0].unit) == (100.0, 1.25, "k/s")
    assert lines[1].details == {"wall_ratio": 30.0, "batch": 512, "peer_batch": 1024}


def test_the_fastest_way_is_taken() -> None:
    asked: list[int] = []

    def way(size: int, cpu: float) -> Job:
        def work(seconds: float) -> Done:
            asked.append(size)
            return Done(size, cpu, 0.1 * cpu)

        return work

    noted: list[int] = []
    job = knowledge_sides.Fastest({8: way(8, 4.0), 16: way(16, 2.0), 32: way(32, 16.0)}, noted.append)
    assert (job(1.0).done, job(1.0).done) == (16, 16)
    assert (asked, noted) == ([8, 16, 32, 16, 16], [16])


class ToyLoop:
    """Trains as PyKEEN does: as many epochs as are asked for, less those that it has had."""

    def __init__(self) -> None:
        self.losses_per_epochs: list[float] = []
        self.began_anew: list[bool] = []

    def train(
        self, triples: Any, num_epochs: int, continue_training: bool, batch_size: int, use_tqdm: bool, callbacks: Any
    ) -> None:
        self.began_anew.append(not continue_training)
        for _ in range(len(self.losses_per_epochs), num_epochs):
            for _ in range(len(triples) // batch_size):
                time.sleep(0.01)
                callbacks.post_batch(epoch=1, batch=None)
            self.losses_per_epochs.append(0.0)


def test_batches_of_pykeen_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pykeen", ModuleType("pykeen"))
    training = ModuleType("pykeen.training")
    training.TrainingCallback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pykeen.training", training)
    loop = ToyLoop()
    for count in (3, 2):
        done = knowledge_sides.train_batches(loop, range(8 * (count + 1)), 8, count)
        assert done.done == 8 * count
        assert done.wall >= 0.01 * count
    assert loop.began_anew == [True, False]
    assert len(loop.losses_per_epochs) == 2
    with pytest.raises(RuntimeError, match="trained 2 batches of 4"):
        knowledge_sides.train_batches(loop, range(16), 8, 3)
