"""What is known before a training: its memory, how it may end, and the loader that a recipe means."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, RecipeError, StageError
from configs.registry import LOADERS, MODELS
from configs.training import TrainConfig
from configs.trust import own_files
from models.base import GraphModel
from models.block import Batch
from models.facts import GraphFacts
from models.gnn.gcn import propagate
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.sizes import Counts
from tasks.stage import run_stage
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.gradients.sizes import (
    Weights,
    count_weights,
    known_weights,
    part_bytes,
    refuse_excess,
    training_bytes,
)
from tasks.train.loaders import precomputed
from tasks.train.loaders.base import Loader, TrainingData
from tasks.train.loaders.cluster import ClusterLoader, RandomPartitionLoader
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.loaders.configs import FULL_ENCODER_EDGES
from tasks.train.loaders.edge import EdgeLoader
from tasks.train.loaders.full import FullEdgeLoader, FullLoader, GraphLoader
from tasks.train.loaders.neighbor import NeighborLoader
from tasks.train.loaders.precomputed import PrecomputedLoader
from tasks.train.ranks.failures import final_error, peer_is_gone
from tasks.train.stage import STAGE
from tasks.train.strategies.base import Ranks
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.registered import forget_registered, models_of
from tests.support import link_graph, molecule_graph, node_graph, written
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
    assert weights.dense == sum(parameter.numel() for parameter in model.parameters())
    assert weights.device_bytes(train) == 4 * 4 * weights.dense  # weights, gradients, and Adam's two


@pytest.mark.parametrize(("embeddings", "place"), [("dense", "device_bytes"), ("sparse", "host_bytes")])
def test_a_table_of_embeddings_counts_where_it_lies(tmp_path: Path, embeddings: str, place: str) -> None:
    facts = graph_facts(link_graph(tmp_path).manifest)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 8, "num_layers": 2})
    train = TrainConfig(embeddings=embeddings)  # type: ignore[arg-type]
    weights = count_weights(config, train, facts)
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
    assert loader.step_rows(1000, num_parts=10, num_layers=2) == rows


def test_the_memory_of_a_step_knows_that_each_relation_is_sampled() -> None:
    typed = GraphFacts("node", 4, 10**6, feature_dim=8, num_edge_types=3, relation_ends=((0, 1), (1, 0), (0, 0)))

    def needed(facts: GraphFacts, fanout: int, model: str = "rgcn") -> int:
        config = MODELS.config({"name": model, "hidden_dim": 8, "num_layers": 2})
        train = TrainConfig.model_validate({"loader": {"name": "neighbor", "fanout": [fanout, -1]}})
        return training_bytes(config, train, facts, Weights(1000, 0), Counts(10**6, 10**7), 1)[0]

    one = replace(typed, num_edge_types=1, relation_ends=((0, 0),))
    assert needed(typed, 10) == needed(one, 20) > needed(one, 10)
    assert needed(typed, 10, "graphsage") == needed(one, 10, "graphsage")


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
    assert peer_is_gone(error) == ("closed by peer" in str(error))


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
        train = TrainConfig.model_validate({"strategy": {"name": "partitioned", **options}, "num_ranks": machines})
        found = part_bytes(train, facts, weights, counts, 500_000, machines)
        return found[1]

    assert scaled(2) > scaled(4) > scaled(16) > 80e6  # numbers of all nodes stay
    assert scaled(4, rows="float16") - scaled(4, rows="int8") == pytest.approx(10e6 / 4 * 128 * 9 / 8)
    assert part_bytes(TrainConfig(), facts, weights, counts, 500_000) is None


def opened(folder: Path, task: str = "node", num_parts: int = 1, **options: Any) -> GraphStore:
    parent = MAKE[task](folder, **options)
    return store_of(written(parent, *(parent.manifest.num_nodes * part // num_parts for part in range(num_parts))))


def made(store: GraphStore, name: str = "gcn", **options: Any) -> GraphModel:
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 2, **options})
    return MODELS.create(config, graph_facts(store.manifest))


def loader(store: GraphStore, name: str = "auto", model: str = "gcn", **options: Any) -> Loader:
    """What a recipe with these options trains with."""
    built = made(store, model)
    found = resolve_loader(TrainConfig(loader={"name": name, **options}), built.config, store.manifest)
    data = TrainingData.of(built, store, FeatureSource.of(store, built), seed=1)
    result: Loader = LOADERS.create(found, data)
    return result


def resolved(model: Any, manifest: Any, name: str = "auto", **options: Any) -> str:
    return resolve_loader(TrainConfig(loader={"name": name, **options}), model, manifest).name


@pytest.mark.parametrize(
    ("task", "name", "kind"),
    [
        ("node", "auto", NeighborLoader),
        ("node", "full", FullLoader),
        ("node", "cluster", ClusterLoader),
        ("node", "random_partition", RandomPartitionLoader),
        ("link", "auto", FullEdgeLoader),
        ("link", "edge", EdgeLoader),
        ("graph", "auto", GraphLoader),
    ],
)
def test_every_loader_makes_batches_that_its_model_can_score(
    tmp_path: Path, task: str, name: str, kind: type[Loader]
) -> None:
    store = opened(tmp_path, task, num_parts=6)
    chosen = loader(store, name)
    assert isinstance(chosen, kind)
    model = made(store)
    if chosen.num_batches is None:
        batch = chosen.batch(np.arange(min(10, chosen.num_seeds)), 3)
    else:
        batch = chosen.epoch_batch(0, chosen.num_batches - 1, 3)
    scores = model(batch)
    assert len(scores) == len(batch.target)
    scores.sum().backward()


def test_large_graphs_are_sampled_around_edges(tmp_path: Path) -> None:
    manifest = opened(tmp_path, "link").manifest.model_copy(update={"num_edges": FULL_ENCODER_EDGES + 1})
    assert LOADERS.config("auto").resolve(manifest).name == "edge"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "edge"}, r"train\.loader=edge does not fit test, a node task; use auto or cluster or full or neighb"),
        (
            {"name": "neighbor", "fanout": (3, 3, 3)},
            r"has 3 numbers and the model has 2 layers; give one a layer, .*train\.loader\.fanout=10,10",
        ),
        ({"name": "cluster"}, r"this recipe's partition has one; set partition\.num_parts"),
        ({"name": "random_partition", "num_clusters": 151}, r"num_clusters=151 leaves .* take at most 150"),
        ({"name": "precomputed"}, r"is for models that propagate .* this recipe's model does more"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        loader(opened(tmp_path), **options)


def test_more_clusters_than_parts_are_refused(tmp_path: Path) -> None:
    store = opened(tmp_path, num_parts=4)
    assert resolved(made(store).config, store.manifest, "cluster", clusters_per_batch=4) == "cluster"
    with pytest.raises(RecipeError, match=r"clusters_per_batch=5 is more than the partition's 4 parts"):
        loader(store, "cluster", clusters_per_batch=5)


@pytest.mark.parametrize(
    ("task", "name", "ways_out"),
    [
        ("node", "auto", "cluster or full or random_partition"),
        ("node", "neighbor", "cluster or full or random_partition"),
        ("link", "edge", "full_edge"),
    ],
)
def test_sampled_neighbourhoods_are_refused_to_reversible_models(
    tmp_path: Path, task: str, name: str, ways_out: str
) -> None:
    store = opened(tmp_path, task)
    reversible = made(store, "deepgcn", reversible=True).config
    with pytest.raises(RecipeError, match=rf"model\.reversible=true .* take train\.loader={ways_out}, or set"):
        resolved(reversible, store.manifest, name)
    whole = "full" if task == "node" else "full_edge"
    assert resolved(reversible, store.manifest, whole) == whole


def test_link_options_reach_their_loaders(tmp_path: Path) -> None:
    store = opened(tmp_path, "link")
    for name in ("full_edge", "edge"):
        made_so = loader(store, name, num_negatives=3)
        assert isinstance(made_so, FullEdgeLoader | EdgeLoader)
        assert made_so.pairs.negatives.num_negatives == 3


# ---- precomputed propagation


@pytest.mark.parametrize(("name", "weighted"), [("sgc", False), ("sign", False), ("sgc", True)])
@pytest.mark.parametrize("chunk", [1 << 21, 100])
def test_precomputed_rows_are_what_the_model_makes_of_the_whole_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, weighted: bool, chunk: int
) -> None:
    monkeypatch.setattr(precomputed, "_CHUNK_EDGES", chunk)
    store = opened(tmp_path, num_nodes=301, dim=5)
    model = made(store, name).eval()
    features = FeatureSource.of(store, model)
    if weighted:
        weight = np.random.default_rng(0).random(store.manifest.num_edges).astype(np.float32)
        features = replace(features, edge_weight=weight)
    chosen = make_loader("precomputed", store, features, model)
    assert isinstance(chosen, PrecomputedLoader)
    positions = np.array([9, 3, 70, 3])
    batch = chosen.batch(positions, 0)
    assert batch.blocks == []
    assert batch.num_edges == 0
    seeds = np.sort(store["train_idx"][positions])
    assert batch.inputs.node_ids.tolist() == seeds.tolist()
    assert batch.target.tolist() == store["label"][seeds].tolist()
    block, inputs = whole_graph(store, features)
    assert (block.weight is not None) == weighted
    once = propagate(block, inputs.feat)
    expected = torch.cat([inputs.feat, once, propagate(block, once)], 1)[seeds]
    assert torch.allclose(batch.inputs.feat, expected, atol=1e-5)
    rows = torch.from_numpy(seeds.astype(np.int64))
    whole = model(Batch([block], inputs, batch.target, 4, rows=rows))
    assert torch.allclose(model(batch), whole, atol=1e-5)


def test_ranks_and_resumed_runs_share_the_propagated_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path / "graph", dim=5)
    features = FeatureSource.open(store, edges=False)
    scratch = tmp_path / "work"
    scratch.mkdir()
    (scratch / "propagated-2.part").write_bytes(b"of a run that was killed")
    first = make_loader("precomputed", store, features, num_propagations=2, scratch=scratch)
    monkeypatch.setattr(precomputed, "_fill", None)  # would fail
    second = make_loader("precomputed", store, features, num_propagations=2, scratch=scratch)
    assert np.array_equal(first.features.feat, second.features.feat)  # type: ignore[arg-type]
    assert sorted(path.name for path in scratch.iterdir()) == ["propagated-2.lock", "propagated-2.npy"]
    assert not second.features.feat.flags.writeable
