"""Where the points of a layout begin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.errors import IntegrityError
from models.kernels.threads import num_threads
from models.layout.configs import LayoutConfig, Settled
from tasks.arrays import Array
from tasks.layout.edge_list import EdgeList
from tasks.layout.start import coarse_start, pca_start, put_around
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import TABLE
from tasks.train.job import WarmStart
from tasks.train.state import checkpoint
from tasks.train.warm.earlier import DoesNotFitError, earlier_graph, same_of_all

_ROUNDS = 10
"""Steps along edges in which new points find their place among earlier ones."""
_ASIDE = 0.01
"""How far apart points of one place begin, of the layout's standard deviation."""


def first_points(start: str, store: GraphStore, edges: EdgeList, dim: int, seed: int) -> Array:
    """Return where points begin, in whatever size: float (N, dim), the same on all ranks; `start`: `train.start`."""
    if start == "auto":
        start = "pivots" if edges.of_graph or not store.manifest.feature_dim else "pca"
    if start == "pca":
        return pca_start(store["feat"], dim, seed)
    return coarse_start(edges.indptr, edges.indices, dim, seed=seed, threads=num_threads())


def scaled(points: Array, settled: Settled, edges: EdgeList) -> NDArray[np.float32]:
    """Return points with their mean at 0, and the size at which the model begins: float32 (N, dim)."""
    centred = points - points.mean(0)
    if settled.edge_length is None:
        size, size_at_start = float(centred.std(0).max()), settled.options.start_size
    else:
        size, size_at_start = edges.edge_length(centred), settled.edge_length
    return np.asarray(centred * (size_at_start / size if size > 0 else 1.0), np.float32)


def earlier_points(warm: WarmStart, store: GraphStore, options: LayoutConfig, seed: int) -> Array:
    """Return where points lay in an earlier layout, float32 (N, dim); new ones lie among their neighbours.

    Raises DoesNotFitError: it was of another dimension, or shares no point with this one.
    """
    try:
        points = checkpoint.load(warm.checkpoint, mapped=True)["model"][TABLE].numpy()
    except IntegrityError as error:
        raise DoesNotFitError(str(error)) from error
    if points.shape[1] != options.dim:
        raise DoesNotFitError(f"it has {points.shape[1]} dimensions, here there are {options.dim}")
    before = earlier_graph(warm)
    rows, earlier_rows = same_of_all(warm, before, store)
    if not len(rows):
        raise DoesNotFitError("none of its points is here")
    num_nodes = store.manifest.num_nodes
    placed, is_placed = np.zeros((num_nodes, options.dim), np.float32), np.zeros(num_nodes, bool)
    placed[rows], is_placed[rows] = points[earlier_rows], True
    place_among_neighbors(placed, is_placed, store, seed)
    return placed


def place_among_neighbors(
    points: NDArray[np.float32], is_placed: NDArray[np.bool_], store: GraphStore, seed: int
) -> None:
    """Put each point that is not placed at the mean of its neighbours that are, in place; outwards step by step.

    Points that no edge joins to placed ones lie anywhere among these, those without an edge around all others.
    """
    from scipy import sparse

    size, dim = points.shape
    weight = store.get("edge_weight")
    data = np.ones(store.manifest.num_edges, np.float32) if weight is None else np.asarray(weight, np.float32)
    edges = sparse.csr_matrix((data, np.asarray(store["csc_indices"]), np.asarray(store["csc_indptr"])), (size, size))
    rng = np.random.default_rng(seed)
    alone = ~is_placed & (edges.getnnz(axis=0) + edges.getnnz(axis=1) == 0)
    spread = points[is_placed].std()
    for _ in range(_ROUNDS):
        new = np.flatnonzero(~is_placed)
        if not len(new):
            return
        own = edges[new]
        total = own @ is_placed.astype(np.float32)
        near = new[total > 0]
        if not len(near):
            break
        means = (own[total > 0] @ (points * is_placed[:, None])) / total[total > 0, None]
        points[near] = means + rng.standard_normal((len(near), dim)) * _ASIDE * spread
        is_placed[near] = True
    left = np.flatnonzero(~is_placed)
    points[left] = points[rng.choice(np.flatnonzero(is_placed), len(left))]
    points[left] += rng.standard_normal((len(left), dim)) * spread
    put_around(points, alone, seed)
