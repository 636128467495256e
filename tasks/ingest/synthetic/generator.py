"""The kernels of the synthetic graph, and the loop that writes them chunk by chunk.

A node has a position and an id. Positions are laid out by community (community c holds positions c * size to
(c + 1) * size, class c % K), which makes every property of a node a formula of its position; ids are a random
permutation of the positions, so that nothing about the graph can be read off an id. No table of nodes is ever needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import njit, prange

from tasks.arrays import Array, blocks
from tasks.counter_random import below, permute, uniform, unpermute
from tasks.edge_ends import find_ends
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.edges import EdgeCheck
from tasks.ingest.splits import pair_keys, pick_splits
from tasks.ingest.writer import DatasetWriter, TableWriter, written_pairs
from tasks.negatives import draw_pool
from tasks.stage import StageContext
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS

if TYPE_CHECKING:
    from tasks.ingest.synthetic.configs import SyntheticConfig

EDGE_CHUNK, NODE_CHUNK = 1 << 20, 1 << 16
WITHIN_COMMUNITY = 0.5
"""Share of edges that stay inside a community."""
WITHIN_CLASS = 0.4
"""Of the other edges, the share that stays inside the class."""
EXPONENT = 2.5
"""Of the degree distribution."""
SMALL_COMPONENTS = 0.02
"""Share of nodes outside of the main graph, in trees of `_COMPONENT_SIZE` nodes, each of one class."""
_POWER = 1.0 - 1.0 / (EXPONENT - 1.0)  # of the cumulative weight
_COMPONENT_SIZE = 8
# Softens the head of the power law: without it the first node of a community would take a twentieth of its edges.
_RANK_OFFSET = 8.0
# Streams of random numbers; one for each use, so that no two uses are correlated.
_NODE, _COMMUNITY, _MIX, _RANK, _OTHER, _, _NOISE = range(10, 17)  # 15 is of ingest/splits.py
_PARENT, _FEATURE = 18, 19  # 17 is of negatives.py
_RETRIES = 8


class CommunityLayout(NamedTuple):
    """Where everything lies; a flat tuple, so that numba takes it as it is."""

    num_nodes: int
    num_main: int
    """Positions 0..num_main-1 are the main graph, the others small components."""
    num_communities: int
    num_classes: int
    num_main_edges: int
    num_edges: int
    label_noise: float
    seed: int


def make_layout(config: SyntheticConfig) -> CommunityLayout:
    """Turn options into a layout: communities a multiple of the classes, small components at the end."""
    num_small = int(config.num_nodes * SMALL_COMPONENTS) // _COMPONENT_SIZE * _COMPONENT_SIZE
    num_main = config.num_nodes - num_small
    rounds = max(1, round(num_main / (config.community_size * config.num_classes)))
    num_communities = min(rounds * config.num_classes, num_main // 2)
    num_communities -= num_communities % config.num_classes
    # A tree of n nodes has n - 1 edges; a graph with few edges leaves trees unfinished.
    tree_edges = min(num_small // _COMPONENT_SIZE * (_COMPONENT_SIZE - 1), config.num_edges // 2)
    return CommunityLayout(
        config.num_nodes,
        num_main,
        num_communities,
        config.num_classes,
        config.num_edges - tree_edges,
        config.num_edges,
        config.label_noise,
        config.seed,
    )


@njit(cache=True, nogil=True)
def _community_start(c, layout):  # type: ignore[no-untyped-def]
    return c * layout.num_main // layout.num_communities


@njit(cache=True, nogil=True)
def _clean_class(position, layout):  # type: ignore[no-untyped-def]
    if position >= layout.num_main:
        group = (position - layout.num_main) // _COMPONENT_SIZE
        return below(layout.seed, _PARENT, group, layout.num_classes)
    c = position * layout.num_communities // layout.num_main
    while c + 1 < layout.num_communities and _community_start(c + 1, layout) <= position:
        c += 1
    return c % layout.num_classes


@njit(cache=True, nogil=True)
def _label(position, layout):  # type: ignore[no-untyped-def]
    clean = _clean_class(position, layout)
    if uniform(layout.seed, _NOISE, 2 * position) < layout.label_noise:
        return (clean + 1 + below(layout.seed, _NOISE, 2 * position + 1, layout.num_classes - 1)) % layout.num_classes
    return clean


@njit(cache=True, nogil=True)
def _draw_in(community, share, layout):  # type: ignore[no-untyped-def]
    """Invert the cumulative weight of the community's ranks, weight (rank + offset)^(power - 1), at `share` of 1."""
    start = _community_start(community, layout)
    size = _community_start(community + 1, layout) - start
    low, high = _RANK_OFFSET**_POWER, (size + _RANK_OFFSET) ** _POWER
    rank = np.int64((low + share * (high - low)) ** (1.0 / _POWER) - _RANK_OFFSET)
    return start + min(max(rank, 0), size - 1)


@njit(cache=True, nogil=True)
def _main_edge(e, layout):  # type: ignore[no-untyped-def]
    """Return the positions of main edge e; never a self-loop."""
    seed, communities, classes = layout.seed, layout.num_communities, layout.num_classes
    c = below(seed, _COMMUNITY, e, communities)
    u = _draw_in(c, uniform(seed, _RANK, e), layout)
    chance = uniform(seed, _MIX, 2 * e)
    d = c
    if chance >= WITHIN_COMMUNITY:
        if uniform(seed, _MIX, 2 * e + 1) < WITHIN_CLASS:
            d = below(seed, _NODE, e, communities // classes) * classes + c % classes
        else:
            d = below(seed, _NODE, e, communities)
    v = u
    for attempt in range(_RETRIES):
        v = _draw_in(d, uniform(seed, _OTHER, e * _RETRIES + attempt), layout)
        if v != u:
            return u, v
    start, end = _community_start(d, layout), _community_start(d + 1, layout)
    return u, start + (v - start + 1) % (end - start)


@njit(cache=True, nogil=True)
def _tree_edge(t, layout):  # type: ignore[no-untyped-def]
    """Return the positions of edge t of the small components: a node and a random earlier node of its tree."""
    per_tree = _COMPONENT_SIZE - 1
    start = layout.num_main + t // per_tree * _COMPONENT_SIZE
    child = t % per_tree + 1
    return start + child, start + below(layout.seed, _PARENT, layout.num_nodes + t, child)


@njit(cache=True, nogil=True, parallel=True)
def make_edges(first, src, dst, layout):  # type: ignore[no-untyped-def]
    """Fill in the ids of edges first, first + 1, ... of the graph."""
    for i in prange(len(src)):
        e = first + i
        if e < layout.num_main_edges:
            u, v = _main_edge(e, layout)
        else:
            u, v = _tree_edge(e - layout.num_main_edges, layout)
        src[i] = permute(layout.seed, layout.num_nodes, u)
        dst[i] = permute(layout.seed, layout.num_nodes, v)


@njit(cache=True, nogil=True, parallel=True)
def make_nodes(first, label, feat, centres, layout):  # type: ignore[no-untyped-def]
    """Fill in labels (n,) and features (n, D) of the nodes with ids first, first + 1, ...; centres is (K, D)."""
    width = feat.shape[1]
    for i in prange(len(label)):
        position = unpermute(layout.seed, layout.num_nodes, first + i)
        label[i] = _label(position, layout)
        centre = centres[_clean_class(position, layout)]
        for j in range(0, width, 2):  # Box-Muller: two normals from two uniforms
            at = np.int64(position) * width + j
            radius = math.sqrt(-2.0 * math.log(1.0 - uniform(layout.seed, _FEATURE, at)))
            angle = 2.0 * math.pi * uniform(layout.seed, _FEATURE + 1, at)
            feat[i, j] = centre[j] + radius * math.cos(angle)
            if j + 1 < width:
                feat[i, j + 1] = centre[j + 1] + radius * math.sin(angle)


def generate(config: SyntheticConfig, context: StageContext) -> dict[str, Any]:
    """Write all tables; return the fields of DatasetManifest."""
    layout = make_layout(config)
    with DatasetWriter(context.work) as writer:
        splits = {split: writer.table(f"split/{split}") for split in SPLITS}
        with splits["train"], splits["valid"], splits["test"]:
            _write_nodes(config, layout, writer, splits, context)
            check = _write_edges(config, layout, writer, splits, context)
        if config.task == "link":
            for code, split in enumerate(SPLITS[1:]):
                sizes, edges = (config.num_negatives, config.num_nodes, config.seed), written_pairs(writer)
                ends = find_ends(edges, config.num_nodes, directed=False)
                pool = draw_pool(code, *sizes, edges, ends=ends, path="dataset synthetic")
                writer.write(f"split/{split}_negative", pool)
    is_node = config.task == "node"
    return dataset_fields(
        writer,
        "synthetic",
        "multiclass" if is_node else "link",
        num_classes=config.num_classes if is_node else 0,
        checks=[check],
    )


def bayes_accuracy(delta: float, num_classes: int) -> float:
    """Return P(class k's score is largest) for scores N(delta, 1) of class k and N(0, 1) of the others.

    Trapezoids over 12 standard deviations: exact to ten digits or so, since the integrand is smooth.
    """
    steps, low, high = 4000, -12.0, 12.0
    width = (high - low) / steps
    total = 0.0
    for i in range(steps + 1):
        x = low + i * width
        inside = 0.5 * math.erfc(-(x + delta) / math.sqrt(2))
        total += math.exp(-x * x / 2) * inside ** (num_classes - 1)
    return total * width / math.sqrt(2 * math.pi)


def solve_delta(accuracy: float, num_classes: int) -> float:
    """Return the delta at which features alone reach `accuracy` (between 1/K and 1), by bisection."""
    low, high = 0.0, 12.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if bayes_accuracy(middle, num_classes) < accuracy else (low, middle)
    return (low + high) / 2


def _class_centres(config: SyntheticConfig) -> Array:
    """Return orthogonal class means of length delta, (num_classes, feature_dim)."""
    if not config.feature_dim:
        return np.zeros((config.num_classes, 0))
    rng = np.random.default_rng(config.seed)
    directions, _ = np.linalg.qr(rng.standard_normal((config.feature_dim, config.num_classes)))
    return np.ascontiguousarray(directions.T) * solve_delta(config.feature_accuracy, config.num_classes)


def _write_nodes(
    config: SyntheticConfig,
    layout: CommunityLayout,
    writer: DatasetWriter,
    splits: dict[str, TableWriter],
    context: StageContext,
) -> None:
    centres = _class_centres(config)
    with writer.table("nodes/node") as table:
        for rows in blocks(config.num_nodes, NODE_CHUNK):
            ids = np.arange(rows.start, rows.stop, dtype=np.int64)
            label, feat = np.empty(len(ids), np.int64), np.empty((len(ids), config.feature_dim), np.float32)
            make_nodes(rows.start, label, feat, centres, layout)
            columns: dict[str, Array] = {"node_id": ids}
            if config.feature_dim:
                columns["feat"] = feat
            if config.task == "node":
                columns["label"] = label
                _deal(config, ids, {"node_id": ids}, splits)
            table.write(columns)
            context.progress(rows.stop, config.num_nodes, "nodes")


def _deal(config: SyntheticConfig, keys: Array, columns: dict[str, Array], splits: dict[str, TableWriter]) -> Array:
    """Write rows to the splits that their keys fall into; return which train, bool (n,)."""
    which = pick_splits(keys, config.seed, config.valid_share, config.test_share)
    for code, split in enumerate(SPLITS):
        splits[split].write({name: values[which == code] for name, values in columns.items()})
    return np.asarray(which == 0)


def _write_edges(
    config: SyntheticConfig,
    layout: CommunityLayout,
    writer: DatasetWriter,
    splits: dict[str, TableWriter],
    context: StageContext,
) -> EdgeCheck:
    check = EdgeCheck(config.num_nodes, config.num_nodes)
    kind = id_dtype(config.num_nodes)
    with writer.table("edges/node__to__node") as table:
        for rows in blocks(config.num_edges, EDGE_CHUNK):
            src, dst = np.empty((2, rows.stop - rows.start), kind)
            make_edges(rows.start, src, dst, layout)
            if config.task == "link":
                trains = _deal(config, pair_keys(src, dst), {"src": src, "dst": dst}, splits)
                src, dst = src[trains], dst[trains]
            check.add(src, dst)
            table.write({"src": src, "dst": dst})
            context.progress(rows.stop, config.num_edges, "edges")
    return check
