"""Small tables with times, how to run the first stages on them, and what came of it in the users' ids."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.load import build_recipe
from configs.schema import Recipe
from tasks.ingest.stage import STAGE as INGEST
from tasks.preprocess import stage
from tasks.stage import run_stage
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tests.preprocess.ears import Ears

Run = Callable[..., SimpleNamespace]
SMALL = {"snapshot.train": 0.5, "snapshot.valid": 0.25, "snapshot.test": 0.25}
SHARES = tuple(f"{key}={value}" for key, value in SMALL.items())
SPLITS = ("train", "valid", "test")


def runner(home: Home) -> Run:
    """Return what ingests and preprocesses a data set given as its recipe's section, in this home or another."""

    def run(dataset: dict[str, Any], *overrides: str, at: Home = home, **preprocess: Any) -> SimpleNamespace:
        recipe = make_recipe(dataset, *overrides, **preprocess)
        ears = Ears()
        ingested = run_stage(INGEST, recipe, {}, at, listener=ears)
        made = run_stage(stage.STAGE, recipe, {"ingest": ingested.parent}, at, listener=ears)
        graph = GraphStore(made.folder, made.manifest)
        dataset_store = DatasetStore(ingested.folder, ingested.manifest)
        names = IdMap(graph, dataset_store).lookup(np.arange(made.manifest.num_nodes)).to_pylist()
        own = {"graph": graph, "manifest": made.manifest, "names": names, "dataset": dataset_store}
        return SimpleNamespace(**own, messages=ears.messages, recipe=recipe)

    return run


def small_shards(monkeypatch: pytest.MonkeyPatch, scale: int = 1) -> None:
    monkeypatch.setattr("tasks.ingest.writer.SHARD_ROWS", 8 * scale)
    monkeypatch.setattr("tasks.ingest.writer.GROUP_ROWS", 4 * scale)


def make_recipe(dataset: dict[str, Any], *overrides: str, **preprocess: Any) -> Recipe:
    sections = {"name": "test", "dataset": dataset, "model": {"name": "graphsage"}, "preprocess": preprocess}
    return build_recipe(sections, overrides)


def tables(**options: Any) -> dict[str, Any]:
    """Nodes with features, labels and times, edges with times; `options` replace parts."""
    nodes = {"files": "nodes.parquet", "features": ["x"], "label": ["label"], "time": "time"}
    edges = {"files": "edges.parquet", "time": "time"}
    return {"name": "tables", "num_classes": 3, "nodes": nodes, "edges": edges, **options}


def link_tables(**edges: Any) -> dict[str, Any]:
    edges = {"files": "edges.parquet", "time": "time", **edges}
    return {"name": "tables", "task": "link", "edges": edges, "num_negatives": 40}


def write(name: str, **columns: Any) -> None:
    pq.write_table(pa.table(columns), f"{name}.parquet")


def edges_of(found: SimpleNamespace) -> set[tuple[Any, Any]]:
    """(source, target) of the edges that carry messages, by the users' ids."""
    indptr, indices = found.graph["csc_indptr"], found.graph["csc_indices"]
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return {(found.names[s], found.names[t]) for s, t in zip(indices.tolist(), target.tolist(), strict=True)}


def split_of(found: SimpleNamespace, split: str) -> list[Any]:
    return [found.names[v] for v in found.graph[f"{split}_idx"].tolist()]


def pairs_of(found: SimpleNamespace, array: str) -> list[tuple[Any, Any]]:
    return [(found.names[a], found.names[b]) for a, b in found.graph[array].reshape(-1, 2).tolist()]


def by_name(found: SimpleNamespace, values: Any) -> list[Any]:
    """Values of the graph's nodes in the order of their names."""
    return [value for _, value in sorted(zip(found.names, values.tolist(), strict=True))]


def by_hand(order: str = "abcdefgh") -> None:
    """Eight nodes a..h of the years 1 to 8 (c has no label), and edges of which some are older than their ends."""
    years = [1 + "abcdefgh".index(name) for name in order]
    label = [dict(zip("abcdefgh", [0, 1, None, 2, 0, 1, 2, 0], strict=True))[name] for name in order]
    write("nodes", id=list(order), x=[float(y) for y in years], label=label, time=years)
    src, dst, when = zip(*[("a", "b", 2), ("b", "c", 5), ("e", "a", 1), ("d", "c", 4), ("f", "a", 6)], strict=True)
    write("edges", src=src, dst=dst, time=when)


def grown(rng: np.random.Generator, num_nodes: int, num_edges: int, ties: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Nodes and edges that come one after the other, in the order of their times; `ties` share one."""
    nodes = {
        "id": [f"n{i}" for i in range(num_nodes)],
        **{name: rng.standard_normal(num_nodes) for name in "xyz"},
        "label": pa.array(rng.integers(0, 3, num_nodes), mask=rng.random(num_nodes) < 0.1),
        "time": np.arange(num_nodes) // ties,
    }
    src, dst = rng.integers(0, num_nodes, (2, num_edges))
    late = np.maximum(src, dst) // ties + rng.integers(0, 3, num_edges)
    order = np.argsort(late, kind="stable")
    edges = {
        "src": [f"n{i}" for i in src[order]],
        "dst": [f"n{i}" for i in dst[order]],
        "time": late[order],
        "weight": rng.random(num_edges),
    }
    return nodes, edges
