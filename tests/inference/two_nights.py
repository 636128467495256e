"""A random graph as of two nights: the later one has new nodes, other edges, other features, another order."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tasks.stage import Parent
from tasks.storage.graph_store import ArrayWriter
from tests.finished import dataset
from tests.support import as_partition, finish


@dataclass
class World:
    """Nodes by their users' ids, two types, and edges with all that they can carry."""

    ids: np.ndarray
    kind: np.ndarray
    feat: np.ndarray
    codes: np.ndarray
    label: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    edge_feat: np.ndarray
    edge_type: np.ndarray

    @property
    def count(self) -> int:
        return len(self.ids)


def first_night(count: int, seed: int, dim: int = 7) -> World:
    rng = np.random.default_rng(seed)
    edges = 3 * count
    return World(
        ids=np.arange(count),
        kind=np.sort(rng.integers(0, 2, count)),
        feat=rng.standard_normal((count, dim)).astype(np.float32),
        codes=rng.integers(0, 4, (count, 2)).astype(np.int32),
        label=rng.integers(0, 3, count),
        src=rng.integers(0, count, edges),
        dst=rng.integers(0, count, edges),
        edge_feat=rng.standard_normal((edges, 3)).astype(np.float32),
        edge_type=rng.integers(0, 2, edges),
    )


def second_night(world: World, seed: int, *, new: int = 5, changes: int = 3) -> World:
    """New nodes with edges, features of some others, edges that go and edges that come."""
    rng = np.random.default_rng(seed)
    old, more = world.count, 4 * new + changes
    feat = np.concatenate([world.feat, rng.standard_normal((new, world.feat.shape[1])).astype(np.float32)])
    feat[rng.integers(0, old, changes)] += 1
    stays = np.ones(len(world.src), bool)
    stays[rng.integers(0, len(stays), changes)] = False
    kept = [one[stays] for one in (world.src, world.dst, world.edge_feat, world.edge_type)]
    count = old + new
    added = [rng.integers(0, count, more), rng.integers(old - 3, count, more)]
    return World(
        ids=np.arange(count),
        kind=np.concatenate([world.kind, np.ones(new, int)]),
        feat=feat,
        codes=np.concatenate([world.codes, rng.integers(0, 4, (new, 2)).astype(np.int32)]),
        label=np.concatenate([world.label, rng.integers(0, 3, new)]),
        src=np.concatenate([kept[0], added[0]]),
        dst=np.concatenate([kept[1], added[1]]),
        edge_feat=np.concatenate([kept[2], rng.standard_normal((more, 3)).astype(np.float32)]),
        edge_type=np.concatenate([kept[3], rng.integers(0, 2, more)]),
    )


def write(folder: Path, world: World, *, seed: int | None, typed: bool, task: str = "node") -> tuple[Parent, Parent]:
    """Write a world's partition and ingest artifacts; `seed`: of the order that a partitioner gives, None: none."""
    rng, count = np.random.default_rng(seed), world.count
    place = np.arange(count) if seed is None else rng.permutation(count)
    node_ids = np.argsort(place)  # node v of the graph is node_ids[v] of the data
    src, dst = place[world.src], place[world.dst]
    order = np.lexsort((src, dst))
    (folder / "graph").mkdir(parents=True)
    writer = ArrayWriter(folder / "graph")
    writer.write("csc_indptr", np.concatenate([[0], np.bincount(dst, minlength=count).cumsum()]).astype(np.int64))
    writer.write("csc_indices", src[order].astype(np.int32))
    writer.write("edge_weight", np.abs(world.edge_feat[order, 0]))
    writer.write("edge_feat", world.edge_feat[order])
    writer.write("feat", world.feat[node_ids])
    writer.write("feat_cat", world.codes[node_ids])
    writer.write("label", world.label[node_ids].astype(np.int64))
    writer.write("node_ids", node_ids.astype(np.int64))
    writer.write("train_idx", np.arange(0, count, 2, dtype=np.int32))
    fields: dict = {"node_types": ("node",), "edge_types": ("node__to__node",), "type_offsets": (0, count)}
    ids = {"node": [f"n{i}" for i in world.ids]}
    if typed:
        split = int((world.kind == 0).sum())
        assert (np.sort(world.kind) == world.kind).all()
        fields = {"node_types": ("a", "b"), "edge_types": ("a__x__b", "a__y__b"), "type_offsets": (0, split, count)}
        writer.write("edge_type", world.edge_type[order].astype(np.int16))
        writer.write("node_type", world.kind[node_ids].astype(np.int16))
        ids = {"a": [f"a{i}" for i in world.ids[:split]], "b": [f"b{i}" for i in world.ids[split:]]}
    graph = finish(
        folder / "graph", writer, num_nodes=count, num_edges=len(src), num_classes=3, feature_dim=world.feat.shape[1],
        categories=(4, 4), edge_feature_dim=3, symmetric=False, target_type=fields["node_types"][0],
        splits={"train": (count + 1) // 2}, **fields,
    )  # fmt: skip
    graph = as_partition(graph)
    (folder / "graph" / "manifest.json").write_text(graph.manifest.model_dump_json())
    data = dataset(folder / "data", graph, typed=ids)
    return graph, data
