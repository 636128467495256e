"""One sparse product for all that is read of a type's rows: their gradient is then written once, not added up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum

if TYPE_CHECKING:
    from models.relational.batch import RelationBlock, TypedBlock


@dataclass
class StackedMeans:
    """Means over several relations out of one type as a single product, destinations relation by relation.

    With own rows these come first, as a relation of an edge from each destination to itself.
    """

    adjacency: Adjacency
    scale: Tensor
    """float32 (rows,): 1 / number of in-edges."""
    sizes: list[int]
    """Rows of each part."""

    @classmethod
    def of(cls, relations: list[RelationBlock], num_src: int, num_own: int) -> StackedMeans:
        """StackedMeans relations out of one type; `num_own`: how many of its rows are wanted as they are."""
        first = relations[0].indices if relations else torch.empty(0, dtype=torch.int32)
        loops = torch.arange(num_own, dtype=first.dtype, device=first.device)
        counts = torch.cat([torch.ones_like(loops, dtype=torch.int64), *(r.adjacency.degrees() for r in relations)])
        indptr = counts.new_zeros(len(counts) + 1)
        torch.cumsum(counts, 0, out=indptr[1:])
        indices = torch.cat([loops, *(relation.indices for relation in relations)])
        sizes = [num_own, *(relation.adjacency.num_dst for relation in relations)]
        return cls(Adjacency(indptr, indices, num_src), counts.clamp(min=1).to(torch.float32).reciprocal(), sizes)

    def means(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return the own rows, and each relation's means: x (num_src, D) -> (size, D) each."""
        return torch.split(weighted_sum(self.adjacency, x, target_scale=self.scale), self.sizes)


def stack_of(block: TypedBlock, source: int, relations: list[RelationBlock], *, own: bool) -> StackedMeans:
    """Return the stack of a source type's relations in a block; `own`: with the type's destinations themselves."""
    num_own = block.num_dst[source] if own else 0
    return block.cached(f"stack of {source}", lambda: StackedMeans.of(relations, block.num_src[source], num_own))
