"""Pairs that links are ranked against: what they can be, given ones checked, missing ones drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tasks.arrays import Array, blocks
from tasks.edge_ends import Pairs, find_ends, write_ends
from tasks.negatives import among_edges, draw_candidates, draw_pool, graph_pairs, split_pairs
from tasks.preprocess.transforms.base import GraphView
from tasks.stage import StageContext
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS, DatasetManifest

_SEED = 0
_CHECKED_AT_ONCE = 1 << 24  # pairs; some 40 bytes each


def complete_negatives(
    context: StageContext,
    graph: GraphView,
    writer: ArrayWriter,
    manifest: DatasetManifest,
    *,
    directed: bool,
    names: Sequence[str] = (),
) -> list[str]:
    """Draw negatives for splits that have none, as many as edges; warn of given ones that are no negatives.

    Drawn ones could be edges (`tasks/edge_ends.py`), and are edges of no split and none that carries messages;
    `directed`: the reverse of an edge is none. Given ones stay as they are. What training draws from is written too, by
    the training edges alone.

    `names`: of the relations that links are predicted in. Returns what a negative joins, in words, for each of them.
    Raises DataError: nearly all pairs of nodes are edges.
    """
    num_nodes = graph.num_nodes
    ends = find_ends(split_pairs(graph.get), num_nodes, directed=manifest.directed)
    write_ends(find_ends(split_pairs(graph.get, ["train"]), num_nodes, directed=manifest.directed), num_nodes, writer)
    for code, split in enumerate(SPLITS[1:]):
        given = graph.get(f"{split}_negative")
        if given is None and not manifest.ranks_targets:
            positive = graph[f"{split}_edges"]
            edges = (split_pairs if manifest.has_context else graph_pairs)(graph.get)
            drawn: Any = (num_nodes, _SEED, edges)
            options: Any = {"directed": directed, "ends": ends}
            if manifest.num_candidates:
                negative = draw_candidates(code, positive[:, 0], manifest.num_candidates, *drawn, **options)
            else:
                pool = draw_pool(code, len(positive), *drawn, **options)
                negative = np.stack([pool["src"], pool["dst"]], 1)
            writer.write(f"{split}_negative", negative)
        elif given is not None and not manifest.negative_kinds:  # those of events are meant to be edges at other times
            pairs, relation = given.reshape(-1, 2), graph.get(f"{split}_negative_relation")
            num_edges = _count_edges(pairs, graph, relation, directed)
            if num_edges:
                context.warn(
                    f"{num_edges:,} of {len(pairs):,} given negatives of the {split} split are edges of the training, "
                    "validation or test split: a model that ranks them high is counted as wrong"
                )
            chunks = blocks(len(pairs), _CHECKED_AT_ONCE) if manifest.ogb_name is None else ()
            num_within = sum(
                int(np.count_nonzero(ends.within_a_side(pairs[rows, 0], pairs[rows, 1], num_nodes))) for rows in chunks
            )
            if num_within:
                context.warn(
                    f"{num_within:,} of {len(pairs):,} given negatives of the {split} split join nodes of one side of "
                    "the graph, which is bipartite: no edge does, and that alone tells them. Leave the negatives out, "
                    "and they are drawn from what could be an edge"
                )
    each = f", {manifest.num_candidates} for each held-out edge," if manifest.num_candidates else ""
    texts = [] if names else [f"negatives{each} join {ends.text(num_nodes)}"]
    for number, name in enumerate(names):
        ends = find_ends(_pairs_of(graph, number), num_nodes, directed=manifest.directed)
        texts.append(f"negatives of {name} join {ends.text(num_nodes)}")
    context.message("; ".join(texts))
    return texts


def _count_edges(pairs: Array, graph: GraphView, relation: Array | None, directed: bool) -> int:
    """Return how many pairs (n, 2) are edges of any split; of their own relation (n,), where they name one."""
    parts = [(pairs, split_pairs(graph.get))]
    if relation is not None:
        parts = [(pairs[relation == r], _pairs_of(graph, int(r))) for r in np.unique(relation)]
    count = 0
    for some, edges in parts:
        for rows in blocks(len(some), _CHECKED_AT_ONCE):
            is_edge = among_edges(some[rows, 0], some[rows, 1], graph.num_nodes, edges, directed=directed)
            count += int(np.count_nonzero(is_edge))
    return count


def _pairs_of(graph: GraphView, relation: int) -> Pairs:
    """Return the reader of the edges of all splits in a relation."""

    def read() -> Iterator[tuple[Array, Array]]:
        for split in SPLITS:
            pairs = graph[f"{split}_edges"]
            pairs = pairs[np.asarray(graph[f"{split}_relation"]) == relation]
            yield pairs[:, 0], pairs[:, 1]

    return read
