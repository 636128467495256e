"""What a relational model sees of a typed graph: nodes numbered by type, edges by relation."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from models.block import Movable, StepBatch
from models.kernels.sparse.adjacency import Adjacency


def visits_number(target: int) -> int:
    """Return the number of the relation to a type's rows from those that their walks visit: none of the graph's."""
    return -1 - target


@dataclass
class RelationBlock(Movable):
    """Edges of one relation, from nodes of its source type to nodes of its target type."""

    number: int
    """Among the graph's relations; below 0: see `visits_number`."""
    source_type: int
    target_type: int
    indptr: Tensor
    """int64 (num_dst + 1,): in-edges of destination v of the target type are edges indptr[v] to indptr[v + 1]."""
    indices: Tensor
    """int32 (E,): source of each edge, numbered among the sources of the source type."""
    num_src: int
    """Sources of the source type."""
    edge_feat: Tensor | None = None
    """float32 (E, De): the relation's own columns."""
    edge_feat_cat: Tensor | None = None
    """int64 (E, Ce): the same of categories."""
    edge_age: Tensor | None = None
    """float32 (E,): days between the edge's time and its seed's cut; NaN: it was always there."""
    weight: Tensor | None = None
    """float32 (E,): how much each source counts, where walks say so; those of a destination add up to 1."""
    adjacency: Adjacency = field(init=False, repr=False, compare=False)
    """The edges as the kernels take them."""

    def __post_init__(self) -> None:
        self.adjacency = Adjacency(self.indptr, self.indices, self.num_src)

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return len(self.indices)


@dataclass
class TypedBlock(Movable):
    """One layer's edges, by relation; destinations of each type are the first sources of that type."""

    relations: list[RelationBlock]
    """Every relation that carries messages, the empty ones too: its weights are part of each step."""
    num_src: tuple[int, ...]
    """Sources by type."""
    num_dst: tuple[int, ...]
    """Destinations by type."""
    _cache: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    @cached_property
    def by_number(self) -> dict[int, RelationBlock]:
        """The relations by their numbers among the graph's."""
        return {relation.number: relation for relation in self.relations}

    @property
    def num_edges(self) -> int:
        """Edges of all relations."""
        return sum(relation.num_edges for relation in self.relations)


@dataclass
class TypeInputs(Movable):
    """What is known of the outermost sources of one type."""

    node_ids: Tensor
    """int64 (n,): ids in the graph."""
    feat: Tensor | None = None
    """float32 (n, D): the type's own columns."""
    feat_cat: Tensor | None = None
    """int64 (n, C): the same of categories."""
    age: Tensor | None = None
    """float32 (n,): days between the row's time and its seed's cut; NaN: it was always there. None: nothing has
    times."""
    number: Tensor | None = None
    """int64 (n,): each row's number in its table, where a model learns a row for each; below 0: it knows none."""


@dataclass
class TypedInputs(Movable):
    """What is known of the first block's sources."""

    types: list[TypeInputs]
    """By number of the type, those that no model reads too."""


@dataclass
class TypedBatch(StepBatch):
    """One step's work on a typed graph."""

    blocks: list[TypedBlock]
    """One a layer, from the inputs to the seeds."""
    inputs: TypedInputs
    target: Tensor
    """int64 (n,) or float32 (n, T): what the scores should be."""
    num_seeds: int
    seed_type: int
    """Type of the nodes that are scored."""
    rows: Tensor | None = None
    """int64 (n,): the last block's destination of `seed_type` that each seed asks about; None: all, in their order."""
    num_edges: int = 0
    """Edges that messages pass along, all layers together."""


@dataclass
class RankingBatch(TypedBatch):
    """One step's work where candidates are ranked: seeds and n candidates, all as of one moment.

    Scores are those of right pairs, and of all that is not right (`RankingHead.of_batch`); `target` is 0 for each.
    """

    candidate_rows: Tensor | None = None
    """int64 (n,): the last block's destination of the candidates' type that each candidate is."""
    popularity: Tensor | None = None
    """float32 (n, 2): log(1 + links) before the moment, and within a horizon before it."""
    pairs: Tensor | None = None
    """int64 (2, m): seeds, and candidates that they were linked to before the moment."""
    pair_feat: Tensor | None = None
    """float32 (m, PAST): what is known of these links (`models.relational.ranking`)."""
    right: Tensor | None = None
    """int64 (2, m): seeds, and candidates that are right for them and learnt from."""
    left_out: Tensor | None = None
    """int64 (2, k): seeds, and candidates that nothing of theirs is compared with: all that are right, or no
    candidates."""
    hard: Tensor | None = None
    """int64 (2, h): seeds, and candidates that theirs are compared with for sure, each once."""
    log_inclusion: Tensor | None = None
    """float32 (n,): log of the chance that a candidate is in the batch; None: all are."""
