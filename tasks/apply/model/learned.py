"""Feature transforms as a model's training fitted them: found again when it is published, applied to other data later.

Fitted anew on other data, a transform would scale the same value differently, and the model would be wrong without a
sign of it. So `learn` asks the preprocess stage's own code what each transform learned (from its kept summaries of
shards, as a rule), the published model brings that along, and `learned_transforms` puts it in place of fitting.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from configs.base import ComponentConfig
from configs.errors import IntegrityError, RecipeError
from configs.registry import TRANSFORMS
from tasks.preprocess.shards import digest
from tasks.preprocess.transforms.base import Column, ColumnTransform, ReadsAsTrained, State
from tasks.storage.artifacts import write_atomic
from tasks.storage.graph_store import Array
from tasks.storage.manifests import DatasetManifest, EdgeType, Table
from tasks.storage.stored import read_json

# States by their digest, for transforms that stand in recipes with that, and send the states to the workers.
_STATES: dict[str, dict[str, State]] = {}


def keep_states(states: dict[str, State]) -> str:
    """Keep what was learned for `states_of`; returns its digest."""
    key = digest(states)
    _STATES[key] = states
    return key


def states_of(config: Any) -> dict[str, State]:
    """Return what was learned, by the digest in a transform's options. Raises RecipeError where none is known."""
    if config.sha256 not in _STATES:
        raise RecipeError(
            f"preprocess.transforms: {config.name} is what graphmill predict puts in place of a transform; name the "
            "transform itself"
        )
    return _STATES[config.sha256]


def write_values(folder: Path, name: str, value: Any) -> None:
    """Write nested dictionaries, lists, plain values and arrays as `NAME.json` and `NAME.npz`."""
    arrays: dict[str, Array] = {}
    text = json.dumps(_pack(value, arrays), indent=1)
    content = io.BytesIO()
    np.savez(content, **arrays)  # type: ignore[arg-type]
    write_atomic(folder / f"{name}.npz", content.getvalue())
    write_atomic(folder / f"{name}.json", text.encode())


def read_values(folder: Path, name: str) -> Any:
    """Read what `write_values` wrote. Raises IntegrityError where the files are damaged, FileNotFoundError."""
    values = read_json(folder / f"{name}.json")
    try:
        with (folder / f"{name}.npz").open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return _unpack(values, arrays)
    except (ValueError, KeyError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise IntegrityError(f"{folder / name}.json and .npz are damaged: {error}") from error


def _pack(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, dict):
        return {str(key): _pack(inner, arrays) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_pack(inner, arrays) for inner in value]
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "U":  # as an array each text would take as much as the longest
            return {"$texts": value.tolist()}
        assert value.dtype.kind in "biuf", value.dtype
        arrays[f"a{len(arrays)}"] = value
        return {"$array": f"a{len(arrays) - 1}"}
    return value.item() if isinstance(value, np.generic) else value


def _unpack(value: Any, arrays: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(inner, arrays) for inner in value]
    if not isinstance(value, dict):
        return value
    if "$array" in value:
        return arrays[value["$array"]]
    if "$texts" in value:
        return np.array(value["$texts"], np.str_)
    return {key: _unpack(inner, arrays) for key, inner in value.items()}


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
        elif one.config["name"] == "hops":
            from tasks.apply.model import learning  # noqa: F401  # registers it

            configs.append(TRANSFORMS.config({**one.config, "name": "learned_hops", "sha256": keep_states(one.states)}))
        else:
            values = {"name": "learned", "sha256": keep_states(one.states), "transform": one.config}
            configs.append(TRANSFORMS.config(values))
    return configs
