"""What scores rows without vectors of nodes: a control that was published in place of a model.

A model and a rule score by the same calls of `Predictor`: `node_scores`, `graph_scores`, `link_scores`, `ranked`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from configs.errors import RecipeError
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.arrays import Array
from tasks.evaluators.ranked_rows import RankedRows
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap

CodesAsTrained = Callable[[DatasetStore], dict[str, Array]]
"""Categorical column of nodes to the training's code of each code of a data set."""


class Rule(GraphModel):
    """Scores rows of one graph; what it does not score it refuses. Raises RecipeError then."""

    def __init__(self, name: str, what: str, facts: GraphFacts, codes: CodesAsTrained) -> None:
        """`name` and `what` name it in tables and sentences; `facts` are those of the graph that it was fitted to."""
        nn.Module.__init__(self)  # it has none of a model's parts
        self.config = SimpleNamespace(name=name, edge_weights=False)
        self.what, self.facts, self.codes = what, facts, codes

    def open(self, store: GraphStore, dataset: DatasetStore, ids: IdMap, predictor: Any, scratch: Path) -> None:
        """Take the graph whose rows are scored by a `Predictor`; `scratch` has room for their features."""
        raise AssertionError

    def node_scores(self, nodes: Array) -> Array:
        """Score distinct nodes, int64 (n,): float32 (n, C)."""
        raise self._refusal("nodes")

    def graph_scores(self, graphs: Array) -> Array:
        """Score graphs, int64 (n,): float32 (n, C)."""
        raise self._refusal("graphs")

    def pair_scores(self, pairs: Array) -> Array:
        """Score pairs of nodes, int (n, 2): float32 (n,)."""
        raise self._refusal("pairs")

    def ranked(self, tasks: Array, k: int | None) -> RankedRows:
        """Rank all candidates for tasks, as `Predictor.ranked`."""
        raise self._refusal("candidates")

    def _refusal(self, rows: str) -> RecipeError:
        return RecipeError(f"{self.what} has no scores of {rows}")
