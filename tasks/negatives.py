"""Negative pairs to evaluate links against: drawn uniformly, and none of them an edge of any split.

In a dense graph many uniform pairs are edges, and a model that knows them would be told that it is wrong. (Negatives
that a model trains on are drawn in `tasks/train/loaders/links/negatives.py`: those know nothing of what is held out.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.counter_random import below
from tasks.pair_set import PairSet
from tasks.sizes import BYTES_A_PAIR, need_memory
from tasks.storage.graph_store import id_dtype, slices
from tasks.storage.manifests import SPLITS

Array = NDArray[Any]
Pairs = Callable[[], Iterator[tuple[Array, Array]]]
"""Returns all edges anew, in chunks of sources and targets."""
GetArray = Callable[[str], Array | None]
"""Returns an array of a graph by name, or None (`GraphStore.get`)."""

NEGATIVE = 17
"""Stream of random numbers (`tasks/counter_random.py`)."""
_ROUNDS = 32
_CHUNK_ROWS = 1 << 20
_IS_EDGE = 1
_STREAMS_A_ROUND = 1000


def draw_negatives(
    split: int,
    src: Array,
    dst: Array,
    num_nodes: int,
    seed: int,
    edges: Pairs,
    *,
    directed: bool,
    keep_src: bool = False,
) -> Array:
    """Fill in pairs of different nodes that are no edges; return the places of those that still are after 32 draws.

    (Their nodes are joined to nearly all others.) Memory: some 40 bytes a pair and a chunk of edges, which are read
    once a round.

    Args:
        split: number of the split, which has pairs of its own.
        src: id (n,), filled; with `keep_src` read.
        dst: id (n,), filled.
        num_nodes: ends are below.
        seed: of the draws.
        edges: those of all splits.
        directed: whether the reverse of an edge is none.
        keep_src: draw targets only.
    """
    places = np.arange(len(src))
    for number in range(_ROUNDS):
        _draw(split, number, places, src, dst, num_nodes, seed, keep_src)
        places = places[among_edges(src[places], dst[places], num_nodes, edges, directed=directed)]
        if not len(places):
            break
    return places


def draw_pool(
    split: int, count: int, num_nodes: int, seed: int, edges: Pairs, *, directed: bool = False, path: object = None
) -> dict[str, Array]:
    """Return up to `count` pairs of different nodes that are no edges, `src` and `dst`, id (n,) each.

    Fewer where the graph has hardly any others. The arguments are those of `draw_negatives`; `path` names the graph.
    Raises DataError where
    nearly all pairs are edges, RecipeError where so many take more memory than there is.
    """
    need_memory(
        BYTES_A_PAIR * count, f"drawing {count:,} negative pairs", "set dataset.num_negatives lower, or hold out less"
    )
    src, dst = (np.empty(count, id_dtype(num_nodes)) for _ in range(2))
    left = draw_negatives(split, src, dst, num_nodes, seed, edges, directed=directed)
    if len(left) == count:
        raise DataError(
            "nearly all pairs of nodes are edges: there are no others to rank them against; leave out the edges that "
            "mean least (those of low weight, say), or give nodes labels and predict those",
            path=path,
        )
    return {"src": np.delete(src, left), "dst": np.delete(dst, left)}


@njit(cache=True, nogil=True)
def _draw(split, number, places, src, dst, num_nodes, seed, keep_src):  # type: ignore[no-untyped-def]
    stream = NEGATIVE + _STREAMS_A_ROUND * number
    for i in places:
        counter = 2 * (split * (np.int64(1) << np.int64(40)) + i)
        u = np.int64(src[i]) if keep_src else below(seed, stream, counter, num_nodes)
        v = below(seed, stream, counter + 1, num_nodes - 1)
        src[i], dst[i] = u, v if v < u else v + 1


def among_edges(src: Array, dst: Array, num_nodes: int, edges: Pairs, *, directed: bool) -> Array:
    """Return which pairs (n,) are edges, without `directed` in either direction: bool (n,)."""
    wanted = PairSet(len(src), num_nodes, directed=directed)
    wanted.add(src, dst, 0)
    for ends in edges() if len(src) else ():
        wanted.mark(*ends, _IS_EDGE)
    return wanted.marks(src, dst) == _IS_EDGE


def split_pairs(get: GetArray) -> Pairs:
    """Return the reader of the edges of all splits of a link task's graph."""

    def read() -> Iterator[tuple[Array, Array]]:
        for split in SPLITS:
            pairs = get(f"{split}_edges")
            for part in slices(0 if pairs is None else len(pairs), _CHUNK_ROWS):
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
        for part in slices(len(indices), _CHUNK_ROWS):
            yield indices[part], np.searchsorted(indptr, np.arange(part.start, part.stop), side="right") - 1

    return read


def replace_gone(candidates: Array) -> tuple[NDArray[np.bool_], Array]:
    """Replace candidates, id (n, K, 2) with -1 for ends that are gone, by the next one of their row that is there.

    Returns:
        bool (n,), which rows have one that is there, and those rows, id (m, K, 2).
    """
    valid: NDArray[np.bool_] = np.all(candidates >= 0, axis=2)
    stay: NDArray[np.bool_] = np.any(valid, axis=1)
    candidates, valid = candidates[stay], valid[stay]
    num_candidates = candidates.shape[1]
    # Place of the next valid one, cyclically: a running minimum from the end over two copies of the row.
    place = np.where(np.concatenate([valid, valid], 1), np.arange(2 * num_candidates), 2 * num_candidates)
    following = np.minimum.accumulate(place[:, ::-1], axis=1)[:, ::-1][:, :num_candidates] % num_candidates
    return stay, np.take_along_axis(candidates, following[:, :, None], axis=1)
