"""What a kind of task answers: what its rows are, how they are scored, compared, written and shown.

Who evaluates, serves or compares models asks these questions of every kind alike. A kind is an object without state,
`KIND` of a module in this package; heavy imports happen where it computes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from configs.errors import RecipeError, StageError
from configs.label_types import LabelType
from tasks.arrays import Array, blocks
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import DatasetManifest, GraphManifest

if TYPE_CHECKING:
    import pyarrow as pa

    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.evaluators.evaluators import Evaluator
    from tasks.evaluators.prediction import Prediction
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor
    from tasks.kinds.judged import Deciding

Columns = dict[str, "pa.Array"]
"""Columns of a file, (n,) each."""
Names = list[str] | None
"""Of classes, where they are known."""
Warn = Callable[[str], None]
ROWS_AT_A_TIME = 1 << 16
MEASURED = "valid"
"""The split whose rows choose between models."""


@dataclass(frozen=True)
class TaskRows:
    """Rows that a model is asked about."""

    items: Array
    """int64 (n,) nodes or graphs; (n, 2) pairs of nodes."""
    split: Any = None
    """Text: they are all rows of this split. int8 (n,): of each the place of its own in SPLITS. None: of no split."""
    label: Array | None = None
    """(n,) or (n, T), of nodes and graphs."""
    negative: Array | None = None
    """Of pairs, int64 (m, 2) as one pool, or (n, K, 2) as K for each."""
    relations: Array | None = None
    """Of pairs that are asked about in one, int (n,)."""
    negative_relations: Array | None = None
    """int (m,)."""
    most: int = 0
    """Of nodes for which targets are listed: how long a list is."""

    def without(self, left_out: Array) -> TaskRows:
        """Leave rows out, bool (n,). A pool of negatives belongs to no row and stays."""
        keep = ~left_out
        has_own_negatives = self.negative is not None and self.negative.ndim == 3
        return replace(
            self,
            items=self.items[keep],
            split=None,
            label=None if self.label is None else self.label[keep],
            negative=self.negative[keep] if has_own_negatives and self.negative is not None else self.negative,
            relations=None if self.relations is None else self.relations[keep],
        )


class Kind:
    """A kind of task whose rows are nodes, unless another one says otherwise."""

    asked_by: ClassVar[str] = "nodes"
    """What a file of what is asked about names: `nodes`, `graphs`, `pairs`, or `queries` of triples."""
    lists_for_nodes: ClassVar[bool] = False
    """Whether a file of nodes may be asked about too, for each of which the best targets are listed."""
    groups_lists: ClassVar[bool] = False
    """Whether the metric of ranked lists is told in groups of rows."""
    explained_by: ClassVar[str] = "nodes"
    """What names rows whose scores are explained: `nodes`, `edges`, `pairs` or `triples`; empty: they are not."""
    vectors_of: ClassVar[str] = "nodes"
    """What its models have vectors of: `nodes` or `graphs`."""
    mixes_types: ClassVar[bool] = False
    """Whether entities of all types stand side by side, called `TYPE:ID`."""
    keeps_layers: ClassVar[bool] = False
    """Whether vectors of nodes can be kept for a newer graph."""
    decides: ClassVar[bool] = False
    """Whether a class is decided on, from a probability that can be given."""
    edges_are: ClassVar[str] = "edges for message passing"
    without_rows: ClassVar[str] = ", or train a model on features of the nodes (the transform degree makes one)"
    """What can be done in place of a model that learnt a vector for each node."""
    words: ClassVar[str] = "rows"
    """What is asked about, in messages."""

    def _refusal(self, what: str) -> RecipeError:
        return RecipeError(f"{self.words} have no {what}")

    # ---- scores

    def rows(self, predictor: Predictor, split: str) -> TaskRows:
        """Return a split's rows, in the order of its array. Raises DataError: there is no such split."""
        raise self._refusal("splits")

    def rest(self, opened: Opened, note: Callable[[str], None]) -> TaskRows | None:
        """Return rows of no split that predictions are for; None: there are none. `note` takes what is left out."""
        return None

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Score rows, by raw outputs. `metric`, the one that judges, says how long lists are; none: no lists."""
        raise self._refusal("scores")

    def score_all(
        self, predictor: Predictor, model: GraphModel, parts: Sequence[TaskRows], metric: str = ""
    ) -> Iterator[Prediction]:
        """Score several sets of rows, which may have rows in common, one after the other."""
        for rows in parts:
            yield self.score(predictor, model, rows, metric)

    def score_parts(self, predictor: Any, model: GraphModel, split: str) -> Prediction:
        """Score a split by the `PartPredictor` of each rank together: on rank 0 all of it, on the others nothing."""
        raise self._refusal("scores where a graph lies in parts")

    def count(self, prediction: Prediction) -> int:
        """Return how many rows were scored."""
        assert prediction.scores is not None
        return len(prediction.scores)

    def judging(self, manifest: GraphManifest, prediction: Prediction) -> Prediction:
        """Return what is said of the task that judges the model."""
        return prediction

    def decided(self, manifest: GraphManifest, prediction: Prediction) -> Iterator[tuple[str, LabelType, Prediction]]:
        """Yield the name, type of label and prediction of each task that is decided; of one the name is empty."""
        return iter(())

    def evaluated_whole(self, opened: Opened, work: Path, seed: int) -> dict[str, Any] | None:
        """Evaluate what has no splits; return the fields of EvalReport. None: there are splits."""
        return None

    # ---- files

    def columns(self, opened: Opened, rows: TaskRows, prediction: Prediction, deciding: Deciding) -> Iterator[Columns]:
        """Yield what a file of predictions says of rows, some at a time."""
        raise self._refusal("predictions")

    def left_out(self, store: GraphStore, rows: TaskRows, prediction: Prediction) -> str | None:
        """Say what `columns` leaves out, if anything."""
        return None

    def asked_rows(self, opened: Opened, items: Array, *, names_splits: bool) -> TaskRows:
        """Return what somebody asks about as rows; `names_splits`: with the split that each is in."""
        return TaskRows(items)

    def answers(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[Columns]:
        """Score what somebody asks about; yield columns of a file."""
        raise self._refusal("predictions")

    def probabilities(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[tuple[Columns, Array]]:
        """Score what somebody asks about; yield columns of ids, and probabilities or numbers float32 (n, C)."""
        raise RecipeError(f"{self.words} have no rows of a matrix: write Parquet or CSV (--output FILE.parquet)")

    def vectors(self, opened: Opened, items: Array, *, typed: bool = False) -> Iterator[tuple[Columns, Array]]:
        """Yield columns of ids, and vectors float32 (n, D) of what models have vectors of.

        `typed`: ids are called `TYPE:ID`, as those of several types are.
        """
        for part, values in opened.predictor.finished(opened.model, items):
            ids = {"id": opened.ids.lookup(items[part], typed=True)} if typed else opened.ids.columns(items[part])
            yield ids, finite(values)

    # ---- what is beside the scores

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Fit what a model is compared with; `num_scores`: columns of its scores."""
        raise self._refusal("controls")

    def secondary(self, manifest: GraphManifest) -> list[Evaluator]:
        """Return further metrics that cost little."""
        return []

    def measurable(
        self, evaluator: Evaluator, graph: GraphStore, names: Names, splits: Sequence[str], warn: Warn
    ) -> None:
        """Refuse `splits`, or validation, where the metric is not defined on them; warn of what it hardly tells.

        Raises DataError.
        """

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what there is to draw about a split, as plain values."""
        return {}

    def grouped_by(
        self, store: GraphStore, dataset: DatasetStore, ids: IdMap, items: Array, names: Collection[str]
    ) -> Columns:
        """Return what is known of rows, (n,) each, so that metrics can be told for groups; columns `names` at least.

        A name that is not known is not there.
        """
        return {}

    # ---- points of maps

    def points(self, opened: Opened) -> Array:
        """Return what a map of a model's vectors has a point for, int64 (n,)."""
        return np.arange(opened.store.manifest.num_nodes)

    def point_columns(self, opened: Opened, items: Array) -> Columns:
        """Return what is known of points, (n,) each, ids among them."""
        from tasks.kinds.points import point_columns

        return point_columns(opened.store, opened.dataset, opened.ids, items)

    def said_of_points(self, opened: Opened, items: Array) -> tuple[LabelType, Columns] | None:
        """Return what a model predicts of points, and the type of that; None: nothing that a map could show."""
        return None

    # ---- rows by their ids

    def named_rows(self, rows: TaskRows, rename: Callable[[Array], Array]) -> TaskRows:
        """Return rows whose nodes are called otherwise."""
        negative = None if rows.negative is None else rename(rows.negative)
        return replace(rows, items=rename(rows.items), negative=negative)

    def id_tables(self, manifest: DatasetManifest) -> list[str]:
        """Return the tables that the ids of rows stand in."""
        return [f"ids/{one.name}" for one in manifest.node_types]

    def is_directed(self, manifest: DatasetManifest, *, symmetric: bool) -> bool:
        """Whether a pair and its reverse are two; `symmetric`: the graph has the reverse of each edge."""
        return manifest.directed and not symmetric

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return a hash of the users' id of each row of a split, uint64 (n,), in the order of the graph's array.

        A pair's is of its two ends, in an order of their own unless `directed`; with `reverse` the other way round.
        """
        from tasks.ingest.ids.id_index import hash_ids

        return hash_ids(IdMap(store, dataset).lookup(np.asarray(store[f"{split}_idx"], np.int64)))

    def hashed_by(self, manifest: DatasetManifest) -> str:
        """Return what `row_hashes` are of, where the data gives ids: hashes of something else do not compare."""
        return "ids"

    def labels(self, store: GraphStore) -> Array | None:
        """Return the labels of all rows, of which classes or numbers can be told; None: they have none."""
        return None


def cut(count: int) -> Iterator[slice]:
    """Cut so many rows into parts for a file."""
    return blocks(count, ROWS_AT_A_TIME)


def finite(values: Array) -> Array:
    """Return what a model computed. Raises StageError where some of it are no numbers."""
    if not np.isfinite(values).all():
        raise StageError(
            "the model computes values that are no numbers (nan or infinite): its weights are damaged, or features are "
            "too large for float32; train anew with preprocess.transforms: [standardize], or use another version"
        )
    return values
