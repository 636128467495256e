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
    """LargeVis with its defaults, as `graphmill layout vectors.npy` has them."""
    from configs.layout_options import LayoutOptions, NeighborsConfig
    from tasks.evaluate.model_layout import layout_of_vectors

    return layout_of_vectors(vectors, LayoutOptions(neighbors=NeighborsConfig()), 0, lambda *_: None)


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
        SIDES[side](vectors[:_WARM_ROWS], options)
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
