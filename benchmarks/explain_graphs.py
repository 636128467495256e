"""Graphs whose labels are known to come from some edges, as stores that graphmill reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tasks.storage.graph_store import Array, ArrayWriter, GraphStore
from tasks.storage.manifests import PartitionManifest


@dataclass
class Made:
    """An undirected graph."""

    ends: Array
    """int64 (2, m)."""
    feat: Array
    """float32 (n, D)."""
    label: Array
    """int64 (n,)."""
    motif: Array
    """int64 (n,): number of each node's motif, -1: none."""
    of_motif: Array | None = None
    """int64 (m,): motif that an edge belongs to, -1: none."""
    asked_label: int | None = None
    """Nodes of this label are asked about; None: all of a motif."""

    @property
    def asked(self) -> Array:
        """Return which nodes may be asked about."""
        return np.ones(len(self.label), bool) if self.asked_label is None else self.label == self.asked_label

    def keys(self, node: int) -> Array:
        """Return the edges of a node's motif, each as low end * n + high end."""
        assert self.of_motif is not None
        low, high = np.sort(self.ends[:, self.of_motif == self.motif[node]], axis=0)
        return low * len(self.label) + high


def attached(
    base: Array, base_nodes: int, shape: list[tuple[int, int]], count: int, rng: np.random.Generator, broken: int = 0
) -> tuple[Array, Array, Array]:
    """Hang `count` copies of a shape on a graph by one edge each, and add a tenth as many random edges.

    `broken`: so many more copies lack one of their edges each. Returns ends, the motif of each edge and of each node.
    """
    size = 1 + max(max(pair) for pair in shape)
    ends, of_edge = [base], [np.full(base.shape[1], -1)]
    for number in range(count + broken):
        first = base_nodes + number * size
        own = np.delete(shape, rng.integers(len(shape)), 0) if number >= count else np.array(shape)
        ends += [own.T + first, np.array([[rng.integers(base_nodes)], [first]])]
        of_edge += [np.full(len(own), number), np.array([-1])]
    count += broken
    nodes = base_nodes + count * size
    noise = rng.integers(0, nodes, (2, nodes // 10))
    noise = noise[:, noise[0] != noise[1]]
    motif = np.concatenate([np.full(base_nodes, -1), np.repeat(np.arange(count), size)])
    return np.concatenate([*ends, noise], 1), np.concatenate([*of_edge, np.full(noise.shape[1], -1)]), motif


def ba_shapes(rng: np.random.Generator) -> Made:
    """Houses of five nodes on 300 nodes by preferential attachment, five edges each; roles in houses are labels."""
    ends: list[tuple[int, int]] = []
    pool = list(range(5))
    for node in range(5, 300):
        chosen: set[int] = set()
        while len(chosen) < 5:
            chosen.add(int(pool[rng.integers(len(pool))]))
        ends += [(node, other) for other in chosen]
        pool += [*chosen, *([node] * 5)]
    house = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 4), (1, 4)]
    edges, of_edge, motif = attached(np.array(ends).T, 300, house, 80, rng)
    label = np.zeros(len(motif), np.int64)
    label[300:] = np.tile([1, 1, 2, 2, 3], 80)
    return Made(edges, np.ones((len(label), 4), np.float32), label, motif, of_edge)


def tree_grid(rng: np.random.Generator, broken: int = 0) -> Made:
    """Grids of 3 x 3 nodes on a binary tree of eight levels; whether a node is in one is its label.

    Where there are `broken` ones too: whether it is the middle of a whole one.
    """
    tree = np.array([((node - 1) // 2, node) for node in range(1, 511)]).T
    grid = [(3 * i + j, 3 * i + j + 1) for i in range(3) for j in range(2)]
    grid += [(3 * i + j, 3 * i + j + 3) for i in range(2) for j in range(3)]
    edges, of_edge, motif = attached(tree, 511, grid, 80, rng, broken)
    label = (motif >= 0).astype(np.int64)
    if broken:
        label[:] = 0
        label[511 + 4 : 511 + 9 * 80 : 9] = 1
    return Made(edges, np.ones((len(label), 4), np.float32), label, motif, of_edge, asked_label=1)


def rings(rng: np.random.Generator, broken: int = 0) -> Made:
    """Rings of an account, four mules and their cash desks among 3,000 accounts; mules and desks alone are decoys.

    So are `broken` rings. Features: whether an account is a mule's, whether a cash desk's, and three numbers of noise.
    """
    plain, count = 3000, 60
    ring = [(0, mule) for mule in range(1, 5)] + [(mule, mule + 4) for mule in range(1, 5)]
    base = rng.integers(0, plain, (2, 2 * plain))
    edges, of_edge, motif = attached(base[:, base[0] != base[1]], plain, ring, count, rng, broken)
    kind = np.concatenate([np.zeros(plain, np.int64), np.tile([0, 1, 1, 1, 1, 2, 2, 2, 2], count + broken)])
    decoys = rng.choice(plain, 600, replace=False)
    kind[decoys[:300]], kind[decoys[300:]] = 1, 2
    label = np.zeros(len(kind), np.int64)
    label[plain : plain + 9 * count : 9] = 1
    feat = np.concatenate([np.eye(3)[kind][:, 1:], rng.standard_normal((len(kind), 3))], 1).astype(np.float32)
    return Made(edges, feat, label, motif, of_edge, asked_label=1)


MADE: dict[str, Callable[[np.random.Generator], Made]] = {
    "BA-shapes": ba_shapes,
    "tree-grid": tree_grid,
    "rings": rings,
    "whole grids": partial(tree_grid, broken=80),
    "whole rings": partial(rings, broken=300),
}


def stored(folder: Path, made: Made) -> GraphStore:
    """Write a graph as a partition's artifact has it."""
    folder.mkdir(parents=True)
    writer, count = ArrayWriter(folder), len(made.label)
    both = np.concatenate([made.ends, made.ends[::-1]], 1)
    keys = np.unique(both[1] * count + both[0])
    writer.write("csc_indptr", np.searchsorted(keys, count * np.arange(count + 1)).astype(np.int64))
    writer.write("csc_indices", (keys % count).astype(np.int32))
    writer.write("feat", made.feat)
    writer.write("label", made.label.astype(np.int64))
    manifest = PartitionManifest.model_construct(
        dataset="made",
        task="node",
        task_type="multiclass",
        num_classes=int(made.label.max()) + 1,
        num_tasks=1,
        heads=(),
        target_type="node",
        num_nodes=count,
        num_edges=len(keys),
        symmetric=True,
        node_types=("node",),
        edge_types=("node__to__node",),
        type_offsets=(0, count),
        feature_dim=made.feat.shape[1],
        arrays=writer.entries,
    )
    return GraphStore(folder, manifest)
