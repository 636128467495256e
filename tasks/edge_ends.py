"""Which nodes an edge can join: the pairs that negatives of links are drawn from.

A user never buys a user: a negative of two users is told from the edges by that alone. What can be joined is found out
from the edges' ends; docs/pages/held-out.md has the rules. Each cycle that closes would be odd half of the time, were
there no two sides: twenty that are even say that there are, and a tree says nothing. Loops say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.pair_set import PairSet
from tasks.storage.graph_store import ArrayWriter, id_dtype

Pairs = Callable[[], Iterator[tuple[Array, Array]]]
"""Returns all edges anew, in chunks of sources and targets."""
GetArray = Callable[[str], Array | None]
"""Returns an array of a graph by name, or None (`GraphStore.get`)."""

_SOURCE, _TARGET = 1, 2
_LEAST_CYCLES, _CLOSING = 20, 1 << 12
"""Of even cycles, and of the edges among which they are counted."""
_IN_TREE = 1
_STRAY_SHARE = 0.01
"""Of the sources (or targets, if they are fewer), nodes that may be both, by mistakes in the rows, say."""


class EdgeEnds(NamedTuple):
    """What the ends of an edge can be. A tuple of arrays, which numba takes as it is."""

    sources: Array
    """id (S,), ascending; none: any node."""
    targets: Array
    """id (T,), ascending; none: any node."""
    side: Array
    """id (N,): nodes with the same number are never joined; none: there are no such numbers."""

    def sizes(self, num_nodes: int) -> tuple[int, int]:
        """Return how many sources and targets there are."""
        return len(self.sources) or num_nodes, len(self.targets) or num_nodes

    def within_a_side(self, src: Array, dst: Array, num_nodes: int) -> Array:
        """Return which pairs (n,) join nodes of one side of a bipartite graph, bool (n,); none where it is none."""
        if len(self.side):
            return np.asarray(self.side[src] == self.side[dst])
        if self._num_both() is None:
            return np.zeros(len(src), np.bool_)
        role = self.roles(num_nodes)
        return np.asarray((role[src] == role[dst]) & np.isin(role[src], (_SOURCE, _TARGET)))

    def _num_both(self) -> int | None:
        """Return how many nodes are source and target, where hardly any are; else None."""
        sizes = len(self.sources), len(self.targets)
        both = len(np.intersect1d(self.sources, self.targets))
        return both if all(sizes) and both <= _STRAY_SHARE * min(sizes) else None

    def roles(self, num_nodes: int) -> Array:
        """Return what each node can be, uint8 (N,): 1 a source, 2 a target, 3 both."""
        role = np.zeros(num_nodes, np.uint8)
        for ends, bit in ((self.sources, _SOURCE), (self.targets, _TARGET)):
            role[ends if len(ends) else slice(None)] |= bit
        return role

    def wider(self, num_nodes: int) -> EdgeEnds:
        """Return the same where nodes that no edge touches are both: nothing says what they are."""
        role = self.roles(num_nodes)
        return ends_of(np.where(role == 0, _SOURCE | _TARGET, role), self.side if len(self.side) else None)

    def text(self, num_nodes: int) -> str:
        """Say in words what a negative joins."""
        num_sources, num_targets = self.sizes(num_nodes)
        touched = f"{num_sources:,} of {num_nodes:,} nodes" if num_sources < num_nodes else f"{num_nodes:,} nodes"
        sides = ", of different sides: the graph is bipartite, for it has no odd cycle" if len(self.side) else ""
        if np.array_equal(self.sources, self.targets):
            return f"any two of the {touched}{' that edges touch' if num_sources < num_nodes else ''}{sides}"
        both = self._num_both()
        few = f"only {both:,} of them are" if both else "no node is"
        apart = "" if both is None else f": the graph is bipartite, for {few} both"
        return f"one of the {num_sources:,} nodes that are a source to one of the {num_targets:,} that are a target" + (
            apart + sides
        )


ANY = EdgeEnds(*(np.empty(0, np.int32) for _ in range(3)))
"""All pairs of nodes."""


def find_ends(edges: Pairs, num_nodes: int, *, directed: bool) -> EdgeEnds:
    """Return what the ends of these edges' negatives can be; of no edges any.

    Reads the edges once; where sources and targets are not apart once more, as far as the first odd cycle, and a third
    time where there is none. Memory: 10 to 25 bytes a node.
    """
    role = np.zeros(num_nodes, np.uint8)
    for src, dst in edges():
        no_loop = src != dst
        role[src[no_loop]] |= _SOURCE
        role[dst[no_loop]] |= _TARGET
    of_source, of_target = role & _SOURCE != 0, role & _TARGET != 0
    smaller = min(np.count_nonzero(of_source), np.count_nonzero(of_target))
    if not smaller:
        return ANY
    apart = np.count_nonzero(of_source & of_target) <= _STRAY_SHARE * smaller
    if not apart and not directed:
        of_source = of_target = role != 0
    kind = id_dtype(num_nodes)
    sources, targets = (
        np.empty(0, kind) if which.all() else np.flatnonzero(which).astype(kind) for which in (of_source, of_target)
    )
    return EdgeEnds(sources, targets, np.empty(0, kind) if apart else _sides(edges, num_nodes))


def write_ends(ends: EdgeEnds, num_nodes: int, writer: ArrayWriter) -> None:
    """Write `edge_role` and `edge_side`, each where it says something."""
    if len(ends.sources) or len(ends.targets):
        writer.write("edge_role", ends.roles(num_nodes))
    if len(ends.side):
        writer.write("edge_side", ends.side)


def ends_of(role: Array | None, side: Array | None) -> EdgeEnds:
    """Return the ends that arrays of `write_ends` tell, (N,) each; None: it is not there."""
    if role is None and side is None:
        return ANY
    sources, targets = ANY.sources, ANY.targets
    if role is not None:
        kind = id_dtype(len(role))
        sources, targets = (np.flatnonzero(np.asarray(role) & bit).astype(kind) for bit in (_SOURCE, _TARGET))
    return EdgeEnds(sources, targets, ANY.side if side is None else np.array(side))


@njit(inline="always")
def end_at(ends, place):  # type: ignore[no-untyped-def]
    """Return the node at a place among sources or targets."""
    return np.int64(ends[place]) if len(ends) else np.int64(place)


@njit(inline="always")
def never_joined(side, u, v):  # type: ignore[no-untyped-def]
    """Whether no edge joins two nodes, whatever the edges: they are one, or of one side."""
    return u == v or (len(side) > 0 and side[u] == side[v])


def are_never_joined(src: Array, dst: Array, side: Array) -> Array:
    """Return `never_joined` of pairs, bool (n,)."""
    return np.asarray((src == dst) | (side[src] == side[dst]) if len(side) else src == dst)


def _sides(edges: Pairs, num_nodes: int) -> Array:
    """Return for each node twice the first node of its component, plus 1 if it is oddly far from that: id (N,).

    Empty where the nodes have no two sides: there is an odd cycle, or hardly any cycle at all.
    """
    kind = id_dtype(2 * num_nodes)
    parent, odd = np.arange(num_nodes, dtype=kind), np.zeros(num_nodes, np.uint8)
    closing = np.empty((2, 0), kind)
    for src, dst in edges():
        joins = np.empty(len(src), np.bool_)
        if not _join(src, dst, parent, odd, joins):
            return np.empty(0, kind)
        # Of the last ones hardly any repeats one that joined two components.
        others = np.flatnonzero(~joins & (src != dst))[-_CLOSING:]
        closing = np.concatenate([closing, np.stack([src[others], dst[others]])], 1)[:, -_CLOSING:]
    if _count_cycles(edges, closing, num_nodes) < _LEAST_CYCLES:
        return np.empty(0, kind)
    _settle(parent, odd)
    return parent


def _count_cycles(edges: Pairs, closing: Array, num_nodes: int) -> int:
    """Return how many edges, int (2, n), close a cycle: they repeat, or reverse, no edge of the spanning trees."""
    pairs = PairSet(closing.shape[1], num_nodes, directed=False)
    pairs.add(closing[0], closing[1], 0)
    parent, odd = np.arange(num_nodes, dtype=id_dtype(2 * num_nodes)), np.zeros(num_nodes, np.uint8)
    for src, dst in edges() if closing.size else ():
        joins = np.empty(len(src), np.bool_)
        _join(src, dst, parent, odd, joins)
        pairs.mark(src[joins], dst[joins], _IN_TREE)
    return len(pairs.pairs(without=_IN_TREE)[0])


@njit(cache=True, nogil=True)
def _root(node, parent, odd):  # type: ignore[no-untyped-def]
    """Return a node's root and whether it is oddly far from it; the path is halved."""
    parity = odd[node]
    while parent[node] != node:
        above = parent[node]
        odd[node] ^= odd[above]
        parent[node] = parent[above]
        node = parent[node]
        parity ^= odd[above] ^ odd[node]
    return node, parity


@njit(cache=True, nogil=True)
def _join(src, dst, parent, odd, joins):  # type: ignore[no-untyped-def]
    """Join the ends of edges, whose distance is odd; return False at the first cycle of odd length.

    `joins`, bool (n,), is filled: which edges joined two components.
    """
    for i in range(len(src)):
        joins[i] = False
        if src[i] == dst[i]:
            continue
        u, of_u = _root(src[i], parent, odd)
        v, of_v = _root(dst[i], parent, odd)
        if u == v:
            if of_u == of_v:
                return False
        else:  # the smaller number stays a root, so that the outcome is the same in any order
            joins[i] = True
            parent[max(u, v)] = min(u, v)
            odd[max(u, v)] = of_u ^ of_v ^ 1
    return True


@njit(cache=True, nogil=True)
def _settle(parent, odd):  # type: ignore[no-untyped-def]
    """Put twice the root and the parity in the place of each node's parent."""
    for node in range(len(parent)):  # parents are smaller, and settled: those of roots are themselves
        above = parent[node]
        if above == node:
            parent[node] = 2 * node
        else:
            odd[node] ^= odd[above]
            parent[node] = parent[above] - odd[above] + odd[node]
