"""What a model is compared with on a split: fitted controls by name, and what they say of its rows."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.arrays import Array
from tasks.controls.features import ControlledGraph
from tasks.evaluators.prediction import Prediction
from tasks.storage.graph_store import GraphStore

if TYPE_CHECKING:
    from tasks.inference.opened import Opened

Measure = Callable[[Prediction], dict[str, float]]
Measured = Iterator[tuple[str, dict[str, float]]]


class Controls:
    """The controls of a graph, fitted to its training split; each kind of task has its own."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """What cannot be had, in words."""

    def measured(self, split: str, prediction: Prediction, measure: Measure) -> Measured:
        """Yield name and metrics of each control on the rows that `prediction`, the model's, is about."""
        for name, control in self.predictions(split, prediction):
            yield name, self.best(name, control, measure(control), measure)

    def best(self, name: str, control: Prediction, values: dict[str, float], measure: Measure) -> dict[str, float]:
        """Return the metrics of a control; of one that no row changes each the best that there is."""
        return values

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield name and scores of each control on the rows that `prediction`, the model's, is about."""
        return iter(())

    def facts(self, split: str) -> dict[str, float]:
        """Return what else a report says of a split."""
        return {}

    def state(self, name: str, metric: str) -> tuple[dict[str, Array], list[str]]:
        """Return what a control (`Control.serves`) learnt: arrays by name, and texts of trees, one a label.

        `metric`: the one by which a constant is the best.
        """
        return {}, []  # it computes all from the graph


class FittedControl(ABC):
    """A control that scores rows of a graph by what it learnt."""

    store: GraphStore

    @abstractmethod
    def scores(self, rows: Array) -> Array:
        """Score rows that splits are of, int64 (n,): float32 (n, C)."""

    def predict(self, split: str, prediction: Prediction) -> Prediction:
        """Score a split's rows, which `prediction` has the labels of."""
        rows = np.asarray(self.store[f"{split}_idx"], np.int64)
        return Prediction(scores=self.scores(rows), label=prediction.label)

    def state(self) -> tuple[dict[str, Array], list[str]]:
        """Return what it learnt, see `Controls.state`; nothing of one that is not served."""
        return {}, []


@contextmanager
def fitted_controls(kind: Any, opened: Opened, work: Path) -> Iterator[Controls]:
    """Fit what a kind of task compares the model with; its scratch files in `work` go with it."""
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        graph = ControlledGraph(opened.store, opened.dataset, opened.ids, opened.predictor, Path(scratch))
        yield kind.controls(graph, opened.model.facts.out_dim)
