"""Feature transforms as a model's training fitted them: found again when it is published, applied to other data later.

Fitted anew on other data, a transform would scale the same value differently, and the model would be wrong without a
sign of it. So `learn` asks the preprocess stage's own code what each transform learned (from its kept summaries of
shards, as a rule), the published model brings that along, and `learned_transforms` puts it in place of fitting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import TRANSFORMS
from tasks.apply.model.states import keep_states, states_of
from tasks.preprocess.transforms.base import Column, ColumnTransform, ReadsAsTrained, State, TextsAsTrained
from tasks.storage.graph_store import Array
from tasks.storage.manifests import DatasetManifest, EdgeType, Table

TEXTS = "texts"
"""In the place of a transform's name: what the encoder of texts learned."""


@dataclass(frozen=True)
class Learned:
    """A transform of the recipe, and what it learned of each column; `states` is None where it learns nothing."""

    config: dict[str, Any]
    states: dict[str, State] | None

    @classmethod
    def nothing(cls, config: ComponentConfig) -> Learned:
        """Return a transform that learnt nothing."""
        return cls(config.model_dump(mode="json"), None)


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


@TRANSFORMS.register("learned_texts", listed=False)
class LearnedTexts(TextsAsTrained):
    """What a model's training learned of texts; `graphmill predict` puts it into recipes."""

    Config = FittedConfig

    def __init__(self, config: FittedConfig) -> None:
        self.config = config

    @property
    def states(self) -> dict[str, State]:
        """See the base class."""
        return states_of(self.config)


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
        state: State = states_of(self.config)["nodes"][column.name]
        return state

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


def learned_transforms(learned: Sequence[Learned]) -> list[ComponentConfig]:
    """Return the recipe's transforms, those that learn with what they learned."""
    configs = []
    for one in learned:
        if one.states is None:
            from_model = one.config["name"] == "embedding" and one.config.get("model") is not None
            configs.append(TRANSFORMS.config({**one.config, "name": "served_embedding"} if from_model else one.config))
        elif one.config["name"] == TEXTS:
            configs.append(TRANSFORMS.config({"name": "learned_texts", "sha256": keep_states(one.states)}))
        elif one.config["name"] == "hops":
            from tasks.apply.model import learned_hops  # noqa: F401  # registers it

            configs.append(TRANSFORMS.config({**one.config, "name": "learned_hops", "sha256": keep_states(one.states)}))
        else:
            values = {"name": "learned", "sha256": keep_states(one.states), "transform": one.config}
            configs.append(TRANSFORMS.config(values))
    return configs
