"""The targets that a link model ranks first for given sources, those that are joined already left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from models.base import GraphModel
from tasks.arrays import Array, blocks
from tasks.inference.predictor import Predictor
from tasks.inference.rule import Rule
from tasks.negatives import split_pairs

_PAIRS = 1 << 20
"""Scored at a time."""


class BestTargets(NamedTuple):
    """Lists of targets, the best first; a list ends where nothing else could be joined."""

    source: Array
    """int64 (n,): place among the sources that were asked about."""
    place: Array
    """int64 (n,): in the list, from 1."""
    target: Array
    """int64 (n,): nodes."""
    score: Array
    """float32 (n,)."""


def best_targets(
    predictor: Predictor, model: GraphModel, sources: Array, candidates: Array, k: int, *, directed: bool
) -> Iterator[BestTargets]:
    """Yield the `k` best of `candidates`, int64 (M,) ascending, for nodes `sources`, int64 (n,), some at a time.

    Left out are the source itself and what an edge of any split joins it to, without `directed` either way. Equal
    scores go by the candidates' numbers. Memory: some 12 bytes for each of a million pairs, and the known edges of the
    sources. Inside of `evaluating`.
    """
    num_nodes = predictor.store.manifest.num_nodes
    known = _known(predictor, np.unique(sources), num_nodes, directed=directed)
    vectors = None if isinstance(model, Rule) else predictor.node_vectors(model)
    for rows in blocks(len(sources), max(1, _PAIRS // max(1, len(candidates)))):
        some = np.asarray(sources[rows], np.int64)
        pairs = np.stack([np.repeat(some, len(candidates)), np.tile(candidates, len(some))], 1)
        scores = model.pair_scores(pairs) if isinstance(model, Rule) else predictor.pair_scores(model, vectors, pairs)
        is_known = np.isin(pairs[:, 0] * num_nodes + pairs[:, 1], known) | (pairs[:, 0] == pairs[:, 1])
        table = np.where(is_known, -np.inf, scores).reshape(len(some), len(candidates))
        order = np.argsort(-table, axis=1, kind="stable")[:, :k]
        best = np.take_along_axis(table, order, 1)
        row, place = np.nonzero(best > -np.inf)
        yield BestTargets(row + rows.start, place + 1, candidates[order[row, place]], best[row, place])


def _known(predictor: Predictor, sources: Array, num_nodes: int, *, directed: bool) -> Array:
    """Return source * num_nodes + target of the edges of these sources, int64 ascending; `directed`: one way only."""
    parts = [np.empty(0, np.int64)]
    for src, dst in split_pairs(predictor.store.get)():
        for first, second in ((src, dst),) if directed else ((src, dst), (dst, src)):
            own = np.isin(first, sources)
            parts.append(first[own].astype(np.int64) * num_nodes + second[own])
    return np.unique(np.concatenate(parts))
