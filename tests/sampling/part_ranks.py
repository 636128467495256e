"""What each rank of tests/sampling/test_parts.py runs: `python -m tests.sampling.part_ranks FOLDER`."""

from __future__ import annotations

import itertools
import os
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.block import Batch, Block, Inputs
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.sampling.parts.ranges import Exchange
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.neighbor import Neighborhoods
from tasks.train.ranks.collectives import joined
from tests.loaders import make_loader
from tests.train.two_processes import end, on_machines

FANOUTS = ((3,), (4, 2), (-1, 2, -1), (70, 3))
NODES = ("feat", "feat_cat", "node_type")
EDGES = ("edge_feat", "edge_feat_cat", "edge_weight", "edge_type")


def same(left: Any, right: Any) -> None:
    """Both are equal to the bit, in all that they hold."""
    assert type(left) is type(right), (type(left), type(right))
    if isinstance(left, torch.Tensor):
        assert left.dtype == right.dtype
        assert torch.equal(left, right), (left, right)
    elif isinstance(left, list):
        assert len(left) == len(right)
        for pair in zip(left, right, strict=True):
            same(*pair)
    elif isinstance(left, Batch | Block | Inputs):
        for item in fields(left):
            if item.name not in ("adjacency", "_cache"):
                same(getattr(left, item.name), getattr(right, item.name))
    else:
        assert left == right


def source(store: GraphStore, *, nodes: tuple[str, ...], edges: tuple[str, ...], dtype: torch.dtype) -> FeatureSource:
    names = {name: store[name] for name in nodes + edges}
    return FeatureSource(names.pop("feat", None), names.pop("feat_cat", None), **names, dtype=dtype)


def batches(rank: int, count: int, num_nodes: int) -> list[Seeds]:
    """Seeds of this rank: of any part, one batch without any."""
    rng = np.random.default_rng(rank)
    sizes = rng.integers(1, 40, count)
    sizes[-1] = 0
    chosen = [np.sort(rng.choice(num_nodes, size, replace=False)).astype(np.int32) for size in sizes]
    return [Seeds(nodes, int(rng.integers(0, 1 << 62))) for nodes in chosen]


def neighborhoods_are_equal(store: GraphStore, part: PartGraph, rank: int) -> None:
    kinds: list[tuple[tuple[str, ...], tuple[str, ...], bool]] = [
        (("feat",), (), True),
        (("feat",), (), False),
        (NODES, EDGES, False),
        (("feat",), ("edge_weight",), False),
        (("feat_cat",), ("edge_type",), False),
    ]
    for fanouts, (nodes, edges, fused) in itertools.product(FANOUTS, kinds):
        for dtype in (torch.float32, torch.bfloat16):
            whole, own = (source(graph, nodes=nodes, edges=edges, dtype=dtype) for graph in (store, part))
            one = Neighborhoods(store, whole, fanouts, first_hop="fused" if fused else "sampled")
            many = PartNeighborhoods(part, own, fanouts, fused=fused)
            for count in (1, 3):
                asked = batches(rank, count, store.manifest.num_nodes)
                same(
                    [list(found) for found in many.around_all(asked)], [list(found) for found in one.around_all(asked)]
                )


def edge_batches_are_equal(store: GraphStore, part: PartGraph, shuffled: PartGraph, rank: int) -> None:
    assert np.array_equal(shuffled["train_edges"], store["train_edges"])
    own = np.asarray(store["train_edges"])
    assert np.array_equal(part["train_edges"], own[(own[:, 1] >= part.own[0]) & (own[:, 1] < part.own[1])])
    rng = np.random.default_rng(rank)
    requests = [(rng.choice(200, size, replace=False), int(rng.integers(0, 1 << 62))) for size in (13, 1, 30)]
    cases: list[tuple[tuple[str, ...], tuple[str, ...]]] = [((), ()), (NODES, EDGES), (("feat",), ())]
    for nodes, edges in cases:
        found = []
        for graph in (store, shuffled):
            features = source(graph, nodes=nodes, edges=edges, dtype=torch.float32)
            found.append(list(make_loader("edge", graph, features, num_negatives=2, fanout=(-1, 4)).batches(requests)))
        same(*found)


def main(folder: Path, local_size: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    store = GraphStore.open(folder)
    ranks = on_machines(rank, world_size, local_size)
    with joined(ranks, torch.device("cpu")):
        manifest: Any = store.manifest
        bounds = np.asarray(manifest.rank_bounds(world_size))
        part = PartGraph(store, bounds, Exchange(rank, world_size), ranks.of_machine)
        if manifest.task == "node":
            neighborhoods_are_equal(store, part, rank)
        else:
            shuffled = PartGraph(store, bounds, Exchange(rank, world_size), ranks.of_machine, own_seeds=False)
            edge_batches_are_equal(store, part, shuffled, rank)
    print("done", rank)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
    end()
