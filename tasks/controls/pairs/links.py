"""Controls of pairs: chance, a model of their ends' features, neighbours, and for events what was an edge before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from configs.metric_names import hits_of
from tasks.controls.features import ControlledGraph
from tasks.controls.pairs.degree_rule import DegreeRule
from tasks.controls.pairs.edge_bank import EdgeBank
from tasks.controls.pairs.neighborhoods import NeighborhoodControl
from tasks.controls.pairs.pair_features import PairControl
from tasks.controls.suite import Controls, Measure
from tasks.evaluators.prediction import Prediction
from tasks.storage.controls import FEATURES_CONTROL

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
    """Return the mean of a metric over random orders of each edge's candidates; else `value`, that of equal scores.

    Equal scores would all miss Hits@K, which counts a tie as a miss, and all have the middle rank.
    """
    assert pairs.negative is not None
    if pairs.relations is not None or pairs.negative_kinds:
        return float(np.mean([_chance(metric, own, value) for own in pairs.groups()]))
    candidates = 1 + pairs.negative.shape[-1]
    if metric == "mrr":
        return float(np.mean(1 / np.arange(1, candidates + 1)))
    most = hits_of(metric)
    return value if most is None else min(1.0, most / candidates)
