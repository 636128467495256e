"""Negative pairs to evaluate links against: drawn uniformly, and none of them an edge of any split.

In a dense graph many uniform pairs are edges, and a model that knows them would be told that it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numba import njit
from numpy.typing import NDArray

from tasks.ingest.counter_random import below
from tasks.ingest.generator import NEGATIVE, SPLITS
from tasks.ingest.writer import DatasetWriter

Array = NDArray[Any]
Pairs = Callable[[], Iterator[tuple[Array, Array]]]
"""Returns all edges anew, in chunks of sources and targets."""

_ROUNDS = 32
_NEXT_ROUND = 1000  # streams of two rounds are so far apart


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
) -> None:
    """Fill in pairs of different nodes that are no edges.

    What is still an edge after 32 draws stays: such a node has hardly any others. Memory: some 40 bytes a
    pair and a chunk of edges, which are read once a round.

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
            return


@njit(cache=True, nogil=True)
def _draw(split, number, places, src, dst, num_nodes, seed, keep_src):  # type: ignore[no-untyped-def]
    stream = NEGATIVE + _NEXT_ROUND * number
    for i in places:
        counter = 2 * (split * (np.int64(1) << np.int64(40)) + i)
        u = np.int64(src[i]) if keep_src else below(seed, stream, counter, num_nodes)
        v = below(seed, stream, counter + 1, num_nodes - 1)
        src[i], dst[i] = u, v if v < u else v + 1


def _pair_numbers(src: Array, dst: Array, num_nodes: int, directed: bool) -> Array:
    """Return a number for each pair, int64 (n,); without directions both ways have the same."""
    first, second = src.astype(np.int64), dst.astype(np.int64)
    if not directed:
        first, second = np.minimum(first, second), np.maximum(first, second)
    return first * num_nodes + second


def among_edges(src: Array, dst: Array, num_nodes: int, edges: Pairs, *, directed: bool) -> Array:
    """Return which pairs (n,) are edges, without `directed` in either direction: bool (n,)."""
    wanted, place = np.unique(_pair_numbers(src, dst, num_nodes, directed), return_inverse=True)
    met = np.zeros(len(wanted), np.bool_)
    for ends in edges() if len(wanted) else ():
        found = _pair_numbers(*ends, num_nodes, directed)
        at = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
        met[at[wanted[at] == found]] = True
    return met[place]


def written_pairs(writer: DatasetWriter) -> Pairs:
    """Return the reader of the edges of all splits, whose tables are closed."""

    def read() -> Iterator[tuple[Array, Array]]:
        for split in SPLITS:
            for path in sorted((writer.folder / "split" / split).glob("*.parquet")):
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        rows = file.read_row_group(group, columns=["src", "dst"])
                        yield rows["src"].to_numpy(), rows["dst"].to_numpy()

    return read
