"""What a GraphSAINT subgraph is drawn from, and how likely nodes and edges are to be in it.

A subgraph is what m independent draws reach: m nodes, m edges with both ends, or m random walks. So all follows from
what one draw does: with s_v the probability that it contains node v, and q_uv that it contains both u and v,

    p_v  = 1 - (1 - s_v)^m                           v is in the subgraph
    p_uv = p_u + p_v - (1 - (1 - s_u - s_v + q_uv)^m)    u and v both are

Where several edges join u to v, the pair has one q, which all of them get.

For nodes and edges s and q are known exactly; for walks they are counted on walks drawn beforehand. The paper's code
counts whole subgraphs instead (Zeng et al., ICLR 2020, https://arxiv.org/abs/1907.04931, section 3.4), which needs many
more of them: an edge between the walks of two roots is rare, here it is computed.
"""

from __future__ import annotations

import abc

import numpy as np
from numba import njit

from configs.errors import RecipeError
from tasks.sampling.neighborhoods.lookup import frozen
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.saint_loops import (
    add_ends,
    add_sources,
    count_walks,
    draw_ends,
    draw_sources,
    draw_walks,
    edge_joint,
    share_with_parallel,
    share_with_reverse,
    walk_joint,
)
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import Array

# Walks from every node; a node is then met about (walk_length + 1) times as often.
_WALKS_A_NODE = 8
_PRESAMPLE = 1  # purpose of a key


class Draws(abc.ABC):
    """One of the paper's samplers: what a single draw contains."""

    contains: Array
    """s, float64 (N,): probability that a draw contains each node."""
    needs_positions = False
    """Whether `joint` reads the edges' CSC positions."""

    @abc.abstractmethod
    def draw(self, count: int, key: int) -> Array:
        """Return the nodes of `count` independent draws, int64 (m,), repeated where they are drawn again."""

    @abc.abstractmethod
    def joint(self, nodes: Array, indptr: Array, indices: Array, positions: Array | None) -> Array:
        """Return q, float64 (E,), of a subgraph's edges: that one draw contains both ends.

        Args:
            nodes: int64 (n,) nodes of the subgraph.
            indptr: int64 (n + 1,) CSC of the subgraph.
            indices: (E,) in the numbering of `nodes`.
            positions: int64 (E,) of the edges in the whole graph; may be None unless `needs_positions`.
        """


class NodeDraws(Draws):
    """A draw is a node, with probability by its out-degree: the source of a uniform edge."""

    def __init__(self, store: GraphStore) -> None:
        _refuse_without_edges(store, "saint_node")
        self.indices = frozen(store["csc_indices"])
        self.contains = np.zeros(store.manifest.num_nodes)
        add_sources(self.indices, self.contains)

    def draw(self, count: int, key: int) -> Array:
        """Draw nodes."""
        out = np.empty(count, np.int64)
        draw_sources(self.indices, key, out)
        return out

    def joint(self, nodes: Array, indptr: Array, indices: Array, positions: Array | None) -> Array:
        """Return zeros: a draw is one node."""
        return np.zeros(len(indices))


class EdgeDraws(Draws):
    """A draw is both ends of an in-edge, uniform, of a node, uniform among those that have any.

    On symmetric graphs an edge's probability so goes by 1 / d_u + 1 / d_v (the paper's, equation 5 with A = D^-1 A).
    """

    def __init__(self, store: GraphStore) -> None:
        _refuse_without_edges(store, "saint_edge")
        self.indptr, self.indices = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        self.symmetric = store.manifest.symmetric
        self.targets = np.flatnonzero(np.diff(self.indptr)).astype(self.indices.dtype)
        self.contains = np.zeros(len(self.indptr) - 1)
        add_ends(self.indptr, self.indices, self.targets, self.contains)
        np.minimum(self.contains, 1, out=self.contains)  # the centre of a star: a sum that may round to more

    def draw(self, count: int, key: int) -> Array:
        """Draw edges; returns their ends."""
        out = np.empty(2 * count, np.int64)
        draw_ends(self.indptr, self.indices, self.targets, key, out)
        return out

    def joint(self, nodes: Array, indptr: Array, indices: Array, positions: Array | None) -> Array:
        """Return the probability of drawing the edge, one parallel to it, or a reverse where there is one."""
        out = np.empty(len(indices))
        edge_joint(self.indptr, self.indices, self.symmetric, len(self.targets), nodes, indptr, indices, out)
        return out


class WalkDraws(Draws):
    """A draw is a walk of `length` steps from a uniform node to uniform in-neighbours; it stays where there is none.

    s and q are counted on walks from every node, drawn by `seed` alone: all ranks count the same. Takes 4 bytes an edge
    and 8 a node.
    """

    needs_positions = True

    def __init__(self, store: GraphStore, length: int, seed: int) -> None:
        self.indptr, self.indices = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        self.length = length
        num_nodes, symmetric = len(self.indptr) - 1, store.manifest.symmetric
        visits, self.together = np.zeros(num_nodes, np.int64), np.zeros(len(self.indices), np.uint32)
        key = derive_key(seed, _PRESAMPLE)
        count_walks(self.indptr, self.indices, symmetric, length, _WALKS_A_NODE, key, visits, self.together)
        if symmetric:
            share_with_reverse(self.indptr, self.indices, self.together)
        share_with_parallel(self.indptr, self.indices, self.together)
        self.walks = _WALKS_A_NODE * num_nodes
        self.contains = visits / self.walks

    def draw(self, count: int, key: int) -> Array:
        """Draw walks; returns their nodes."""
        out = np.empty((count, self.length + 1), np.int64)
        draw_walks(self.indptr, self.indices, key, out)
        return out.reshape(-1)

    def joint(self, nodes: Array, indptr: Array, indices: Array, positions: Array | None) -> Array:
        """Return the share of the counted walks that met both ends, at least that of walks which begin u <- v."""
        assert positions is not None
        out = np.empty(len(indices))
        walk_joint(self.indptr, self.together, self.walks, nodes, indptr, positions, out)
        return out


def _refuse_without_edges(store: GraphStore, loader: str) -> None:
    if not store.manifest.num_edges:
        raise RecipeError(
            f"train.loader={loader} draws edges and {store.manifest.dataset} has none; take train.loader=saint_walk"
        )


def inclusion(contains: Array, count: int) -> Array:
    """Return p, float64: that a node is among what `count` draws reach, by the probability of one draw."""
    with np.errstate(divide="ignore"):  # a node that every draw contains: log 0
        return -np.expm1(count * np.log1p(-contains))


def inverse_conditional(indptr: Array, indices: Array, contains: Array, joint: Array, count: int) -> Array:
    """Return p_v / p_uv of each edge u -> v, one over the paper's alpha: float32 (E,).

    The subgraph is a CSC, in the numbering of its nodes; contains float64 (n,) is s of its nodes, joint float64 (E,) q
    of its edges, count m.
    """
    either = np.empty(len(indices))
    unite(indptr, indices, contains, joint, either)
    weight = np.empty(len(indices), np.float32)
    # NumPy's logarithms and exponentials are vectors, numba's are not: four times as fast
    divide(indptr, indices, inclusion(contains, count), inclusion(either, count), joint, weight)
    return weight


@njit(cache=True, nogil=True)
def unite(indptr, indices, contains, joint, either):  # type: ignore[no-untyped-def]
    """Fill either (E,) with the probability that a draw contains u or v."""
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            either[e] = min(1.0, contains[indices[e]] + contains[v] - joint[e])


@njit(cache=True, nogil=True)
def divide(indptr, indices, p, either, joint, weight):  # type: ignore[no-untyped-def]
    """Fill weight (E,) with p_v / p_uv, from p (n,) of the nodes and that of the edges' either end, (E,).

    p_uv is at least q, joint (E,): with few draws the difference may round to less, to 0 even.
    """
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            weight[e] = p[v] / max(p[u] + p[v] - either[e], joint[e]) if u != v else 1
