"""Options of the loaders, apart from their code: recipes are checked without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, field_validator

from configs.base import ComponentConfig, IntTuple
from configs.errors import RecipeError
from configs.moved import OF_ONE_LOADER
from configs.registry import LOADERS
from configs.schema import loaders_of
from models.configs import ModelConfig

if TYPE_CHECKING:
    from configs.schema import TrainConfig
    from tasks.storage.manifests import GraphManifest

# Link tasks: below this many edges encoding the whole graph costs no more than sampling around a batch of pairs, whose
# neighbourhoods then cover most of it.
FULL_ENCODER_EDGES = 5_000_000
_FANOUT = (15, 10, 5)
_ENDS_A_PAIR = 4  # of a positive pair and its negative
_NODES_A_GRAPH = 30  # molecules; the data's own number would be better known than this is needed


class LoaderConfig(ComponentConfig):
    """What every loader says of itself; a loader of your own sets what differs."""

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

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Raise RecipeError where the options fit neither the graph nor the model."""
        if isinstance(model, ModelConfig):
            model.check_batches(
                self.name,
                keeps_nodes=self.keeps_nodes,
                all_neighbors=self.sees_all_neighbors(),
                symmetric=manifest.symmetric,
            )
        for option, off in (("reversible", False), ("label_iterations", 0)):
            given = getattr(model, option, off)
            if given != off and not self.keeps_nodes:
                raise RecipeError(
                    f"model.{option}={str(given).lower()} wants batches whose nodes stay from layer to layer, and "
                    f"train.loader={self.name} gives each layer fewer; take train.loader="
                    f"{' or '.join(_that_keep_nodes(manifest.task))}, or set model.{option}={str(off).lower()}"
                )
        if getattr(model, "dilation", 1) != 1 and not self.sees_all_neighbors():
            raise RecipeError(
                f"model.dilation takes every d-th of all neighbours, and the batches of train.loader={self.name} hold "
                "some of them; take train.loader=full, train.loader=neighbor with train.loader.fanout=-1 in every "
                "layer, or model.dilation=1"
            )

    def sees_all_neighbors(self) -> bool:
        """Whether a batch has all in-neighbours, with these options."""
        return self.holds_all_neighbors

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """Estimate how many nodes each layer of a step computes, from the seeds outwards, and last how many are read.

        `num_nodes` are those of the graph, or of all graphs; `num_parts` those of the partition.
        """
        return [num_nodes] * (num_layers + 1)

    def check_memory(self, ranks: int) -> None:
        """Raise RecipeError where a batch needs more memory than there is, whatever the graph, with so many ranks."""

    def draws_bytes(self) -> int:
        """Return what a rank's draws for a batch take, before it is known which nodes are among them."""
        return 0


class SeedLoaderConfig(LoaderConfig):
    """A loader that goes through the training split in batches."""

    name: str = ""

    batch_size: int = Field(default=1024, ge=1)
    """Seeds (nodes, edges or graphs) a step and rank."""


@LOADERS.options("auto", "automatic")
class AutoConfig(SeedLoaderConfig):
    """By task: `neighbor` for nodes, `graph` for graphs; for links `full_edge`, or `edge` beyond 5 million edges."""

    name: str = "auto"
    tasks: ClassVar[tuple[str, ...]] = ("node", "link", "graph")
    moved_keys: ClassVar[Mapping[str, str]] = {
        key: f"is an option of some loaders; name one: train.loader={loaders}" for key, loaders in OF_ONE_LOADER.items()
    }

    def resolve(self, manifest: GraphManifest) -> LoaderConfig:
        """Choose by the task, and on link tasks by the graph's size."""
        return self.of_task(manifest.task, manifest.num_edges)

    def of_task(self, task: str, num_edges: int) -> LoaderConfig:
        """Return the loader of a task on a graph of so many edges."""
        link = FullEdgeConfig if num_edges <= FULL_ENCODER_EDGES else EdgeConfig
        kinds: dict[str, type[SeedLoaderConfig]] = {"node": NeighborConfig, "link": link, "graph": GraphConfig}
        return kinds[task](batch_size=self.batch_size)


@LOADERS.options("full", "full")
class FullConfig(LoaderConfig):
    """The whole graph in every step, which takes all training nodes: for graphs that fit into memory."""

    name: str = "full"
    holds_all_neighbors: ClassVar[bool] = True
    moved_keys: ClassVar[Mapping[str, str]] = {
        "batch_size": "does nothing: every step takes all training nodes; remove it"
    }


class SampledConfig(SeedLoaderConfig):
    """A loader that samples the seeds' neighbourhoods, a hop a layer."""

    fanout: IntTuple | None = None
    """Neighbours sampled a layer, from the seeds outwards, one number a layer of the model; -1 takes all. null: 15, 10,
    and 5 in all further layers."""
    sampler: Literal["uniform", "replace", "weighted", "labor"] = "uniform"
    """How neighbours are drawn: uniformly without or with replacement, in proportion to the edges' weights, or by
    LABOR, whose seeds share their draws and so reach fewer nodes."""

    keeps_nodes: ClassVar[bool] = False

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

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Count the fan-outs."""
        super().check_graph(model, manifest)
        num_layers = getattr(model, "num_layers", None)
        if num_layers is not None and self.fanout is not None and len(self.fanout) != num_layers:
            raise RecipeError(
                f"train.loader.fanout has {len(self.fanout)} numbers and the model has {num_layers} layers; give one a "
                f"layer, such as train.loader.fanout={','.join(['10'] * num_layers)}"
            )

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """Every hop multiplies the nodes, until there are no more."""
        seeds = self.batch_size * (_ENDS_A_PAIR if "link" in self.tasks else 1)
        grows = [1 + (fanout if fanout > 0 else num_nodes) for fanout in self.fanouts(num_layers)]
        return [min(num_nodes, seeds * math.prod(grows[:hop])) for hop in range(len(grows) + 1)]


@LOADERS.options("neighbor", "neighbor")
class NeighborConfig(SampledConfig):
    """Sampled neighbourhoods of training nodes (GraphSAGE, arXiv:1706.02216): for graphs of any size."""

    name: str = "neighbor"
    first_hop: Literal["auto", "sampled", "fused", "precomputed"] = "auto"
    """How the outermost hop reaches the model. sampled: as nodes with features; fused: its mean is taken while features
    are gathered, and they are never stored; precomputed: the mean over all neighbours, computed once for the whole
    graph. auto: fused where the model reads that hop only through a mean or sum, else sampled."""


class NegativesConfig(SeedLoaderConfig):
    """A loader whose seeds are training edges, each with drawn negatives."""

    negatives: Literal["uniform", "degree", "in_batch", "per_source"] = "uniform"
    """What a drawn negative is: a uniform pair, or a positive's source with a target drawn by degree^0.75, with another
    positive's target, or with a uniform one. Training edges are avoided; held-out ones are not known."""
    num_negatives: int = Field(default=1, ge=1)
    """Drawn negative edges for each positive one."""

    tasks: ClassVar[tuple[str, ...]] = ("link",)


@LOADERS.options("edge", "edge")
class EdgeConfig(SampledConfig, NegativesConfig):
    """Sampled neighbourhoods around training edges and their negatives, the batch's own edges left out."""

    name: str = "edge"
    first_hop: Literal["auto", "sampled", "fused"] = "auto"
    """How the outermost hop reaches the model. sampled: as nodes with features; fused: its mean is taken while features
    are gathered, and they are never stored. auto: fused where the model reads that hop only through a mean or sum."""


@LOADERS.options("full_edge", "full")
class FullEdgeConfig(NegativesConfig):
    """Training edges in batches with negatives, the whole graph encoded in every step (as OGB's example for ddi)."""

    name: str = "full_edge"
    leave_out_positives: bool = False
    """A batch's own positive edges carry no messages, as with the loader edge; off as in OGB's example."""

    holds_all_neighbors: ClassVar[bool] = True


@LOADERS.options("cluster", "cluster")
class ClusterConfig(LoaderConfig):
    """Parts of the partition, some at a time (ClusterGCN, arXiv:1905.07953)."""

    name: str = "cluster"
    clusters_per_batch: int = Field(default=1, ge=1)
    """Parts of the partition joined in a batch, the edges between them included."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Look at the partition."""
        super().check_graph(model, manifest)
        num_parts: int = getattr(manifest, "num_parts", 1)
        if num_parts == 1:
            raise RecipeError(
                "train.loader=cluster takes the parts of the partition as clusters and this recipe's partition has "
                "one; set partition.num_parts, such as partition.num_parts=100 with "
                "train.loader.clusters_per_batch=10, or take train.loader=random_partition"
            )
        if self.clusters_per_batch > num_parts:
            raise RecipeError(
                f"train.loader.clusters_per_batch={self.clusters_per_batch} is more than the partition's {num_parts} "
                "parts; lower it or raise partition.num_parts"
            )

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """The clusters' share of the nodes."""
        return _same_every_layer(num_nodes, num_nodes * self.clusters_per_batch / max(1, num_parts), num_layers)


@LOADERS.options("random_partition", "cluster")
class RandomPartitionConfig(LoaderConfig):
    """Clusters drawn anew for every epoch and rank (Distributed DeepGCNs, arXiv:2006.07739)."""

    name: str = "random_partition"
    num_clusters: int = Field(default=32, ge=1)
    """Every epoch cuts the graph into so many clusters."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """A cluster needs two nodes at least."""
        super().check_graph(model, manifest)
        if 2 * self.num_clusters > manifest.num_nodes:
            raise RecipeError(
                f"train.loader.num_clusters={self.num_clusters} leaves clusters of {manifest.dataset}'s "
                f"{manifest.num_nodes:,} nodes with a single node; take at most {max(1, manifest.num_nodes // 2):,}"
            )

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """A cluster."""
        return _same_every_layer(num_nodes, num_nodes / self.num_clusters, num_layers)


class SaintConfig(SeedLoaderConfig):
    """GraphSAINT (arXiv:1907.04931): subgraphs of what `batch_size` draws reach."""

    def nodes_a_draw(self) -> int:
        """Nodes that a draw meets."""
        return 1

    def draws_bytes(self) -> int:
        """A number for each node that a draw meets."""
        return 8 * self.batch_size * self.nodes_a_draw()

    def check_memory(self, ranks: int) -> None:
        """Count what the draws take."""
        self._need_memory(ranks, "draws", "train.loader.batch_size")

    def _need_memory(self, ranks: int, draws: str, options: str) -> None:
        from tasks.sizes import need_memory

        what = f"a batch of train.loader.batch_size={self.batch_size} {draws}"
        need_memory(self.draws_bytes() * ranks, what, f"take a smaller {options}")

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """What the draws meet."""
        return _same_every_layer(num_nodes, self.batch_size * self.nodes_a_draw(), num_layers)


@LOADERS.options("saint_node", "saint")
class SaintNodeConfig(SaintConfig):
    """GraphSAINT subgraphs of `batch_size` nodes drawn by degree."""

    name: str = "saint_node"


@LOADERS.options("saint_edge", "saint")
class SaintEdgeConfig(SaintConfig):
    """GraphSAINT subgraphs of the ends of `batch_size` drawn edges."""

    name: str = "saint_edge"

    def nodes_a_draw(self) -> int:
        """Both ends."""
        return 2


@LOADERS.options("saint_walk", "saint")
class SaintWalkConfig(SaintConfig):
    """GraphSAINT subgraphs of random walks from `batch_size` roots."""

    name: str = "saint_walk"
    walk_length: int = Field(default=3, ge=1, le=10_000)
    """Steps of each walk."""

    def nodes_a_draw(self) -> int:
        """A walk's."""
        return self.walk_length + 1

    def check_memory(self, ranks: int) -> None:
        """Count what the walks take."""
        walks = f"walks of train.loader.walk_length={self.walk_length} steps"
        self._need_memory(ranks, walks, "train.loader.batch_size or train.loader.walk_length")


@LOADERS.options("precomputed", "precomputed")
class PrecomputedConfig(SeedLoaderConfig):
    """Rows of features propagated once, for models that propagate without learning (SGC, SIGN)."""

    name: str = "precomputed"
    holds_all_neighbors: ClassVar[bool] = True

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """The seeds alone."""
        return _same_every_layer(num_nodes, self.batch_size, num_layers)


@LOADERS.options("graph", "graph")
class GraphConfig(SeedLoaderConfig):
    """Batches of whole graphs."""

    name: str = "graph"
    tasks: ClassVar[tuple[str, ...]] = ("graph",)
    holds_all_neighbors: ClassVar[bool] = True

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """The graphs' nodes, as molecules have them."""
        return _same_every_layer(num_nodes, self.batch_size * _NODES_A_GRAPH, num_layers)


def resolve_loader(train: TrainConfig, model: ComponentConfig, manifest: GraphManifest) -> LoaderConfig:
    """Return the loader that a recipe means on a graph.

    Raises RecipeError: its options do not fit the task, the graph or the model.
    """
    given = train.loader
    assert isinstance(given, LoaderConfig), "a loader's Config derives from LoaderConfig"
    found = given.resolve(manifest)
    found.check_graph(model, manifest)
    return found


def _that_keep_nodes(task: str) -> list[str]:
    kept = [name for name in loaders_of(task) if getattr(LOADERS.config_class(name), "keeps_nodes", False)]
    return [name for name in kept if name not in ("auto", "precomputed")]


def _same_every_layer(num_nodes: int, rows: float, num_layers: int) -> list[int]:
    return [min(num_nodes, math.ceil(rows))] * (num_layers + 1)
