"""Controls of several tasks that share a model: those of each task, put together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tasks.controls.entities import EntityRows
from tasks.controls.features import ControlledGraph
from tasks.controls.labels import LabelControls
from tasks.controls.moments import held_rows
from tasks.controls.suite import Controls, Measure, Measured
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import of_head
from tasks.sampling.relational.batches import share_edges
from tasks.storage.controls import CONSTANT_CONTROLS, CONSTANT_OF_EACH
from tasks.storage.graph_facts import reads_tables
from tasks.storage.graph_store import GraphStore
from tasks.storage.heads import HeadView, head_manifest, head_views


class SeveralControls(Controls):
    """The controls of a graph of several tasks."""

    def __init__(self, graph: ControlledGraph) -> None:
        """Fit them."""
        super().__init__()
        store = graph.store
        if reads_tables(store.manifest):
            graph = replace(graph, entities=EntityRows(store, held_rows(store), graph.scratch))
        self._views = head_views(store.manifest)
        self._parts: list[LabelControls] = []
        for view in self._views:
            own = head_store(store, view)
            of_task = replace(graph, store=own, labels=view.labels)
            self._parts.append(LabelControls(of_task, view.num_scores, own["label"]))
        self.notes = [note for part in self._parts for note in part.notes]

    def measured(self, split: str, prediction: Prediction, measure: Measure) -> Measured:
        """Yield them; a task that has no such control has its best constant there."""
        by_name: dict[str, dict[int, Prediction]] = {}
        constants: list[Prediction] = []
        for number, (view, part) in enumerate(zip(self._views, self._parts, strict=True)):
            for name, control in part.predictions(split, of_head(prediction, view)):
                if name in CONSTANT_CONTROLS:
                    constants.append(control)
                else:
                    by_name.setdefault(name, {})[number] = control
        values = measure(self._joined(prediction, {}, constants))
        for number, (view, part) in enumerate(zip(self._views, self._parts, strict=True)):
            label = constants[number].label
            assert label is not None
            for name, best in part.best_constants(label):
                metric = f"{view.head.name}.{name}"
                if metric in values:
                    values[metric] = measure(self._joined(prediction, {number: best}, constants))[metric]
        yield CONSTANT_OF_EACH, values
        for name, parts in by_name.items():
            yield name, measure(self._joined(prediction, parts, constants))

    def _joined(self, prediction: Prediction, parts: dict[int, Prediction], constants: list[Prediction]) -> Prediction:
        columns = [parts.get(number, constant).scores for number, constant in enumerate(constants)]
        return replace(prediction, scores=np.concatenate([one for one in columns if one is not None], axis=1))


def head_store(store: GraphStore, view: HeadView) -> GraphStore:
    """Return the graph with the labels of one of its tasks."""
    own = GraphStore(store.folder, head_manifest(store.manifest, view.head))
    own.replace("label", view.label_of(np.asarray(store["label"])))
    share_edges(store, own)
    return own
