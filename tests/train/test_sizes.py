"""How much memory a training takes is counted before it is asked for, and what ends a rank is told in words."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.errors import DataError, RecipeError, StageError
from configs.registry import LOADERS, MODELS
from configs.training import TrainConfig
from configs.trust import own_files
from models.facts import GraphFacts
from tasks.sizes import Counts
from tasks.stage import run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.home import Home
from tasks.train.gradients.sizes import (
    Weights,
    count_weights,
    known_weights,
    part_bytes,
    refuse_excess,
)
from tasks.train.loaders.config_base import LoaderConfig
from tasks.train.ranks.failures import final_error
from tasks.train.stage import STAGE
from tasks.train.strategies.base import Ranks
from tests.registered import forget_registered, models_of
from tests.support import link_graph, molecule_graph, node_graph
from tests.train.test_training import partition, recipe

MAKE = {"node": node_graph, "link": link_graph, "graph": molecule_graph}


@pytest.mark.parametrize("task", list(MAKE))
@pytest.mark.parametrize("name", models_of("gnn"))
def test_weights_are_counted_without_making_them(tmp_path: Path, name: str, task: str) -> None:
    facts = graph_facts(MAKE[task](tmp_path).manifest)
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 2})
    train = TrainConfig(optimizer="adam")
    try:
        model = MODELS.create(config, facts)
    except RecipeError:
        pytest.skip(f"{name} is not for {task} tasks")
    torch.manual_seed(1)
    before = torch.get_rng_state()
    weights = count_weights(config, train, facts)
    assert torch.equal(before, torch.get_rng_state()), "counting must not shift the initial weights"
    assert weights is not None
    assert weights.dense == sum(parameter.numel() for parameter in model.parameters())
    assert weights.device_bytes(train) == 4 * 4 * weights.dense  # weights, gradients, and Adam's two


@pytest.mark.parametrize(("embeddings", "place"), [("dense", "device_bytes"), ("sparse", "host_bytes")])
def test_a_table_of_embeddings_counts_where_it_lies(tmp_path: Path, embeddings: str, place: str) -> None:
    facts = graph_facts(link_graph(tmp_path).manifest)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2})
    train = TrainConfig(embeddings=embeddings)  # type: ignore[arg-type]
    weights = count_weights(config, train, facts)
    assert weights is not None
    assert getattr(weights, place)(train) >= 4 * 8 * facts.num_nodes
    assert weights.device_bytes(train) < 1e6 or embeddings == "dense"


def test_a_model_that_no_memory_holds_is_refused_at_once(tmp_path: Path, home: Home) -> None:
    graph = partition(tmp_path / "g")
    wide = ("model.hidden_dim=65536", "model.num_layers=400", "train.loader=neighbor")
    with pytest.raises(RecipeError, match=r"weights: with gradients and the optimizer's state [\d,.]+ GB.*smaller"):
        run_stage(STAGE, recipe("node", *wide), {"partition": graph}, home)


def test_ranks_of_one_machine_share_its_memory(tmp_path: Path) -> None:
    facts = graph_facts(node_graph(tmp_path).manifest)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 4096, "num_layers": 8})
    train = TrainConfig(device="cpu")
    refuse_excess(config, train, facts, Ranks(0, 1, 0, 1))  # 5 GB
    with pytest.raises(RecipeError, match=r"1000 ranks of it"):
        refuse_excess(config, train, facts, Ranks(0, 1000, 0, 1000))


def test_weights_are_counted_once_in_a_home(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = graph_facts(node_graph(tmp_path).manifest)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2})
    train, wider = TrainConfig(), MODELS.config({"name": "graphsage", "hidden_dim": 16, "num_layers": 2})
    counted = count_weights(config, train, facts)
    assert known_weights(home, config, train, facts) == counted
    monkeypatch.setattr("tasks.train.gradients.sizes.count_weights", lambda *_: None)
    assert known_weights(home, config, train, facts) == counted
    assert known_weights(home, wider, train, facts) is None, "another model is another count"
    for path in (home.cache / "weights").iterdir():
        path.write_text("{")
    assert known_weights(home, config, train, facts) is None, "a damaged record is no count"


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"name": "full"}, [1000, 1000, 1000]),
        ({"name": "neighbor", "batch_size": 10, "fanout": (4, 3)}, [10, 50, 200]),
        ({"name": "neighbor", "batch_size": 10, "fanout": (-1, 3)}, [10, 1000, 1000]),
        ({"name": "random_partition", "num_clusters": 4}, [250] * 3),
        ({"name": "cluster", "clusters_per_batch": 2}, [200] * 3),
        ({"name": "precomputed", "batch_size": 64}, [64] * 3),
    ],
)
def test_rows_of_a_step(options: dict[str, object], rows: list[int]) -> None:
    loader = LOADERS.config(options)
    assert isinstance(loader, LoaderConfig)
    assert loader.step_rows(1000, num_parts=10, num_layers=2) == rows


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you asked for 9 bytes"), "ran out of memory"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "ran out of memory: CUDA out of"),
        (MemoryError(), "ran out of memory"),
        (ZeroDivisionError("division by zero"), "ended with ZeroDivisionError: division by zero"),
        (DataError("no such column"), "no such column"),
        (OSError(errno.ENOSPC, "No space left on device"), "the disk that rank 1 writes to is full"),
    ],
)  # fmt: skip
def test_what_would_happen_again_ends_the_job(error: Exception, message: str) -> None:
    with pytest.raises(type(error)) as raised:
        raise error
    found = final_error(raised.value, 1)
    assert found is not None
    assert message in str(found)


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "Input/output error"),
        RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer"),
        torch.distributed.DistBackendError("NCCL error"),
    ],
)
def test_what_may_go_well_next_time_is_tried_again(error: Exception) -> None:
    assert final_error(error, 0) is None


FAULTY = '''
from torch import nn

from configs.registry import MODELS
from models.base import GraphModel
from models.configs import ModelConfig


class Faulty(nn.Module):
    def forward(self, block, x):
        return nn.Linear(2, 2)(x, x, x)


@MODELS.register("faulty")
class FaultyModel(GraphModel):
    """A model with a bug."""

    Config = ModelConfig

    def make_conv(self, in_dim, out_dim):
        return Faulty()
'''


def test_a_bug_in_a_model_ends_the_job_at_the_first_attempt(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_registered(monkeypatch, MODELS)
    (tmp_path / "faulty.py").write_text(FAULTY)
    graph = partition(tmp_path / "g")
    with own_files():
        own = recipe("node", f"model={{name: faulty, file: {tmp_path}/faulty.py, num_layers: 2}}")
    with pytest.raises(StageError, match=r"rank 0 ended with TypeError: .* \(.*/faulty\.py, line 11\)"):
        run_stage(STAGE, own, {"partition": graph}, home)


def test_machines_with_parts_hold_more_together() -> None:
    facts = GraphFacts("node", 4, 10_000_000, feature_dim=128)
    counts, weights = Counts(10_000_000, 200_000_000, 0), Weights(1000, 0)

    def scaled(machines: int, **options: Any) -> float:
        place = {"num_machines": machines, "rendezvous": "a:1", "threads": 1}
        train = TrainConfig.model_validate({"strategy": {"name": "partitioned", **options}, **place})
        found = part_bytes(train, facts, weights, counts, 500_000)
        assert found is not None
        return found[1]

    assert scaled(2) > scaled(4) > scaled(16) > 80e6  # numbers of all nodes stay
    assert scaled(4, rows="float16") - scaled(4, rows="int8") == pytest.approx(10e6 / 4 * 128 * 9 / 8)
    assert part_bytes(TrainConfig(), facts, weights, counts, 500_000) is None
