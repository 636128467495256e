"""Options of the loaders, apart from their code: recipes are checked without torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.matching import did_you_mean
from configs.registry import LOADERS
from tasks.train.loaders.config_base import (
    FanoutByRelation,
    LoaderConfig,
    NegativesConfig,
    SampledConfig,
    SeedLoaderConfig,
)

if TYPE_CHECKING:
    from tasks.storage.manifests import GraphManifest

# Link tasks: up to this many edges, encoding the whole graph costs no more than sampling around a batch of pairs, whose
# neighbourhoods cover most of it.
FULL_ENCODER_EDGES = 5_000_000
_RELATIONS_A_TYPE = 2  # into it; the graph's own number would be better known than this is needed
_NODES_A_GRAPH = 30  # molecules; the data's own number would be better known than this is needed


@LOADERS.options("auto", "automatic")
class AutoConfig(SeedLoaderConfig):
    """By task: `neighbor` for nodes, `graph` for graphs; for links `full_edge`, or `edge` beyond 5 million edges."""

    name: str = "auto"
    tasks: ClassVar[tuple[str, ...]] = ("node", "link", "graph")

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


@LOADERS.options("neighbor", "neighbor")
class NeighborConfig(SampledConfig):
    """Sampled neighbourhoods of training nodes (GraphSAGE, arXiv:1706.02216): for graphs of any size."""

    name: str = "neighbor"
    first_hop: Literal["auto", "sampled", "fused", "precomputed"] = "auto"
    """How the outermost hop reaches the model. sampled: as nodes with features; fused: its mean is taken while features
    are gathered, and they are never stored; precomputed: the mean over all neighbours, computed once for the whole
    graph. auto: fused where the model reads that hop only through a mean or sum, else sampled."""


@LOADERS.options("edge", "links.edge")
class EdgeConfig(SampledConfig, NegativesConfig):
    """Sampled neighbourhoods around training edges and their negatives, the batch's own edges left out."""

    name: str = "edge"
    first_hop: Literal["auto", "sampled", "fused"] = "auto"
    """How the outermost hop reaches the model. sampled: as nodes with features; fused: its mean is taken while features
    are gathered, and they are never stored. auto: fused where the model reads that hop only through a mean or sum."""


@LOADERS.options("full_edge", "full")
class FullEdgeConfig(NegativesConfig):
    """Training edges in batches with negatives, the whole graph encoded in every step, these edges too.

    As OGB's example for ddi does.
    """

    name: str = "full_edge"
    holds_all_neighbors: ClassVar[bool] = True


@LOADERS.options("cluster", "subgraphs.cluster")
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


@LOADERS.options("random_partition", "subgraphs.cluster")
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


@LOADERS.options("relational", "typed.relational")
class RelationalConfig(SeedLoaderConfig):
    """Neighbourhoods by relation in typed graphs, each of what was there before its seed's moment."""

    name: str = "relational"
    usual_fanout: ClassVar[tuple[int, ...]] = (16, 8, 4)
    families: ClassVar[tuple[str, ...]] = ("relational",)
    keeps_nodes: ClassVar[bool] = False

    batch_size: int = Field(default=512, ge=1)
    """Seeds (rows that are predicted) a step and rank."""
    fanout: FanoutByRelation | None = None
    """Edges that a row takes of each relation, from the seeds outwards, a number a layer of the model: -1 takes all, 0
    none. A map has lists for some relations by their names, and `default` for the others. null: 16, 8, and 4 in all
    further layers."""
    eval_fanout: FanoutByRelation | None = None
    """The same for validation, evaluation and predictions; null: as in training."""
    choose: Literal["recent", "uniform"] | None = None
    """Which edges a row takes where it sees more: the newest, or any; null: the newest where rows are predicted at
    moments."""

    def resolve(self, manifest: GraphManifest) -> LoaderConfig:
        """Return these options; where something is recommended, those of the loader `ranking`."""
        if manifest.ranking is None:
            return super().resolve(manifest)
        given = self.model_dump(exclude={"name"}, exclude_unset=True)
        options: Any = LOADERS.config({**given, "name": "ranking"})
        return options

    def fanouts(self, num_layers: int, *, evaluates: bool = False) -> FanoutByRelation:
        """Return the fan-out of every layer of a model, from the seeds outwards."""
        given = self.eval_fanout if evaluates and self.eval_fanout is not None else self.fanout
        usual = self.usual_fanout
        return given if given is not None else (usual + usual[-1:] * num_layers)[:num_layers]

    def facts(self, model: ComponentConfig, manifest: GraphManifest) -> dict[str, Any]:
        """Let the model remember how its rows are sampled where it predicts."""
        given = self.fanouts(getattr(model, "num_layers", 0), evaluates=True)
        lists = given if isinstance(given, Mapping) else {"default": given}
        of_relations = tuple(lists.get(name, lists["default"]) for name in manifest.edge_types)
        return {"fanouts": of_relations, "newest": self.takes_newest(manifest)}

    def takes_newest(self, manifest: GraphManifest) -> bool:
        """Whether rows take the newest edges of a graph."""
        return manifest.fit_before is not None if self.choose is None else self.choose == "recent"

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Count the fan-outs, and look for their relations."""
        super().check_graph(model, manifest)
        num_layers = getattr(model, "num_layers", None)
        for option in ("fanout", "eval_fanout"):
            given = getattr(self, option)
            lists = given if isinstance(given, Mapping) else {"default": given}
            for relation, hops in lists.items():
                place = f"train.loader.{option}" + (f".{relation}" if isinstance(given, Mapping) else "")
                if relation != "default" and relation not in manifest.edge_types:
                    raise RecipeError(
                        f"{place}: {manifest.dataset} has no such relation{did_you_mean(relation, manifest.edge_types)}"
                        f"; it has {', '.join(manifest.edge_types)}, and `default` stands for all others"
                    )
                if hops is not None and num_layers is not None and len(hops) != num_layers:
                    raise RecipeError(
                        f"{place} has {len(hops)} numbers and the model has {num_layers} layers; give one a layer, "
                        f"such as {','.join(['8'] * num_layers)}"
                    )

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """Every hop multiplies the rows: by its fan-out and the relations that a type usually has."""
        given = self.fanouts(num_layers)
        hops = given.get("default", next(iter(given.values()))) if isinstance(given, Mapping) else given
        grows = [1 + _RELATIONS_A_TYPE * (hop if hop >= 0 else num_nodes) for hop in hops]
        return [min(num_nodes, self.batch_size * math.prod(grows[:hop])) for hop in range(len(grows) + 1)]


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


def _same_every_layer(num_nodes: int, rows: float, num_layers: int) -> list[int]:
    return [min(num_nodes, math.ceil(rows))] * (num_layers + 1)
