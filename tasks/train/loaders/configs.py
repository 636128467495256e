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
    LabelSeedsConfig,
    LoaderConfig,
    NegativesConfig,
    SampledConfig,
)

if TYPE_CHECKING:
    from tasks.storage.manifests import GraphManifest


# Link tasks: up to this many edges, encoding the whole graph costs no more than sampling around a batch of pairs, whose
# neighbourhoods cover most of it.
FULL_ENCODER_EDGES = 5_000_000
_USUAL = {"node": "neighbor", "edge": "labelled_edge", "graph": "graph"}
"""Loaders of the tasks that have one, whatever the graph's size."""
_RELATIONS_A_TYPE = 2  # into it; the graph's own number would be better known than this is needed
_NODES_A_GRAPH = 30  # molecules; the data's own number would be better known than this is needed


@LOADERS.options("auto", "full")
class AutoConfig(LabelSeedsConfig):
    """By task: `neighbor`, `labelled_edge`, `graph`; for links `full_edge`, or `edge` beyond 5 million edges and where
    each edge is ranked among candidates."""

    tasks: ClassVar[tuple[str, ...]] = ("node", "edge", "link", "graph")

    def resolve(self, manifest: GraphManifest) -> LoaderConfig:
        """Choose by the task, and on link tasks by the graph's size."""
        # An edge that is asked about must not carry messages: candidates are told from it by that.
        num_edges = FULL_ENCODER_EDGES + 1 if manifest.num_candidates or manifest.ranks_targets else manifest.num_edges
        chosen = self.of_task(manifest.task, num_edges)
        if self.balance == "none":
            return chosen
        if not isinstance(chosen, LabelSeedsConfig):
            raise RecipeError(f"train.loader.balance={self.balance} is for classes, and {manifest.dataset} has links")
        return chosen.model_copy(update={"balance": self.balance})

    def name_for(self, task: str) -> str | None:
        """Return the name of a task's loader, where the task alone tells it."""
        return _USUAL.get(task)

    def of_task(self, task: str, num_edges: int) -> LoaderConfig:
        """Return the loader of a task on a graph of so many edges."""
        of_links = "full_edge" if num_edges <= FULL_ENCODER_EDGES else "edge"
        chosen: Any = LOADERS.config({"name": {**_USUAL, "link": of_links}[task], "batch_size": self.batch_size})
        return chosen


@LOADERS.options("full", "full")
class FullConfig(LoaderConfig):
    """The whole graph in every step, which takes all training nodes: for graphs that fit into memory."""

    holds_all_neighbors: ClassVar[bool] = True


@LOADERS.options("neighbor", "neighbor")
class NeighborConfig(SampledConfig, LabelSeedsConfig):
    """Sampled neighbourhoods of training nodes (GraphSAGE, arXiv:1706.02216): for graphs of any size."""

    first_hop: Literal["auto", "sampled", "fused", "precomputed"] = "auto"
    """How the outermost hop reaches the model. sampled: as nodes with features; fused: its mean is taken while features
    are gathered, and they are never stored; precomputed: the mean over all neighbours, computed once for the whole
    graph. auto: fused where the model reads that hop only through a mean or sum, else sampled."""


@LOADERS.options("edge", "edge")
class EdgeConfig(SampledConfig, NegativesConfig):
    """Sampled neighbourhoods around training edges and their negatives, the batch's own edges left out."""

    ends_a_seed: ClassVar[int] = 4  # of a positive pair and its negative
    first_hop: Literal["auto", "sampled", "fused"] = "auto"
    """How the outermost hop reaches the model. sampled: as nodes with features; fused: its mean is taken while features
    are gathered, and they are never stored. auto: fused where the model reads that hop only through a mean or sum."""


@LOADERS.options("labelled_edge", "edge")
class LabelledEdgeConfig(SampledConfig, LabelSeedsConfig):
    """Sampled neighbourhoods around labelled edges, these edges left out (but for dataset.scored_edges: keep)."""

    tasks: ClassVar[tuple[str, ...]] = ("edge",)
    ends_a_seed: ClassVar[int] = 2
    first_hop: Literal["auto", "sampled", "fused"] = "auto"
    """How the outermost hop reaches the model; see `edge`."""


@LOADERS.options("full_edge", "full")
class FullEdgeConfig(NegativesConfig):
    """Training edges in batches with negatives, the whole graph encoded in every step, these edges too.

    As OGB's example for ddi does.
    """

    holds_all_neighbors: ClassVar[bool] = True


@LOADERS.options("cluster", "cluster")
class ClusterLoaderConfig(LoaderConfig):
    """Parts of the partition, some at a time (ClusterGCN, arXiv:1905.07953)."""

    clusters_per_batch: int = Field(default=1, ge=1)
    """Parts of the partition joined in a batch, the edges between them included."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Look at the partition."""
        super().check_graph(model, manifest)
        num_parts = getattr(manifest, "num_parts", None)
        if num_parts is None:
            return  # of a graph that is still to be partitioned
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


@LOADERS.options("relational", "relational")
class RelationalConfig(LabelSeedsConfig):
    """Neighbourhoods by relation in typed graphs, each of what was there before its seed's moment."""

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
class PrecomputedConfig(LabelSeedsConfig):
    """Rows of features propagated once, for models that propagate without learning (SGC, SIGN)."""

    holds_all_neighbors: ClassVar[bool] = True

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """The seeds alone."""
        return _same_every_layer(num_nodes, self.batch_size, num_layers)


@LOADERS.options("graph", "full")
class GraphConfig(LabelSeedsConfig):
    """Batches of whole graphs."""

    tasks: ClassVar[tuple[str, ...]] = ("graph",)
    holds_all_neighbors: ClassVar[bool] = True

    def step_rows(self, num_nodes: int, num_parts: int, num_layers: int) -> list[int]:
        """The graphs' nodes, as molecules have them."""
        return _same_every_layer(num_nodes, self.batch_size * _NODES_A_GRAPH, num_layers)


def _same_every_layer(num_nodes: int, rows: float, num_layers: int) -> list[int]:
    return [min(num_nodes, math.ceil(rows))] * (num_layers + 1)


@LOADERS.options("ranking", "relational")
class RankingLoaderConfig(RelationalConfig):
    """Neighbourhoods by relation of seeds and of what is recommended to them, all of one moment a batch."""

    usual_fanout: ClassVar[tuple[int, ...]] = (12, 4, 4)

    batch_size: int = Field(default=256, ge=1)
    """Seeds (rows that something is recommended to) a step and rank."""
    positives: int = Field(default=8, ge=1, le=10_000)
    """Of what is right for a seed, so many are learnt from in an epoch at most, drawn anew in each."""
    negatives: int = Field(default=1024, ge=1, le=1_000_000)
    """Candidates that are drawn for a batch, beside what is right for its seeds; all there are, where these are no
    more."""
    draw: Literal["popularity", "uniform"] = "popularity"
    """How they are drawn: by how often they were linked to before the moment, to the power of alpha, or all alike. Both
    are corrected for in the loss."""
    alpha: float = Field(default=0.75, ge=0, le=4)
    """With draw=popularity: 0 draws all alike, 1 as often as they were linked to."""

    hard_negatives: int = Field(default=0, ge=0, le=1000)
    """Besides, of what walks from a seed reach most and is not right for it, so many in its batch at most: none in the
    first epoch, one in the second, and so on. Where all candidates are compared anyway, none are added."""
    hard_skip: int = Field(default=0, ge=0, le=10_000)
    """The first so many of these are left out, which may be right though nobody knew."""

    def check_graph(self, model: ComponentConfig, manifest: GraphManifest) -> None:
        """Refuse graphs in which nothing is ranked."""
        if manifest.ranking is None:
            raise RecipeError(
                f"train.loader=ranking is for recommendations, and {manifest.dataset} predicts a "
                f"{manifest.task_type} label; take train.loader=relational, or say what is recommended: "
                "dataset.predict.target: {links: TABLE.COLUMN}"
            )
        super().check_graph(model, manifest)

    def resolve(self, manifest: GraphManifest) -> RankingLoaderConfig:
        """Return these options."""
        return self


class PairLoaderConfig(ComponentConfig):
    """What every loader of pairs says of itself."""

    families: ClassVar[tuple[str, ...]] = ("table",)
    tasks: ClassVar[tuple[str, ...]] = ("node", "link")

    edge_weights: bool = True
    """Take edges in proportion to their weights, where the graph has some."""


@LOADERS.options("edges", "pairs")
class EdgesConfig(PairLoaderConfig):
    """Pairs that an edge joins, drawn at random (LINE, arXiv:1503.03578)."""

    families: ClassVar[tuple[str, ...]] = ("table", "layout")
    tasks: ClassVar[tuple[str, ...]] = ("node", "link", "graph", "layout")


@LOADERS.options("edge_passes", "pairs")
class EdgePassesConfig(EdgesConfig):
    """Pairs that an edge joins, in passes over all edges in a random order, each taken as often as its weight says.

    Faster than `edges`, the more so the larger the graph; takes 16 bytes an edge or less.
    """


@LOADERS.options("walks", "pairs")
class WalksConfig(PairLoaderConfig):
    """Pairs that are near each other on random walks (DeepWalk, arXiv:1403.6652; node2vec, arXiv:1607.00653)."""

    families: ClassVar[tuple[str, ...]] = ("table", "multiplex")

    length: int = Field(default=40, ge=2, le=100_000)
    """Nodes of a walk."""
    window: int = Field(default=5, ge=1, le=100_000)
    """Nodes so many steps apart are pairs at most (GraphVite's augmentation distance)."""
    shrink: bool = False
    """Each node draws a window of its own from 1 to `window`, as in word2vec; else all pairs within it are taken."""
    start: Literal["nodes", "degree"] = "nodes"
    """Walks begin at all nodes alike, as in DeepWalk; or by degree, as in GraphVite, so that nodes are met by degree
    from the first step on."""
    forward: bool = False
    """Only what comes after a node on a walk is near it; else what came before it is too."""
    p: float = Field(default=1.0, gt=0, le=1e6)
    """node2vec: the larger, the less a walk goes back to where it has just been."""
    q: float = Field(default=1.0, gt=0, le=1e6)
    """node2vec: the larger, the nearer a walk stays to where it was before."""


class TripleLoaderConfig(ComponentConfig):
    """What every loader of triples says of itself."""

    families: ClassVar[tuple[str, ...]] = ("knowledge",)
    tasks: ClassVar[tuple[str, ...]] = ("triple",)
    against_all: ClassVar[bool] = False
    """Whether a query is compared with all entities, and not with drawn ones."""


@LOADERS.options("triples", "triples")
class TriplesConfig(TripleLoaderConfig):
    """Triples in a new order each epoch, against entities that are drawn and shared by some of them."""

    batch_size: int = Field(default=512, ge=1, le=1 << 20)
    """Triples whose gradients are added up before their rows move."""
    negatives: int = Field(default=256, ge=1, le=1 << 20)
    """Entities that are drawn for each end that is asked for."""
    share: int | None = Field(default=None, ge=1, le=1 << 20)
    """Triples that share what is drawn: the more, the faster; null: all of a batch."""
    power: float = Field(default=0.0, ge=0, le=4)
    """Entities are drawn in proportion to the number of their triples to this power; 0: all alike."""
    known_end: bool = False
    """Compare each query with the end that it knows, too. Few entities are related to themselves, yet that end is what
    most scorers find nearest, and it is hardly ever drawn among many."""


@LOADERS.options("one_vs_all", "triples")
class OneVsAllConfig(TripleLoaderConfig):
    """Triples in a new order each epoch, each end against all entities (1vsAll, arXiv:1705.10744)."""

    against_all: ClassVar[bool] = True

    batch_size: int = Field(default=512, ge=1, le=1 << 20)
    """Triples whose gradients are added up before the rows move."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Share of the truth that is dealt out over all entities."""


@LOADERS.options("k_vs_all", "triples")
class KVsAllConfig(OneVsAllConfig):
    """Queries in a new order each epoch, all their true entities at once against all others (KvsAll, arXiv:1707.01476).

    A query is a head and a relation, or a relation and a tail.
    """

    batch_size: int = Field(default=512, ge=1, le=1 << 20)
    """Queries whose gradients are added up before the rows move."""
