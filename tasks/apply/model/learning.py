"""What a training's transforms learned, asked of the preprocess stage's own code when a model is published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from configs.registry import TRANSFORMS
from configs.schema import Recipe
from tasks.apply.model.learned import TEXTS, Learned
from tasks.preprocess.features import FeatureBuilder
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.rows import training_rows
from tasks.preprocess.splits.snapshot import take_snapshot
from tasks.preprocess.texts.encoding import FILE as TEXTS_FILE
from tasks.preprocess.texts.encoding import TextColumns
from tasks.preprocess.transforms.base import ColumnTransform, GraphView
from tasks.preprocess.transforms.hops import split_hops
from tasks.stage import Parent, StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.outputs.values import read_values


class _Learner(FeatureBuilder):
    """Fits the transforms as the stage does, and keeps what they learn instead of writing features."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.learned: list[Learned] = []

    def _apply(self, transform: ColumnTransform, only_raw: bool = False) -> None:
        before = {track.source.name: len(track.steps) for track in self.tracks}
        super()._apply(transform, only_raw)
        moved = {t.source.name: t.steps[-1].state for t in self.tracks if len(t.steps) > before[t.source.name]}
        nothing = Learned.nothing(transform.config)
        self.learned.append(replace(nothing, states=moved) if transform.fits else nothing)

    def _add_structure(self, transform: Any) -> None:
        super()._add_structure(transform)
        self.learned.append(Learned.nothing(transform.config))

    def _write(self, writer: ArrayWriter) -> dict[str, Any]:
        return {}


def learn(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> list[Learned]:
    """Return what each transform of a finished preprocess artifact learned, in the order of their application.

    The context's cache has the shards' summaries, else they are computed again; `parents` has `ingest` and
    `preprocess`.
    """
    options, hops = split_hops(recipe.preprocess)
    last = []
    if hops is not None:  # the stage noted how it scaled
        noted = parents["preprocess"].manifest.report["transforms"][-1].get("scales") or {}
        scales = {n: {k: np.asarray(v, np.float32) for k, v in one.items()} for n, one in noted.items()}
        last = [Learned(hops.config.model_dump(mode="json"), scales or None)]
    first, texts = [], None
    if f"{TEXTS_FILE}.json" in parents["preprocess"].manifest.files:
        states = read_values(parents["preprocess"].folder, TEXTS_FILE)
        first, texts = [Learned({"name": TEXTS}, states)], TextColumns(context, recipe.preprocess.texts, states)
    features = [feature for node_type in parents["ingest"].manifest.node_types for feature in node_type.features]
    # Categories that have no codes yet get some, and empty cells are filled.
    learns = any(one.gaps or (one.kind == "categorical" and not one.cardinalities) for one in features)
    if not learns and not any(getattr(TRANSFORMS.get(one.name), "fits", False) for one in options.transforms):
        return [*first, *map(Learned.nothing, options.transforms), *last]
    ingest, graph = parents["ingest"], parents["preprocess"]
    store = DatasetStore(ingest.folder, ingest.manifest)
    ids = IdSpace(ingest.manifest, options.symmetrize, options.self_loops == "add")
    snapshot = take_snapshot(recipe, store, ids)
    if snapshot is not None:
        store, ids = snapshot.store, snapshot.ids
    places = str(ingest.folder), str(context.home.root)
    view = GraphView(str(graph.folder), dict(graph.manifest.arrays), ids.num_nodes, options.symmetrize, *places)
    learner = _Learner(context, store, ids, options, view, training_rows(store.manifest, view), texts, snapshot)
    learner.build(ArrayWriter(graph.folder))
    return [*first, *learner.learned, *last]
