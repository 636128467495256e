"""What a training's key leaves out changes no bit of its result; what changes bits is in the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs import registry
from configs.load import build_recipe
from configs.schema import Recipe
from flows.commands.recipes.plan import _changes
from tasks.processes.device import use_threads
from tasks.stage import Parent
from tasks.train import job
from tasks.train.job import BEST, LAST, Job, stage_config
from tasks.train.state import checkpoint
from tests.support import link_graph, molecule_graph, node_graph, written
from tests.train.in_process import make_engine, make_job, own_settings, run_engine
from tests.train.knowledge_trainings import recipe as knowledge_recipe

FANOUT = {"fanout": [4, 3]}
LOADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "neighbor": ("node", {"first_hop": "sampled", **FANOUT}),
    "fused": ("node", {"name": "neighbor", **FANOUT}),
    "full": ("node", {}),
    "cluster": ("node", {}),
    "random_partition": ("node", {"num_clusters": 4}),
    "precomputed": ("node", {}),
    "edge": ("link", FANOUT),
    "graph": ("graph", {"name": "auto"}),  # no generated data set has graphs
}
MODELS = {"graph": "gin", "precomputed": "sgc"}
MAKE = {"node": node_graph, "link": link_graph, "graph": molecule_graph}
OTHER = {"prefetch": 5, "sampling_threads": 3, "checkpoint_every": 3, "checkpoint_minutes": 1e-9, "max_restarts": 9}


def partition(folder: Path, task: str) -> Parent:
    return written(MAKE[task](folder), *((0, 100, 200) if task == "node" else ()))  # parts for the loader cluster


def recipe(name: str, **train: Any) -> Recipe:
    task, options = LOADERS[name]
    loader = {"name": name, **options}
    if "batch_size" in registry.LOADERS.config_class(loader["name"]).model_fields:
        loader["batch_size"] = 32
    return build_recipe(
        {
            "name": "test",
            "dataset": {"name": "synthetic", "task": "link" if task == "link" else "node"},
            "model": {"name": MODELS.get(name, "graphsage"), "hidden_dim": 16, "num_layers": 2},
            "train": {"epochs": 2, "loader": loader, "threads": 1, **train},
        }
    )


def trained(made: Job) -> dict[str, torch.Tensor]:
    run_engine(make_engine(made))
    return {
        f"{name}/{key}": value
        for name in (BEST, LAST)
        for key, value in checkpoint.load(made.work / name)["model"].items()
    }


@pytest.mark.parametrize("name", LOADERS)
def test_how_the_work_is_done_changes_no_bit(tmp_path: Path, name: str) -> None:
    graph = partition(tmp_path / "graph", LOADERS[name][0])
    plain, other = recipe(name, prefetch=0), recipe(name, **OTHER)
    assert stage_config(plain) == stage_config(other)
    with own_settings():
        one, two = (trained(make_job(r, graph, tmp_path / str(n))) for n, r in enumerate((plain, other)))
    assert one.keys() == two.keys()
    for key in one:
        assert torch.equal(one[key], two[key]), key


@pytest.mark.parametrize("name", LOADERS)
def test_batches_do_not_depend_on_threads(tmp_path: Path, name: str) -> None:
    """Sums may: what is drawn, and dropout, must not."""
    graph = partition(tmp_path / "graph", LOADERS[name][0])
    made: list[list[torch.Tensor]] = []
    losses = []
    with own_settings():
        for threads in (1, 3):
            use_threads(threads)
            engine = make_engine(make_job(recipe(name, threads=threads), graph, tmp_path / str(threads)))
            batch = engine.batches.make(1)
            blocks = [t for block in batch.blocks for t in (block.indptr, block.indices)]
            made.append([*blocks, batch.inputs.node_ids, batch.target])
            torch.manual_seed(engine.batches.dropout_key(1))
            losses.append(float(engine.optimization.backward(batch, 1.0, last=True)))
    for one, two in zip(*made, strict=True):
        assert torch.equal(one, two)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_the_key_holds_the_threads_that_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    graph = partition(tmp_path / "graph", "node")
    keys = {}
    for cores in (4, 6):
        monkeypatch.setattr(job, "cores", lambda cores=cores: cores)
        keys[cores] = stage_config(recipe("full", threads=0, num_ranks=2))
        assert keys[cores]["train"]["threads"] == cores // 2
        assert stage_config(recipe("full", threads=3))["train"]["threads"] == 3
        made = make_job(recipe("full", threads=0), graph, tmp_path / str(cores))
        assert made.train.threads == cores
        made.save()
        monkeypatch.setattr(job, "cores", lambda: 99)
        assert Job.load(made.work / "job.json").train.threads == cores, "a worker takes what the key says"
    assert keys[4] != keys[6]


def test_a_plan_says_whose_threads_were_other_ones() -> None:
    auto, said = recipe("full", threads=0, epochs=3), recipe("full", threads=2, epochs=3)
    old = {**stage_config(recipe("full", threads=4)), "x": 1}
    own = _changes(auto, "train", old, {**old, "train": {**old["train"], "threads": 2, "epochs": 3}})
    assert own == ["trained with 4 threads, this machine would use 2 (train.threads=4 keeps it)", "train.epochs 2 -> 3"]
    assert "train.threads 4 -> 2" in _changes(said, "train", old, {**old, "train": {**old["train"], "threads": 2}})
    assert _changes(auto, "train", old, old) == []


def test_validation_takes_no_more_threads_than_the_ranks_have(tmp_path: Path) -> None:
    """What chooses the best weights must not follow the machine either."""
    graph = partition(tmp_path / "graph", "node")
    with own_settings():
        engine = make_engine(make_job(recipe("full", threads=2), graph, tmp_path / "work"))
        with engine.validation._all_threads():
            assert torch.get_num_threads() == 2
        assert engine.validation.predictor.batch_size == 16384
        np.testing.assert_equal(torch.get_num_threads(), 2)


@pytest.mark.parametrize(
    ("device", "nodes", "visible", "torch", "kind"),
    [
        ("auto", ["nvidia0"], None, "2.9.0+cu128", "cuda"),
        ("auto", ["nvidia0"], None, "2.9.0+cpu", "cpu"),
        ("auto", ["nvidia0"], "", "2.9.0", "cpu"),
        ("auto", ["nvidia0"], "0", "2.9.0", "cuda"),
        ("auto", ["nvidiactl", "null"], None, "2.9.0", "cpu"),
        ("cpu", ["nvidia0"], None, "2.9.0", "cpu"),
        ("cuda", [], None, "2.9.0+cpu", "cuda"),
    ],
)
def test_the_key_holds_the_device_that_is_used(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    nodes: list[str],
    visible: str | None,
    torch: str,
    kind: str,
) -> None:
    """A GPU's sums are others: its training is no answer on a machine without one."""
    monkeypatch.setattr(job, "version", lambda _: torch)
    for node in nodes:
        (tmp_path / node).touch()
    monkeypatch.setattr(job, "_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert stage_config(recipe("full", device=device))["train"]["device"] == kind
    rows = stage_config(knowledge_recipe(train={"device": device}))["train"]["device"]
    assert rows == ("cpu" if device == "auto" else device), "auto does not train tables of rows on a GPU"
