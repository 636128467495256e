"""One side of benchmarks/layout_peers.py, in a process of its own: vectors of a file become coordinates in a file.

    python -m benchmarks.layout_sides SIDE vectors.npy out.npy '{"threads": 2, "largevis": "PROGRAM"}'

The last line of its output is JSON: seconds and CPU seconds of the layout, of a small one before it that compiles, the
peak memory, and the peer's version. Reading the vectors is not counted; LargeVis' program also reads them as text,
which is timed on its own, as that of a run with no samples.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Array

Options = dict[str, Any]
_WARM_ROWS = 600


def graphmill(vectors: Array, options: Options) -> Array:
    """Neighbours by pynndescent, LargeVis' weights and steps: what `graphmill layout` does.

    This is the one place to call the command's own functions from.
    """
    from pynndescent import NNDescent

    from models.kernels.layout.move_points import Points, move_points
    from models.kernels.layout.objectives import Objective
    from tasks.sampling.walks.alias import alias_table, draw_many

    neighbors, chunk, negatives = options.get("neighbors", 90), 1 << 14, 5
    num = min(neighbors, (len(vectors) - 1) // 2) + 1
    index = NNDescent(vectors, n_neighbors=num, random_state=0, n_jobs=options["threads"])
    ids, distances = index.neighbor_graph
    weight = perplexity_weights(distances[:, 1:].astype(np.float64) ** 2, min(30, num / 3))
    sources = np.repeat(np.arange(len(vectors), dtype=np.int32), num - 1)
    heads = np.concatenate([sources, ids[:, 1:].reshape(-1).astype(np.int32)])
    tails = np.concatenate([heads[len(sources) :], sources])
    weights = np.concatenate([weight.reshape(-1)] * 2)
    edges, noise = alias_table(weights), alias_table(np.bincount(heads, weights, len(vectors)) ** 0.75)
    points, objective = Points.zeros(len(vectors), 2), Objective("largevis", gamma=7.0, epsilon=0.1)
    points.rows[:] = first_axes(vectors) * 1e-4
    drawn, others = np.empty(chunk, np.int64), np.empty((chunk, negatives), np.int32)
    state, mask, count = 1, (1 << 64) - 1, max(500 * len(vectors), options.get("least_samples", 10_000_000))
    for low in range(0, count, chunk):
        state = int(draw_many(edges, np.uint64(state), drawn)) & mask
        state = int(draw_many(noise, np.uint64(state), others.reshape(-1))) & mask
        move_points(points, points, heads[drawn], tails[drawn], others, objective, rate=max(1e-4, 1 - low / count))
    return points.rows


def perplexity_weights(squares: Array, perplexity: float) -> Array:
    """Return each row's probabilities by a Gaussian of that perplexity over squared distances (n, k)."""
    low, high = np.zeros(len(squares)), np.full(len(squares), np.inf)
    precision = 1 / np.maximum(squares.mean(axis=1), 1e-12)
    squares = squares - squares[:, :1]
    for _ in range(50):
        weights = np.exp(-precision[:, None] * squares)
        weights /= weights.sum(axis=1, keepdims=True)
        wide = -(weights * np.log(weights + 1e-300)).sum(axis=1) > np.log(perplexity)
        low, high = np.where(wide, precision, low), np.where(wide, high, precision)
        precision = np.where(np.isinf(high), precision * 2, (low + high) / 2)
    return weights


def first_axes(vectors: Array) -> Array:
    """Return the first two principal components, of standard deviation 1."""
    centered = vectors - vectors.mean(axis=0)
    _, axes = np.linalg.eigh(centered.T @ centered)
    components = centered @ axes[:, :-3:-1]
    return components / components.std()


def umap(vectors: Array, options: Options) -> Array:
    """umap-learn with its defaults; no seed, as a seed would take its threads away."""
    from umap import UMAP

    return UMAP(n_jobs=options["threads"]).fit_transform(vectors)


def opentsne(vectors: Array, options: Options) -> Array:
    """OpenTSNE with its defaults."""
    from openTSNE import TSNE

    return np.asarray(TSNE(n_jobs=options["threads"], random_state=0).fit(vectors))


def pacmap(vectors: Array, options: Options) -> Array:
    """PaCMAP with its defaults."""
    from pacmap import PaCMAP

    return PaCMAP().fit_transform(vectors)


def largevis(vectors: Array, options: Options) -> Array:
    """LargeVis' own program with its defaults."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "in.txt").open("w") as file:
            file.write(f"{len(vectors)} {vectors.shape[1]}\n")
            np.savetxt(file, vectors, fmt="%g")
        _start_clock()
        words = ["-fea", "1", "-input", "in.txt", "-output", "out.txt", "-threads", str(options["threads"])]
        program = Path(options["largevis"]).resolve()
        subprocess.run([program, *words], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        _stop_clock()
        return np.loadtxt(folder / "out.txt", skiprows=1)[:, -2:]


SIDES: dict[str, Callable[[Array, Options], Array]] = {
    "graphmill": graphmill,
    "umap-learn": umap,
    "openTSNE": opentsne,
    "pacmap": pacmap,
    "LargeVis C++": largevis,
}
_PACKAGES = {"umap-learn": "umap-learn", "openTSNE": "openTSNE", "pacmap": "pacmap"}
_clock: list[tuple[float, float]] = []


def _cpu_seconds() -> float:
    uses = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in uses)


def _start_clock() -> None:
    _clock[:] = [(time.perf_counter(), _cpu_seconds())]


def _stop_clock() -> None:
    del _clock[1:]
    _clock.append((time.perf_counter(), _cpu_seconds()))


def main() -> None:
    """Lay out a few rows to compile, then all."""
    side, source, target, options = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
    vectors = np.load(source)
    begin = time.perf_counter()
    if side != "LargeVis C++":
        SIDES[side](vectors[:_WARM_ROWS], options | {"least_samples": 100_000})
    warm = time.perf_counter() - begin
    _start_clock()
    coordinates = SIDES[side](vectors, options)
    if side != "LargeVis C++":
        _stop_clock()
    (began, cpu_began), (ended, cpu_ended) = _clock
    np.save(target, np.asarray(coordinates, np.float32))
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    found = {
        "seconds": ended - began,
        "cpu_seconds": cpu_ended - cpu_began,
        "warm_seconds": warm,
        "peak_mb": peak / 1024,
    }
    found["version"] = version(_PACKAGES[side]) if side in _PACKAGES else ""
    print(json.dumps(found))


if __name__ == "__main__":
    main()
