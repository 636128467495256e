"""Where the points of a layout begin: near to where they belong; and where those lie that no edge moves.

A graph begins with distances in edges to some pivots, projected. Steps of single edges put neighbours right in some
hundred passes, but what is wrong across the whole map takes as many passes as the map has nodes from side to side,
squared. So the start must be right there: a mesh of 15,606 nodes from a start by pivots has fewer crossing edges after
1,000 passes than Graphviz' sfdp, in a quarter of its time.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from tasks.arrays import Array, blocks
from tasks.layout.quality.edges import path_lengths

_BLOCK_BYTES = 1 << 26
_MOST_COLUMNS = 1024
"""Of vectors; wider ones are projected to so many by a random matrix first."""
_SHARE, _LEAST, _MOST = 0.99, 1.1, 1.2
"""Of others' distances from the middle, the one within which so many lie; how far out the rim is, in these."""
PIVOTS = 50
_MAPPED_NODES = 10
"""Components below this size begin as a random cloud."""
_NOISE = 1e-3
_ROOM = 1.2
"""Side of a component's square over the root of its nodes."""
_FAR = 2.0
_SEARCHES = 5


def pca_start(vectors: Array, dim: int, seed: int) -> NDArray[np.float32]:
    """Return the first principal components of vectors, float32 (n, dim), with a standard deviation of 1 each.

    In blocks: vectors (n, d) may be a memory map. Components point to where their largest loading is positive.
    """
    width = vectors.shape[1]
    sketch = None
    if width > _MOST_COLUMNS:
        rng = np.random.default_rng(seed)
        sketch = torch.from_numpy(rng.standard_normal((width, _MOST_COLUMNS)).astype(np.float32))
    parts = list(blocks(len(vectors), max(1, _BLOCK_BYTES // (4 * width))))

    def read(part: slice) -> torch.Tensor:
        rows = torch.from_numpy(np.array(vectors[part], np.float32))
        return rows if sketch is None else rows @ sketch

    columns = min(width, _MOST_COLUMNS)
    total, mean = torch.zeros(columns, columns, dtype=torch.float64), torch.zeros(columns, dtype=torch.float64)
    for part in parts:
        mean += read(part).double().sum(0) / len(vectors)
    for part in parts:
        rows = (read(part) - mean.float()).double()
        total += rows.T @ rows
    loadings = torch.linalg.eigh(total)[1][:, -dim:].flip(1)
    loadings *= loadings.gather(0, loadings.abs().argmax(0, keepdim=True)).sign()
    components = torch.cat([(read(part) - mean.float()) @ loadings.float() for part in parts]).numpy()
    return _spread(components, dim, seed)


def _spread(points: NDArray[np.float32], dim: int, seed: int) -> NDArray[np.float32]:
    """Give each coordinate a mean of 0 and a deviation of 1; where there is none, draw it. Far ones come nearer."""
    spread = np.random.default_rng(seed).standard_normal((len(points), dim)).astype(np.float32)
    centred = points - points.mean(0)
    deviation = centred.std(0)
    some = deviation > 1e-6 * max(float(np.abs(points).max(initial=0.0)), 1e-30)
    spread[:, : len(some)][:, some] = np.clip(centred[:, some] / deviation[some], -5, 5)
    return spread


def put_around(points: NDArray[np.float32], alone: Array, seed: int, *, keep_directions: bool = False) -> None:
    """Put some points around the others, in place: where nobody takes them for members of a group.

    Args:
        points: finite, float32 (N, dim).
        alone: bool (N,): which to put there; the others, of which there has to be one, stay.
        seed: of their places.
        keep_directions: leave them in the direction from the others' middle in which they lie.
    """
    count = int(np.count_nonzero(alone))
    if not count or count == len(points):
        return
    rng = np.random.default_rng(seed)
    others = points[~alone]
    middle = np.median(others, axis=0)
    reach = float(np.quantile(np.linalg.norm(others - middle, axis=1), _SHARE)) or 1.0
    directions = rng.standard_normal((count, points.shape[1]))
    if keep_directions:
        present = points[alone] - middle
        directions = np.where(np.linalg.norm(present, axis=1, keepdims=True) > 0, present, directions)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    points[alone] = middle + directions * reach * rng.uniform(_LEAST, _MOST, (count, 1))


def is_mesh(indptr: Array, indices: Array, *, seed: int = 0) -> bool:
    """Whether nodes of a graph are far from each other, as in meshes and roads, and not as in most networks.

    Far is more than 2 ln(n) edges on average: in random graphs and most networks it is ln(n) over that of the degree,
    in meshes a root of n.

    Args:
        indptr: int64 (n + 1,), of a graph as CSR.
        indices: integers (E,), each edge in both directions.
        seed: of the 5 nodes from which distances are searched.
    """
    n = len(indptr) - 1
    starts = np.flatnonzero(indptr[1:] > indptr[:-1])
    starts = starts[np.random.default_rng(seed).integers(len(starts), size=min(_SEARCHES, len(starts)))]
    steps = [path_lengths(indptr, indices, source) for source in starts]
    reached = [one[one > 0] for one in steps]
    mean = float(np.mean(np.concatenate(reached))) if sum(map(len, reached)) else 0.0
    return mean > _FAR * float(np.log(max(n, 1)))


def coarse_start(
    indptr: Array, indices: Array, dim: int = 2, *, seed: int = 0, threads: int = 1
) -> NDArray[np.float32]:
    """Return coordinates float32 (n, dim) of a graph's nodes, the root of the mean squared edge length being 1.

    Each connected component is laid out by itself (PivotMDS: Brandes, Pich: Graph Drawing 2006), and the components
    stand in rows beside each other, the largest first. Time is that of 50 searches over the graph.

    Args:
        indptr: int64 (n + 1,), of a graph as CSR.
        indices: integers (E,), each edge in both directions.
        dim: 2 or 3.
        seed: of the first pivot, and of a noise that puts apart nodes with the same distances.
        threads: searches side by side; they change no result.
    """
    n = len(indptr) - 1
    rng = np.random.default_rng(seed)
    if not len(indices):
        return rng.random((n, dim)).astype(np.float32) * np.float32(max(n, 1) ** (1 / dim))
    matrix = csr_matrix((np.ones(len(indices), np.bool_), indices, indptr), (n, n))
    num_components, component = connected_components(matrix, directed=False)
    sizes = np.bincount(component, minlength=num_components)
    order = np.argsort(component, kind="stable")
    first = np.concatenate([[0], np.cumsum(sizes)])
    places = rng.normal(size=(n, dim))
    for c in np.flatnonzero(sizes >= _MAPPED_NODES):
        nodes = order[first[c] : first[c + 1]]
        places[nodes] = _of_component(indptr, indices, nodes, dim, rng, threads)
    corners, sides = packed(sizes)
    places = _in_squares(places, component, sizes, corners, sides)
    lengths = np.square(places[np.repeat(np.arange(n), np.diff(indptr))] - places[indices]).sum(axis=1)
    return (places / (np.sqrt(lengths.mean()) or 1.0)).astype(np.float32)


def _of_component(
    indptr: Array, indices: Array, nodes: Array, dim: int, rng: np.random.Generator, threads: int
) -> NDArray[np.float64]:
    """Return coordinates (m, dim) of the nodes (m,) of a component, their root mean square from the middle being 1."""
    distances = pivot_distances(indptr, indices, nodes, min(PIVOTS, len(nodes)), int(rng.integers(len(nodes))), threads)
    squares = np.square(distances, dtype=np.float64)
    squares -= squares.mean(axis=1, keepdims=True)
    squares -= squares.mean(axis=0, keepdims=True)
    _, axes = np.linalg.eigh(squares @ squares.T)
    places: NDArray[np.float64] = (axes[:, : -dim - 1 : -1].T @ squares).T
    places /= np.sqrt(np.square(places).mean(axis=0).sum()) or 1.0
    return places + rng.normal(size=places.shape) * _NOISE


def pivot_distances(
    indptr: Array, indices: Array, nodes: Array, num_pivots: int, first: int, threads: int = 1
) -> NDArray[np.float32]:
    """Return the edges on shortest paths from some pivots to the nodes (m,) of a component: (num_pivots, m).

    Half of the pivots are each the node that is farthest from those before it; the others are spread over the nodes,
    and searched from side by side.
    """
    distances = np.empty((num_pivots, len(nodes)), np.float32)
    one_by_one, nearest, pivot = (num_pivots + 1) // 2, np.full(len(nodes), np.inf, np.float32), first
    for i in range(one_by_one):
        distances[i] = path_lengths(indptr, indices, nodes[pivot])[nodes]
        np.minimum(nearest, distances[i], out=nearest)
        pivot = int(np.argmax(nearest))
    count = num_pivots - one_by_one
    others = nodes[((np.arange(count) + 0.5) * len(nodes) / max(count, 1)).astype(np.int64)]

    def search(i: int) -> None:
        distances[one_by_one + i] = path_lengths(indptr, indices, others[i])[nodes]

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(search, range(count)))
    return distances


def _in_squares(places: Array, component: Array, sizes: Array, corners: Array, sides: Array) -> Array:
    """Scale and move each component of coordinates (n, dim) into the middle of its square or cube."""
    dim, count = places.shape[1], len(sizes)
    low, high = np.full((count, dim), np.inf), np.full((count, dim), -np.inf)
    np.minimum.at(low, component, places)
    np.maximum.at(high, component, places)
    extent = (high - low).max(axis=1)
    scale = np.divide(np.sqrt(sizes), extent, out=np.zeros(count), where=extent > 0)
    middle = np.zeros((count, dim))
    middle[:, :2] = corners + sides[:, None] / 2
    return (places - ((low + high) / 2)[component]) * scale[component][:, None] + middle[component]


def packed(sizes: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the lower left corners (C, 2) and sides (C,) of squares that do not overlap, with room for so many nodes.

    They stand in rows, the largest first.
    """
    sides = _ROOM * np.sqrt(sizes)
    order = np.argsort(-sides, kind="stable")
    corners = np.empty((len(sizes), 2))
    fill_rows(sides, order, max(float(np.sqrt(np.square(sides).sum())), float(sides.max())), corners)
    return corners, sides


@njit(cache=True, nogil=True)
def fill_rows(sides, order, width, corners):  # type: ignore[no-untyped-def]
    """Write the corners (C, 2) of squares that fill rows of that width in an order by falling sides."""
    x, y, height = 0.0, 0.0, 0.0
    for c in order:
        if x + sides[c] > width * (1 + 1e-9):
            x, y, height = 0.0, y + height, 0.0
        corners[c, 0], corners[c, 1] = x, y
        x, height = x + sides[c], max(height, sides[c])
