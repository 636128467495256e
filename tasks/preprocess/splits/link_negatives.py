"""Pairs that held-out links are ranked against: given ones are checked, missing ones drawn."""

from __future__ import annotations

import numpy as np

from tasks.arrays import Array, blocks
from tasks.negatives import among_edges, draw_pool, graph_pairs, split_pairs
from tasks.preprocess.transforms.graph_view import GraphView
from tasks.stage import StageContext
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS

_SEED = 0
_CHECKED_AT_ONCE = 1 << 24  # pairs; some 40 bytes each


def complete_negatives(context: StageContext, graph: GraphView, writer: ArrayWriter, *, directed: bool) -> None:
    """Draw negatives for splits that have none, as many as edges; warn of given ones that are edges of a split.

    Drawn ones are edges of no split, and none that carries messages; `directed`: the reverse of an edge is none. Given
    ones stay as they are.

    Raises:
        DataError: nearly all pairs of nodes are edges.
    """
    for code, split in enumerate(SPLITS[1:]):
        given = graph.get(f"{split}_negative")
        if given is None:
            edges = graph_pairs(graph.get)
            pool = draw_pool(code, len(graph[f"{split}_edges"]), graph.num_nodes, _SEED, edges, directed=directed)
            writer.write(f"{split}_negative", np.stack([pool["src"], pool["dst"]], 1))
        elif known := _count_known(given.reshape(-1, 2), graph, directed=directed):
            context.warn(
                f"{known:,} of {given.size // 2:,} given negatives of the {split} split are edges of the training, "
                "validation or test split: whoever ranks those high is told to be wrong"
            )


def _count_known(pairs: Array, graph: GraphView, *, directed: bool) -> int:
    """Return how many pairs (n, 2) are edges of any split."""
    edges, count = split_pairs(graph.get), 0
    for rows in blocks(len(pairs), _CHECKED_AT_ONCE):
        src, dst = pairs[rows, 0], pairs[rows, 1]
        count += int(np.count_nonzero(among_edges(src, dst, graph.num_nodes, edges, directed=directed)))
    return count
