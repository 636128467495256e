"""Options of models of knowledge graphs: a row of numbers for each entity and one for each relation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from configs.errors import RecipeError
from configs.registry import MODELS
from models.vectors.configs import Pairing, RowsConfig

Similarity = Literal["dot", "l1", "l2", "complex"]
"""How a query is compared with an entity's row; see `models.kernels.similarity.rows`."""


class KnowledgeConfig(RowsConfig):
    """What every scorer of triples (head, relation, tail) reads."""

    family: ClassVar[str] = "knowledge"
    tasks: ClassVar[tuple[str, ...]] = ("triple",)
    """Tasks of data sets that such a model is for."""
    parts: ClassVar[int] = 1
    """What `dim` has to be a multiple of."""

    dim: int = Field(default=256, ge=1, le=65_536)
    """Numbers in the row of an entity. Complex numbers take two each, quaternions four."""
    inverse_relations: bool = False
    """Learn a second row for each relation, the way back: which head a tail has is asked as which tail the inverse
    relation has (arXiv:1806.07297)."""
    start: float | None = Field(default=None, gt=0, le=100)
    """Spread of the rows as they begin; null: the scorer's own, as its page says."""
    features: bool = True
    """Where entities or relations have features, add what a learnt linear map makes of these to their rows. So an
    entity without a training triple has a meaningful row, too. Where a model gives entities' rows the length 1, that
    is their length before it."""
    entity_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the numbers of entities' rows that is dropped while training."""
    relation_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of the numbers of relations' rows that is dropped while training."""
    penalty: Literal["none", "l2", "n3"] = "none"
    """What is added to the loss of a triple for the rows that it has: l2: the squares of their numbers; n3: the cubes
    of their absolute values (of complex numbers, those of the modulus; arXiv:1806.07297). Rows that are met often are
    held back more often: weighted by frequency."""
    entity_penalty: float = Field(default=0.0, ge=0, le=1000)
    """How much the penalty of entities counts."""
    relation_penalty: float = Field(default=0.0, ge=0, le=1000)
    """How much the penalty of relations counts."""

    @property
    def similarity(self) -> Similarity:
        """How queries are compared with entities' rows."""
        return "dot"

    @property
    def relation_width(self) -> int:
        """Numbers in the row of a relation."""
        return self.dim

    def pairings(self) -> list[Pairing]:
        """Return the table of entities, which heads and tails are rows of."""
        return [Pairing("entities", self.dim, shared=True)]

    def relation_rows(self, num_relations: int) -> int:
        """Return how many rows the relations have."""
        return num_relations * (2 if self.inverse_relations else 1)

    @model_validator(mode="after")
    def _whole_parts(self) -> KnowledgeConfig:
        if self.dim % self.parts:
            raise ValueError(f"dim={self.dim}: {self.name} needs a multiple of {self.parts}")
        return self

    @model_validator(mode="after")
    def _penalty_counts(self) -> KnowledgeConfig:
        given = self.entity_penalty or self.relation_penalty
        if (self.penalty == "none") == bool(given):
            raise ValueError(
                "entity_penalty and relation_penalty say how much penalty=l2 or penalty=n3 counts: give both kinds of "
                "options or none"
            )
        return self

    def check_task(self, task: str | None) -> None:
        """Refuse what are no triples. Raises RecipeError."""
        if task is not None and task not in self.tasks:
            raise RecipeError(
                f"model.name={self.name} learns from triples (head, relation, tail), and this is a {task} task; take a "
                "data set of triples, or another model (graphmill models)"
            )


@MODELS.options("transe", "scorers.distances")
class TransEConfig(KnowledgeConfig):
    """TransE (NeurIPS 2013): a relation is a step from head to tail, -|h + r - t|."""

    norm: Literal["l1", "l2"] = "l1"
    """Distance: the sum of absolute values, or Euclid's."""

    @property
    def similarity(self) -> Similarity:
        """The distance, negated."""
        return self.norm


@MODELS.options("distmult", "scorers.products")
class DistMultConfig(KnowledgeConfig):
    """DistMult (arXiv:1412.6575): a product of three rows, sum_i h_i r_i t_i; the same both ways."""


@MODELS.options("complex", "scorers.products")
class ComplExConfig(KnowledgeConfig):
    """ComplEx (arXiv:1606.06357): DistMult with complex numbers, Re(sum_i h_i r_i conj(t_i))."""

    parts: ClassVar[int] = 2


@MODELS.options("simple", "scorers.products")
class SimplEConfig(KnowledgeConfig):
    """SimplE (arXiv:1802.04868): entities have a row as heads and one as tails, relations one for either way."""

    parts: ClassVar[int] = 2


@MODELS.options("rotate", "scorers.distances")
class RotatEConfig(KnowledgeConfig):
    """RotatE (arXiv:1902.10197): a relation turns complex numbers, -sum_i |h_i e^(i r_i) - t_i|."""

    parts: ClassVar[int] = 2

    @property
    def similarity(self) -> Similarity:
        """The sum of the moduli, negated."""
        return "complex"

    @property
    def relation_width(self) -> int:
        """One angle for each complex number."""
        return self.dim // 2


@MODELS.options("quate", "scorers.products")
class QuatEConfig(KnowledgeConfig):
    """QuatE (arXiv:1904.10281): a relation turns quaternions, (h x r / |r|) . t."""

    parts: ClassVar[int] = 4


@MODELS.options("rescal", "scorers.products")
class RescalConfig(KnowledgeConfig):
    """RESCAL (ICML 2011): a relation is a matrix, h^T R t."""

    dim: int = Field(default=128, ge=1, le=4096)
    """Numbers in the row of an entity; a relation has their square."""

    @property
    def relation_width(self) -> int:
        """A matrix."""
        return self.dim * self.dim


@MODELS.options("pairre", "scorers.distances")
class PairREConfig(KnowledgeConfig):
    """PairRE (arXiv:2011.03798): a relation scales head and tail, -|h r_h - t r_t|, entities of length 1."""

    @property
    def similarity(self) -> Similarity:
        """The sum of absolute values, negated."""
        return "l1"

    @property
    def relation_width(self) -> int:
        """A scale for heads and one for tails."""
        return 2 * self.dim
