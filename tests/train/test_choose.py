"""Which loader a recipe means, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from configs.schema import TrainConfig
from models.base import GraphModel
from models.block import Batch
from models.gcn import propagate
from tasks.graph_store import GraphStore
from tasks.train.loaders import precomputed
from tasks.train.loaders.base import FeatureSource, Loader, graph_facts, whole_graph
from tasks.train.loaders.choose import FULL_ENCODER_EDGES, check_loader, loader_name, make_loader
from tasks.train.loaders.cluster import ClusterLoader, RandomPartitionLoader
from tasks.train.loaders.edge import EdgeLoader
from tasks.train.loaders.full import FullLinkLoader, FullNodeLoader
from tasks.train.loaders.graph import GraphLoader
from tasks.train.loaders.neighbor import NeighborLoader
from tasks.train.loaders.precomputed import PrecomputedLoader
from tasks.train.loaders.saint import SaintLoader
from tests.support import as_partition, link_graph, molecule_graph, node_graph

MAKE = {"node": node_graph, "link": link_graph, "graph": molecule_graph}


def opened(folder: Path, task: str = "node", num_parts: int = 1, **options: Any) -> GraphStore:
    parent = as_partition(MAKE[task](folder, **options))
    n = parent.manifest.num_nodes
    offsets = tuple(n * part // num_parts for part in range(num_parts + 1))
    return GraphStore(
        parent.folder, parent.manifest.model_copy(update={"num_parts": num_parts, "part_offsets": offsets})
    )


def made(store: GraphStore, name: str = "gcn", **options: Any) -> GraphModel:
    config = MODELS.config({"name": name, "hidden_dim": 8, "num_layers": 2, **options})
    return MODELS.create(config, graph_facts(store.manifest))


def loader(store: GraphStore, model: str = "gcn", **options: Any) -> Loader:
    train = TrainConfig(**{"fanout": (3, 3), **options})
    return make_loader(train, made(store, model), store, FeatureSource.open(store, edges=False), seed=1)


@pytest.mark.parametrize(
    ("task", "name", "kind"),
    [
        ("node", "auto", NeighborLoader),
        ("node", "full", FullNodeLoader),
        ("node", "cluster", ClusterLoader),
        ("node", "random_partition", RandomPartitionLoader),
        ("node", "saint", SaintLoader),
        ("link", "auto", FullLinkLoader),
        ("link", "edge", EdgeLoader),
        ("graph", "auto", GraphLoader),
    ],
)
def test_every_loader_makes_batches_that_its_model_can_score(
    tmp_path: Path, task: str, name: str, kind: type[Loader]
) -> None:
    store = opened(tmp_path, task, num_parts=6)
    chosen = loader(store, loader=name)
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
    assert loader_name(TrainConfig(), manifest) == "edge"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loader": "edge"}, r"train\.loader=edge does not fit test, a node task; use auto or full or neighbor or clu"),
        ({"fanout": (3, 3, 3)}, r"has 3 numbers and the model has 2 layers; give one a layer, .*train\.fanout=10,10"),
        (
            {"loader": "full", "sampler": "labor"},
            r"train\.sampler=labor does nothing with the loader full; remove it or",
        ),
        (
            {"loader": "saint", "first_hop": "fused"},
            r"train\.first_hop=fused does nothing .* take train\.loader=neighb",
        ),
        ({"num_clusters": 5}, r"train\.num_clusters=5 does nothing with the loader neighbor; .*=random_partition"),
        (
            {"loader": "cluster", "num_clusters": 5},
            r"clusters are the parts of the partition; .*partition\.num_parts=5",
        ),
        ({"clusters_per_batch": 2}, r"clusters_per_batch=2 does nothing with the loader neighbor; .*=cluster"),
        ({"loader": "cluster"}, r"this recipe's partition has one; set partition\.num_parts"),
        ({"loader": "random_partition", "num_clusters": 151}, r"num_clusters=151 leaves .* take at most 150"),
        ({"saint": "node"}, r"train\.saint=node does nothing with the loader neighbor"),
        ({"loader": "saint", "saint": "edge", "walk_length": 4}, r"walk_length=4 does nothing with train\.saint=edge"),
        ({"walk_length": 4}, r"train\.walk_length=4 does nothing with the loader neighbor"),
        ({"negatives": "degree"}, r"train\.negatives=degree is for link tasks and this is a node task"),
        ({"num_negatives": 3}, r"train\.num_negatives=3 is for link tasks"),
        ({"sampler": "weighted"}, r"draws by the edges' weights and test has none; take train\.sampler=uniform"),
        ({"loader": "precomputed"}, r"is for models that propagate .* gcn does more"),
    ],
)
def test_options_that_would_do_nothing_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        loader(opened(tmp_path), **options)


def test_more_clusters_than_parts_are_refused(tmp_path: Path) -> None:
    store = opened(tmp_path, num_parts=4)
    train, model = TrainConfig(loader="cluster", clusters_per_batch=4), made(store).config
    assert check_loader(train, model, store.manifest) == "cluster"
    with pytest.raises(RecipeError, match=r"clusters_per_batch=5 is more than the partition's 4 parts"):
        loader(store, loader="cluster", clusters_per_batch=5)


@pytest.mark.parametrize(
    ("task", "name", "ways_out"),
    [
        ("node", "auto", "full or cluster or random_partition or saint"),
        ("node", "neighbor", "full or cluster or random_partition or saint"),
        ("link", "edge", "full"),
    ],
)
def test_sampled_neighbourhoods_are_refused_to_reversible_models(
    tmp_path: Path, task: str, name: str, ways_out: str
) -> None:
    store = opened(tmp_path, task)
    reversible = made(store, "deepgcn", reversible=True).config
    with pytest.raises(RecipeError, match=rf"model\.reversible=true .* take train\.loader={ways_out}, or set"):
        check_loader(TrainConfig(loader=name, fanout=(3, 3)), reversible, store.manifest)
    assert check_loader(TrainConfig(loader="full"), reversible, store.manifest) == "full"


@pytest.mark.parametrize("name", ["auto", "cluster", "random_partition", "saint"])
def test_samples_of_neighbours_are_refused_to_dilated_models(tmp_path: Path, name: str) -> None:
    store = opened(tmp_path, num_parts=4)
    facts = replace(graph_facts(store.manifest), has_edge_weights=True)
    config = MODELS.config({"name": "deepgcn", "num_layers": 2, "dilation": 2, "edge_weights": True})
    dilated = MODELS.create(config, facts).config
    with pytest.raises(RecipeError, match=r"model\.dilation takes every d-th of all neighbours"):
        check_loader(TrainConfig(loader=name, fanout=(3, 3)), dilated, store.manifest)
    assert check_loader(TrainConfig(fanout=(-1, -1)), dilated, store.manifest) == "neighbor"
    assert check_loader(TrainConfig(loader="full"), dilated, store.manifest) == "full"


def test_link_options_reach_their_loaders(tmp_path: Path) -> None:
    store = opened(tmp_path, "link")
    for name in ("full", "edge"):
        made_so = loader(store, loader=name, negatives="in_batch", num_negatives=3)
        assert isinstance(made_so, FullLinkLoader | EdgeLoader)
        assert made_so.pairs.negatives.kind == "in_batch"
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
    train = TrainConfig(loader="precomputed")
    chosen = make_loader(train, model, store, features)
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
    assert inputs.feat is not None
    once = propagate(block, inputs.feat)
    expected = torch.cat([inputs.feat, once, propagate(block, once)], 1)[seeds]
    assert batch.inputs.feat is not None
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
    first = PrecomputedLoader(store, features, 2, scratch)
    monkeypatch.setattr(precomputed, "_fill", None)  # would fail
    second = PrecomputedLoader(store, features, 2, scratch)
    assert np.array_equal(first.features.feat, second.features.feat)  # type: ignore[arg-type]
    assert sorted(path.name for path in scratch.iterdir()) == ["propagated-2.npy", "propagated.lock"]
    assert second.features.feat is not None
    assert not second.features.feat.flags.writeable
