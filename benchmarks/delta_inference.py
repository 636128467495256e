"""What `graphmill predict --keep-layers` saves: a pass that takes over what is the same, against a full one.

    python -m benchmarks.delta_inference [--nodes 200000] [--degree 10] [--new 20,200,2000] [--rounds 3]

Nodes come one after the other, and each joins `degree` others, mostly those that many have joined (the ends of edges
that are there already). The former graph is the newer one without its last nodes. Directed, messages go to the new node
alone; symmetric, to both ends. GraphSAGE of three layers of 128 with random weights; both passes are equal to the bit,
or it says so. The two take turns, and so does evaluation's own pass (`Layerwise`); medians of the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from configs.registry import MODELS
from models.base import GraphModel
from tasks.inference.former_layers import FormerLayers
from tasks.inference.kept_layers import KeptLayers
from tasks.inference.layerwise import Layerwise
from tasks.inference.predictor import evaluating
from tasks.inference.row_stable import features_of
from tasks.ingest.writer import DatasetWriter
from tasks.storage.artifacts import describe_files
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import Array, ArrayWriter, GraphStore
from tasks.storage.manifests import DatasetManifest, NodeType, PartitionManifest

_COMMON: dict[str, Any] = {"stage_version": 1, "key": "benchmark", "config": {}, "parents": {}, "dataset": "benchmark"}
_TASK: dict[str, Any] = {
    "task": "node", "task_type": "multiclass", "num_classes": 10, "metric": "accuracy", "target_type": "node",
    "splits": {},
}  # fmt: skip


def grow(num_nodes: int, degree: int, seed: int = 0) -> Array:
    """Return edges int64 (2, m): from older nodes to each node, in the order in which nodes come."""
    rng = np.random.default_rng(seed)
    dst = np.repeat(np.arange(1, num_nodes), degree)
    place = (rng.random(len(dst)) * np.arange(len(dst))).astype(np.int64)
    popular, src = rng.random(len(dst)) < 0.8, rng.integers(0, dst)
    # What an earlier edge came from; a pass over all is as good as one by one for a power law.
    src = np.where(popular, src[np.minimum(place, np.maximum(0, (dst - 1) * degree))], src)
    return np.stack([np.minimum(src, dst - 1), dst])


def write(
    folder: Path, num_nodes: int, edges: Array, feat: Array, *, symmetric: bool
) -> tuple[GraphStore, DatasetStore]:
    """Write the graph of the first nodes, and a data set in which they stand in that order."""
    src, dst = edges[:, (edges < num_nodes).all(0)]
    if symmetric:
        src, dst = np.concatenate([src, dst]), np.concatenate([dst, src])
    order = np.lexsort((src, dst))
    (folder / "graph").mkdir(parents=True)
    writer = ArrayWriter(folder / "graph")
    writer.write("csc_indptr", np.concatenate([[0], np.bincount(dst, minlength=num_nodes).cumsum()]).astype(np.int64))
    writer.write("csc_indices", src[order].astype(np.int32))
    writer.write("feat", feat[:num_nodes])
    kinds = {"node_types": ("node",), "edge_types": ("node__to__node",), "type_offsets": (0, num_nodes)}
    graph = PartitionManifest(
        stage="partition", files=describe_files(folder / "graph"), arrays=writer.entries, num_nodes=num_nodes,
        num_edges=len(src), symmetric=False, feature_dim=feat.shape[1], partitioner="none", num_parts=1,
        part_offsets=(0, num_nodes), edge_cut=0.0, node_balance=1.0, train_balance=1.0, **kinds, **_TASK, **_COMMON,
    )  # fmt: skip
    (folder / "graph" / "manifest.json").write_text(graph.model_dump_json())
    (folder / "data").mkdir()
    with DatasetWriter(folder / "data") as tables:
        tables.write("ids/node", {"node_id": np.arange(num_nodes), "original_id": np.arange(num_nodes)})
    data = DatasetManifest(
        stage="ingest", files=describe_files(folder / "data"), directed=True, edge_types=(), tables=tables.tables,
        node_types=(NodeType(name="node", num_nodes=num_nodes),), **_TASK, **_COMMON,
    )  # fmt: skip
    (folder / "data" / "manifest.json").write_text(data.model_dump_json())
    return GraphStore.open(folder / "graph"), DatasetStore.open(folder / "data")


def compute(
    model: GraphModel, store: GraphStore, data: DatasetStore, folder: Path, former: FormerLayers | None
) -> tuple[KeptLayers, float]:
    """Run a pass; returns it and its seconds."""
    folder.mkdir(exist_ok=True)
    started = time.perf_counter()
    kept = KeptLayers(store, folder, folder)
    if former is not None:
        kept.compare(model, data, former)
    kept.vectors(model)
    return kept, time.perf_counter() - started


def measure(folder: Path, edges: Array, feat: Array, new: int, rounds: int, *, symmetric: bool) -> None:
    """Print a line: shares computed, seconds, and the ratio."""
    count = len(feat)
    former, former_data = write(folder / "former", count - new, edges, feat, symmetric=symmetric)
    store, data = write(folder / "newer", count, edges, feat, symmetric=symmetric)
    torch.manual_seed(0)
    config = MODELS.config({"name": "graphsage", "hidden_dim": 128, "num_layers": 3})
    model: GraphModel = MODELS.create(config, graph_facts(store.manifest))
    seconds: dict[str, list[float]] = {"full": [], "delta": [], "evaluation": []}
    place = FormerLayers(folder / "kept", folder / "former" / "graph", folder / "former" / "data")
    with evaluating(model):
        compute(model, former, former_data, folder / "kept", None)
        for _ in range(rounds):
            full, took = compute(model, store, data, folder / "full", None)
            seconds["full"].append(took)
            delta, took = compute(model, store, data, folder / "delta", place)
            seconds["delta"].append(took)
            started = time.perf_counter()
            Layerwise(store, torch.device("cpu"), folder).vectors(model, features_of(store, model), None)
            seconds["evaluation"].append(time.perf_counter() - started)
            equal = np.array_equal(full.vectors(model), delta.vectors(model))
    ratios = [full / delta for full, delta in zip(seconds["full"], seconds["delta"], strict=True)]
    shares = ", ".join(f"{100 * rows / count:.2f} %" for rows in delta.told.computed)
    times = ", ".join(f"{name} {statistics.median(values):.2f} s" for name, values in seconds.items())
    print(
        f"{'symmetric' if symmetric else 'directed'}, {new:,} new of {count:,}: computed {shares}; {times}; "
        f"{statistics.median(ratios):.2f} times ({min(ratios):.2f} to {max(ratios):.2f}); "
        f"{'equal to the bit' if equal else 'NOT EQUAL'}",
        flush=True,
    )


def main() -> None:
    """Measure both kinds of graphs with few and many new nodes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--degree", type=int, default=10)
    parser.add_argument("--new", default="20,200,2000")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    edges = grow(options.nodes, options.degree)
    feat = np.random.default_rng(1).standard_normal((options.nodes, 100)).astype(np.float32)
    for symmetric in (False, True):
        for new in map(int, options.new.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                measure(Path(folder), edges, feat, new, options.rounds, symmetric=symmetric)


if __name__ == "__main__":
    main()
