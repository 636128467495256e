"""Controls of pairs: chance, a model of their ends' features, neighbours, and for events what was an edge before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from configs.metric_names import hits_of
from tasks.arrays import Array, blocks, sample_rows
from tasks.controls.features import ControlledGraph
from tasks.controls.pairs.neighborhoods import NeighborhoodControl
from tasks.controls.pairs.pair_features import PairControl
from tasks.controls.suite import Controls, Measure
from tasks.evaluators.metrics import rocauc_of_pairs
from tasks.evaluators.prediction import Prediction
from tasks.pair_set import pair_numbers
from tasks.storage.controls import FEATURES_CONTROL
from tasks.storage.graph_store import GraphStore

_CHUNK_ROWS = 1 << 20
_MOST_PAIRS = 1 << 21
_CLASSES = 65
_HIGH = 0.7


class DegreeRule:
    """Degrees by a graph's training edges, in classes: 0, 1, 2 to 3, 4 to 7, ...

    Where they alone tell pairs from most negatives, a model that does so need know no more.
    """

    def __init__(self, store: GraphStore) -> None:
        """Count them; 2 bytes a node, and 16 meanwhile."""
        edges, num_nodes = store["train_edges"], store.manifest.num_nodes
        counts = np.zeros((2, num_nodes), np.int64)
        for rows in blocks(len(edges), _CHUNK_ROWS):
            for end in (0, 1):
                counts[end] += np.bincount(edges[rows, end], minlength=num_nodes)
        self.directed = not store.manifest.symmetric
        counts = counts if self.directed else counts.sum(0, keepdims=True)
        self.classes = [np.frexp(own.astype(np.float64))[1].astype(np.uint8) for own in counts]
        """uint8 (N,) of sources and of targets; of both in one where edges have no direction."""

    def rocauc(self, true: Array, false: Array) -> float:
        """Return the ROC-AUC of the rule on edges (n, 2) and negatives (..., 2); NaN: there are too few.

        A pair's score is how much more often its two classes come among edges than among negatives. That is counted on
        one half of the pairs and applied to the other, both ways: what is chance on one is none on the other.
        """
        cells = [self._cells(pairs.reshape(-1, 2)) for pairs in (true, false)]
        areas = []
        for half in (0, 1):
            counts = [np.bincount(own[1 - half :: 2], minlength=_CLASSES**2) for own in cells]
            # A class that few pairs have says little: one more of each is added.
            expected = counts[1] * (counts[0].sum() / max(1, counts[1].sum()))
            ratio = (counts[0] + 1) / (expected + 1)
            areas.append(rocauc_of_pairs(*(ratio[own[half::2]] for own in cells)))
        return float(np.mean(areas))

    def note(self, split: str, value: float) -> str:
        """Say what a split's ROC-AUC by the rule is, and what it means where it is high."""
        text = (
            f"{split}: a rule that knows only how often a pair's ends are joined in training tells edges from "
            f"negatives with ROC-AUC {value:.4f}"
        )
        return (
            text
            if value < _HIGH
            else (f"{text}: a score that is not above it tells who is joined often, not who is joined to whom")
        )

    def _cells(self, pairs: Array) -> Array:
        """Return the two classes of pairs as one number, int64 (n,)."""
        pairs = np.asarray(pairs[sample_rows(np.arange(len(pairs)), _MOST_PAIRS)])
        of_ends = np.stack([self.classes[0][pairs[:, 0]], self.classes[-1][pairs[:, 1]]]).astype(np.int64)
        first, second = of_ends if self.directed else np.sort(of_ends, axis=0)
        return np.asarray(first * _CLASSES + second)


class EdgeBank:
    """What was an edge in training will be one (Poursafaei and others, 2022, arXiv:2207.10128): 16 bytes an event.

    What it remembers ends where training does, as models do; the paper adds the events of a split while it passes by.
    """

    def __init__(self, graph: ControlledGraph) -> None:
        self._graph, self._directed = graph, graph.dataset.manifest.directed
        table = graph.dataset
        self._num_nodes = table.manifest.num_nodes
        self._numbers = self._of(table.column("split/train", "src"), table.column("split/train", "dst"))

    def scores(self, pairs: Array) -> Array:
        """Score pairs of the graph's nodes, int (n, 2): 1 where they were an edge in training, else 0, float32 (n,)."""
        dense = self._graph.ids.dense(np.asarray(pairs).reshape(-1)).reshape(-1, 2)
        return np.isin(self._of(dense[:, 0], dense[:, 1]), self._numbers).astype(np.float32)

    def _of(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self._num_nodes, directed=self._directed)


_CHANCE = "chance"


class LinkControls(Controls):
    """Those of pairs of nodes."""

    def __init__(self, graph: ControlledGraph) -> None:
        """Fit them."""
        super().__init__()
        self._predictor = graph.predictor
        self._degrees = DegreeRule(graph.store)
        self._neighborhoods = NeighborhoodControl(graph.store)
        self._bank = EdgeBank(graph) if graph.store.manifest.negative_kinds else None
        self._linear = PairControl.fit(graph)
        if self._linear is None:
            self.notes.append("the rows have no features of their own: there is no linear control")

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield all of them, with the relations and the kinds of negatives that the model's rows are of."""
        positive, negative = prediction.pairs()
        scored = {_CHANCE: Prediction(positive=np.zeros_like(positive), negative=np.zeros_like(negative))}
        if self._linear is not None:
            control = self._linear.predict(split, prediction)
            if control is None:
                self.notes.append(f"{split} has too many pairs for the linear control")
            else:
                scored[FEATURES_CONTROL] = control
        true, false = self._predictor.link_pairs(split)
        pairs = np.concatenate([np.asarray(true), np.asarray(false).reshape(-1, 2)])
        scores = self._neighborhoods.scores(pairs)
        if scores is None:
            self.notes.append(f"{split} has too many pairs to look at the neighbours of each")
        if self._bank is not None:
            scores = {**(scores or {}), "edge_bank": self._bank.scores(pairs)}
        for name, of_pairs in (scores or {}).items():
            parts = of_pairs[: len(true)], of_pairs[len(true) :].reshape(false.shape[:-1])
            scored[name] = Prediction(positive=parts[0], negative=parts[1])
        for name, one in scored.items():
            yield name, replace(one, relations=prediction.relations, negative_kinds=prediction.negative_kinds)

    def best(self, name: str, control: Prediction, values: dict[str, float], measure: Measure) -> dict[str, float]:
        """Take what a random order gives on average, of equal scores."""
        if name != _CHANCE:
            return values
        return {metric: _chance(metric, control, value) for metric, value in values.items()}

    def facts(self, split: str) -> dict[str, float]:
        """Return what a rule tells that knows only how often ends are joined in training, and note it."""
        value = self._degrees.rocauc(*self._predictor.link_pairs(split))
        self.notes.append(self._degrees.note(split, value))
        return {"degree_rule": value}


def _chance(metric: str, pairs: Prediction, value: float) -> float:
    """Return the mean of a metric over random orders of each edge's candidates; else `value`, that of equal scores."""
    assert pairs.negative is not None
    if pairs.relations is not None or pairs.negative_kinds:
        return float(np.mean([_chance(metric, own, value) for own in pairs.groups()]))
    candidates = 1 + pairs.negative.shape[-1]
    if metric == "mrr":
        return float(np.mean(1 / np.arange(1, candidates + 1)))
    most = hits_of(metric)
    return value if most is None else min(1.0, most / candidates)
