"""ProNE: fast and scalable network representation learning (Zhang and others, IJCAI 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import MODELS
from models.kernels.sparse.spmm import weighted_sum
from models.vectors.base import FactoredModel, FactorGraph
from models.vectors.configs import ProneConfig
from models.vectors.factorization import EdgeMatrix, chebyshev_gaussian, left_factor, low_rank, unit_rows

_TINY = 1e-30


@MODELS.register("prone")
class Prone(FactoredModel):
    """ProNE: a factorisation of the edges, smoothed over the graph.

    The smoothing gives each node a loop of weight 1, which counts as much as an edge of mean weight: weights come with
    a mean of 1, so that their unit does not matter.
    """

    Config = ProneConfig

    @classmethod
    def factor(cls, config: Any, graph: FactorGraph, seed: int, say: Callable[[str], None]) -> Tensor:
        """Factor log(p_ij / q_j) over the edges, p the random walk and q_j ~ (sum_i p_ij)^power, then smooth."""
        say("factoring the edges")
        adjacency, strengths = graph.adjacency, graph.strengths()
        share = strengths.clamp(min=_TINY).reciprocal()[adjacency.targets()]
        share = share if graph.weight is None else share * graph.weight
        met = torch.zeros(graph.num_nodes).index_add_(0, adjacency.indices.long(), share)
        chance = met.clamp(min=0) ** config.power
        chance = chance / chance.sum().clamp(min=_TINY)
        values = (share.clamp(min=_TINY) / chance[adjacency.indices.long()].clamp(min=_TINY)).log()
        values = torch.where(share > 0, values, torch.zeros_like(values))
        vectors, sizes = low_rank(EdgeMatrix(adjacency, values), config.dim, seed)
        return smooth(unit_rows(vectors * sizes.sqrt()), graph, config.order, config.mu, config.theta, say)


def smooth(x: Tensor, graph: FactorGraph, order: int, mu: float, theta: float, say: Callable[[str], None]) -> Tensor:
    """Return vectors, float32 (N, dim), smoothed over the graph and made orthogonal again (the paper's section 3.2).

    Raises RecipeError: the filter is too strong for float32.
    """
    say("smoothing the vectors over the graph")
    scale = (graph.strengths() + 1).reciprocal()

    def with_loops(y: Tensor) -> Tensor:
        return weighted_sum(graph.adjacency, y, graph.weight) + y

    def walk(y: Tensor) -> Tensor:
        return with_loops(y) * scale[:, None]

    smoothed = with_loops(x - chebyshev_gaussian(walk, x, order, mu, theta))
    if not smoothed.isfinite().all():
        raise RecipeError(
            f"the smoothing of ProNE leaves the range of float32 with order={order}, mu={mu:g}, theta={theta:g}: take "
            "a smaller order or theta, or mu between 0 and 2; 10, 0.2 and 0.5 are usual"
        )
    return unit_rows(left_factor(smoothed, x.shape[1]))
