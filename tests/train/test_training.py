"""The train stage as a whole on small graphs: in real worker processes where those matter."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from configs.errors import IntegrityError, RecipeError, StageError
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.stage import Listener, Parent, StageContext, run_stage
from tasks.storage.artifacts import disk_errors
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.train.gradients.family import train
from tasks.train.job import BEST, LAST, RESULT
from tasks.train.ranks.launch import launcher_of, run_training
from tasks.train.stage import STAGE
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tests.preprocess.ears import Ears
from tests.support import link_graph, molecule_graph, node_graph, written
from tests.train.in_process import make_engine, make_job, own_settings, run_engine, stopped_at, train_here

MAKE = {"node": node_graph, "link": link_graph, "graph": molecule_graph}
MODEL = {"node": "graphsage", "link": "gcn", "graph": "gin"}


def partition(folder: Path, task: str = "node", **options: Any) -> Parent:
    return written(MAKE[task](folder, **options))


def recipe(task: str = "node", *overrides: str) -> Recipe:
    data = {
        "name": "test",
        "dataset": {"name": "synthetic", "task": "link" if task == "link" else "node"},
        "model": {"name": MODEL[task], "hidden_dim": 16, "num_layers": 2},
        "train": {"epochs": 4, "loader": {"name": "auto", "batch_size": 32}, "threads": 1, "learning_rate": 0.01},
    }
    return build_recipe(data, overrides)


def records(folder: Path) -> list[dict[str, Any]]:
    """The deterministic part of metrics.jsonl."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if "second" not in k} for line in lines]


def weights(folder: Path, name: str = LAST) -> dict[str, torch.Tensor]:
    return checkpoint.load(folder / name)["model"]


def work_folder(home: Home) -> Path:
    return next(path for path in home.work.iterdir() if path.name.startswith("train-"))


class Recorder(Listener):
    def __init__(self) -> None:
        self.records: list[dict[str, float]] = []
        self.notes: list[str] = []

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        self.notes.append(note)

    def metrics(self, stage: str, record: dict[str, float]) -> None:
        self.records.append(record)


def test_a_worker_trains_and_leaves_only_the_artifact(tmp_path: Path, home: Home) -> None:
    listener = Recorder()
    outcome = run_stage(STAGE, recipe(), {"partition": partition(tmp_path / "g")}, home, listener=listener)
    run = outcome.manifest
    assert set(run.files) == {"best.pt", "last.pt", "metrics.jsonl"}
    assert run.epochs_run == 4
    assert 1 <= run.best_epoch <= 4
    assert run.rows == 4 * run_size(tmp_path / "g")
    epochs = [line for line in records(outcome.folder) if "train/loss" in line]
    assert [line["step"] for line in epochs] == sorted({line["step"] for line in epochs})
    assert epochs[-1]["train/loss"] < epochs[0]["train/loss"]
    assert len(listener.records) == len(records(outcome.folder))
    model = checkpoint.load_model(outcome.folder / "best.pt")
    assert checkpoint.count_parameters(model) == run.num_parameters
    assert ("the best epoch is the last one, 4" in str(run.warnings)) == (run.best_epoch == 4)


def test_a_best_epoch_that_is_the_last_one_is_told(tmp_path: Path, home: Home) -> None:
    parents = {"partition": partition(tmp_path / "g")}
    short = run_stage(STAGE, recipe("node", "train.epochs=1"), parents, home).manifest
    assert short.warnings[-1].startswith("the best epoch is the last one, 1: more epochs may help (train.epochs=2,")
    still = run_stage(STAGE, recipe("node", "train.epochs=3", "train.learning_rate=1e-30"), parents, home).manifest
    assert (still.best_epoch, still.epochs_run) == (1, 3)
    assert "best epoch" not in str(still.warnings)


@pytest.mark.parametrize("task", ["link", "graph"])
def test_other_tasks_train(tmp_path: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    job = make_job(recipe(task), partition(tmp_path / "g", task), tmp_path / "work")
    train_here(job)
    assert "learning rate 0.01 (lr_scaling=none, ranks: 1); constant over" in capsys.readouterr().out
    losses = [line["train/loss"] for line in records(job.work) if "train/loss" in line]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    result = json.loads((job.work / RESULT).read_text())
    assert result["rows"] == 4 * run_size(tmp_path / "g")
    assert checkpoint.count_parameters(checkpoint.load_model(job.work / BEST)) == result["num_parameters"]


def run_size(folder: Path) -> int:
    return json.loads((folder / "manifest.json").read_text())["splits"]["train"]


def start(tmp_path: Path, home: Home, graph: Parent, *overrides: str) -> subprocess.Popen[bytes]:
    """Run the stage in a process of its own, so that it can be killed."""
    script = """
import sys
from pathlib import Path
from tasks.storage.artifacts import disk_errors
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.manifests import PartitionManifest
from tasks.stage import Parent, run_stage
from tasks.train.stage import STAGE
from tests.train.test_training import recipe
folder = Path(sys.argv[1])
graph = Parent(PartitionManifest.model_validate_json((folder / "manifest.json").read_text()), folder)
run_stage(STAGE, recipe("node", *sys.argv[3:]), {"partition": graph}, Home.open(sys.argv[2]))
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, str(path), str(graph.folder), str(home.root), *overrides]
    return subprocess.Popen(command, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})


def wait_for(condition: Any, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def reached(home: Home, epoch: int) -> bool:
    try:
        return checkpoint.load(work_folder(home) / LAST)["progress"]["epoch"] >= epoch
    except (StopIteration, FileNotFoundError, IntegrityError):
        return False


def test_a_killed_run_ends_with_the_same_bits_and_leaves_no_process(tmp_path: Path, home: Home) -> None:
    overrides = ("train.epochs=40", "train.schedule=cosine", "train.clip_norm=1", "train.schedule.warmup_steps=3")
    graph = partition(tmp_path / "g")
    process = start(tmp_path, home, graph, *overrides)
    wait_for(lambda: reached(home, 3))
    workers = psutil.Process(process.pid).children(recursive=True)
    assert workers
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    wait_for(lambda: not any(alive(worker) for worker in workers), 10)
    ears = Ears()
    resumed = run_stage(STAGE, recipe("node", *overrides), {"partition": graph}, home, listener=ears)
    assert "goes on from the last checkpoint of a training that was interrupted" in ears.messages
    assert 3 <= resumed.manifest.resumed_from_epoch < 40

    undisturbed = run_stage(STAGE, recipe("node", *overrides), {"partition": graph}, Home.open(tmp_path / "other"))
    assert undisturbed.manifest.resumed_from_epoch == 0
    assert records(resumed.folder) == records(undisturbed.folder)
    for name in ("best.pt", "last.pt"):
        ours, theirs = weights(resumed.folder, name), weights(undisturbed.folder, name)
        assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def train_apart(job: Any, context: StageContext) -> dict[str, Any]:
    return run_training(job, context, launcher_of(recipe(), context.home, job.work))


@pytest.mark.parametrize("damaged", [LAST, BEST])
def test_a_damaged_checkpoint_is_set_aside(tmp_path: Path, home: Home, damaged: str) -> None:
    """Without the last one training begins anew; without the best one it goes on, and chooses among what comes."""
    graph = partition(tmp_path / "g")
    context = StageContext("train", tmp_path / "work", home, PickleCache(home))
    job = make_job(recipe(), graph, context.work)
    with own_settings(), stopped_at(18):  # in the last of four epochs
        run_engine(make_engine(job))
    path = job.work / damaged
    path.write_bytes(path.read_bytes()[:-100])
    result = train_apart(job, context)
    (warning,) = context.warnings
    assert str(path) in warning
    assert f"was set aside as {damaged}.damaged" in warning
    assert path.with_name(f"{damaged}.damaged").exists()
    assert (result["resumed_from_epoch"], result["epochs_run"], result["restarts"]) == (
        0 if damaged == LAST else 3,
        4,
        0,
    )
    best = checkpoint.load(job.work / BEST)
    assert (best["epoch"], best["metric"]) == (result["best_epoch"], result["best_metric"])
    if damaged == BEST:  # of the end, too, where nothing is left to do but to measure once more
        path.write_bytes(path.read_bytes()[:-100])
        assert train_apart(job, context)["best_epoch"] == 4


def test_a_training_that_was_finished_when_its_run_was_killed_is_not_trained_again(tmp_path: Path, home: Home) -> None:
    context = StageContext("train", tmp_path / "work", home, PickleCache(home))
    job = make_job(recipe(), partition(tmp_path / "g"), context.work)
    (job.work / RESULT).write_text('{"epochs_run": 2}')
    zipfile.ZipFile(job.work / BEST, "w").close()
    assert train_apart(job, context) == {"epochs_run": 2, "restarts": 0, "machines": []}


def test_a_full_disk_ends_a_training_at_once(tmp_path: Path, home: Home) -> None:
    context = StageContext("train", tmp_path / "work", home, PickleCache(home))
    job = make_job(recipe(), partition(tmp_path / "g"), context.work)
    (job.work / "progress.draft").symlink_to("/dev/full")
    with pytest.raises(StageError, match=r"^the disk that holds .* is full"), disk_errors(home.root):
        train_apart(job, context)
    assert not context.warnings
    (log,) = job.work.glob("logs/rank-*.log")
    assert "Traceback" not in log.read_text()


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill_a_rank(home: Home, rank: int) -> None:
    """Kill a rank once the first checkpoint is there; it is the process that writes the rank's log."""
    wait_for(lambda: reached(home, 1))
    for process in psutil.Process().children(recursive=True):
        if f"rank-{rank}.log" in {Path(file.path).name for file in process.open_files()}:
            process.kill()
            return


def test_two_ranks_share_the_work_and_survive_a_killed_rank(tmp_path: Path, home: Home) -> None:
    graph = partition(tmp_path / "g", num_nodes=400)
    killer = threading.Thread(target=kill_a_rank, args=(home, 1))
    killer.start()
    overrides = ("train.num_ranks=2", "train.epochs=60", "train.max_restarts=1")
    outcome = run_stage(STAGE, recipe("node", *overrides), {"partition": graph}, home)
    killer.join()
    run = outcome.manifest
    assert (run.world_size, run.restarts, run.epochs_run) == (2, 1, 60)
    assert run.resumed_from_epoch >= 1
    assert any("a rank died" in warning for warning in run.warnings)
    steps = [line["step"] for line in records(outcome.folder) if "train/loss" in line]
    assert steps == sorted(set(steps))  # nothing is recorded twice
    assert run.rows == 60 * 200
    assert run.best_metric > 0.5


def test_a_worker_that_keeps_dying_ends_the_stage_with_its_last_words(tmp_path: Path, home: Home) -> None:
    graph = partition(tmp_path / "g")
    (graph.folder / "csc_indices.npy").unlink()
    with pytest.raises(StageError, match=r"died 1 times(.|\n)*csc_indices\.npy"):
        run_stage(STAGE, recipe("node", "train.max_restarts=0"), {"partition": graph}, home)


def test_a_checkpoint_of_another_configuration_is_refused(tmp_path: Path) -> None:
    graph = partition(tmp_path / "g")
    first = make_job(recipe("node", "train.epochs=1"), graph, tmp_path / "work")
    other = make_job(recipe("node", "train.epochs=1", "seed=1"), graph, tmp_path / "work")
    with own_settings():
        run_engine(make_engine(first))
        with pytest.raises(IntegrityError, match="another configuration"):
            make_engine(other)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.loader={name: neighbor, fanout: [5, 5, 5]}", "one a layer"),
        ("train.loader=graph", "does not fit"),
        ("model.decoder=dot", "is for link tasks"),
    ],
)
def test_mistakes_are_told_once_without_restarts(tmp_path: Path, home: Home, override: str, message: str) -> None:
    listener = Recorder()
    with pytest.raises(RecipeError, match=message):
        run_stage(STAGE, recipe("node", override), {"partition": partition(tmp_path / "g")}, home, listener=listener)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("train.loader={name: neighbor, fanout: [5, 5, 5]}",), "one a layer"),
        (("train.strategy.name=parallel_epochs", "train.epochs=3"), "epochs=3 is no multiple; take 4"),
        (("train.strategy.name=partition_parallel",), r"the partition has 1; set partition\.num_parts=2"),
        (("model.name=deepgcn", "model.reversible=true"), r"reversible=true wants batches whose nodes stay"),
    ],
)
def test_what_cannot_work_is_refused_before_any_rank_starts(
    tmp_path: Path, home: Home, overrides: tuple[str, ...], message: str
) -> None:
    graph = {"partition": partition(tmp_path / "g")}
    with pytest.raises(RecipeError, match=message):
        run_stage(STAGE, recipe("node", "train.num_ranks=2", *overrides), graph, home)
    assert not list(home.work.glob("*/*"))  # no job, no logs


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.schedule.warmup_steps=10000", "leaves nothing"),
        ("train.learning_rate=1e30", r"diverged: the loss is .* at step \d+ \(epoch 1\)"),
        ("train.accumulate_steps=50", "more than the 5 batches"),
        ("train.precision=tf32", "needs a GPU"),
        ("train.embeddings=sparse", "nothing to embed"),
    ],
)
def test_mistakes_that_only_training_sees(tmp_path: Path, override: str, message: str) -> None:
    job = make_job(recipe("node", override), partition(tmp_path / "g"), tmp_path / "work")
    with own_settings(), pytest.raises(RecipeError, match=message):
        train(job, Ranks())


def test_a_model_with_nothing_to_learn_is_refused(tmp_path: Path) -> None:
    sections = ("model.name=sgc", "model.decoder=dot", "train.embeddings=sparse")
    job = make_job(recipe("link", *sections), partition(tmp_path / "g", "link"), tmp_path / "work")
    message = r"model\.name=sgc has nothing to learn .*: take train\.embeddings=dense"
    with own_settings(), pytest.raises(RecipeError, match=message):
        train(job, Ranks())


@pytest.mark.parametrize("step", [2, 3])
def test_a_run_that_ends_before_its_round_does_goes_on_exactly(tmp_path: Path, step: int) -> None:
    """Five batches make three steps of two, the last of which has one batch."""
    graph = partition(tmp_path / "g")
    calm, stopped = (
        make_job(recipe("node", "train.accumulate_steps=2"), graph, tmp_path / name) for name in ("calm", "stopped")
    )
    with own_settings():
        run_engine(make_engine(calm))
        first = make_engine(stopped)
        assert (first.steps_a_round, first.batches.batches_per_round) == (3, 5)
        with stopped_at(3 + step):
            run_engine(first)
        run_engine(make_engine(stopped))
    assert records(stopped.work) == records(calm.work)
    ours, theirs = weights(stopped.work), weights(calm.work)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("options", [("train.loader.batch_size=1",), ("train.loader=cluster",)])
def test_batches_of_one_row_are_normalised(tmp_path: Path, options: tuple[str, ...]) -> None:
    graph = partition(tmp_path / "g")
    graph = written(graph, 0, 1, graph.manifest.num_nodes // 2)
    job = make_job(recipe("node", "train.epochs=1", *options), graph, tmp_path / "work")
    train_here(job)
    assert all(value.isfinite().all() for value in weights(job.work).values())


def test_patience_stops_early(tmp_path: Path) -> None:
    overrides = ("train.epochs=200", "train.patience=2", "train.learning_rate=1e-9")
    job = make_job(recipe("node", *overrides), partition(tmp_path / "g"), tmp_path / "work")
    train_here(job)
    result = json.loads((job.work / RESULT).read_text())
    assert result["epochs_run"] < 20
    assert result["best_epoch"] == result["epochs_run"] - 2
