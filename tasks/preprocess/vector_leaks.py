"""Whether vectors that come as features know what is held out here: their training is asked what it saw.

A leak is a held-out pair that carried messages or trained there, a held-out node's label that trained there or (test)
chose the checkpoint, and data as of a later moment. What the vectors' own model took as features counts as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from configs.errors import RecipeError
from configs.moments import TimeUnit, last_time
from tasks.arrays import blocks
from tasks.pair_set import PairSet
from tasks.preprocess.transforms.base import GraphView
from tasks.preprocess.transforms.configs import EmbeddingConfig
from tasks.preprocess.transforms.vectors import NodeVectors
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS
from tasks.storage.split_rows import SplitRows

_CHUNK_ROWS = 1 << 20
_HELD_OUT, _TRAINS, _SEEN = 1, 2, 4


@dataclass(frozen=True)
class HeldOutHere:
    """What a recipe holds out."""

    recipe: str
    rows: SplitRows
    directed: bool
    """Link tasks: whether a pair and its reverse are two."""
    as_of: str | None
    unit: TimeUnit
    """Of `as_of`."""


class Leak(NamedTuple):
    """Something that the vectors know."""

    what: str
    way_out: str


def take_vectors(
    context: StageContext, config: EmbeddingConfig, graph: GraphView, held_out: HeldOutHere
) -> dict[str, Any]:
    """Check the vectors that a transform takes, say how many nodes have one, and return that for the report.

    `graph` has the splits. Raises RecipeError: they leak, or too few nodes have one.
    """
    vectors = NodeVectors(str(config.model), str(config.vectors), graph)
    num_found, num_nodes = vectors.check_coverage(config.most_missing)
    missing = num_nodes - num_found
    without = f"; {missing:,} ({missing / num_nodes:.1%}) have none and get zeros" if missing else ""
    context.message(f"vectors of {vectors.name}: {num_found:,} of {num_nodes:,} nodes{without}")
    taken: dict[str, Any] = {"model": vectors.name, "recipe": vectors.manifest.recipe, "dim": vectors.manifest.dim}
    taken |= {"nodes": num_nodes, "with_vector": num_found, "leak": ""}
    if not config.checks_leaks:
        return taken
    leaks = list(_all_leaks(vectors, graph, held_out))
    if leaks and not config.allow_leak:
        ways = "; ".join(dict.fromkeys(leak.way_out for leak in leaks))
        raise RecipeError(
            f"preprocess.transforms: embedding: the vectors of {vectors.name} (recipe {vectors.manifest.recipe}) know "
            f"what {held_out.recipe} holds out: {'; '.join(leak.what for leak in leaks)}. {ways}; or, if that is "
            "wanted, allow_leak: true in the transform, and the report says so"
        )
    if leaks:
        taken["leak"] = "; ".join(leak.what for leak in leaks)
        context.warn(f"the vectors of {vectors.name} leak, which allow_leak allows: {taken['leak']}")
    return taken


def _all_leaks(vectors: NodeVectors, graph: GraphView, held_out: HeldOutHere) -> Iterator[Leak]:
    """Yield what the vectors know, and what those know that they were learnt from."""
    yield from _leaks(vectors, graph, held_out)
    for name, key in vectors.manifest.sources.items():
        for leak in _all_leaks(NodeVectors(name, key, graph), graph, held_out):
            yield Leak(f"{leak.what} (by {name}, whose vectors are features of {vectors.name})", leak.way_out)


def _leaks(vectors: NodeVectors, graph: GraphView, held_out: HeldOutHere) -> Iterator[Leak]:
    model = vectors.name.partition("@")[0]
    theirs, here = vectors.manifest.as_of, held_out.as_of
    if here is not None and _is_later(theirs, here, held_out.unit):
        data = "data of all times" if theirs is None else f"data as of {theirs}"
        what = f"its training saw {data}, and here it is as of {here}"
        yield Leak(what, f"Train {model} with snapshot.as_of={here}")
    if held_out.rows.are_links:
        seen, pairs = count_pairs(vectors, graph, held_out)
        if seen:
            yield Leak(
                f"its training saw {seen:,} of the {pairs:,} pairs that are held out",
                f"Train {model} with the same split: with this recipe's dataset section (and snapshot)",
            )
    if held_out.rows.are_nodes:
        num_read, nodes = count_labels(vectors, graph)
        if num_read:
            yield Leak(
                f"its training read the labels of {num_read:,} of the {nodes:,} nodes that are held out",
                f"Train {model} with the same split of the nodes, or take one that reads no labels, such as deepwalk",
            )


def _is_later(theirs: str | None, here: str, unit: TimeUnit) -> bool:
    """Whether a moment, None for all times, lies behind another one; of moments that do not compare, any other does."""
    if theirs is None:
        return True
    try:
        return last_time(theirs, unit) > last_time(here, unit)
    except RecipeError:
        return theirs != here


def count_pairs(vectors: NodeVectors, graph: GraphView, held_out: HeldOutHere) -> tuple[int, int]:
    """Return how many of the pairs that are held out the vectors' training saw, and how many there are.

    Pairs that train here too (of OGB's data, and of snapshots) are not held out.
    """
    directed = held_out.directed and vectors.manifest.directed
    splits = {split: graph[f"{split}_edges"] for split in SPLITS}
    pairs = PairSet(sum(len(splits[split]) for split in SPLITS[1:]), graph.num_nodes, directed=directed)
    for split in SPLITS[1:]:
        pairs.add(splits[split][:, 0], splits[split][:, 1], _HELD_OUT)
    for rows in blocks(len(splits["train"]), _CHUNK_ROWS):
        some = np.asarray(splits["train"][rows])
        pairs.mark(some[:, 0], some[:, 1], _TRAINS)
    for edges in vectors.array(vectors.manifest.edges):
        there = (edges >= 0).all(1)
        pairs.mark(edges[there, 0], edges[there, 1], _SEEN)
    src, dst = pairs.pairs(without=_TRAINS)
    return int(np.count_nonzero(pairs.marks(src, dst) & _SEEN)), len(src)


def count_labels(vectors: NodeVectors, graph: GraphView) -> tuple[int, int]:
    """Return of how many held-out nodes the vectors' training read the labels, and how many are held out."""
    valid, test = (np.asarray(graph[f"{split}_idx"], np.int64) for split in SPLITS[1:])
    trained, chosen = np.zeros((2, graph.num_nodes), np.bool_)
    for mask, file in ((trained, vectors.manifest.trained), (chosen, vectors.manifest.chosen)):
        for nodes in vectors.array(file):
            mask[nodes[nodes >= 0]] = True
    num_read = np.count_nonzero(trained[valid]) + np.count_nonzero((trained | chosen)[test])
    return int(num_read), len(valid) + len(test)
