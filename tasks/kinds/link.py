"""Pairs of nodes of which some are edges."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from configs.errors import RecipeError
from configs.registry import EVALUATORS
from tasks.arrays import Array
from tasks.evaluators import metrics
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.kinds.base import Columns, Kind, Names, TaskRows, Warn, cut, finite
from tasks.kinds.judged import Deciding, split_column
from tasks.kinds.of import kind_named
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import relations_of
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import GraphManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor

_SECONDARY = ("average_precision", "rocauc", "mrr")
_BY_RELATION = ("rocauc", "pr_auc", "f1", "average_precision")
"""Of links that are predicted by relation, as GATNE (KDD 2019) has them."""
_MAX_NEGATIVE_ROWS = 5_000_000
_DEGREES = (0, 1, 2, 5, 10, 30, 100, 1000)
"""Where groups of ends begin, by their training edges."""
FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Between two hashes that become one."""


class PairKind(Kind):
    """Rows are pairs of nodes."""

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return hashes of pairs' ends."""
        pairs = np.asarray(store[f"{split}_edges"], np.int64)
        return end_hashes(store, dataset, pairs, directed=directed, reverse=reverse)


def end_hashes(store: GraphStore, dataset: DatasetStore, pairs: Array, *, directed: bool, reverse: bool) -> Array:
    """Return a hash of the users' ids of both ends of each pair, int64 (n, 2): uint64 (n,); see `Kind.row_hashes`."""
    from tasks.ingest.ids.id_index import hash_ids

    ids = IdMap(store, dataset)
    ends = np.stack([hash_ids(ids.lookup(pairs[:, end])) for end in (0, 1)])
    if not directed:
        ends.sort(axis=0)
    first, second = ends[::-1] if reverse else ends
    hashes: Array = first * FACTOR ^ second
    return hashes


def training_edges(store: GraphStore, nodes: Array, end: int) -> pa.Array:
    """Return a group for each node, (n,), by how many training edges have it at an end: 0 (source) or 1."""
    train = np.asarray(store["train_edges"])[:, end]
    spans = itertools.pairwise(_DEGREES)
    texts = [str(low) if high - low == 1 else f"{low} to {high - 1}" for low, high in spans]
    degree = np.bincount(train, minlength=store.manifest.num_nodes)[nodes]
    code = pa.array(np.searchsorted(_DEGREES, degree, side="right") - 1)
    return pa.DictionaryArray.from_arrays(code, pa.array([*texts, f"{_DEGREES[-1]} or more"]))


class LinkKind(PairKind):
    """Pairs stand beside negatives, all in one relation or each in its own."""

    asked_by = explained_by = "pairs"
    lists_for_nodes = True
    keeps_layers = True
    words = "pairs"

    def rows(self, predictor: Predictor, split: str) -> TaskRows:
        """Return a split's edges, with given or drawn negatives."""
        positive, negative = predictor.link_pairs(split)
        names = [f"{split}_relation", f"{split}_negative_relation"]
        relations: list[Any] = [None, None]
        if all(name in predictor.store for name in names):
            relations = [np.asarray(predictor.store[name]) for name in names]
        return TaskRows(positive, split, None, negative, *relations)

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Score edges and negatives; those of a split by all ranks that hold parts of the graph."""
        assert rows.negative is not None
        relations = None
        if rows.relations is not None and rows.negative_relations is not None:
            relations = rows.relations, rows.negative_relations
        return predictor.link_scores(model, rows.items, rows.negative, relations, split=rows.split)

    def score_parts(self, predictor: Any, model: GraphModel, split: str) -> Prediction:
        """Score a split, every rank equally many pairs."""
        return predictor.split_pairs(model, split)

    def count(self, prediction: Prediction) -> int:
        """Return how many pairs were scored."""
        positive, negative = prediction.pairs()
        return positive.size + negative.size

    def columns(self, opened: Opened, rows: TaskRows, prediction: Prediction, deciding: Deciding) -> Iterator[Columns]:
        """Yield edges with their ranks, then given negatives, unless there are very many."""
        positive, negative = prediction.pairs()
        rank = pa.array(metrics.ranks(positive, negative), pa.float64())
        yield from self._scored(opened, rows, positive, 1, rank)
        if f"{rows.split}_negative" in opened.store and negative.size <= _MAX_NEGATIVE_ROWS:
            assert rows.negative is not None
            flat = TaskRows(rows.negative.reshape(-1, 2), rows.split, relations=rows.negative_relations)
            yield from self._scored(opened, flat, negative.reshape(-1), 0, pa.nulls(negative.size, pa.float64()))

    def _scored(self, opened: Opened, rows: TaskRows, scores: Array, label: int, rank: pa.Array) -> Iterator[Columns]:
        columns = self._ends(opened, np.asarray(rows.items))
        if rows.relations is not None:
            columns["relation"] = pa.array(relations_of(opened.store.manifest)).take(pa.array(rows.relations))
        columns |= {
            "split": split_column(rows.split, slice(None), len(scores)),
            "label": pa.array(np.full(len(scores), label, np.int8)),
            "score": pa.array(scores, pa.float32()),
            "rank": rank,
        }
        for part in cut(len(scores)):
            yield {name: column[part] for name, column in columns.items()}

    def _ends(self, opened: Opened, pairs: Array) -> Columns:
        return opened.ids.columns(pairs[:, 0], "source") | opened.ids.columns(pairs[:, 1], "target")

    def left_out(self, store: GraphStore, rows: TaskRows, prediction: Prediction) -> str | None:
        """Say how many negatives."""
        negative = prediction.pairs()[1]
        given = f"{rows.split}_negative" in store
        if given and negative.size <= _MAX_NEGATIVE_ROWS:
            return None
        why = "too many" if given else "drawn at random"
        return f"{negative.size:,} negative edges of {rows.split} are left out of the file: {why}"

    def answers(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[Columns]:
        """Score pairs that somebody asks about, in each relation that links are predicted in; list targets of nodes."""
        if rows.items.ndim == 1:
            if opened.model.scores_relations:
                raise RecipeError(
                    "--nodes lists targets in one relation, and this model scores several; give --pairs FILE"
                )
            yield from kind_named("recommendation").answers(opened, rows, deciding)
            return
        predictor, model = opened.predictor, opened.model
        relations: list[str | None] = [None]
        if model.scores_relations:
            relations = [*relations_of(opened.store.manifest)]
        score = predictor.pair_scorer(model, rows.items)
        for part in cut(len(rows.items)):
            for number, name in enumerate(relations):
                columns = self._ends(opened, rows.items[part])
                if name is not None:
                    columns["relation"] = pa.repeat(name, len(rows.items[part]))
                yield columns | {"score": pa.array(finite(score(part, None if name is None else number)), pa.float32())}

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Fit what looks at ends' features and neighbours."""
        from tasks.controls.pairs.links import LinkControls

        return LinkControls(graph)

    def secondary(self, manifest: GraphManifest) -> list[Evaluator]:
        """Return metrics of pairs."""
        names = _BY_RELATION if manifest.num_relations else _SECONDARY
        return [make_evaluator(EVALUATORS.config({"name": name}), manifest) for name in names]

    def measurable(
        self, evaluator: Evaluator, graph: GraphStore, names: Names, splits: Sequence[str], warn: Warn
    ) -> None:
        """Warn of relations that judge and have hardly any pair in the validation split."""
        from tasks.kinds.measurable import name_thin

        relation = graph.get("valid_relation")
        if relation is None:
            return
        counts = np.bincount(np.asarray(relation), minlength=graph.manifest.num_relations)
        if evaluator.relations:
            counts[np.setdiff1d(np.arange(len(counts)), evaluator.relations)] = 0
        why = (
            f"the epoch is chosen by the mean of their {evaluator.metric} and that of the others; say which judge: "
            "evaluate.evaluator.relations"
        )
        name_thin(counts, "relations", list(relations_of(graph.manifest)), why, warn)

    def grouped_by(
        self, store: GraphStore, dataset: DatasetStore, ids: IdMap, items: Array, names: Collection[str]
    ) -> Columns:
        """Return how many training edges each end has: what is new to a model has none."""
        if "degree" not in names:
            return {}
        return {
            f"training edges of the {name}": training_edges(store, np.asarray(items)[:, end], end)
            for end, name in enumerate(("source", "target"))
        }

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return histograms of scores and ranks."""
        from tasks.kinds.diagnosis.classes import ranking

        return {"ranking": ranking(*prediction.pairs())}


KIND = LinkKind()
