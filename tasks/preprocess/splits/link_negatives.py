"""Pairs that held-out links are ranked against: given ones are checked, missing ones drawn."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.arrays import Array, blocks
from tasks.negatives import Pairs, among_edges, draw_pool, graph_pairs, split_pairs
from tasks.preprocess.transforms.graph_view import GraphView
from tasks.stage import StageContext
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS

_SEED = 0
_CHECKED_AT_ONCE = 1 << 24  # pairs; some 40 bytes each


def complete_negatives(
    context: StageContext, graph: GraphView, writer: ArrayWriter, *, directed: bool, may_be_edges: bool = False
) -> None:
    """Draw negatives for splits that have none, as many as edges; warn of given ones that are edges of a split.

    Drawn ones are edges of no split, and none that carries messages; `directed`: the reverse of an edge is none. Given
    ones stay as they are; `may_be_edges`: they are meant to be edges at other times.

    Raises:
        DataError: nearly all pairs of nodes are edges.
    """
    for code, split in enumerate(SPLITS[1:]):
        given = graph.get(f"{split}_negative")
        if given is None:
            edges = graph_pairs(graph.get)
            pool = draw_pool(code, len(graph[f"{split}_edges"]), graph.num_nodes, _SEED, edges, directed=directed)
            writer.write(f"{split}_negative", np.stack([pool["src"], pool["dst"]], 1))
        elif may_be_edges:
            continue
        elif known := _count_known(given.reshape(-1, 2), graph, graph.get(f"{split}_negative_relation"), directed):
            context.warn(
                f"{known:,} of {given.size // 2:,} given negatives of the {split} split are edges of the training, "
                "validation or test split: whoever ranks those high is told to be wrong"
            )


def _count_known(pairs: Array, graph: GraphView, relation: Array | None, directed: bool) -> int:
    """Return how many pairs (n, 2) are edges of any split; of their own relation (n,), where they name one."""
    if relation is not None:
        numbers = np.unique(relation)
        return sum(_count_among(pairs[relation == r], graph, _pairs_of(graph, int(r)), directed) for r in numbers)
    return _count_among(pairs, graph, split_pairs(graph.get), directed)


def _count_among(pairs: Array, graph: GraphView, edges: Pairs, directed: bool) -> int:
    count = 0
    for rows in blocks(len(pairs), _CHECKED_AT_ONCE):
        src, dst = pairs[rows, 0], pairs[rows, 1]
        count += int(np.count_nonzero(among_edges(src, dst, graph.num_nodes, edges, directed=directed)))
    return count


def _pairs_of(graph: GraphView, relation: int) -> Pairs:
    """Return the reader of the edges of all splits in a relation."""

    def read() -> Iterator[tuple[Array, Array]]:
        for split in SPLITS:
            pairs = graph[f"{split}_edges"]
            own = pairs[np.asarray(graph[f"{split}_relation"]) == relation]
            yield own[:, 0], own[:, 1]

    return read
