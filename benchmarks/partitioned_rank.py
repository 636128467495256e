"""One rank of benchmarks/partitioned.py: makes batches of a graph in parts and of the whole graph, in turn.

`python -m benchmarks.partitioned_rank FOLDER OPTIONS`, with torchrun's variables set; rank 0 prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from models.block import Batch, Block, Inputs
from models.configs import GraphSageConfig
from models.gnn.graphsage import GraphSage
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.sampling.parts.ranges import Exchange
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.neighbor import Neighborhoods
from tasks.train.ranks.collectives import from_all, joined, wait_for_all
from tasks.train.strategies.base import Ranks


@dataclass(frozen=True)
class Options:
    """What is measured."""

    batch_size: int = 1024
    exchange_batches: int = 16
    fused: bool = True
    precision: str = "float32"
    cache: float | None = None
    rows: str = "stored"
    steps: bool = False
    """Whether GraphSAGE 3 x 256 learns from each batch, too; every rank by itself."""
    batches: int = 16
    """A round."""
    rounds: int = 5


FANOUTS = (15, 10, 5)
_REHEARSED = 32


def main(folder: Path, options: Options) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    with joined(Ranks(rank, world_size, 0, 1), torch.device("cpu")):
        found = measure(GraphStore.open(folder), rank, world_size, options)
        everybody = from_all(found)
    if rank == 0:
        print(json.dumps({name: statistics.mean(each[name] for each in everybody) for name in found}), flush=True)
    os._exit(0)


def measure(store: GraphStore, rank: int, world_size: int, options: Options) -> dict[str, float]:
    manifest: Any = store.manifest
    bounds = np.asarray(manifest.rank_bounds(world_size))
    exchange = Exchange(rank, world_size)
    part = PartGraph(store, bounds, exchange, cache_bytes=options.cache)
    dtype = torch.bfloat16 if options.precision == "bfloat16" else torch.float32
    whole = FeatureSource(store["feat"], None, dtype=dtype)
    kind: Any = options.rows
    own = FeatureSource(part["feat"], None, dtype=dtype, rows=kind)
    hop: Any = "fused" if options.fused else "sampled"
    one = Neighborhoods(store, whole, FANOUTS, first_hop=hop)
    many = PartNeighborhoods(part, own, FANOUTS, fused=options.fused)
    nodes = part.own_seeds("train")

    def groups(number: int) -> list[list[Seeds]]:
        rng = np.random.default_rng(derive_key(rank, number) % (1 << 32))
        seeds = [
            Seeds(np.sort(rng.choice(nodes, options.batch_size, replace=False)), derive_key(rank, number, batch))
            for batch in range(options.batches)
        ]
        return [seeds[i : i + options.exchange_batches] for i in range(0, len(seeds), options.exchange_batches)]

    rehearsed = range(100, 100 + _REHEARSED // options.batches)
    many.keep_most_read([group for number in rehearsed for group in groups(number)])
    learn = learner(store) if options.steps else None
    taken: dict[str, list[float]] = {"parts_cpu_ms": [], "parts_wall_ms": [], "whole_cpu_ms": [], "whole_wall_ms": []}
    wanted = 0
    for number in range(-1, options.rounds):
        for name, around in (("parts", many.around_all), ("whole", one.around_all)):
            wait_for_all()
            wall, cpu = time.perf_counter(), time.process_time()
            for group in groups(number):
                for blocks, inputs in around(group):
                    if learn is not None:
                        learn(blocks, inputs)
                    wanted += len(inputs.node_ids) if name == "parts" and number >= 0 else 0
            if number >= 0:
                taken[f"{name}_cpu_ms"].append(1e3 * (time.process_time() - cpu) / options.batches)
                taken[f"{name}_wall_ms"].append(1e3 * (time.perf_counter() - wall) / options.batches)
        if number < 0:
            exchange.sent_bytes = exchange.calls = 0
            many.features.rows.fetched_rows = many.features.rows.remote_rows = many.features.rows.wanted_rows = 0
    count = options.rounds * options.batches
    remote = many.features.rows.remote_rows
    return {
        **{name: statistics.median(values) for name, values in taken.items()},
        "cpu_ratio": statistics.median(
            parts / whole for parts, whole in zip(taken["parts_cpu_ms"], taken["whole_cpu_ms"], strict=True)
        ),
        "sent_mb": exchange.sent_bytes / count / 1e6,
        "messages": exchange.calls / count,
        "remote_share": remote / max(1, many.features.rows.wanted_rows),
        "wanted_rows": many.features.rows.wanted_rows / count,
        "fetched_rows": many.features.rows.fetched_rows / count,
        "rows": wanted / count,
    }


def learner(store: GraphStore) -> Callable[[list[Block], Inputs], None]:
    """Return what takes a step of GraphSAGE from a batch; what the labels are does not matter to its time."""
    model = GraphSage(
        GraphSageConfig(name="graphsage", hidden_dim=256, num_layers=len(FANOUTS)), graph_facts(store.manifest)
    )
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def learn(blocks: list[Block], inputs: Inputs) -> None:
        optimizer.zero_grad()
        target = torch.zeros(blocks[-1].num_dst, dtype=torch.long)
        scores = model(Batch(blocks, inputs, target, len(target)))
        torch.nn.functional.cross_entropy(scores, target).backward()
        optimizer.step()

    return learn


if __name__ == "__main__":
    main(Path(sys.argv[1]), Options(**json.loads(sys.argv[2])))
