"""Controls as models: what was fitted, in plain files, and the same code that measured them on rows of other data.

`model.safetensors` has the arrays, `model.json` the control's name and its graph's facts, `trees-N.txt` LightGBM's
own text of the trees of label N; nothing is pickled.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import IntegrityError
from models.facts import GraphFacts
from tasks.arrays import Array, offsets
from tasks.controls import boosting
from tasks.controls.entities import EntityRows
from tasks.controls.features import ControlledGraph, OwnFeatures
from tasks.controls.linear import LinearControl
from tasks.controls.moments import PAST_COLUMNS, BoostedControl, PastControl
from tasks.controls.pairs.neighborhoods import NeighborhoodControl
from tasks.controls.ranked.recommendation import RecommendationControls
from tasks.evaluators.ranked_rows import RankedRows
from tasks.inference.predictor import Predictor
from tasks.inference.ranked import ranked_by
from tasks.inference.rule import CodesAsTrained, Rule
from tasks.storage.controls import CONSTANT_CONTROLS, CONTROLS, FEATURES_CONTROL
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap

TREES = "trees-{}.txt"
Arrays = dict[str, Array]


class PublishedControl(Rule):
    """A control that scores rows by what was written of it."""

    def __init__(self, control: str, facts: GraphFacts, state: Arrays, folder: Path, codes: CodesAsTrained) -> None:
        """`folder` has the trees. Raises IntegrityError: the files are not those of such a control."""
        if control not in CONTROLS or not CONTROLS[control].serves:
            raise IntegrityError(f"{folder} has no control {control!r} that can be served; publish it again")
        super().__init__(control, CONTROLS[control].what, facts, codes)
        self.control, self.state, self.folder = control, state, folder

    def open(self, store: GraphStore, dataset: DatasetStore, ids: IdMap, predictor: Predictor, scratch: Path) -> None:
        """Take the graph whose rows are scored."""
        self.graph = ControlledGraph(store, dataset, ids, predictor, scratch)

    def node_scores(self, nodes: Array) -> Array:
        """Score nodes of the graph."""
        if self.control in CONSTANT_CONTROLS:
            return np.repeat(self.state["scores"][None].astype(np.float32), len(nodes), axis=0)
        if self.control in PAST_COLUMNS:
            return PastControl.of(self.graph, self.control, self.state["otherwise"]).scores(nodes)
        if self.graph.store.manifest.fit_before is None:
            return self._row_scores(self.graph.ids.rows(nodes), None)
        entities = EntityRows(self.graph.store, np.sort(nodes), self.graph.scratch)
        if self.control != FEATURES_CONTROL:
            return BoostedControl(self.graph.store, entities, self._trees()).scores(nodes)
        features = OwnFeatures(entities.numbers, entities.codes)
        return LinearControl.of(self.graph.store, features, self.state, entities.places).scores(nodes)

    def graph_scores(self, graphs: Array) -> Array:
        """Score graphs."""
        if self.control in CONSTANT_CONTROLS:
            return self.node_scores(graphs)
        return self._row_scores(graphs, offsets(self.graph.dataset.column("graphs", "num_nodes")))

    def pair_scores(self, pairs: Array) -> Array:
        """Score pairs by their ends' neighbours."""
        scores = NeighborhoodControl(self.graph.store).scores(pairs)
        if scores is None:
            raise self._refusal(f"{len(pairs):,} pairs, whose neighbours are too many to look at")
        return scores[self.control]

    def ranked(self, tasks: Array, k: int | None) -> RankedRows:
        """Rank all candidates for tasks."""
        controls = RecommendationControls(self.graph.store)
        return ranked_by(controls.links, tasks, controls.rules[self.control], k)

    def _row_scores(self, items: Array, first_rows: Array | None) -> Array:
        """Score rows of the table of what is predicted, or graphs, whose rows lie between two of `first_rows`."""
        graph, kind = self.graph, self.graph.store.manifest.target_type
        columns = graph.columns(kind)
        rows, places = np.unique(items, return_inverse=True)
        if first_rows is not None:
            rows, places = np.arange(first_rows[-1]), items
        numbers, codes = graph.read(kind, columns, rows, graph.scratch)
        as_trained = self.codes(graph.dataset)
        of_codes = [one.column for one in columns if one.kind == "categorical" for _ in range(one.dim)]
        for place, column in enumerate(of_codes):
            if column in as_trained:
                codes[:, place] = as_trained[column][codes[:, place]]
        features = OwnFeatures(numbers, codes, first_rows)
        return LinearControl.of(graph.store, features, self.state, lambda rows: rows).scores(places)

    def _trees(self) -> boosting.BoostedColumns:
        import lightgbm

        count, columns = int(self.state["num_scores"][0]), []
        for number in range(self.facts.out_dim // count if count == 1 else 1):
            path = self.folder / file_name(TREES.format(number))
            constant: Any = tuple(self.state.get(f"constant-{number}", np.empty(0)).tolist())
            try:
                trees = None if constant else lightgbm.Booster(model_str=path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, lightgbm.basic.LightGBMError) as error:
                raise IntegrityError(f"{path} is damaged: {error}; publish the model again") from error
            columns.append(boosting.Boosted(trees, count, constant))
        return boosting.BoostedColumns(tuple(columns))
