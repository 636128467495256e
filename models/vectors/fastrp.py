"""FastRP: fast and accurate network embeddings via very sparse random projection (Chen and others, CIKM 2019)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from configs.registry import MODELS
from models.kernels.sparse.spmm import weighted_sum
from models.vectors.base import FactoredModel, FactorGraph
from models.vectors.configs import FastRPConfig
from models.vectors.factorization import unit_rows

_SPARSITY = 3.0
"""One in so many numbers of the projection is not 0 (Achlioptas, PODS 2001)."""


@MODELS.register("fastrp")
class FastRP(FactoredModel):
    """FastRP: weighted powers of the random walk times a sparse random projection."""

    Config = FastRPConfig

    @classmethod
    def factor(cls, config: Any, graph: FactorGraph, seed: int, say: Callable[[str], None]) -> Tensor:
        """Return sum_k step_k P^k D^beta R, each power's rows at length 1; P the random walk, R the projection."""
        strengths = graph.strengths()
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.rand(graph.num_nodes, config.dim, generator=generator)
        x = (drawn < 0.5 / _SPARSITY).float() - (drawn > 1 - 0.5 / _SPARSITY).float()
        x *= torch.where(strengths > 0, strengths.clamp(min=1e-30) ** config.beta, 0.0)[:, None]
        scale = torch.where(strengths > 0, strengths.clamp(min=1e-30).reciprocal(), 0.0)
        total = torch.zeros_like(x)
        for number, weight in enumerate(config.steps, start=1):
            say(f"step {number} of {len(config.steps)}")
            x = weighted_sum(graph.adjacency, x, graph.weight, target_scale=scale)
            if weight:
                total += weight * unit_rows(x)
        return total
