"""Feature transforms as a model's training fitted them: found again when it is published, applied to other data later.

Fitted anew on other data, a transform would scale the same value differently, and the model would be wrong without a
sign of it. So `learn` asks the preprocess stage's own code what each transform learned (from its kept summaries of
shards, as a rule), the published model brings that along, and `learned_transforms` puts it in place of fitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import Field

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from configs.schema import PreprocessConfig, Recipe
from tasks.preprocess.features import FeatureBuilder
from tasks.preprocess.layout import Layout
from tasks.preprocess.shards import digest
from tasks.preprocess.splits.arrays import training_rows
from tasks.preprocess.splits.snapshot import take_snapshot
from tasks.preprocess.transforms.base import Column, ColumnTransform, ReadsAsTrained, State
from tasks.preprocess.transforms.configs import HopsConfig
from tasks.preprocess.transforms.graph_view import GraphView
from tasks.preprocess.transforms.hops import Hops, split_hops
from tasks.stage import Parent, StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array, ArrayWriter
from tasks.storage.manifests import DatasetManifest, EdgeType, GraphManifest, Table


@dataclass(frozen=True)
class Learned:
    """A transform of the recipe, and what it learned of each column; `states` is None where it learns nothing."""

    config: dict[str, Any]
    states: dict[str, State] | None


class _Learner(FeatureBuilder):
    """Fits the transforms as the stage does, and keeps what they learn instead of writing features."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.learned: list[Learned] = []

    def _apply(self, transform: ColumnTransform, only_raw: bool = False) -> None:
        before = {track.source.name: len(track.steps) for track in self.tracks}
        super()._apply(transform, only_raw)
        moved = {t.source.name: t.steps[-1].state for t in self.tracks if len(t.steps) > before[t.source.name]}
        unfitted = _unfitted(transform.config)
        self.learned.append(Learned(unfitted.config, moved) if transform.fits else unfitted)

    def _add_structure(self, transform: Any) -> None:
        super()._add_structure(transform)
        self.learned.append(_unfitted(transform.config))

    def _write(self, writer: ArrayWriter) -> dict[str, Any]:
        return {}


def learn(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> list[Learned]:
    """Return what each transform of a finished preprocess artifact learned, in the order of their application.

    The context's cache has the shards' summaries, else they are computed again; `parents` has `ingest` and
    `preprocess`.
    """
    options, hops = split_hops(recipe.preprocess)
    own = [] if hops is None else [_learned_hops(hops, parents["preprocess"].manifest)]
    if not _anything_to_learn(options, parents["ingest"].manifest):
        return [*map(_unfitted, options.transforms), *own]
    ingest, graph = parents["ingest"], parents["preprocess"]
    store = DatasetStore(ingest.folder, ingest.manifest)
    layout = Layout(ingest.manifest, options.symmetrize, options.self_loops == "add")
    snapshot = take_snapshot(recipe, store, layout)
    if snapshot is not None:
        store, layout = snapshot.store, snapshot.layout
    places = str(ingest.folder), str(context.home.root)
    view = GraphView(str(graph.folder), dict(graph.manifest.arrays), layout.num_nodes, options.symmetrize, *places)
    learner = _Learner(context, store, layout, options, view, training_rows(store.manifest, view), snapshot)
    learner.build(ArrayWriter(graph.folder))
    return [*learner.learned, *own]


def _learned_hops(hops: Hops, manifest: GraphManifest) -> Learned:
    """Return what the stage noted; nothing where an earlier graphmill made the artifact."""
    scales = manifest.report["transforms"][-1].get("scales")
    arrays = scales and {n: {k: np.asarray(v, np.float32) for k, v in one.items()} for n, one in scales.items()}
    return Learned(hops.config.model_dump(mode="json"), arrays or None)


def _anything_to_learn(options: PreprocessConfig, manifest: DatasetManifest) -> bool:
    """Whether a transform learns, empty cells are filled, or categories have no codes yet, which then get some."""
    features = [feature for node_type in manifest.node_types for feature in node_type.features]
    without_codes = any(feature.kind == "categorical" and not feature.cardinalities for feature in features)
    gaps = any(feature.gaps for feature in features)
    fits = any(getattr(TRANSFORMS.get(one.name), "fits", False) for one in options.transforms)
    return without_codes or gaps or fits


def _unfitted(config: ComponentConfig) -> Learned:
    return Learned(config.model_dump(mode="json"), None)


# States by their digest, for the transforms below, which send them to the workers.
_STATES: dict[str, dict[str, State]] = {}


def states_of(config: Any) -> dict[str, State]:
    """Return what was learned, by the digest in a transform's options. Raises RecipeError where none is known."""
    if config.sha256 not in _STATES:
        raise RecipeError(
            f"preprocess.transforms: {config.name} is what graphmill predict puts in place of a transform; name the "
            "transform itself"
        )
    return _STATES[config.sha256]


class FittedConfig(ComponentConfig):
    """Options of learned and recode."""

    sha256: str = ""
    """Digest of what was learned."""
    transform: dict[str, Any] = Field(default={})
    """The transform that learned it, with its options."""


class _FittedTransform(ColumnTransform):
    Config = FittedConfig

    def select(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        return tuple(states_of(self.config))

    def fit(self, partials: list[State], column: Column) -> State:
        return states_of(self.config)[column.name]


@TRANSFORMS.register("learned", listed=False)
class LearnedTransform(_FittedTransform):
    """Another transform as it was fitted on a model's training data; `graphmill predict` puts it into recipes."""

    Config = FittedConfig

    def __init__(self, config: FittedConfig) -> None:
        super().__init__(config)  # type: ignore[arg-type]
        if config.transform:
            self.inner: ColumnTransform = TRANSFORMS.create(TRANSFORMS.config(config.transform))
            self.version = self.inner.version  # type: ignore[misc]

    def output(self, column: Column, state: State) -> Column:
        """As the transform says."""
        return self.inner.output(column, state)

    def apply(self, x: Array, state: State) -> Array:
        """As the transform does."""
        return self.inner.apply(x, state)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        """As the transform does."""
        return self.inner.describe(column, state)


@dataclass(frozen=True)
class Recoding:
    """How other data becomes what a training saw."""

    nodes: dict[str, State]
    """Categorical column of nodes to `codes`, the training's code for each code here, int32 (number of codes,), and
    `cardinalities`, how many codes the training had."""
    edges: dict[str, State]
    """The same of edges."""
    relations: list[dict[str, Any]]
    """The training's relations (`EdgeType`), where others are here or they come in another order."""
    notes: list[str]


@TRANSFORMS.register("recode", listed=False)
class Recode(_FittedTransform, ReadsAsTrained):
    """Turn codes of categories into those of a model's training data; `graphmill predict` puts it into recipes."""

    Config = FittedConfig

    takes = ("categorical",)

    def select(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        """Columns of nodes that are recoded."""
        return tuple(states_of(self.config)["nodes"])

    def fit(self, partials: list[State], column: Column) -> State:
        """Return what is known beforehand."""
        found: State = states_of(self.config)["nodes"][column.name]
        return found

    def output(self, column: Column, state: State) -> Column:
        """As many codes as the training data had."""
        return Column(column.name, "categorical", column.dim, tuple(state["cardinalities"]))

    def apply(self, x: Array, state: State) -> Array:
        """Look each code up: int32 (n, 1)."""
        codes: Array = state["codes"]
        return codes[x]

    @property
    def edge_codes(self) -> dict[str, State]:
        """See the base class."""
        return states_of(self.config)["edges"]

    def notes(self) -> list[str]:
        """See the base class."""
        return list(states_of(self.config)["notes"])

    def relations_as_trained(self, data: DatasetManifest) -> DatasetManifest:
        """See the base class."""
        trained = [EdgeType.model_validate(one) for one in states_of(self.config)["relations"]]
        if not trained:
            return data
        here = {one.name: one for one in data.edge_types}
        columns = {feature.column: feature for one in data.edge_types for feature in one.features}
        empty = {
            f"edges/{one.name}": Table(
                num_rows=0,
                columns={"src": "int32", "dst": "int32"} | {f.column: "int32" for f in one.features},
                shards=(),
                shard_rows=(),
            )
            for one in trained
            if one.name not in here
        }
        absent = [
            one.model_copy(update={"num_edges": 0, "features": tuple(columns.get(f.column, f) for f in one.features)})
            for one in trained
        ]
        types = tuple(here.get(one.name, one) for one in absent)
        return data.model_copy(update={"edge_types": types, "tables": data.tables | empty})


@TRANSFORMS.register("learned_hops", listed=False)
class LearnedHops(Hops):
    """The transform hops, scaled as on a model's training data; `graphmill predict` puts it into recipes."""

    class Config(HopsConfig):
        """Options of learned_hops."""

        sha256: str = ""
        """Digest of what was learned."""

    def scale(self, name: str, x: Array, train_rows: Array | None) -> tuple[Array, Array]:
        """Return what was learned."""
        known = states_of(self.config)[name]
        return known["mean"], known["deviation"]


def learned_transforms(learned: Sequence[Learned]) -> list[ComponentConfig]:
    """Return the recipe's transforms, those that learn with what they learned."""
    configs = []
    for one in learned:
        if one.states is None:
            configs.append(TRANSFORMS.config(_served(one.config)))
        elif one.config["name"] == "hops":
            configs.append(TRANSFORMS.config({**one.config, "name": "learned_hops", "sha256": _keep(one.states)}))
        else:
            values = {"name": "learned", "sha256": _keep(one.states), "transform": one.config}
            configs.append(TRANSFORMS.config(values))
    return configs


def _served(config: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a transform that learnt nothing, as serving takes them."""
    registered = config["name"] == "embedding" and config.get("model") is not None
    return {**config, "name": "served_embedding"} if registered else config


def recode_transform(recoding: Recoding) -> ComponentConfig:
    """Return a transform that reads data as a training did."""
    return TRANSFORMS.config({"name": "recode", "sha256": _keep(asdict(recoding))})


def _keep(states: dict[str, State]) -> str:
    key = digest(states)
    _STATES[key] = states
    return key
