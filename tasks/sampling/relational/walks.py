"""Which nodes random walks with restarts from a node visit most, over edges before its cut: kernels.

A walk makes traversals: one is a path of relations, against their messages, from a node to one of the type that counts.
Walks of a node go side by side, step by step, so that their reads of memory overlap. What is drawn depends on the key,
the cut, the node and the number of the walk, on nothing else, and a step depends on the edges before the cut alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from configs.errors import RecipeError
from configs.matching import did_you_mean
from tasks.sampling.neighborhoods.fast_random import STEP, below, output, stream
from tasks.sampling.relational.edges import RelationalEdges
from tasks.storage.graph_store import GraphStore


@njit(inline="always")
def _count_before(times, low, size, cut):  # type: ignore[no-untyped-def]
    """Return how many of an ascending slot's times are before the cut."""
    if size == 0 or times[low + size - 1] < cut:
        return size
    first, last = np.int64(0), size - 1
    while first < last:
        middle = (first + last) >> 1
        if times[low + middle] < cut:
            first = middle + 1
        else:
            last = middle
    return first


@njit(cache=True, nogil=True)
def _follow(column, at, states, alive, slot_start, indptr, times, entries, cut):  # type: ignore[no-untyped-def]
    """Take each walk an edge further; one that sees none is over: at = -1.

    `column[w]` says by which slot of its node walk w goes on, below 0: it stays where it is.
    """
    num_walks = len(at)
    for w in range(num_walks):
        if alive[w] and column[w] >= 0:
            at[w] = slot_start[at[w]] + column[w]
    for w in range(num_walks):
        if alive[w] and column[w] >= 0:
            low = indptr[at[w]]
            size = indptr[at[w] + 1] - low
            if times is not None:
                size = _count_before(times, low, size, cut)
            states[w] += STEP
            alive[w] = size > 0
            at[w] = low + below(states[w], size) if size > 0 else -1
    for w in range(num_walks):
        if alive[w] and column[w] >= 0:
            at[w] = entries[2 * at[w]]


@njit(inline="always")
def _count_visit(node, base, table, visited, counts, num_visited):  # type: ignore[no-untyped-def]
    """Count a visit; return how many nodes were visited so far. `table`: as in `numbering`."""
    mask = np.uint64(len(table) // 2 - 1)
    place = 2 * np.int64(output(np.uint64(node)) & mask)
    while table[place + 1] >= base and table[place] != node:
        place = (place + 2) & (len(table) - 1)
    if table[place + 1] < base:
        table[place], table[place + 1] = node, base + num_visited
        visited[num_visited], counts[num_visited] = node, 0
        num_visited += 1
    counts[table[place + 1] - base] += 1
    return num_visited


@njit(inline="always")
def _take_most(counts, num_visited, most, best):  # type: ignore[no-untyped-def]
    """Fill best with the places of the `most` largest counts, of equal ones those visited first; return how many."""
    size = np.int64(0)
    for i in range(num_visited):
        if size == most and counts[i] <= counts[best[most - 1]]:
            continue
        place = size if size < most else most - 1
        while place > 0 and counts[best[place - 1]] < counts[i]:
            best[place] = best[place - 1]
            place -= 1
        best[place] = i
        size = min(size + 1, most)
    return size


@njit(cache=True, nogil=True)
def most_visited(  # type: ignore[no-untyped-def]
    nodes, cut_numbers, cuts, cut_keys, slot_start, edge_indptr, times, entries, first, again, options,
    indptr, ids, weights,
):  # fmt: skip
    """Fill indptr int64 (n + 1,), ids and weights float32 with each node's most visited nodes and their shares.

    Args:
        nodes: (n,), all of one type.
        cut_numbers: int32 (n,), the nodes' cuts; None: all have cuts[0].
        cuts: (C,), as the clock keeps them.
        cut_keys: uint64 (C,), by cut what draws depend on.
        slot_start, edge_indptr, times: of `RelationalEdges`; times None: all edges count.
        entries: (2 * E,), its sources and positions.
        first: int64 (P, L), paths of a walk's first traversal as slots of the nodes passed; -1 behind a shorter one.
        again: int64 (Q, M), of the further ones.
        options: walks, traversals a walk at most, the chance of a restart after each as a uint64 over 2^64, and how
            many nodes are kept.
        indptr, ids, weights: filled; ids and weights have room for all that are kept.
    """
    num_walks, length, restart, most = options
    at, column = np.empty(num_walks, np.int64), np.empty(num_walks, np.int64)
    path, states = np.empty(num_walks, np.int64), np.empty(num_walks, np.uint64)
    alive = np.empty(num_walks, np.bool_)
    room = 16
    while room < 2 * num_walks * length:
        room *= 2
    table, base = np.zeros(2 * room, np.int64), np.int64(1)
    visited, counts = np.empty(num_walks * length, np.int64), np.empty(num_walks * length, np.int64)
    best = np.empty(most, np.int64)
    indptr[0] = filled = np.int64(0)
    for i in range(len(nodes)):
        c = 0 if cut_numbers is None else cut_numbers[i]
        node, num_visited = np.int64(nodes[i]), np.int64(0)
        key = stream(cut_keys[c], node)
        for w in range(num_walks):
            at[w], alive[w], states[w] = node, True, stream(key, w)
        for traversal in range(length):
            paths = first if traversal == 0 else again
            for w in range(num_walks):
                path[w] = 0
                if len(paths) > 1:
                    states[w] += STEP
                    path[w] = below(states[w], len(paths))
            for step in range(paths.shape[1]):
                for w in range(num_walks):
                    column[w] = paths[path[w], step]
                _follow(column, at, states, alive, slot_start, edge_indptr, times, entries, cuts[c])
            num_alive = 0
            for w in range(num_walks):
                if alive[w]:
                    if at[w] != node:
                        num_visited = _count_visit(at[w], base, table, visited, counts, num_visited)
                    states[w] += STEP
                    alive[w] = output(states[w]) >= restart
                    num_alive += alive[w]
            if num_alive == 0:
                break
        size, total = _take_most(counts, num_visited, most, best), 0
        base += num_visited
        for j in range(size):
            total += counts[best[j]]
        for j in range(size):
            ids[filled + j] = visited[best[j]]
            weights[filled + j] = counts[best[j]] / total
        filled += size
        indptr[i + 1] = filled


Path = tuple[int, ...]
"""Places in `RelationalEdges.relations`; each relation is walked from its target to its source."""


def paths_back(edges: RelationalEdges, kind: int, named: Sequence[Sequence[str]] = ()) -> list[Path]:
    """Return the paths from a type's rows to others of it: those that are named, else the shortest there are.

    These are its relations to itself, and all ways there and back by another row that have more than one end; of rows
    that belong to one of the type alone (an order of a customer), by what they have in common with others of their kind
    (a product).
    Raises RecipeError.
    """
    name = edges.node_types[kind]
    if named:
        return [_named(edges, path, kind) for path in named]
    paths: list[Path] = []
    for out in edges.into[kind]:
        there = edges.relations[out].source
        if there == kind:  # a row that it names itself
            paths.append((out,))
            continue
        for back in edges.into[there]:
            if edges.relations[back].source != kind:
                continue
            if _is_many(edges, back):
                paths.append((out, back))
            else:
                paths += [(out, *middle, back) for middle in _around(edges, there, kind)]
    if not paths:
        raise RecipeError(
            f"no keys lead from one row of {name} to another: walks (model.walks) have nowhere to go. Take "
            "model.name=heterosage, or name the way: model.walks.paths=[[RELATION, RELATION]]"
        )
    return sorted(paths)


def _around(edges: RelationalEdges, kind: int, besides: int) -> list[Path]:
    """Return the ways from rows to others of their kind by rows of a third type."""
    paths: list[Path] = []
    for out in edges.into[kind]:
        there = edges.relations[out].source
        if there in (kind, besides):
            continue
        ways = [back for back in edges.into[there] if edges.relations[back].source == kind and _is_many(edges, back)]
        paths += [(out, back) for back in ways]
    return paths


def _is_many(edges: RelationalEdges, place: int) -> bool:
    """Whether some row has several edges of a relation."""
    relation = edges.relations[place]
    nodes = np.flatnonzero(edges.node_type == relation.target)
    slots = edges.slot_start[nodes] + edges.into[relation.target].index(place)
    return bool((edges.indptr[slots + 1] - edges.indptr[slots] > 1).any())


def _named(edges: RelationalEdges, path: Sequence[str], kind: int) -> Path:
    """Return the places of a path's relations. Raises RecipeError: there is none, or they do not fit together."""
    where, names = "model.walks.paths", [relation.name for relation in edges.relations]
    at, relations = kind, []
    for name in path:
        if name not in names:
            raise RecipeError(
                f"{where}: there is no relation {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}"
            )
        place = names.index(name)
        if edges.relations[place].target != at:
            fitting = [names[i] for i in edges.into[at]]
            raise RecipeError(
                f"{where}: {name} does not lead on from a row of {edges.node_types[at]}: walks follow relations from "
                f"their targets to their sources; those that do are {', '.join(fitting) or 'none'}"
            )
        relations.append(place)
        at = edges.relations[place].source
    if at != kind:
        raise RecipeError(
            f"{where}: {' - '.join(path)} ends at a row of {edges.node_types[at]}; it has to end at one of "
            f"{edges.node_types[kind]}"
        )
    return tuple(relations)


def history_paths(store: GraphStore, edges: RelationalEdges) -> tuple[Path, Path]:
    """Return the relation from entities to what they were linked to, and the way from a candidate to another by it."""
    ranking = store.manifest.ranking
    assert ranking is not None
    source, relation, target = ranking.history.split("__", 2)
    reverse = f"{target}__rev_{relation}__{source}"
    names = [one.name for one in edges.relations]
    if reverse not in names:
        raise RecipeError(
            f"walks go along {ranking.history} and back, and the prepared graph has no {reverse}; set "
            "preprocess.symmetrize=true"
        )
    there, back = names.index(ranking.history), names.index(reverse)
    if ranking.history_is_reversed:  # from candidates to entities
        there, back = back, there
    # Walks go against messages: an entity's candidates are the sources of the relation that leads to it.
    return (back,), (there, back)


def as_columns(edges: RelationalEdges, paths: Sequence[Path]) -> np.ndarray:
    """Return paths as slots of the nodes that are passed, int64 (P, L), -1 behind a shorter one."""
    columns = np.full((len(paths), max(map(len, paths))), -1, np.int64)
    for i, path in enumerate(paths):
        columns[i, : len(path)] = [edges.into[edges.relations[place].target].index(place) for place in path]
    return columns
