"""All measures of a layout at once, in seconds also for a million points: what is too much to look at is sampled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from models.kernels.threads import num_threads
from tasks.arrays import Array
from tasks.layout.neighbors.rows import Metric, SearchedRows
from tasks.layout.quality import edges as of_edges
from tasks.layout.quality import points as of_points
from tasks.layout.quality.edges import SortedEdges, count_crossings
from tasks.layout.quality.points import Estimate, Map

NEIGHBORS = 15
"""Of trustworthiness, continuity and neighbors_kept."""
VOTES = 10
"""Nearest points that vote on a label: openTSNE's and PaCMAP's papers count 10 too."""
# How many are looked at. With two cores of an EPYC (November 2026) each measure takes at most some seconds.
_ALL_ROWS = 5_000
_LEAST_ROWS = 500  # rows that are compared with all
_ROW_PAIRS, _ROW_PRODUCTS = 1e9, 1e11  # pairs of them, and multiplications
_MOST_POINTS, _MOST_TRIPLET_POINTS, _MOST_LENGTHS = 50_000, 20_000, 1_000_000
_CROSSING_TESTS, _LEAST_CROSSED, _MOST_CROSSING_ENTRIES = 3e8, 100, 20_000_000
_PATH_SOURCES, _PATH_TARGETS, _PATH_READS = 50, 2_000, 2e8


def measure_layout(
    coordinates: Array,
    vectors: Array | None = None,
    metric: Metric = "euclidean",
    *,
    edges: tuple[Array, Array] | None = None,
    labels: Array | None = None,
    seed: int = 0,
    threads: int = 0,
) -> tuple[dict[str, float], dict[str, float]]:
    """Measure a layout by the vectors it is of, the graph, or labels; `points` and `edges` say what each measure is.

    With vectors: trustworthiness, continuity, neighbors_kept, triplets. With edges: stretched_edges,
    graph_neighbors_kept, stress, and in two dimensions, up to ten million edges,
    crossing_edges and crossings_per_edge. With labels: knn_accuracy. What cannot be said of so few points, labels or
    edges is left out.

    Args:
        coordinates: finite numbers (n, 2) or (n, 3).
        vectors: float (n, d); may be a memory map.
        metric: of the vectors: euclidean, cosine or dot (the larger the nearer).
        edges: indptr (n + 1,) and indices (E,) of the graph as CSR, each edge in both directions.
        labels: (n,), of any type; below 0, NaN, None and "": none.
        seed: of all samples.
        threads: 0: as many as kernels use. They change no number.

    Returns:
        The measures by name; and by the same names how many points, edges, triplets or pairs each looked at, and by
        `<name>_error` the standard error where those are a sample.

    Raises ValueError: coordinates or vectors that are not finite.
    """
    coordinates = np.asarray(coordinates)
    finite = np.asarray(np.isfinite(coordinates).all(axis=1))
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(
            f"{len(finite) - int(finite.sum()):,} of {len(finite):,} points have coordinates that are not finite, row "
            f"{row} first: {coordinates[row].tolist()}. The layout has run away: lower its learning rate"
        )
    estimates: dict[str, Estimate] = {}
    threads = threads or num_threads()
    if len(coordinates) > 1:
        layout = Map(coordinates, threads)
        if vectors is not None:
            estimates |= _of_vectors(layout, SearchedRows(vectors, metric), seed)
        if labels is not None:
            estimates |= _of_labels(coordinates, labels, seed, threads)
        if edges is not None:
            estimates |= _of_edges(layout, np.asarray(edges[0]), np.asarray(edges[1]), seed, threads)
    sampled = {name: float(one.seen) for name, one in estimates.items()}
    sampled |= {f"{name}_error": one.error for name, one in estimates.items() if one.error > 0}
    return {name: one.value for name, one in estimates.items()}, sampled


def _of_vectors(layout: Map, vectors: SearchedRows, seed: int) -> dict[str, Estimate]:
    n, dim = vectors.vectors.shape
    estimates = {}
    if n > 2:
        estimates["triplets"] = of_points.triplets(layout, vectors, _draw(n, _MOST_TRIPLET_POINTS, seed), seed)
    k = min(NEIGHBORS, (n - 1) // 2)  # ranks of more are not comparable: the most that can be lost is then less
    if k > 0 and n > 3:
        most = n if n <= _ALL_ROWS else int(np.clip(min(_ROW_PAIRS, _ROW_PRODUCTS / dim) / n, _LEAST_ROWS, _ALL_ROWS))
        estimates |= of_points.neighborhoods(layout, vectors, _draw(n, most, seed), k)
    return estimates


def _of_labels(coordinates: Array, labels: Array, seed: int, threads: int) -> dict[str, Estimate]:
    codes = label_codes(labels)
    rows = np.flatnonzero(codes >= 0)
    if len(rows) < 2:
        return {}
    layout = Map(coordinates[rows], threads)
    queries = _draw(len(rows), _MOST_POINTS, seed)
    k = min(VOTES, len(rows) - 1)
    return {"knn_accuracy": of_points.knn_accuracy(layout, codes[rows], queries, k, len(rows))}


def label_codes(labels: Array) -> NDArray[np.int64]:
    """Return a number for each different label (n,), ascending; -1: none."""
    labels = np.asarray(labels)
    if labels.dtype.kind in "iufb":
        missing = ~(labels >= 0)
    else:
        missing = np.array([one is None or one != one or one == "" for one in labels.tolist()], bool)
        labels = labels.astype(str)
    codes = np.full(len(labels), -1, np.int64)
    codes[~missing] = np.unique(labels[~missing], return_inverse=True)[1]
    return codes


def _of_edges(layout: Map, indptr: Array, indices: Array, seed: int, threads: int) -> dict[str, Estimate]:
    coordinates = layout.coordinates
    estimates: dict[str, Estimate] = {}
    entries = _draw(len(indices), _MOST_LENGTHS, seed)
    sources, targets = np.searchsorted(indptr, entries, side="right") - 1, indices[entries]
    apart = sources != targets
    if not apart.any():
        return {}
    lengths = of_edges.lengths_between(coordinates, sources[apart], targets[apart])
    estimates["stretched_edges"] = of_edges.stretched_edges(lengths, len(indices))
    nodes = np.flatnonzero(indptr[1:] > indptr[:-1])
    drawn = nodes[_draw(len(nodes), _MOST_POINTS, seed)]
    estimates["graph_neighbors_kept"] = of_edges.graph_neighbors_kept(layout, indptr, indices, drawn, len(nodes))
    if coordinates.shape[1] == 2 and len(indices) <= _MOST_CROSSING_ENTRIES:
        estimates |= _crossings(coordinates, indptr, indices, seed, threads)
    rng = np.random.default_rng(seed)
    most = int(np.clip(_PATH_READS / len(indices), 5, _PATH_SOURCES))
    starts = nodes[_draw(len(nodes), most, seed + 1)]
    ends = rng.permutation(len(coordinates))[:_PATH_TARGETS]
    stress = of_edges.stress(coordinates, indptr, indices, starts, ends)
    return estimates if stress is None else estimates | {"stress": stress}


def _crossings(coordinates: Array, indptr: Array, indices: Array, seed: int, threads: int) -> dict[str, Estimate]:
    """Return crossing_edges and crossings_per_edge: of all edges where those are few, else of some with all."""
    n = len(coordinates)
    sources = np.repeat(np.arange(n, dtype=np.int64), np.diff(indptr))
    keys = np.unique(np.minimum(sources, indices) * n + np.maximum(sources, indices))
    pairs = np.stack([keys // n, keys % n], axis=1)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    swept = SortedEdges.of(coordinates, pairs)
    drawn = _draw(len(pairs), int(max(_LEAST_CROSSED, _CROSSING_TESTS / swept.mean_tests())), seed)
    counts = count_crossings(swept, drawn, threads)
    return {
        "crossing_edges": Estimate.of(counts > 0, len(pairs)),
        "crossings_per_edge": Estimate.of(counts, len(pairs)),
    }


def _draw(count: int, most: int, seed: int) -> NDArray[np.int64]:
    """Return `most` of the numbers 0 to count - 1, ascending, or all."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(seed).choice(count, most, replace=False, shuffle=False))
