"""Splits scored one after the other, and what is predicted of them written under the users' own ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.evaluate.predictions import PredictionWriter
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked_rows import RankedRows
from tasks.inference.opened import Opened
from tasks.inference.predictor import link_relations
from tasks.kinds.diagnosis.lists import list_length, recommended
from tasks.sampling.relational.links import ranked_links
from tasks.storage.graph_facts import relations_of
from tasks.storage.ids import relation_names

# Nodes of no split are predicted too while their vectors and scores are at most this many numbers (1 GiB of float32).
_MAX_UNSPLIT_NUMBERS = 1 << 28
_MAX_NEGATIVE_ROWS = 5_000_000


class ScoredSplits:
    """Scores some splits of a graph by a model."""

    def __init__(self, opened: Opened, splits: Sequence[str], metric: str, writer: PredictionWriter | None) -> None:
        """`metric`: the one that judges; `writer`: of what is predicted; None: it is not kept."""
        self.opened, self.splits, self.metric, self.writer = opened, splits, metric, writer
        self.store, self.ids, self.model, self.predictor = opened.store, opened.ids, opened.model, opened.predictor
        self.notes: list[str] = []
        """What is left out, in words."""
        self.rows = 0
        """Scored so far."""
        self.covered: dict[str, dict[str, Any]] = {}
        """By split: which candidates its lists name."""

    def __iter__(self) -> Iterator[tuple[str, Prediction]]:
        """Yield splits and their scores."""
        manifest = self.store.manifest
        if manifest.ranking is not None:
            return self._rankings()
        by_task = {"node": self._nodes, "link": self._links, "graph": self._graphs, "triple": self._triples}
        return by_task[manifest.task]()

    def _nodes(self) -> Iterator[tuple[str, Prediction]]:
        """Score the nodes of all splits, and those of no split for the file, in one pass through the layers."""
        indices = {split: self.predictor.split_array(f"{split}_idx") for split in self.splits}
        wanted = np.unique(np.concatenate([np.asarray(index, np.int64) for index in indices.values()]))
        rest = self._unsplit() if self.writer is not None else np.empty(0, np.int64)
        everything = np.union1d(wanted, rest)
        scores = self.predictor.node_scores(self.model, everything)
        label = self.store["label"]
        for split, index in indices.items():
            # Where one split is all there is, its scores are not copied.
            own = scores if np.array_equal(index, everything) else scores[np.searchsorted(everything, index)]
            yield split, self._items(index, split, Prediction(scores=own, label=np.asarray(label[index])))
        if len(rest):
            place = np.searchsorted(everything, rest)
            self._items(rest, None, Prediction(scores=scores[place], label=np.asarray(label[rest])))

    def _rankings(self) -> Iterator[tuple[str, Prediction]]:
        """Rank all candidates for the tasks of all splits, and for those of no split for the file."""
        k = list_length(self.metric)
        for split in self.splits:
            tasks = np.asarray(self.predictor.split_array(f"{split}_idx"), np.int64)
            yield split, Prediction(ranked=self._listed(tasks, split, k))
        rest = self._unsplit() if self.writer is not None else np.empty(0, np.int64)
        if len(rest):
            self._listed(rest, None, k)

    def _listed(self, tasks: Array, split: str | None, k: int) -> RankedRows:
        ranked, lists = self.predictor.ranked(self.model, tasks, k)
        self.rows += len(tasks)
        if self.writer is not None:
            self.writer.lists(self.ids.columns(tasks), split, self.ids, lists)
        if split is not None:
            self.covered[split] = recommended(lists, len(ranked_links(self.store).candidates))
        return ranked

    def _unsplit(self) -> Array:
        """Nodes of the labelled type that are in no split, ascending."""
        free = np.ones(self.store.manifest.num_nodes, bool)
        for split in ("train", "valid", "test"):
            index = self.store.get(f"{split}_idx")
            if index is not None:
                free[index] = False
        nodes = np.flatnonzero(free)
        nodes = nodes[self.ids.of_target_type(nodes)]
        if len(nodes) * max(self.model.facts.out_dim, self.model.config.hidden_dim) > _MAX_UNSPLIT_NUMBERS:
            self.notes.append(f"{len(nodes):,} nodes of no split are left out of the predictions: too many")
            return np.empty(0, np.int64)
        return nodes

    def _graphs(self) -> Iterator[tuple[str, Prediction]]:
        for split in self.splits:
            prediction = self.predictor.predict(self.model, split)
            yield split, self._items(self.store[f"{split}_idx"], split, prediction)

    def _items(self, index: Array, split: str | None, prediction: Prediction) -> Prediction:
        """Write what is predicted of nodes or graphs, where that is wanted."""
        self.rows += len(index)
        if self.writer is not None:
            assert prediction.label is not None
            assert prediction.scores is not None
            ids = self.ids.graph_columns(index) if self.store.manifest.task == "graph" else self.ids.columns(index)
            self.writer.items(ids, split, prediction.label, prediction.scores)
        return prediction

    def _links(self) -> Iterator[tuple[str, Prediction]]:
        for split in self.splits:
            prediction = self.predictor.predict(self.model, split)
            positive, negative = prediction.pairs()
            self.rows += positive.size + negative.size
            if self.writer is not None:
                rank = metrics.ranks(positive, negative)
                true, false = link_relations(self.store, split) or (None, None)
                self._pairs(self.store[f"{split}_edges"], split, 1, positive, rank, true)
                given = self.store.get(f"{split}_negative")
                if given is not None and negative.size <= _MAX_NEGATIVE_ROWS:
                    self._pairs(given.reshape(-1, 2), split, 0, negative.ravel(), None, false)
                else:
                    why = "drawn at random" if given is None else "too many"
                    self.notes.append(f"{negative.size:,} negative edges of {split} are left out of the file: {why}")
            yield split, prediction

    def _triples(self) -> Iterator[tuple[str, Prediction]]:
        for split in self.splits:
            prediction = self.predictor.predict(self.model, split)
            ranks = prediction.true_ranks()
            edges = self.store[f"{split}_edges"]
            self.rows += len(ranks)
            if self.writer is not None:
                ends = self.ids.columns(edges[:, 0], "head") | self.ids.columns(edges[:, 1], "tail")
                names = relation_names(self.opened.dataset)
                relation = names.take(pa.array(np.asarray(self.store[f"{split}_relation"])))
                self.writer.triples(ends, relation, split, *np.split(ranks.mean, 2))
            yield split, prediction

    def _pairs(
        self, pairs: Array, split: str, label: int, score: Array, rank: Array | None, relation: Array | None = None
    ) -> None:
        assert self.writer is not None
        pairs = np.asarray(pairs)
        ends = self.ids.columns(pairs[:, 0], "source") | self.ids.columns(pairs[:, 1], "target")
        if relation is not None:
            ends["relation"] = pa.array(relations_of(self.store.manifest)).take(pa.array(relation))
        self.writer.edges(ends, split, label, score, rank)
