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
from tasks.graph_store import GraphStore
from tasks.ingest.counter_random import below
from tasks.train.loaders.base import Array
from tasks.train.loaders.lookup import find_edge, frozen
from tasks.train.loaders.sampling import derive_key

# So many walks from every node: each is then met about (walk_length + 1) times as often, and the starts are no chance.
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
        _refuse_without_edges(store, "node")
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
        _refuse_without_edges(store, "edge")
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


def _refuse_without_edges(store: GraphStore, kind: str) -> None:
    if not store.manifest.num_edges:
        raise RecipeError(
            f"train.saint={kind} draws edges and {store.manifest.dataset} has none; take train.saint=walk"
        )


def inclusion(contains: Array, count: int) -> Array:
    """Return p, float64: that a node is among what `count` draws reach, by the probability of one draw."""
    with np.errstate(divide="ignore"):  # a node that every draw contains: log 0
        return -np.expm1(count * np.log1p(-contains))


def inverse_conditional(indptr: Array, indices: Array, contains: Array, joint: Array, count: int) -> Array:
    """Return p_v / p_uv of each edge u -> v, one over the paper's alpha: float32 (E,).

    Args:
        indptr: int64 (n + 1,) CSC of the subgraph.
        indices: (E,) sources, in the numbering of its nodes.
        contains: float64 (n,) s of its nodes.
        joint: float64 (E,) q of its edges.
        count: m, draws.
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


@njit(cache=True, nogil=True)
def draw_sources(indices, key, out):  # type: ignore[no-untyped-def]
    """Fill out (m,) with the sources of uniform edges."""
    for i in range(len(out)):
        out[i] = indices[below(key, 0, i, len(indices))]


@njit(cache=True, nogil=True)
def add_sources(indices, contains):  # type: ignore[no-untyped-def]
    """Add to contains (N,) the probability of being the source of a uniform edge."""
    for e in range(len(indices)):
        contains[indices[e]] += 1
    contains /= len(indices)


@njit(cache=True, nogil=True)
def add_ends(indptr, indices, targets, contains):  # type: ignore[no-untyped-def]
    """Add to contains (N,) the probability of being an end of a drawn edge (see `EdgeDraws`)."""
    for i in range(len(targets)):
        v = targets[i]
        contains[v] += 1 / len(targets)
        share = 1 / (len(targets) * (indptr[v + 1] - indptr[v]))
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v:
                contains[indices[e]] += share


@njit(cache=True, nogil=True)
def draw_ends(indptr, indices, targets, key, out):  # type: ignore[no-untyped-def]
    """Fill out (2 m,) with sources and targets of drawn edges."""
    for i in range(len(out) // 2):
        v = targets[below(key, 0, i, len(targets))]
        out[2 * i] = indices[indptr[v] + below(key, 1, i, indptr[v + 1] - indptr[v])]
        out[2 * i + 1] = v


@njit(cache=True, nogil=True)
def edge_joint(indptr, indices, symmetric, num_targets, nodes, sub_indptr, sub_indices, out):  # type: ignore[no-untyped-def]
    """Fill out (E,) with the probability that a drawn edge is any u -> v or v -> u, for the subgraph's edges u -> v."""
    for i in range(len(nodes)):
        v = nodes[i]
        first, last = sub_indptr[i], sub_indptr[i + 1]
        while first < last:
            stop = first + 1
            while stop < last and sub_indices[stop] == sub_indices[first]:
                stop += 1
            u, back = nodes[sub_indices[first]], 0
            if u != v and symmetric:
                back = stop - first
            elif u != v:
                at = find_edge(indptr, indices, v, u)
                while 0 <= at < indptr[u + 1] and indices[at] == v:
                    back += 1
                    at += 1
            q = (stop - first) / (num_targets * (indptr[v + 1] - indptr[v]))
            if back:
                q += back / (num_targets * (indptr[u + 1] - indptr[u]))
            for e in range(first, stop):
                out[e] = q
            first = stop


@njit(cache=True, nogil=True)
def _walk(indptr, indices, root, key, number, path, steps):  # type: ignore[no-untyped-def]
    """Fill path (L + 1,) with a walk and steps (L + 1,) with the CSC position of the edge that leads to each node."""
    path[0] = v = root
    for t in range(1, len(path)):
        degree = indptr[v + 1] - indptr[v]
        steps[t] = -1
        if degree:
            steps[t] = indptr[v] + below(key, number, t, degree)
            v = np.int64(indices[steps[t]])
        path[t] = v


@njit(cache=True, nogil=True)
def draw_walks(indptr, indices, key, out):  # type: ignore[no-untyped-def]
    """Fill out (m, L + 1) with walks from uniform roots."""
    steps = np.empty(out.shape[1], np.int64)
    for i in range(len(out)):
        _walk(indptr, indices, below(key, i, 0, len(indptr) - 1), key, i, out[i], steps)


@njit(cache=True, nogil=True)
def count_walks(indptr, indices, symmetric, length, repeats, key, visits, together):  # type: ignore[no-untyped-def]
    """Walk `repeats` times from each node; count in visits (N,) and together (E,) the walks that meet v, and u and v.

    On symmetric graphs a pair is counted at one of its two edges, see `share_with_reverse`; else at every edge u -> v.
    """
    path, steps = np.empty(length + 1, np.int64), np.empty(length + 1, np.int64)
    is_new = np.empty(length + 1, np.bool_)
    for number in range(repeats * (len(indptr) - 1)):
        _walk(indptr, indices, number // repeats, key, number, path, steps)
        for t in range(length + 1):
            is_new[t] = True
            for before in range(t):
                is_new[t] &= path[before] != path[t]
            if not is_new[t]:
                continue
            visits[path[t]] += 1
            for before in range(t):
                if not is_new[before]:
                    continue
                # the walk goes against the edges: the later node is the source
                at = steps[t] if before == t - 1 else find_edge(indptr, indices, path[t], path[before])
                if at >= 0:
                    together[at] += 1
                if not symmetric:
                    at = find_edge(indptr, indices, path[before], path[t])
                    if at >= 0:
                        together[at] += 1


@njit(cache=True, nogil=True)
def share_with_reverse(indptr, indices, counts):  # type: ignore[no-untyped-def]
    """Give both directions of each edge of a symmetric graph the sum of their counts (E,)."""
    fill = indptr[:-1].copy()  # where the next larger target stands in each node's list: targets come ascending
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            reverse = fill[u]
            fill[u] = reverse + 1
            if u < v:
                counts[e] += counts[reverse]
                counts[reverse] = counts[e]


@njit(cache=True, nogil=True)
def share_with_parallel(indptr, indices, counts):  # type: ignore[no-untyped-def]
    """Give all edges from one node to another the sum of their counts (E,)."""
    for v in range(len(indptr) - 1):
        first = indptr[v]
        while first < indptr[v + 1]:
            stop = first + 1
            while stop < indptr[v + 1] and indices[stop] == indices[first]:
                counts[first] += counts[stop]
                stop += 1
            for e in range(first + 1, stop):
                counts[e] = counts[first]
            first = stop


@njit(cache=True, nogil=True)
def walk_joint(indptr, together, walks, nodes, sub_indptr, positions, out):  # type: ignore[no-untyped-def]
    """Fill out (E,) with together / walks of the edges u -> v, but at least 1 / (N d_v): 0 would weigh infinitely."""
    for i in range(len(nodes)):
        degree = indptr[nodes[i] + 1] - indptr[nodes[i]]
        least = 1 / ((len(indptr) - 1) * max(1, degree))
        for e in range(sub_indptr[i], sub_indptr[i + 1]):
            out[e] = max(together[positions[e]] / walks, least)
