"""Negative pairs to evaluate links against: drawn uniformly from what could be an edge, and none of them is one.

In a dense graph many uniform pairs are edges, and a model that knows them would be told that it is wrong. (Negatives
that a model trains on are drawn in `tasks/sampling/negatives.py`: those know nothing of what is held out.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.counter_random import below
from tasks.edge_ends import ANY, EdgeEnds, GetArray, Pairs, are_never_joined, end_at, never_joined
from tasks.pair_set import PairSet
from tasks.sizes import BYTES_A_PAIR, need_memory
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import LEFT_OUT, SPLITS

NEGATIVE = 17
"""Stream of random numbers (`tasks/counter_random.py`)."""
_ROUNDS = 32
_MOST_ROUNDS = 3 * _ROUNDS
_CHUNK_ROWS = 1 << 20
_IS_EDGE = 1
_STREAMS_A_ROUND = 1000
_TRIES = 8
"""To find two ends that can be joined, before edges are looked at: each fails half of the time in a bipartite graph."""


def draw_negatives(
    split: int,
    src: Array,
    dst: Array,
    num_nodes: int,
    seed: int,
    edges: Pairs,
    *,
    directed: bool,
    ends: EdgeEnds = ANY,
    keep_src: bool = False,
) -> Array:
    """Fill in pairs that could be edges and are none; return the places where hundreds of draws gave none.

    `src` and `dst`, id (n,), are filled; with `keep_src` sources are read, but where one is joined to all targets.
    `split`: its number, each has pairs of its own; `edges`: those of all splits; `directed`: the reverse of an edge is
    none; `ends`: what can be joined. Memory: some 40 bytes a pair and a chunk of edges, which are read once a round.
    """
    places = np.arange(len(src))
    last = _ROUNDS * (2 if keep_src else 1)
    for number in range(last + _ROUNDS):
        if number == last:
            if not len(ends.sources) and not len(ends.targets):
                break
            ends = ends.wider(num_nodes)
        _draw(split, number, places, src, dst, num_nodes, seed, ends, keep_src and number < _ROUNDS)
        drawn = src[places], dst[places]
        wrong = among_edges(*drawn, num_nodes, edges, directed=directed) | are_never_joined(*drawn, ends.side)
        places = places[wrong]
        if not len(places):
            break
    return places


def draw_pool(
    split: int,
    count: int,
    num_nodes: int,
    seed: int,
    edges: Pairs,
    *,
    directed: bool = False,
    ends: EdgeEnds = ANY,
    path: object = None,
) -> dict[str, Array]:
    """Return up to `count` pairs that could be edges and are none, `src` and `dst`, id (n,) each.

    Fewer where the graph has hardly any others. The arguments are those of `draw_negatives`; `path` names the graph.
    Raises DataError where nearly all pairs are edges, RecipeError where so many take more memory than there is.
    """
    need_memory(
        BYTES_A_PAIR * count, f"drawing {count:,} negative pairs", "set dataset.num_negatives lower, or hold out less"
    )
    src, dst = (np.empty(count, id_dtype(num_nodes)) for _ in range(2))
    left = draw_negatives(split, src, dst, num_nodes, seed, edges, directed=directed, ends=ends)
    if len(left) == count:
        raise no_others(path)
    return {"src": np.delete(src, left), "dst": np.delete(dst, left)}


def draw_candidates(
    split: int,
    sources: Array,
    count: int,
    num_nodes: int,
    seed: int,
    edges: Pairs,
    *,
    directed: bool,
    ends: EdgeEnds = ANY,
    path: object = None,
) -> Array:
    """Return `count` pairs for each source (n,) that could be edges and are none: id (n, count, 2).

    The source stays, but where it is joined to all targets. The arguments are those of `draw_negatives`. Raises
    DataError where nearly all pairs are edges, RecipeError where so many take more memory than there is.
    """
    total = len(sources) * count
    need_memory(BYTES_A_PAIR * total, f"drawing {total:,} candidates", "set dataset.candidates lower, or hold out less")
    src = np.repeat(np.asarray(sources), count)
    dst = np.empty_like(src)
    if len(draw_negatives(split, src, dst, num_nodes, seed, edges, directed=directed, ends=ends, keep_src=True)):
        raise no_others(path)
    return np.stack([src, dst], 1).reshape(-1, count, 2)


def no_others(path: object = None) -> DataError:
    """Return the error of a graph in which there is nothing to rank edges against."""
    return DataError(
        "nearly all pairs of nodes are edges, of those that could be one: there are no others to rank them against; "
        "leave out the edges that mean least (those of low weight, say), or give nodes labels and predict those",
        path=path,
    )


@njit(cache=True, nogil=True)
def _draw(split, number, places, src, dst, num_nodes, seed, ends, keep_src):  # type: ignore[no-untyped-def]
    num_sources, num_targets = len(ends.sources), len(ends.targets)
    for i in places:
        counter = 2 * (split * (np.int64(1) << np.int64(40)) + i)
        for t in range(_TRIES):
            stream = NEGATIVE + _STREAMS_A_ROUND * (number + _MOST_ROUNDS * t)
            u = np.int64(src[i])
            if not keep_src:
                u = end_at(ends.sources, below(seed, stream, counter, num_sources if num_sources else num_nodes))
            if num_targets:
                v = end_at(ends.targets, below(seed, stream, counter + 1, num_targets))
            else:  # all but the source, which has no edge to itself
                v = np.int64(below(seed, stream, counter + 1, num_nodes - 1))
                v += v >= u
            src[i], dst[i] = u, v
            if not never_joined(ends.side, u, v):
                break


def among_edges(src: Array, dst: Array, num_nodes: int, edges: Pairs, *, directed: bool) -> Array:
    """Return which pairs (n,) are edges, without `directed` in either direction: bool (n,)."""
    pairs = PairSet(len(src), num_nodes, directed=directed)
    pairs.add(src, dst, 0)
    for ends in edges() if len(src) else ():
        pairs.mark(*ends, _IS_EDGE)
    return pairs.marks(src, dst) == _IS_EDGE


def split_pairs(get: GetArray, splits: Sequence[str] = (*SPLITS, LEFT_OUT)) -> Pairs:
    """Return the reader of the edges of some splits of a link task's graph, or of all and of none."""

    def read() -> Iterator[tuple[Array, Array]]:
        for split in splits:
            pairs = get(f"{split}_edges")
            for part in blocks(0 if pairs is None else len(pairs), _CHUNK_ROWS):
                assert pairs is not None
                yield pairs[part, 0], pairs[part, 1]

    return read


def graph_pairs(get: GetArray) -> Pairs:
    """Return the reader of the edges of all splits, and of those that carry messages, which may be more."""

    def read() -> Iterator[tuple[Array, Array]]:
        yield from split_pairs(get)()
        indptr, indices = get("csc_indptr"), get("csc_indices")
        assert indptr is not None
        assert indices is not None
        for part in blocks(len(indices), _CHUNK_ROWS):
            yield indices[part], np.searchsorted(indptr, np.arange(part.start, part.stop), side="right") - 1

    return read


def replace_gone(candidates: Array) -> tuple[NDArray[np.bool_], Array]:
    """Replace candidates, id (n, K, 2) with -1 for ends that are gone, by the next one of their row that is there.

    Return bool (n,), which rows have one that is there, and those rows, id (m, K, 2).
    """
    valid: NDArray[np.bool_] = np.all(candidates >= 0, axis=2)
    stay: NDArray[np.bool_] = np.any(valid, axis=1)
    candidates, valid = candidates[stay], valid[stay]
    num_candidates = candidates.shape[1]
    # Place of the next valid one, cyclically: a running minimum from the end over two copies of the row.
    place = np.where(np.concatenate([valid, valid], 1), np.arange(2 * num_candidates), 2 * num_candidates)
    following = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1][:, :num_candidates] % num_candidates
    return stay, np.take_along_axis(candidates, following[:, :, None], axis=1)
