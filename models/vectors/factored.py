"""Vectors that are computed from the graph: FastRP, ProNE and NetMF."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import RecipeError
from configs.registry import MODELS
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm import weighted_sum
from models.vectors.base import FactoredModel, FactorGraph
from models.vectors.configs import FastRPConfig, NetMFConfig, ProneConfig
from models.vectors.factorization import EdgeMatrix, chebyshev_gaussian, left_factor, low_rank, unit_rows

_SPARSITY = 3.0
"""One in so many numbers of the projection is not 0 (Achlioptas, PODS 2001)."""


@MODELS.register("fastrp")
class FastRP(FactoredModel):
    """FastRP: weighted powers of the random walk times a sparse random projection.

    Fast and accurate network embeddings via very sparse random projection (Chen and others, CIKM 2019).
    """

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


_TINY = 1e-30


@MODELS.register("prone")
class Prone(FactoredModel):
    """ProNE: a factorisation of the edges, smoothed over the graph.

    Fast and scalable network representation learning (Zhang and others, IJCAI 2019).

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


_SAMPLES_AN_EDGE = 20
_ORDER, _MU, _THETA = 10, 0.2, 0.5  # of ProNE


@MODELS.register("netmf")
class NetMF(FactoredModel):
    """NetMF by samples: the matrix that DeepWalk factors, estimated from walks.

    Qiu and others: Network embedding as matrix factorization, WSDM 2018, equation 4: with a window T, skip-gram's
    optimum is log(max(1, N_ij N / (b N_i N_j))), N_ij how often i and j are met within T steps of a walk from a random
    edge. As in LightNE (SIGMOD 2021) the counts are sampled: only pairs that were met have an entry.
    """

    Config = NetMFConfig

    @classmethod
    def factor(cls, config: Any, graph: FactorGraph, seed: int, say: Callable[[str], None]) -> Tensor:
        """Count pairs on walks, and factor log(max(1, how much oftener than by chance they are met))."""
        samples = config.samples or _SAMPLES_AN_EDGE * config.window * graph.adjacency.num_edges
        say(f"drawing {samples:,.0f} pairs")
        keys, counts = count_pairs(graph, config.window, samples)
        rows, columns = np.divmod(keys, graph.num_nodes)
        total = counts.sum()
        centres = np.bincount(rows, counts, graph.num_nodes)
        contexts = np.bincount(columns, counts, graph.num_nodes)
        lift = counts * total / (config.negatives * centres[rows] * contexts[columns])
        kept = lift > 1
        say(f"factoring {int(kept.sum()):,} pairs")
        matrix = _matrix(rows[kept], columns[kept], np.log(lift[kept]), graph.num_nodes)
        vectors, sizes = low_rank(matrix, config.dim, seed)
        vectors = vectors * sizes.sqrt()
        return smooth(unit_rows(vectors), graph, _ORDER, _MU, _THETA, say) if config.smooth else vectors


def count_pairs(graph: FactorGraph, window: int, samples: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return pairs that walks meet, as centre * N + context, ascending, and how often."""
    keys: NDArray[np.int64] = np.empty(0, np.int64)
    counts: NDArray[Any] = np.empty(0)
    for centres, contexts in graph.pairs(window + 1, window, samples):
        met, times = np.unique(centres.astype(np.int64) * graph.num_nodes + contexts, return_counts=True)
        keys, places = np.unique(np.concatenate([keys, met]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, times]), len(keys))
    return keys, counts


def _matrix(
    rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float64], num_nodes: int
) -> EdgeMatrix:
    indptr = np.zeros(num_nodes + 1, np.int64)
    indptr[1:] = np.bincount(rows, minlength=num_nodes).cumsum()
    id_type = np.int32 if num_nodes < 1 << 31 else np.int64
    adjacency = Adjacency(torch.from_numpy(indptr), torch.from_numpy(columns.astype(id_type)), num_nodes)
    return EdgeMatrix(adjacency, torch.from_numpy(values.astype(np.float32)))
