"""Small data sets of each task, with what is held out altered, and the first stages on them in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from configs.load import build_recipe
from configs.schema import Recipe
from tasks.components.stage import STAGE as COMPONENTS
from tasks.ingest.stage import STAGE as INGEST
from tasks.partition.stage import STAGE as PARTITION
from tasks.preprocess.stage import STAGE as PREPROCESS
from tasks.stage import Parent, run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.train.families import trainings
from tasks.train.job import BEST, LAST
from tasks.train.state import checkpoint
from tests.ingest.ogb_folders import put
from tests.train.in_process import make_engine, make_job, own_settings, run_engine

NODES, ISLANDS, CLASSES, NEGATIVES = 120, 40, 3, 40
"""The islands are the last nodes: held out, and joined to no others."""
KINDS = ("ant", "bee", "cow", "dog")
HOPS = {"name": "hops", "features": ["in", "in-in"], "labels": ["in"]}


@dataclass(frozen=True)
class Leaked:
    """What a training came to: digests of its weights."""

    last: str
    best: str
    weights: dict[str, torch.Tensor] = field(compare=False, repr=False)
    """The last ones."""

    def is_near(self, other: Leaked) -> bool:
        """Whether the weights differ in the order of sums at most."""
        return all(torch.allclose(self.weights[name], x, rtol=0, atol=1e-5) for name, x in other.weights.items())


def node_tables(folder: Path, alter: str = "") -> dict[str, Any]:
    """Write nodes and edges; returns the recipe's section `dataset`.

    `alter`: labels of the splits named (`test labels`, `valid test labels`) are shuffled among them; `features` of all
    held-out nodes or of the `islands` are others, categories among those that training nodes have.
    """
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    label = rng.integers(0, CLASSES, NODES)
    part = np.array(["train", "train", "valid", "test"], object)[rng.integers(0, 4, NODES)]
    part[NODES - ISLANDS :] = np.where(np.arange(ISLANDS) % 2, "valid", "test")
    columns = {
        "x": (label + rng.standard_normal(NODES)).astype(np.float32),
        "y": rng.exponential(5, NODES).astype(np.float32),
        "kind": np.array(KINDS, object)[rng.integers(0, len(KINDS), NODES)],
    }
    mainland = NODES - ISLANDS
    src, dst = rng.integers(0, mainland, (2, 4 * NODES))
    islands = rng.integers(mainland, NODES, (2, ISLANDS))
    src, dst = np.concatenate([src, islands[0]]), np.concatenate([dst, islands[1]])
    edges = {"src": src, "dst": dst, "w": rng.random(len(src)), "e": rng.random(len(src))}
    if alter.endswith("labels"):
        rows = np.flatnonzero(np.isin(part, alter.split()))
        label[rows] = label[other.permutation(rows)]
        assert (label != node_labels()).any()
    elif alter:
        rows = np.flatnonzero(part != "train") if alter == "features" else np.arange(mainland, NODES)
        columns["x"][rows] = 1000 * other.standard_normal(len(rows))
        columns["y"][rows] = other.exponential(1e4, len(rows))
        columns["kind"][rows] = np.array(KINDS[::-1], object)[other.integers(0, len(KINDS), len(rows))]
    order = np.argsort(part == "train", kind="stable")  # held-out rows come first: their categories are met first
    nodes = {"id": np.arange(NODES), "part": part, "label": [f"class {c}" for c in label], **columns}
    pq.write_table(
        pa.table({name: pa.array(np.asarray(column)[order]) for name, column in nodes.items()}), folder / "n.parquet"
    )
    pq.write_table(pa.table(edges), folder / "e.parquet")
    return {
        "name": "tables",
        "nodes": {
            "files": str(folder / "n.parquet"),
            "features": ["x", "y"],
            "categorical": ["kind"],
            "label": "label",
        },
        "edges": {"files": str(folder / "e.parquet"), "weight": "w", "features": ["e"]},
        "split": {"by": "column", "column": "part"},
    }


def node_labels() -> np.ndarray:
    """The labels as they are."""
    return np.random.default_rng(0).integers(0, CLASSES, NODES)


def link_tables(folder: Path, alter: str = "") -> dict[str, Any]:
    """The same for links: pairs of the splits that `alter` names (`test`, `valid test`) are others."""
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    team = rng.integers(0, 4, NODES)
    ends = rng.integers(0, NODES, (2, 20 * NODES))
    ends = ends[:, (team[ends[0]] == team[ends[1]]) & (ends[0] != ends[1])]
    pairs = np.unique(np.sort(ends, axis=0), axis=1)
    pairs = pairs[:, rng.permutation(pairs.shape[1])]
    part = np.array(["train"] * pairs.shape[1], object)
    part[:60], part[60:120] = "valid", "test"
    for split in alter.split():
        known = {(u, v) for u, v in pairs.T.tolist()}
        others = [
            (u, v) for u, v in np.sort(other.integers(0, NODES, (500, 2))).tolist() if u != v and (u, v) not in known
        ]
        pairs[:, part == split] = np.array(others[:60]).T
    kind = np.array(KINDS, object)[other.integers(0, len(KINDS), pairs.shape[1])]
    kind[part == "train"] = np.array(KINDS, object)[np.arange((part == "train").sum()) % len(KINDS)]
    nodes = {"id": np.arange(NODES), "x": rng.standard_normal(NODES), "y": rng.exponential(1, NODES)}
    nodes["kind"] = np.array(KINDS, object)[rng.integers(0, len(KINDS), NODES)]
    pq.write_table(pa.table(nodes), folder / "n.parquet")
    edges = {"src": pairs[0], "dst": pairs[1], "part": part, "e": np.arange(len(part)) % 7 + 0.0, "kind": kind}
    pq.write_table(pa.table(edges), folder / "e.parquet")
    return {
        "name": "tables",
        "task": "link",
        "num_negatives": NEGATIVES,
        "nodes": {"files": str(folder / "n.parquet"), "features": ["x", "y"], "categorical": ["kind"]},
        "edges": {"files": str(folder / "e.parquet"), "features": ["e"], "categorical": ["kind"]},
        "split": {"by": "column", "column": "part"},
    }


def graph_folder(folder: Path, alter: str = "", *, categorical: bool = False, count: int = 90) -> dict[str, Any]:
    """Rings and paths in OGB's layout; features (of edges too) and labels of the splits in `alter` are others."""
    rng, other = np.random.default_rng(0), np.random.default_rng(1)
    sizes = rng.integers(3, 9, count)
    split = np.arange(count) % 3
    altered = np.isin(split, [("train", "valid", "test").index(name) for name in alter.split()])
    label = rng.integers(0, 2, count)
    edges = [
        [(i, i + 1) for i in range(n - 1)] + ([(n - 1, 0)] if ring else [])
        for n, ring in zip(sizes, label, strict=True)
    ]
    counts = np.array(list(map(len, edges)))
    feat, edge_feat = rng.standard_normal((sizes.sum(), 2)), rng.standard_normal((counts.sum(), 2))
    feat[np.repeat(altered, sizes)] *= 1000 * other.random((np.repeat(altered, sizes).sum(), 2))
    edge_feat[np.repeat(altered, counts)] += other.random((np.repeat(altered, counts).sum(), 2))
    if categorical:  # altered ones among those that training graphs have
        feat = np.array([[2, 0], [0, 1], [1, 2], [3, 3]])[np.arange(len(feat)) % 4]
        rows = np.flatnonzero(np.repeat(altered, sizes))
        feat[rows] = feat[other.permutation(rows)]
        edge_feat = np.stack([np.arange(len(edge_feat)) % 3, np.repeat(altered, counts)], 1)
    label = np.where(altered, 1 - label, label)
    raw = folder / "mine" / "raw"
    put(raw / "edge.csv.gz", np.array([pair for some in edges for pair in some]))
    for name, rows in (("node-feat", feat), ("edge-feat", edge_feat), ("graph-label", label)):
        put(raw / f"{name}.csv.gz", rows)
    put(raw / "num-node-list.csv.gz", sizes)
    put(raw / "num-edge-list.csv.gz", counts)
    for number, name in enumerate(("train", "valid", "test")):
        put(folder / "mine" / "split" / "any" / f"{name}.csv.gz", np.flatnonzero(split == number))
    options = {"task": "graph", "task_type": "binary", "categorical": categorical}
    return {"name": "ogb", "dataset": "mine", "root": str(folder), **options}


MAKE: dict[str, Callable[..., dict[str, Any]]] = {"node": node_tables, "link": link_tables, "graph": graph_folder}
MODEL = {"node": "graphsage", "link": "graphsage", "graph": "gin"}


def recipe(task: str, dataset: dict[str, Any], transforms: list[Any], *overrides: str) -> Recipe:
    """A recipe of two epochs."""
    sections = {
        "name": "leaks",
        "dataset": dataset,
        "preprocess": {"transforms": transforms, "workers": 1},
        "partition": {"name": "random", "num_parts": 4 if task == "node" else 1},
        "model": {"name": MODEL[task], "hidden_dim": 8, "num_layers": 2, "norm": "layer", "dropout": 0.2},
        "train": {
            "epochs": 3,
            "loader": {"name": "auto", "batch_size": 32},
            "threads": 1,
            "device": "cpu",
            "learning_rate": 0.02,
        },
    }
    return build_recipe(sections, overrides)


def prepare(
    folder: Path, task: str, alter: str, transforms: list[Any], *, whole: bool = True, **options: Any
) -> Parent:
    """Ingest and preprocess (and, with `whole`, filter and partition) a data set, made with `options`."""
    folder.mkdir(parents=True, exist_ok=True)
    home, made = Home.open(folder / "home"), recipe(task, MAKE[task](folder, alter, **options), transforms)
    ingested = run_stage(INGEST, made, {}, home)
    done = run_stage(PREPROCESS, made, {"ingest": ingested.parent}, home)
    for stage in (COMPONENTS, PARTITION) if whole else ():
        done = run_stage(stage, made, {stage.parents[0]: done.parent}, home)
    return done.parent


def opened(parent: Parent) -> GraphStore:
    """The graph."""
    return GraphStore(parent.folder, parent.manifest)


def learnt(work: Path, task: str, graph: Parent, *overrides: str) -> Leaked:
    """Train in this process, all rounds where there are several."""
    job = make_job(
        recipe(task, {"name": "synthetic", "task": "link" if task == "link" else "node"}, [], *overrides), graph, work
    )
    with own_settings():
        for one in trainings(job):
            one.work.mkdir(parents=True, exist_ok=True)
            run_engine(make_engine(one))
    return Leaked(digest(work / LAST), digest(work / BEST), checkpoint.load(work / LAST)["model"])


def digest(path: Path) -> str:
    """sha256 of a checkpoint's weights."""
    found = hashlib.sha256()
    for name, tensor in sorted(checkpoint.load(path)["model"].items()):
        found.update(name.encode())
        found.update(torch.as_tensor(tensor).numpy().tobytes())
    return found.hexdigest()
