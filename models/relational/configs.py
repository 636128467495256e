"""Options of the models of typed graphs, apart from their code: recipes are checked without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from pydantic import Field, model_validator

from configs.base import ConfigModel, OwnFileConfig, StrTuple
from configs.errors import RecipeError
from configs.matching import did_you_mean
from configs.registry import MODELS

if TYPE_CHECKING:
    from configs.schema import Recipe
    from models.facts import GraphFacts

ConvOption: TypeAlias = bool | int | float | str | tuple[float | str, ...] | None


class IdEmbeddingConfig(ConfigModel):
    """Vectors that are learnt of single rows, beside what their columns say."""

    types: StrTuple = ()
    """Tables whose rows have one; none of them: no row has."""
    dim: int = Field(default=64, ge=1, le=65_536)
    """Columns of each."""
    dropout: float = Field(default=0.02, ge=0, lt=1)
    """Share of them that is taken away in a step of training, so that rows that were never seen can be scored too: they
    have none."""


class RankingHeadConfig(ConfigModel):
    """How candidates are scored, where some are recommended."""

    score: Literal["dot", "mlp"] = "dot"
    """The dot product of a seed's and a candidate's vector, or an MLP of their product by columns, which takes `dim`
    times as long."""
    dim: int | None = Field(default=None, ge=1, le=65_536)
    """Columns of these vectors; null: hidden_dim."""
    popularity: bool = True
    """Add how often a candidate was linked to before the moment, and within a horizon before it."""
    history: bool = True
    """Add whether, how often and how recently the entity itself was linked to the candidate before."""

    gone = dict.fromkeys(("loss", "margin"), "the loss is that of the training: train.loss={name: margin, margin: 1}")


class RelationalModelConfig(OwnFileConfig):
    """Options of every model of a typed graph."""

    family: ClassVar[str] = "relational"
    tasks: ClassVar[tuple[str, ...]] = ("node",)
    """Tasks of data sets that such a model is for."""
    # What other GNNs have as options and these models never do; training and applying a model ask for it.
    label_reuse: ClassVar[bool] = False
    edge_weights: ClassVar[bool] = False

    hidden_dim: int = Field(default=128, ge=1, le=65_536)
    """Width of all layers."""
    num_layers: int = Field(default=2, ge=1, le=64)
    """Message-passing layers; rows see so many hops along keys."""
    encoder_layers: int = Field(default=2, ge=1, le=16)
    """Linear maps from a row's own columns to the first layer's input, with activations between."""
    ages: Literal["sines", "log", "none"] = "sines"
    """What models read of a row's time, which is how long before the seed's moment it was: its logarithm, with sines of
    it besides, or nothing."""
    id_embedding: IdEmbeddingConfig | None = None
    """Vectors that are learnt of single rows, beside their columns: {types: [products], dim: 64}; null: of what is
    recommended, else of none. They live where `train.embeddings` says."""
    ranking: RankingHeadConfig = RankingHeadConfig()
    """Where something is recommended: how candidates are scored."""
    dropout: float = Field(default=0.2, ge=0, lt=1)
    """Share of a layer's outputs that is dropped while training."""
    input_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of what the first layer reads that is dropped while training."""
    activation: Literal["relu", "elu", "gelu"] = "relu"
    """What stands after each layer's norm."""
    # Test rocauc on the generated shop (5,000 customers, 12 epochs), without and with layer norm: heterosage 0.77 and
    # 0.75 at best, with another seed 0.78 and 0.53, rgat 0.77 and 0.75, hgt 0.76 and 0.68 (November 2026).
    norm: Literal["layer", "none"] = "none"
    """Normalisation after each layer, for each type of rows by itself."""

    def check_together(self) -> None:
        """Refuse options that do nothing, or nothing sound, beside others. Raises RecipeError with the way out."""

    def check_facts(self, facts: GraphFacts, *, weighs_edges: bool) -> None:
        """Refuse graphs that such a model cannot read. Raises RecipeError."""
        self.check_task(facts.task)
        if not facts.relation_ends:
            raise RecipeError(
                f"model.name={self.name} has to know which types each relation joins, and the prepared graph does not "
                "say: set preprocess.self_loops=remove (or keep)"
            )
        self.embedded(facts)

    def embedded(self, facts: GraphFacts) -> tuple[int, ...]:
        """Return the types whose rows have learnt vectors, ascending. Raises RecipeError: there is no such type."""
        if self.id_embedding is None:
            return () if facts.rank_type is None else (facts.rank_type,)
        for name in self.id_embedding.types:
            if name not in facts.node_types:
                tables = [one for t, one in enumerate(facts.node_types) if t != facts.label_type]
                raise RecipeError(
                    f"model.id_embedding.types: there is no table {name!r}{did_you_mean(name, tables)}; there are "
                    f"{', '.join(tables) or 'no types of rows'}"
                )
            if name == facts.node_types[facts.label_type] and facts.label_type != facts.seed_type:
                raise RecipeError(
                    f"model.id_embedding.types: rows of {name} are what is predicted, each once; name the entities' "
                    "table"
                )
        return tuple(sorted(facts.node_types.index(name) for name in set(self.id_embedding.types)))

    @property
    def id_options(self) -> IdEmbeddingConfig:
        """Options of learnt vectors."""
        return self.id_embedding or IdEmbeddingConfig()

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse other tasks where the data set's section names the task. Raises RecipeError."""
        self.check_task(getattr(recipe.dataset, "task", None) or "node")
        if recipe.snapshot.warm_start and self.id_embedding is not None and self.id_embedding.types:
            raise RecipeError(
                "snapshot.warm_start: the rows of model.id_embedding are learnt anew for each snapshot; leave one out"
            )

    def check_task(self, task: str) -> None:
        """Refuse tasks that such a model is not for. Raises RecipeError."""
        if task not in self.tasks:
            raise RecipeError(
                f"model.name={self.name} predicts rows, and this is a {task} task; take a model such as graphsage"
            )


class ResidualConfig(RelationalModelConfig):
    """Options of models without residual connections of their own."""

    residual: bool = False
    """Add a layer's input to its output."""


@MODELS.options("heterosage", "relational.heterosage")
class HeteroSageConfig(ResidualConfig):
    """GraphSAGE by relation: own map for each type's rows and for each relation's mean; start here with tables."""


class TypedAttentionConfig(RelationalModelConfig):
    """Options of attention over neighbours of several types."""

    heads: int = Field(default=4, ge=1, le=1024)
    """Attention heads, side by side in hidden_dim columns."""

    @model_validator(mode="after")
    def _heads_fit(self) -> TypedAttentionConfig:
        if self.hidden_dim % self.heads:
            raise ValueError(f"heads={self.heads} does not divide hidden_dim={self.hidden_dim}; change one")
        return self


@MODELS.options("rgat", "relational.rgat")
class RgatConfig(TypedAttentionConfig, ResidualConfig):
    """GAT by relation: neighbours of each relation weighted by attention of its own."""

    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the attention coefficients that is dropped while training."""
    negative_slope: float = Field(default=0.2, ge=0)
    """Slope of the scores' LeakyReLU below 0."""


@MODELS.options("hgt", "relational.hgt")
class HgtConfig(TypedAttentionConfig):
    """Heterogeneous graph transformer: keys, queries and values by type, attention over all relations at once."""


class ImportanceWalksConfig(ConfigModel):
    """Short random walks with restarts, and which of the rows that they visit are a row's neighbours."""

    neighbors: int = Field(default=16, ge=1, le=1000)
    """Rows that a row reads: those that its walks visit most."""
    count: int = Field(default=64, ge=1, le=10_000)
    """Walks of a row, in each layer."""
    length: int = Field(default=3, ge=1, le=100)
    """Rows that a walk visits at most."""
    restart: float = Field(default=0.5, ge=0, le=1)
    """Chance that it ends after each of them."""
    paths: tuple[StrTuple, ...] = ()
    """Ways from one of these rows to another, each a list of relations that lead from its end to its beginning:
    [[orders__items__products, products__rev_items__orders]]. None: of what is recommended by what links it to entities;
    else the shortest there are."""


@MODELS.options("pinsage", "relational.pinsage")
class PinSageConfig(RelationalModelConfig):
    """PinSAGE: a row reads the rows of its kind that walks from it visit most; for recommendations."""

    walks: ImportanceWalksConfig = ImportanceWalksConfig()
    """Walks that say which rows are read, and how much each counts."""
    norm: Literal["none"] = "none"
    """Rows are brought to one length after each layer."""
    activation: Literal["relu"] = "relu"
    """That of the paper."""


@MODELS.options("dgl_hetero", "relational.dgl_hetero")
class DglHeteroConfig(ResidualConfig):
    """DGL's HeteroGraphConv: a convolution of dgl.nn.pytorch for each relation, by name; computed by DGL in float32."""

    conv: dict[str, str | dict[str, ConvOption]] = Field(default={"default": "SAGEConv"}, min_length=1)
    """By relation (`author__writes__paper`) a class in `dgl.nn.pytorch`, or `{name: GATConv, num_heads: 8}` with
    options of its constructor; `default` for the relations that have none of their own."""
    aggregate: Literal["sum", "mean", "max", "min", "stack"] = "sum"
    """What becomes of the results of several relations into one type; stack: side by side, and a linear map of them."""
    edge_dim: int = Field(default=16, ge=1, le=65_536)
    """Convolutions that read edge features: width to which these are mapped."""

    @model_validator(mode="after")
    def _check_convolutions(self) -> DglHeteroConfig:
        from models.dgl.convolutions import check_convolution

        for relation in self.conv:
            check_convolution(relation, *self.of(relation), width=self.hidden_dim)
        return self

    def of(self, relation: str) -> tuple[str, dict[str, Any]]:
        """Return class and options of a relation's convolution. Raises RecipeError for one that has none."""
        given = self.conv.get(relation, self.conv.get("default"))
        if given is None:
            raise RecipeError(
                f"model.conv says nothing of the relation {relation}; name a convolution for it, or give `default`"
            )
        if isinstance(given, str):
            return given, {}
        if not isinstance(given.get("name"), str):
            raise RecipeError(f"model.conv[{relation}] needs `name`, a class in dgl.nn.pytorch such as SAGEConv")
        return str(given["name"]), {key: value for key, value in given.items() if key != "name"}
