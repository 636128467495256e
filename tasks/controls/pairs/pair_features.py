"""A logistic model that scores pairs of nodes by their own features.

Of two nodes of one type it reads the products and the distances of their features; of two types, whose columns have
nothing to do with each other, both side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from configs.label_types import label_type
from tasks.arrays import Array, blocks, sample_rows
from tasks.controls import linear
from tasks.controls.features import ControlledGraph, OwnFeatures, training_sample
from tasks.edge_ends import ANY
from tasks.evaluators.prediction import Prediction
from tasks.sampling.negatives import NegativeSampler
from tasks.storage.graph_store import create_array

_MOST_NUMBERS = 20_000_000_000
"""Pairs of a split times columns; so many take about a minute."""
_FALSE_KEY = 20_261_122
"""Pairs of random ends are the same whatever the recipe's seed."""
_NUMBERS_AT_A_TIME = 1 << 22
_PAIRS_AT_A_TIME = 1 << 20


class _End:
    """Nodes of one type."""

    def __init__(self, first: int, x: Array) -> None:
        """`first` in the data set's ids; `x`, float32 (n, D): features of all of them, standardized; mapped."""
        self.first, self.x = first, x
        self.count, self.width = x.shape

    def take(self, rows: Array) -> Array:
        """Return the features of nodes; zeros for those of another type, which drawn pairs may have."""
        place = rows - self.first
        inside = (place >= 0) & (place < len(self.x))
        features = self.x[np.where(inside, place, 0)]
        features[~inside] = 0
        return features


class PairControl:
    """Fitted to a sample of the training pairs, and to as many pairs of random ends."""

    def __init__(self, ends: tuple[_End, _End], graph: ControlledGraph, ids: Callable[[Array], Array]) -> None:
        """Not fitted yet: see `fit`. `ids`: from the graph's nodes to those of the ends."""
        self.ends, self.graph, self._ids = ends, graph, ids
        self.width = 2 * ends[0].width if ends[0] is ends[1] else sum(end.width for end in ends)
        self.model = linear.LinearModel(np.zeros((self.width, 1)), np.zeros(1))

    @classmethod
    def fit(cls, graph: ControlledGraph) -> PairControl | None:
        """Fit it; None where no node has features."""
        train, ids = graph.store["train_edges"], graph.ids
        kinds = [ids.kind(np.asarray(train[:1, end])) for end in (0, 1)]
        columns = graph.columns(kinds[0]) + graph.columns(kinds[1])
        if not columns:
            return None
        chosen = training_sample(np.arange(len(train)), columns, 1, share=2)
        true = ids.dense(np.asarray(train[chosen]).reshape(-1)).reshape(-1, 2)
        ends = {kind: _read_end(graph, kind, true[:, [k == kind for k in kinds]]) for kind in dict.fromkeys(kinds)}
        control = cls((ends[kinds[0]], ends[kinds[1]]), graph, ids.dense)
        control._fit(true)
        return control

    def _fit(self, true: Array) -> None:
        sampler = NegativeSampler(self.graph.store, 1)
        if sampler.ends is ANY:
            draw = np.random.Generator(np.random.Philox(key=_FALSE_KEY))
            false = np.stack([end.first + draw.integers(0, end.count, len(true)) for end in self.ends], 1)
        else:  # what can be joined is told by more than types
            false = self._ids(sampler.draw(true, _FALSE_KEY).reshape(-1)).reshape(-1, 2)
        x = np.concatenate([part for pairs in (true, false) for _, part in self._parts(pairs)])
        self.model = linear.fit(x, np.repeat([1.0, 0.0], len(true)), label_type("binary"), 1)

    def predict(self, split: str, prediction: Prediction) -> Prediction | None:
        """Score a split's pairs; None where they are too many."""
        positive, negative = prediction.pairs()
        if (positive.size + negative.size) * self.width > _MOST_NUMBERS:
            return None
        true, false = self.graph.predictor.link_pairs(split)
        scores = self._scores(true), self._scores(false.reshape(-1, 2)).reshape(negative.shape)
        return Prediction(positive=scores[0], negative=scores[1])

    def _scores(self, pairs: Array) -> Array:
        """Score pairs of the graph's nodes, int (n, 2): float32 (n,)."""
        scores = np.empty(len(pairs), np.float32)
        for some in blocks(len(pairs), _PAIRS_AT_A_TIME):
            dense = self._ids(np.asarray(pairs[some]).reshape(-1)).reshape(-1, 2)
            for part, x in self._parts(dense):
                scores[some][part] = self.model(x)[:, 0]
        return scores

    def _parts(self, pairs: Array) -> Iterator[tuple[slice, Array]]:
        """Yield the features of some pairs of the data set's ids at a time."""
        step = max(1, _NUMBERS_AT_A_TIME // max(1, self.width))
        for part in blocks(len(pairs), step):
            source, target = (end.take(pairs[part, column]) for column, end in enumerate(self.ends))
            both = [source * target, np.abs(source - target)] if self.ends[0] is self.ends[1] else [source, target]
            yield part, np.concatenate(both, axis=1)


def _read_end(graph: ControlledGraph, kind: str, train: Array) -> _End:
    """Read the features of a type's nodes, standardized by the ends of training pairs, of the data set's ids."""
    manifest = graph.store.manifest
    number = manifest.node_types.index(kind)
    first, stop = manifest.type_offsets[number : number + 2]
    folder = graph.scratch / str(number)
    folder.mkdir()
    columns = graph.columns(kind)
    if not columns:
        return _End(first, np.empty((stop - first, 0), np.float32))
    features = OwnFeatures(*graph.read(kind, columns, np.arange(stop - first), folder))
    nodes = np.unique(train) - first
    features.fit(sample_rows(nodes, len(train)))
    x = create_array(folder / "x.npy", (stop - first, features.width), np.float32)
    for part, values in features.parts(np.arange(stop - first)):
        x[part] = values
    return _End(first, x)
