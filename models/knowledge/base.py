"""Models of knowledge graphs: a row for each entity, one for each relation, and a score of triples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from models.facts import GraphFacts
from models.vectors.base import RowsModel

Side = Literal["head", "tail"]
"""The end of a triple that is asked for."""


@dataclass(frozen=True)
class EntityQueries:
    """What is compared with entities' rows e: by the similarity of the model, of `vectors` with `scale` * e."""

    vectors: Tensor
    """float32 (n, dim)."""
    scale: Tensor | None = None
    """float32 (n, dim); None: 1."""


class KnowledgeModel(RowsModel):
    """Scores a triple by comparing a query, made of one end and the relation, with the row of the other end.

    That form is what makes training and ranking fast: many queries meet many entities in one product, or one kernel.
    A new scorer is one file:

        @MODELS.register("mine")
        class Mine(KnowledgeModel):
            \"\"\"One line for `graphmill models`.\"\"\"

            class Config(KnowledgeConfig):
                alpha: float = 0.1
                \"\"\"Options of its own; `similarity` and `relation_width` where they are not dot and dim.\"\"\"

            @classmethod
            def queries(cls, config, entities, relations, side):
                return EntityQueries(entities * relations)

    Gradients come from autograd, unless `query_gradients` gives them faster. For both sides the score of a triple has
    to be the same: similarity(queries(h, r, "tail"), t) = similarity(queries(t, r, "head"), h).
    """

    unit_entities: ClassVar[bool] = False
    """Whether entities' rows are given the length 1 after each step."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """Return queries for the end `side`.

        Args:
            config: the model's options.
            entities: rows of the other ends, float32 (n, dim).
            relations: rows of the relations, float32 (n, config.relation_width).
            side: which end is asked for.
        """
        raise AssertionError(f"{cls.__name__} defines no queries")

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of a loss by `entities` and `relations`, from those by the queries.

        Args:
            config: as in `queries`, like the next three.
            entities: see there.
            relations: see there.
            side: see there.
            vectors: gradient by `EntityQueries.vectors`, (n, dim).
            scale: gradient by `EntityQueries.scale`, where there is one.
        """
        with torch.enable_grad():
            rows = entities.detach().requires_grad_(), relations.detach().requires_grad_()
            made = cls.queries(config, *rows, side)
            outputs = [made.vectors] if made.scale is None else [made.vectors, made.scale]
            given = [vectors] if scale is None else [vectors, scale]
            gradients = torch.autograd.grad(outputs, rows, given, allow_unused=True)
        filled = (torch.zeros_like(r) if g is None else g for g, r in zip(gradients, rows, strict=True))
        by_entities, by_relations = filled
        return by_entities, by_relations

    @classmethod
    def start_entities(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Fill entities' rows, float32 (n, dim), as they begin. Here: normal, of spread 0.1."""
        rows.normal_(0, config.start or 0.1, generator=generator)

    @classmethod
    def start_relations(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Fill relations' rows, float32 (n, relation_width), as they begin. Here: as entities' rows."""
        cls.start_entities(config, rows, generator)

    @classmethod
    def penalty(cls, config: Any, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the penalty of each row, (n,), and its gradient, (n, width); see `KnowledgeConfig.penalty`."""
        if config.penalty == "l2":
            return rows.square().sum(1), 2 * rows
        if config.penalty == "n3" and config.parts == 2 and config.similarity == "dot":
            real, imaginary = rows.chunk(2, 1)
            modulus = torch.hypot(real, imaginary)
            return modulus.pow(3).sum(1), 3 * rows * modulus.repeat(1, 2)
        return rows.abs().pow(3).sum(1), 3 * rows * rows.abs()

    # ---- a trained model

    def __init__(self, config: Any, facts: GraphFacts) -> None:
        """Make rows of zeros for all entities and relations. Raises RecipeError: the task is another one."""
        super().__init__(config, facts)
        self.relations: Tensor
        self.register_buffer("relations", torch.zeros(config.relation_rows(facts.num_relations), config.relation_width))
        self.calibration: Tensor
        self.register_buffer("calibration", torch.tensor([1.0, 0.0]).repeat(facts.num_relations, 2, 1))
        """float32 (R, 2, 2): for heads and for tails of each relation, a and b of the probability
        1 / (1 + e^-(a score + b)) that a triple holds."""
        self.head = nn.Identity()


def made_queries(
    model: type[KnowledgeModel], config: Any, entities: Tensor, table: Tensor, relations: Tensor, side: Side
) -> EntityQueries:
    """Return queries; with inverse relations, those for heads ask for the tail of the relation's way back.

    Args:
        model: what makes them.
        config: its options.
        entities: rows of the known ends, (n, dim).
        table: rows of all relations, with inverse ones behind the others.
        relations: numbers of relations, int64 (n,), below the number of those of the data.
        side: the end that is asked for.
    """
    rows, asked = relation_rows(config, relations, len(table), side)
    return model.queries(config, entities, table[rows], asked)


def relation_rows(config: Any, relations: Tensor, table_rows: int, side: Side) -> tuple[Tensor, Side]:
    """Return the rows of relations in their table, and the end that these are asked for."""
    if side == "head" and config.inverse_relations:
        return relations + table_rows // 2, "tail"
    return relations, side
