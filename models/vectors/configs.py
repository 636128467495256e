"""Options of models that are a row for each node, learnt from samples and not by gradients of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, model_validator

from configs.base import FloatTuple, OwnFileConfig
from configs.errors import RecipeError
from configs.registry import MODELS

if TYPE_CHECKING:
    from configs.schema import Recipe


@dataclass(frozen=True)
class Pairing:
    """What a pair of nodes meets in: a table of rows for centres and one for contexts, or one for both."""

    name: str
    width: int
    shared: bool = False
    """Whether centres and contexts are rows of one table."""


class RowsConfig(OwnFileConfig):
    """Options of every model that is a row for each node, and has no layers."""

    # What GNNs have as options and these models never do; applying a model asks for it.
    num_layers: ClassVar[int] = 0
    label_reuse: ClassVar[bool] = False
    edge_weights: ClassVar[bool] = False

    dim: int = Field(default=128, ge=1, le=65_536)
    """Width of a node's vector."""

    @property
    def hidden_dim(self) -> int:
        """Width of what is kept of a node."""
        return self.dim

    def check_recipe(self, recipe: Recipe) -> None:
        """Refuse other tasks where the data set's section names the task. Raises RecipeError."""
        self.check_task(getattr(recipe.dataset, "task", None))

    def check_task(self, task: str | None) -> None:
        """Refuse tasks that such a model is not for. Raises RecipeError."""
        raise AssertionError(f"{type(self).__name__} defines no check_task")


class VectorModelConfig(RowsConfig):
    """Options of every model whose result is a vector for each node, and of the head that is fitted to them."""

    family: ClassVar[str] = "table"
    not_tasks: ClassVar[tuple[str, ...]] = ("graph",)
    """Tasks of data sets that such a model is not for."""

    normalize: bool = True
    """Give every node's vector the length 1: lengths say little but how often a node was met."""
    score: Literal["hadamard", "mlp", "cosine", "dot"] = "hadamard"
    """Link tasks: what scores a pair. hadamard: a logistic model on the product of both vectors, column by column,
    fitted to training edges and as many drawn pairs; mlp: an MLP of three layers on that product, as OGB's examples."""
    mlp_epochs: int = Field(default=10, ge=1, le=10_000)
    """score=mlp: passes over the training edges, while the rate falls to 0; the epoch that is best on the validation
    split counts."""
    strength: float | None = Field(default=None, gt=0, le=1e12)
    """C of the logistic model that reads the vectors: how much labels count against its L2 penalty; null: the best of
    0.01, 0.1, 1, 10 and 100 on the validation split."""

    def check_task(self, task: str | None) -> None:
        """Refuse graph tasks: graphs to predict have nodes that training has not seen. Raises RecipeError."""
        if task in self.not_tasks:
            raise RecipeError(f"model.name={self.name} has no vectors of nodes that it has not seen; take a GNN")


class SampledModelConfig(VectorModelConfig):
    """Options of models that are learnt from pairs of near nodes, against drawn ones."""

    negatives: int = Field(default=5, ge=1, le=1000)
    """Negative samples for each positive one."""
    negative_weight: float = Field(default=1.0, gt=0, le=1000)
    """What a negative counts against a positive: one with weight 5 does the work of five in half the time."""
    negative_power: float = Field(default=0.75, ge=0, le=4)
    """Negatives are drawn in proportion to degree^this."""
    shared_negatives: int = Field(default=1, ge=1, le=4096)
    """Positive samples that share their negatives: faster from 16 on, and a little worse."""

    def pairings(self) -> list[Pairing]:
        """Return the tables that are learnt."""
        return [Pairing("rows", self.dim)]


@MODELS.options("skipgram", "vectors.skipgram")
class SkipGramConfig(SampledModelConfig):
    """Skip-gram with negative sampling: DeepWalk and node2vec over walks, LINE over edges; needs no labels."""

    order: Literal["second", "first", "both"] = "second"
    """second: rows for nodes and others for what is near them; first: one row for both, so that near nodes are alike;
    both: half of the columns each."""
    rows: Literal["vertex", "sum"] = "sum"
    """What stands for a node: its row as a centre, or the sum with its row as a context (which order=first has not)."""

    @model_validator(mode="after")
    def _check_width(self) -> SkipGramConfig:
        if self.order == "both" and self.dim < 2:
            raise ValueError(
                "order=both gives each order half of the columns, and dim=1 has no half; give dim=2 or more"
            )
        return self

    def pairings(self) -> list[Pairing]:
        """Return one pairing for each order; LINE calls them first- and second-order proximity."""
        if self.order == "second":
            return [Pairing("second", self.dim)]
        if self.order == "first":
            return [Pairing("first", self.dim, shared=True)]
        half = self.dim // 2
        return [Pairing("first", half, shared=True), Pairing("second", self.dim - half)]


@MODELS.options("gatne", "vectors.gatne")
class GatneConfig(RowsConfig):
    """GATNE-T (KDD 2019): a vector for each node and relation, of a base and of its neighbours by relation.

    For link tasks whose edges have several relations within one node type (multiplex graphs).
    """

    family: ClassVar[str] = "multiplex"
    tasks: ClassVar[tuple[str, ...]] = ("link",)
    """Tasks of data sets that such a model is for."""
    score: ClassVar[str] = "cosine"

    edge_dim: int = Field(default=10, ge=1, le=1024)
    """Width of the row that a node lends its neighbours, one for each relation."""
    attention_dim: int = Field(default=20, ge=1, le=1024)
    """Width of what the attention over relations is computed in."""
    neighbors: int = Field(default=10, ge=1, le=1000)
    """Neighbours by relation that are drawn for each node of a batch; at the end all are read."""
    negatives: int = Field(default=5, ge=1, le=1000)
    """Negative samples for each positive one."""
    negative_power: float = Field(default=0.75, ge=0, le=4)
    """Negatives are drawn in proportion to degree^this."""

    def check_task(self, task: str | None) -> None:
        """Refuse other tasks than links. Raises RecipeError."""
        if task is not None and task not in self.tasks:
            raise RecipeError(
                f"model.name={self.name} predicts links by relation, and this is a {task} task; take skipgram or a GNN"
            )


class FactoredConfig(VectorModelConfig):
    """Options of models that are computed from the graph at once."""

    family: ClassVar[str] = "factors"

    weighted: bool = True
    """Read the edges' weights, where the graph has some."""


@MODELS.options("prone", "vectors.factored")
class ProneConfig(FactoredConfig):
    """ProNE (IJCAI 2019): a factorisation of the edges, smoothed over the graph; seconds for a million edges."""

    order: int = Field(default=10, ge=2, le=100)
    """Terms of the smoothing filter: products with the graph."""
    mu: float = Field(default=0.2, ge=-2, le=2)
    """The filter's middle, as a frequency of the graph: 0 are those that change least along edges."""
    theta: float = Field(default=0.5, gt=0, le=100)
    """The filter's narrowness."""
    power: float = Field(default=0.75, ge=0, le=4)
    """How much less an edge to an often met node counts."""


@MODELS.options("fastrp", "vectors.factored")
class FastRPConfig(FactoredConfig):
    """FastRP (CIKM 2019): random projections of what is a few steps away; as fast as products with the graph are."""

    steps: FloatTuple = (0.0, 0.0, 1.0, 6.0)
    """How much what is 1, 2, 3, ... steps away counts."""
    beta: float = Field(default=-0.9, ge=-4, le=4)
    """Nodes count in proportion to degree^this: below 0 often met nodes count less."""

    @model_validator(mode="after")
    def _check_steps(self) -> FastRPConfig:
        if not any(self.steps):
            raise ValueError("steps says how much each step counts: give numbers, one of them not 0, as 0,0,1,6")
        return self


@MODELS.options("netmf", "vectors.factored")
class NetMFConfig(FactoredConfig):
    """NetMF by samples (WSDM 2018; LightNE, SIGMOD 2021): DeepWalk's matrix, estimated from walks and factored."""

    window: int = Field(default=10, ge=1, le=1000)
    """Pairs on walks are so many steps apart at most."""
    samples: float | None = Field(default=None, gt=0, le=1e12)
    """Pairs that are drawn; null: 20 for each edge and step of the window. 8 bytes each for a while."""
    negatives: float = Field(default=1.0, gt=0, le=1000)
    """Only what is met so many times as often as by chance counts."""
    smooth: bool = True
    """Smooth the vectors over the graph as ProNE does."""
