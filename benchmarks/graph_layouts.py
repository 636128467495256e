"""Maps of graphs: two meshes, Debian's packages and Swiss-Prot, against Graphviz' sfdp, ForceAtlas2 and igraph's DrL.

    python -m benchmarks.graph_layouts [--peers DIR] [--graphs 4elt mdual debdeps large] [--out DIR]

Each layout is made in a process of its own, on one thread: CPU seconds from the arrays of the graph to coordinates
(of sfdp without making Graphviz' own graph), peak memory, and the measures of tasks/layout/quality. Pictures go to
--out/graph_layouts, to look at: a mesh must look like one.

The peers are not graphmill's own requirements: --peers is a folder that `pip install --target DIR --no-deps pygraphviz
fa2_modified igraph texttable` has filled; pygraphviz' wheel from 2.0 on brings Graphviz. One that is missing, or takes
longer than --limit seconds, is left out with a word why. graph_layouts.json goes to --out.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.graph_layout_sides import SIDES
from benchmarks.layout_peers import run_side
from benchmarks.partition import debdeps, large, mdual, metis_graph
from tasks.arrays import Array
from tasks.layout.quality.measure import measure_layout

RESULTS = Path(__file__).parent / "results"
MEASURES = ("stretched_edges", "crossing_edges", "crossings_per_edge", "graph_neighbors_kept", "stress")
PIXELS = 1000


# 4elt is the mesh around four aerofoils.
GRAPHS = {"4elt": lambda: metis_graph("4elt"), "mdual": mdual, "debdeps": debdeps, "large": large}


def picture(coordinates: Array, indptr: Array, indices: Array) -> Array:
    """Return grey values (PIXELS, PIXELS): how many edges, drawn as points, lie in each pixel, by their logarithm."""
    low, high = np.percentile(coordinates, [0.1, 99.9], axis=0)
    places = (coordinates - (low + high) / 2) / max(float((high - low).max()), 1e-30) * 0.95 + 0.5
    sources = np.repeat(np.arange(len(coordinates)), np.diff(indptr))
    once = sources < indices
    first, second = places[sources[once]], places[indices[once]]
    counts = np.zeros(PIXELS * PIXELS)
    steps = int(np.clip(2e8 / max(len(first), 1), 20, 200))
    for t in (np.arange(steps) + 0.5) / steps:
        at = ((1 - t) * first + t * second) * PIXELS
        inside = ((at >= 0) & (at < PIXELS)).all(axis=1)
        x, y = at[inside].astype(np.int64).T
        counts += np.bincount((PIXELS - 1 - y) * PIXELS + x, minlength=PIXELS * PIXELS)
    shades = np.log1p(counts)
    darkest = float(np.percentile(shades[shades > 0], 99.5)) if shades.any() else 1.0
    return 1 - np.minimum(shades / darkest, 1).reshape(PIXELS, PIXELS)


def compare(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a line for each side, and write the pictures."""
    import matplotlib.image

    matrix = GRAPHS[name]()
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        np.save(folder / "indptr.npy", indptr)
        np.save(folder / "indices.npy", indices)
        for side in options.sides:
            try:
                line = {"graph": name, "side": side, **run_side(["graph_layout_sides", side, str(folder)], options)}
            except RuntimeError as error:
                print(f"{name}: {side} is left out: {error}", flush=True)
                continue
            coordinates = np.load(folder / "out.npy")
            measures, sampled = measure_layout(coordinates, edges=(indptr, indices))
            lines.append(line | measures | {"sampled": sampled})
            shown = " | ".join(f"{measures[key]:.4g}" for key in MEASURES)
            print(f"| {name} | {side} | {line['cpu_seconds']:.1f} | {line['peak_mb']:.0f} | {shown} |", flush=True)
            pixels = picture(coordinates, indptr, indices)
            matplotlib.image.imsave(options.out / "graph_layouts" / f"{name}-{side}.png", pixels, cmap="gray")
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--graphs", nargs="+", choices=list(GRAPHS), default=list(GRAPHS))
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds that a side may take")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.peers is not None and not options.peers.is_dir():
        parser.error(f"--peers {options.peers} is no folder: leave it out, or fill it as --help says")
    (options.out / "graph_layouts").mkdir(parents=True, exist_ok=True)
    print("| graph | side | CPU s | peak MB | stretched | crossing | crossings an edge | neighbours kept | stress |")
    print("|---|---|---|---|---|---|---|---|---|")
    lines = [line for name in options.graphs for line in compare(name, options)]
    (options.out / "graph_layouts.json").write_text(json.dumps(lines, indent=1) + "\n")


if __name__ == "__main__":
    main()
