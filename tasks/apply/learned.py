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
from tasks.apply.states import keep_states, states_of
from tasks.preprocess.transforms.base import Column, ColumnTransform, State
from tasks.storage.graph_store import Array


@dataclass(frozen=True)
class Learned:
    """A transform of the recipe, and what it learned of each column; `states` is None where it learns nothing."""

    config: dict[str, Any]
    states: dict[str, State] | None


def unfitted(config: ComponentConfig) -> Learned:
    """Return a transform that learnt nothing."""
    return Learned(config.model_dump(mode="json"), None)


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


@TRANSFORMS.register("recode", listed=False)
class Recode(_FittedTransform):
    """Turn codes of categories into those of a model's training data; `graphmill predict` puts it into recipes."""

    Config = FittedConfig

    takes = ("categorical",)

    def output(self, column: Column, state: State) -> Column:
        """As many codes as the training data had, and one for others where a later transform takes them."""
        return Column(column.name, "categorical", column.dim, tuple(state["cardinalities"]))

    def apply(self, x: Array, state: State) -> Array:
        """Look each code up: int32 (n, 1)."""
        codes: Array = state["codes"]
        return codes[x]


def learned_transforms(learned: Sequence[Learned]) -> list[ComponentConfig]:
    """Return the recipe's transforms, those that learn with what they learned."""
    configs = []
    for one in learned:
        if one.states is None:
            configs.append(TRANSFORMS.config(_served(one.config)))
        elif one.config["name"] == "hops":
            from tasks.apply import learned_hops  # noqa: F401  # registers it

            configs.append(TRANSFORMS.config({**one.config, "name": "learned_hops", "sha256": keep_states(one.states)}))
        else:
            values = {"name": "learned", "sha256": keep_states(one.states), "transform": one.config}
            configs.append(TRANSFORMS.config(values))
    return configs


def _served(config: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a transform that learnt nothing, as serving takes them."""
    registered = config["name"] == "embedding" and config.get("model") is not None
    return {**config, "name": "served_embedding"} if registered else config


def recode_transform(codes: dict[str, Array], cardinalities: dict[str, int]) -> ComponentConfig:
    """Return a transform that looks codes up.

    `codes`: column to the training data's code for each code here, int32 (number of codes,); `cardinalities`: column to
    the number of codes afterwards.
    """
    states = {name: {"codes": table, "cardinalities": [cardinalities[name]]} for name, table in codes.items()}
    return TRANSFORMS.config({"name": "recode", "sha256": keep_states(states)})
