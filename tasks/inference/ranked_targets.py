"""All targets of a link task's relation, ranked for its sources: what links are, and how a model scores them."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from models.base import GraphModel
from models.layers.output_heads import LinkHead
from tasks.arrays import Array, offsets
from tasks.evaluators.prediction import finite
from tasks.evaluators.ranked_rows import RankedRows
from tasks.inference.predictor import Predictor, evaluating
from tasks.inference.ranked import ranked_by
from tasks.inference.rule import Rule
from tasks.sampling.relational.links import RankedLinks
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import LEFT_OUT, SPLITS, RankingTask

_NOW = 1
"""Links have no times here: all are of moment 0."""


class TargetLinks(RankedLinks):
    """Links of sources, which are their own tasks: right are those of a split, known those of the others and of none.

    Candidates are all nodes of the targets' type; what a source is known to be joined to is none for it.
    """

    def __init__(self, store: GraphStore, split: str | None) -> None:
        """`split`: the one that is asked about; None: nothing is right, and all links are known."""
        manifest, size = store.manifest, store.manifest.num_nodes
        there = {name: store.get(f"{name}_edges") for name in (*SPLITS, LEFT_OUT)}
        pairs = {name: np.asarray(one, np.int64) for name, one in there.items() if one is not None}
        kinds = np.asarray(store["node_type"]) if "node_type" in store else np.zeros(size, np.int16)
        source, target = manifest.relation_ends[0] if manifest.relation_ends else kinds[pairs["train"][0]]
        self.candidates = np.flatnonzero(kinds == target)
        self.num_candidates = len(self.candidates)
        self.candidate_time = np.zeros(self.num_candidates, np.int64)
        self.ranking = RankingTask(candidates=manifest.node_types[target], history="", horizon=1, new_only=True)
        self._column = np.full(size, -1, np.int32)
        self._column[self.candidates] = np.arange(self.num_candidates, dtype=np.int32)
        self._is_own = source == target
        right = pairs[split] if split is not None else np.empty((0, 2), np.int64)
        known = [one for name, one in pairs.items() if name != split]
        if self._is_own and manifest.symmetric:  # no direction is another
            known += [one[:, ::-1] for one in pairs.values()]
        keys = [np.unique(one[:, 0] * size + one[:, 1]) for one in (right, np.concatenate(known))]
        self._right_task, ends = np.divmod(keys[0], size)
        self._right = self._column[ends].astype(np.int64)
        self._by_entity = self._ordered(np.setdiff1d(keys[1], keys[0], assume_unique=True), size)
        self._trained = self._ordered(np.unique(pairs["train"][:, 0] * size + pairs["train"][:, 1]), size)
        self._owners, columns, _ = self._trained
        order = np.argsort(columns, kind="stable")
        self._owners, self._times = self._owners[order], np.zeros(len(order), np.int64)
        self._starts = offsets(np.bincount(columns, minlength=self.num_candidates))

    def _ordered(self, keys: Array, size: int) -> tuple[Array, Array, Array]:
        """Return source, column and time of pairs, source * size + target ascending: (m,) each."""
        sources, targets = np.divmod(keys, size)
        return sources, self._column[targets], np.zeros(len(keys), np.int64)

    def entities(self, tasks: Array) -> Array:
        """Return the sources themselves."""
        return np.asarray(tasks)

    def moments(self, tasks: Array) -> Array:
        """Return one moment for all."""
        return np.full(len(tasks), _NOW, np.int64)

    def own_columns(self, tasks: Array) -> Array | None:
        """Return the column of each source, where it could be a target."""
        return self._column[tasks].astype(np.int64) if self._is_own else None

    def interactions(self, moment: int) -> tuple[Array, Array]:
        """Return source and column of the training links."""
        return self._trained[0], self._trained[1]


def ranked_targets(
    predictor: Predictor, model: GraphModel, sources: Array, split: str | None, k: int | None = None
) -> RankedRows:
    """Rank all targets for distinct sources, int64 (n,): where those of a split stand, with the first `k` of each list.

    Decoders that are products take one matrix product for many sources, others a pass for each pair.
    """
    links, head = TargetLinks(predictor.store, split), model.head
    vectors: Any = None
    targets: Tensor | None = None

    def score(tasks: Array, _: int) -> Array:
        if targets is not None:
            assert isinstance(head, LinkHead)
            return finite(head.score_all(predictor.tensor(vectors[tasks]), targets).cpu().numpy())
        pairs = np.stack([np.repeat(tasks, links.num_candidates), np.tile(links.candidates, len(tasks))], 1)
        if isinstance(model, Rule):
            return finite(model.pair_scores(pairs).reshape(len(tasks), -1))
        return finite(predictor.pair_scores(model, vectors, pairs).reshape(len(tasks), -1))

    if isinstance(model, Rule):
        return ranked_by(links, sources, score, k)
    with evaluating(model):
        vectors = predictor.node_vectors(model)
        if isinstance(head, LinkHead) and head.mlp is None:
            targets = predictor.tensor(vectors[links.candidates])
        return ranked_by(links, sources, score, k)
