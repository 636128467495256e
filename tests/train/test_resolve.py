"""Which loader a recipe means, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.registry import LOADERS, MODELS
from configs.training import TrainConfig
from models.base import GraphModel
from models.block import Batch
from models.gnn.gcn import propagate
from tasks.sampling.rows.features import FeatureSource, whole_graph
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders import precomputed
from tasks.train.loaders.base import Loader, TrainingData
from tasks.train.loaders.config_base import resolve_loader
from tasks.train.loaders.configs import FULL_ENCODER_EDGES
from tasks.train.loaders.full import FullEdgeLoader, FullLoader
from tasks.train.loaders.graph import GraphLoader
from tasks.train.loaders.links.edge import EdgeLoader
from tasks.train.loaders.neighbor import NeighborLoader
from tasks.train.loaders.precomputed import PrecomputedLoader
from tasks.train.loaders.subgraphs.cluster import ClusterLoader, RandomPartitionLoader
from tests.loaders import make_loader
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
    first = make_loader("precomputed", store, features, num_propagations=2, scratch=scratch)
    monkeypatch.setattr(precomputed, "_fill", None)  # would fail
    second = make_loader("precomputed", store, features, num_propagations=2, scratch=scratch)
    assert np.array_equal(first.features.feat, second.features.feat)  # type: ignore[arg-type]
    assert sorted(path.name for path in scratch.iterdir()) == ["propagated-2.lock", "propagated-2.npy"]
    assert second.features.feat is not None
    assert not second.features.feat.flags.writeable
