"""What the options of all loaders have in common: recipes are checked without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from configs.base import ComponentConfig, IntTuple, split_commas
from configs.errors import RecipeError
from configs.registry import LOADERS
from configs.schema import loaders_of
from models.configs import ModelConfig

if TYPE_CHECKING:
    from configs.training import TrainConfig
    from tasks.storage.manifests import GraphManifest

_FANOUT = (15, 10, 5)


def _split_fanouts(value: Any) -> Any:
    """Return lists of numbers for what a recipe or the command line says: `16,8`, or that for each relation."""
    if isinstance(value, Mapping):
        return {name: split_commas(hops) for name, hops in value.items()}
    return split_commas(value)


def _check_fanouts(value: Any) -> Any:
    lists = value if isinstance(value, Mapping) else {"default": value}
    if isinstance(value, Mapping) and "default" not in value:
        raise ValueError("a map of fan-outs needs `default`, for the relations that it does not name")
    for name, hops in lists.items():
        if not hops or any(hop < -1 for hop in hops):
            raise ValueError(f"{name}: give a number a layer, each 0 (none) or more, or -1 (all)")
    return value


FanoutByRelation = Annotated[
    tuple[int, ...] | dict[str, tuple[int, ...]], BeforeValidator(_split_fanouts), AfterValidator(_check_fanouts)
]
"""Numbers from the seeds outwards, the same for all relations or by the relations' names."""


class LoaderConfig(ComponentConfig):
    """What every loader says of itself; a loader of your own sets what differs."""

    families: ClassVar[tuple[str, ...]] = ("gnn",)
    """Families of models that it makes batches for."""
    tasks: ClassVar[tuple[str, ...]] = ("node",)
    """What it makes batches for: node, link, graph."""
    keeps_nodes: ClassVar[bool] = True
    """Whether all layers see the same nodes; in sampled neighbourhoods each sees fewer than the one before."""
    holds_all_neighbors: ClassVar[bool] = False
    """Whether a batch has all in-neighbours of the nodes that it computes."""

    def resolve(self, manifest: GraphManifest) -> LoaderConfig:
        """Return the loader that is meant for a graph, itself but for `auto`. Raises RecipeError if it does not fit."""
        if manifest.task not in self.tasks:
            raise RecipeError(
                f"train.loader={self.name} does not fit {manifest.dataset}, a {manifest.task} task; use "
                f"{' or '.join(loaders_of(manifest.task))}"
            )
        return self

    def check_model(self, model: ComponentConfig) -> None:
        """Raise RecipeError where the options do not fit the model, whatever the graph."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Raise RecipeError where the options fit neither the graph nor the model."""
        self.check_model(model)
        if isinstance(model, ModelConfig):
            model.check_batches(
                self.name,
                keeps_nodes=self.keeps_nodes,
                all_neighbors=self.sees_all_neighbors(),
                symmetric=manifest.symmetric,
            )
        if getattr(model, "reversible", False) and not self.keeps_nodes:
            others = [name for name in loaders_of(manifest.task) if name not in ("auto", "precomputed")]
            keeping = [name for name in others if getattr(LOADERS.config_class(name), "keeps_nodes", False)]
            raise RecipeError(
                "model.reversible=true wants batches whose nodes stay from layer to layer, and "
                f"train.loader={self.name} gives each layer fewer; take train.loader="
                f"{' or '.join(keeping)}, or set model.reversible=false"
            )

    def facts(self, model: ComponentConfig, manifest: GraphManifest) -> dict[str, Any]:
        """Return what a model has to remember of the loader, as fields of `GraphFacts`."""
        return {}

    def sees_all_neighbors(self) -> bool:
        """Whether a batch has all in-neighbours, with these options."""
        return self.holds_all_neighbors

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """Estimate how many nodes each layer of a step computes, from the seeds outwards, and last how many are read.

        `num_nodes` are those of the graph, or of all graphs; `num_parts` those of the partition.
        """
        return [num_nodes] * (num_layers + 1)


class SeedLoaderConfig(LoaderConfig):
    """A loader that goes through the training split in batches."""

    batch_size: int = Field(default=1024, ge=1)
    """Seeds (nodes, edges or graphs) a step and rank."""


class LabelSeedsConfig(SeedLoaderConfig):
    """A loader whose seeds are rows with labels."""

    balance: Literal["none", "classes"] = "none"
    """classes: as many seeds of every class that occurs, drawn with repetition in epochs of unchanged length, so that
    batches meet rare ones. Scores stay those of the classes' real shares."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Refuse to balance what are no classes of a row."""
        super().check_graph(model, manifest)
        if self.balance == "classes" and (manifest.heads or not manifest.label_type.one_decision):
            raise RecipeError(
                "train.loader.balance=classes is for one class a row, or one label of yes or no, and "
                f"{manifest.dataset} is another task ({manifest.task_type}); leave it out"
                + ("" if manifest.label_type.is_number else ", or take train.loss.class_weight=balanced")
            )


class SampledConfig(SeedLoaderConfig):
    """A loader that samples the seeds' neighbourhoods, a hop a layer."""

    fanout: IntTuple | None = None
    """Neighbours sampled a layer, from the seeds outwards, one number a layer of the model; -1 takes all. null: 15, 10,
    and 5 in all further layers. Models that tell relations apart (`rgcn`): so many in each relation."""

    keeps_nodes: ClassVar[bool] = False
    ends_a_seed: ClassVar[int] = 1
    """Nodes that are sampled around for each seed."""

    @field_validator("fanout")
    @classmethod
    def _fanout_positive(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (not value or any(f == 0 or f < -1 for f in value)):
            raise ValueError("fanout needs a number a layer, each positive or -1 (all neighbours)")
        return value

    def fanouts(self, num_layers: int) -> tuple[int, ...]:
        """Return the fan-out of every layer of a model, from the seeds outwards."""
        if self.fanout is not None:
            return self.fanout
        return (_FANOUT + _FANOUT[-1:] * num_layers)[:num_layers]

    def sees_all_neighbors(self) -> bool:
        """Where every fan-out is -1."""
        return self.fanout is not None and all(fanout == -1 for fanout in self.fanout)

    def check_model(self, model: ComponentConfig) -> None:
        """Count the fan-outs."""
        num_layers = getattr(model, "num_layers", None)
        if num_layers is not None and self.fanout is not None and len(self.fanout) != num_layers:
            raise RecipeError(
                f"train.loader.fanout has {len(self.fanout)} numbers and the model has {num_layers} layers; give one a "
                f"layer, such as train.loader.fanout={','.join(['10'] * num_layers)}"
            )

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """Every hop multiplies the nodes, until there are no more."""
        seeds = self.batch_size * self.ends_a_seed
        grows = [1 + (fanout if fanout > 0 else num_nodes) for fanout in self.fanouts(num_layers)]
        return [min(num_nodes, seeds * math.prod(grows[:hop])) for hop in range(len(grows) + 1)]


class NegativesConfig(SeedLoaderConfig):
    """A loader whose seeds are training edges, each with drawn negatives."""

    num_negatives: int = Field(default=1, ge=1)
    """Negative edges for each positive one: uniform pairs. Training edges are avoided; held-out ones are not known."""

    tasks: ClassVar[tuple[str, ...]] = ("link",)


def resolve_loader(train: TrainConfig, model: ComponentConfig, manifest: GraphManifest) -> LoaderConfig:
    """Return the loader that a recipe means on a graph.

    Raises RecipeError: its options do not fit the task, the graph or the model.
    """
    given = train.loader
    assert isinstance(given, LoaderConfig), "a loader's Config derives from LoaderConfig"
    loader = given.resolve(manifest)
    loader.check_graph(model, manifest)
    return loader
