"""Triples of head, relation and tail, each end of which is ranked among all entities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from configs.registry import EVALUATORS
from tasks.arrays import Array
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.kinds.base import Columns, TaskRows, cut
from tasks.kinds.judged import Deciding, split_column
from tasks.kinds.link import FACTOR, PairKind
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import relation_names
from tasks.storage.manifests import DatasetManifest, GraphManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor


class TripleKind(PairKind):
    """Triples of a knowledge graph."""

    asked_by = "queries"
    explained_by = "triples"
    words = "triples"
    mixes_types = True
    edges_are = "directed edges between entities"
    without_rows = ""

    def rows(self, predictor: Predictor, split: str) -> TaskRows:
        """Return a split's triples."""
        triples = predictor.triple_splits.triples(split)
        return TaskRows(triples.edges, split, None, triples.candidates, triples.relations)

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Rank heads, then tails."""
        from models.knowledge.base import KnowledgeModel
        from tasks.ranking.triples import RankedTriples

        assert isinstance(model, KnowledgeModel)
        assert rows.relations is not None
        triples = RankedTriples(rows.items, rows.relations, rows.negative)
        return Prediction(ranks=predictor.triple_splits.ranks(model, triples))

    def count(self, prediction: Prediction) -> int:
        """Return how many entities were ranked."""
        return len(prediction.true_ranks())

    def columns(self, opened: Opened, rows: TaskRows, prediction: Prediction, deciding: Deciding) -> Iterator[Columns]:
        """Yield triples and the filtered ranks of their ends."""
        heads, tails = np.split(prediction.true_ranks().mean, 2)
        names = relation_names(opened.dataset)
        assert rows.relations is not None
        edges = np.asarray(rows.items)
        columns = {
            **opened.ids.columns(edges[:, 0], "head"),
            **opened.ids.columns(edges[:, 1], "tail"),
            "relation": names.take(pa.array(np.asarray(rows.relations))),
            "split": split_column(rows.split, slice(None), len(edges)),
            "head_rank": pa.array(heads, pa.float64()),
            "tail_rank": pa.array(tails, pa.float64()),
        }
        for part in cut(len(heads)):
            yield {name: column[part] for name, column in columns.items()}

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Count entities by relation, and look for those that are alike."""
        from tasks.controls.ranked.triples import TripleControls

        return TripleControls(graph.predictor.triple_splits)

    def secondary(self, manifest: GraphManifest) -> list[Evaluator]:
        """Return the mean reciprocal rank."""
        return [make_evaluator(EVALUATORS.config({"name": "mrr"}), manifest)]

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return ranks by relation, by kind of relation, by how often an entity was met."""
        from models.knowledge.base import KnowledgeModel
        from tasks.kinds.diagnosis.triples import diagnose_triples

        assert isinstance(opened.model, KnowledgeModel)
        names = relation_names(opened.dataset).to_pylist()
        return diagnose_triples(opened.model, opened.predictor.triple_splits, split, prediction.true_ranks(), names)

    def is_directed(self, manifest: DatasetManifest, *, symmetric: bool) -> bool:
        """A triple has a head and a tail."""
        return True

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return hashes of head, tail and relation."""
        from tasks.ingest.ids.id_index import hash_ids

        hashes = super().row_hashes(store, dataset, split, directed=True, reverse=reverse)
        names = hash_ids(relation_names(dataset))
        return hashes * FACTOR ^ names[np.asarray(store[f"{split}_relation"])]


KIND = TripleKind()
