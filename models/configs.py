"""Options of the models, apart from their code: recipes are checked without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from configs.base import OwnFileConfig
from configs.errors import RecipeError
from configs.registry import MODELS
from configs.training import TrainConfig

if TYPE_CHECKING:
    from configs.schema import Recipe
    from models.facts import GraphFacts

_OF_TASK = {
    "decoder": ("link",),
    "decoder_layers": ("link", "edge"),
    "pooling": ("graph",),
    "label_reuse": ("node",),
    "head": ("node",),
}
"""Options that only some kinds of tasks read."""


class ModelConfig(OwnFileConfig):
    """Options of every stacked message-passing model."""

    hidden_dim: int = Field(default=256, ge=1, le=65_536)
    """Width of all layers."""
    num_layers: int = Field(default=3, ge=1, le=10_000)
    """Message-passing layers; nodes see so many hops."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """Share of a layer's outputs that is dropped while training."""
    input_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of what the first layer reads that is dropped while training."""
    activation: Literal["relu", "elu", "gelu"] = "relu"
    """What stands after each layer's norm."""
    norm: Literal["batch", "layer", "none"] = "batch"
    """Normalisation after each layer (none after the last layer of a link task or with head=none)."""
    norm_first: bool = False
    """Residual layers x + f(conv(norm(x))) on inputs mapped to hidden_dim, and a last norm before the head."""
    feed_forward: Literal[0, 1, 2] = 0
    """Linear maps after each convolution, dropout and activation before the last one."""
    residual: bool = False
    """Add a layer's input to its output (through a linear map where their widths differ)."""
    head: Literal["linear", "none"] = "linear"
    """Node tasks: a linear map from the last layer to the scores, or none: the last convolution makes the scores."""
    embedding_dim: int | None = Field(default=None, ge=1, le=65_536)
    """Graphs without node features: width of the learnable node embeddings; null: hidden_dim."""
    edge_weights: bool = False
    """Weigh messages by the edges' weights."""
    label_reuse: bool = False
    """Node tasks: known training labels of other nodes as further inputs (https://arxiv.org/abs/2103.13355)."""
    decoder: Literal["mlp", "dot"] | None = None
    """Link tasks: score a pair by an MLP on the product of its ends, or by their dot product; null: mlp."""
    decoder_layers: int | None = Field(default=None, ge=1, le=1000)
    """Link tasks with the MLP decoder: its linear layers; null: 3."""
    pooling: Literal["mean", "sum", "max"] | None = None
    """Graph tasks: how a graph's nodes become one vector; null: mean."""

    def embedded_types(self, facts: GraphFacts) -> tuple[int, ...]:
        """Return the numbers of the types whose nodes have a learnt vector beside features."""
        return ()

    def check_together(self) -> None:
        """Refuse options that do nothing, or nothing sound, beside others. Raises RecipeError with the way out."""
        if self.decoder == "dot" and self.decoder_layers is not None:
            raise RecipeError("model.decoder_layers does nothing with decoder=dot; remove it or take decoder=mlp")
        for name, usual in (("residual", False), ("head", "linear")):
            if self.norm_first and getattr(self, name) != usual:
                raise RecipeError(f"model.{name} cannot be used with model.norm_first; remove one of them")

    def check_facts(self, facts: GraphFacts, *, weighs_edges: bool) -> None:
        """Refuse options that mean nothing for a task or a graph. Raises RecipeError with the way out."""
        for name, tasks in _OF_TASK.items():
            if getattr(self, name) != type(self).model_fields[name].default and facts.task not in tasks:
                known = " and ".join(tasks)
                raise RecipeError(f"model.{name} is for {known} tasks and this is a {facts.task} task; remove it")
        if self.embedding_dim is not None and (facts.feature_dim or facts.categories):
            raise RecipeError(
                "model.embedding_dim is for graphs without node features and this one has some; remove it"
            )
        if self.edge_weights and not weighs_edges:
            raise RecipeError(f"model.edge_weights does nothing in {self.name}; remove it or take graphsage or gcn")
        if self.edge_weights and not facts.has_edge_weights:
            raise RecipeError("model.edge_weights=true, and the graph's edges have no weights; remove it")

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse to measure a model by nodes whose own labels it reads. Raises ValueError."""
        self.check_together()
        if self.label_reuse and "train" in recipe.evaluate.splits:
            raise ValueError(
                "evaluate.splits names train, and with model.label_reuse=true the model reads those nodes' own labels: "
                "their score would mean nothing; leave train out of evaluate.splits or set model.label_reuse=false"
            )

    def check_batches(self, loader: str, *, keeps_nodes: bool, all_neighbors: bool, symmetric: bool) -> None:
        """Raise RecipeError where the model cannot read a loader's batches.

        keeps_nodes: all layers see the same nodes; all_neighbors: a batch has all in-neighbours of what it computes;
        symmetric: every edge of the graph has its reverse.
        """


class EdgeFeaturesConfig(ModelConfig):
    """Options of models that read what edges carry, and need not."""

    edge_features: bool = True
    """Read edges' features and categories (dataset.edges.features and categorical), where there are some."""


@MODELS.options("gcn", "gnn.gcn")
class GcnConfig(EdgeFeaturesConfig):
    """GCN: symmetrically normalised sum over neighbours and the node itself."""


@MODELS.options("graphsage", "gnn.graphsage")
class GraphSageConfig(EdgeFeaturesConfig):
    """GraphSAGE: own features and a mean, max or sum of the neighbours'; the robust first choice."""

    aggregator: Literal["mean", "max", "sum"] = "mean"
    """How neighbours combine."""


@MODELS.options("gin", "gnn.gin")
class GinConfig(ModelConfig):
    """GIN: sums over neighbours through MLPs, with edge features and an optional virtual node; made for molecules."""

    virtual_node: bool = False
    """Join all nodes of a graph to one more node (graph tasks)."""


class AttentionConfig(EdgeFeaturesConfig):
    """Options of attention over neighbours."""

    heads: int = Field(default=8, ge=1, le=1024)
    """Attention heads; each layer but the last is hidden_dim wide, its heads side by side."""
    output_heads: int | None = Field(default=None, ge=1)
    """Heads of the last layer; null: as many as the others."""
    output: Literal["mean", "concat"] | None = None
    """How the last layer's heads combine; null: their mean where they are the scores (head=none), else side by side."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the attention coefficients that is dropped while training."""
    negative_slope: float = Field(default=0.2, ge=0)
    """Slope of the scores' LeakyReLU below 0."""
    self_loops: bool = True
    """Let nodes attend to themselves; false where the graph has self-loops (preprocess.self_loops=add), or without."""


@MODELS.options("gat", "gnn.gat")
class GatConfig(AttentionConfig):
    """GAT: neighbours weighted by learnt attention."""


@MODELS.options("gatv2", "gnn.gat")
class Gatv2Config(AttentionConfig):
    """GATv2: attention that ranks neighbours differently for each node."""


@MODELS.options("deepgcn", "gnn.deepgcn")
class DeepConfig(ModelConfig):
    """DeeperGCN and RevGNN: up to hundreds of layers, residual, checkpointed or reversible."""

    num_layers: int = Field(default=7, ge=1, le=10_000)
    """Message-passing layers; nodes see so many hops."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of a layer's values that is dropped while training."""
    norm: Literal["batch", "layer", "none"] = "layer"
    """Normalisation in each layer and in the convolutions' MLPs."""
    block: Literal["plain", "res", "res+"] = "res+"
    """What a layer is: act(norm(conv(x))) plain, with x added (res), or pre-activated, x + conv(drop(act(norm(x))))
    (res+)."""
    aggregator: Literal["softmax", "mean", "max", "sum"] = "softmax"
    """How messages combine: softmax-weighted, mean, maximum or sum."""
    beta: float | None = None
    """aggregator=softmax: inverse temperature at the start; null: 1. From 0 (the mean) towards the maximum."""
    learn_aggregator: bool = False
    """Learn beta, one number a layer."""
    mlp_layers: int = Field(default=1, ge=1, le=1000)
    """Linear maps of each convolution; all but the last are twice as wide, with norm and activation."""
    virtual_node: bool = False
    """Graph tasks with block=res+: join all nodes of a graph to one more node."""
    checkpoint: bool = False
    """Compute each layer again in the backward pass in place of keeping what it computed."""
    reversible: bool = False
    """Compute each layer's input from its output, so that memory does not grow with depth; layers hold `groups`."""
    groups: int | None = Field(default=None, ge=2)
    """reversible: groups of columns, hidden_dim / groups wide; null: 2."""

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse reversible layers whose inputs cannot be had back from their outputs. Raises ValueError.

        A norm over the batch passes the rounding of every row on to all others; in 112 layers of bfloat16 the rebuilt
        input is as far from the true one as that is long. A norm over a row's own columns keeps it near.
        """
        super().check_recipe(recipe)
        assert isinstance(recipe.train, TrainConfig)
        precision = recipe.train.precision
        if self.reversible and self.norm == "batch" and precision != "float32":
            raise ValueError(
                f"model.reversible=true with norm=batch cannot be undone in train.precision={precision}: take "
                "model.norm=layer or train.precision=float32"
            )


@MODELS.options("rgcn", "gnn.rgcn")
class RgcnConfig(ModelConfig):
    """R-GCN: a map for each relation, and for each node type's features; for graphs with several types of them."""

    num_bases: int | None = Field(default=None, ge=1, le=65_536)
    """Maps of relations are combinations of so many; null: each relation has its own."""
    learnt_rows: Literal["none", "without_features", "all"] | None = None
    """Which nodes have a learnt vector beside features: none; those of types without any column, which nothing else
    tells apart; all. Such a model belongs to its graph. null: without_features on link tasks, else none."""

    def embedded_types(self, facts: GraphFacts) -> tuple[int, ...]:
        """Return the numbers of the types whose nodes have a learnt vector, where there are features."""
        chosen = self.learnt_rows or ("without_features" if facts.scores_pairs else "none")
        if chosen == "none" or not (facts.feature_dim or facts.categories):
            return ()
        columns = zip(facts.node_columns, facts.node_codes, strict=True)  # none where every type has all of them
        bare = tuple(t for t, of_type in enumerate(columns) if not any(of_type))
        return tuple(range(facts.num_node_types)) if chosen == "all" else bare


@MODELS.options("mlp", "gnn.mlp")
class MlpConfig(ModelConfig):
    """An MLP on each node's own features: what edges must beat; with the transform hops it knows the graph too."""


@MODELS.options("sgc", "gnn.sgc")
class SgcConfig(ModelConfig):
    """SGC: a linear model of features propagated num_layers times; seconds with the precomputed loader."""

    hidden_dim: int = Field(default=256, ge=1, le=65_536)
    """Width of learnable embeddings and of the link decoder; numeric features keep their own."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the propagated features that is dropped while training."""
    norm: Literal["batch", "layer", "none"] = "none"
    """Normalisation of the propagated features."""


@MODELS.options("sign", "gnn.sgc")
class SignConfig(ModelConfig):
    """SIGN: an MLP on features propagated 0 to num_layers times; made for the precomputed loader."""
