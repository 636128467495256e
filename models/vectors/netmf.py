"""NetMF by samples: DeepWalk's matrix, estimated from walks and factored.

Qiu and others: Network embedding as matrix factorization, WSDM 2018, equation 4: with a window T, skip-gram's optimum
is log(max(1, N_ij N / (b N_i N_j))), N_ij how often i and j are met within T steps of a walk from a random edge. As in
LightNE (SIGMOD 2021) the counts are sampled, so that the matrix has an entry for each pair that was met and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.registry import MODELS
from models.kernels.sparse.adjacency import Adjacency
from models.vectors.base import FactoredModel, FactorGraph
from models.vectors.configs import NetMFConfig
from models.vectors.factorization import EdgeMatrix, low_rank, unit_rows
from models.vectors.prone import smooth

_SAMPLES_AN_EDGE = 20
_ORDER, _MU, _THETA = 10, 0.2, 0.5  # of ProNE


@MODELS.register("netmf")
class NetMF(FactoredModel):
    """NetMF by samples: the matrix that DeepWalk factors, estimated from walks."""

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
