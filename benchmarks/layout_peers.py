"""Whole time from vectors to a map, on Fashion-MNIST: against umap-learn, openTSNE, PaCMAP and LargeVis' program.

    python -m benchmarks.layout_peers [--peers DIR] [--largevis PROGRAM] [--rows 70000] [--rounds 3] [--out DIR]

Each side is a process of its own, one after the other, round by round, with its defaults and --threads threads. Seconds
and CPU seconds are of the layout alone: what a side compiles in a small layout before it is in a column of its own.
Measures are those of graphmill's evaluation (tasks/layout/quality), the same sample of points for all sides.

The peers are not graphmill's own requirements: --peers is a folder that `pip install --target DIR umap-learn openTSNE
pacmap pynndescent` has filled, with numpy, scipy, numba and scikit-learn as graphmill has them. Those that are missing
are left out with a word why. How LargeVis' program is built says benchmarks/layout.py. layout_peers.json goes to --out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.layout_sides import SIDES
from tasks.arrays import Array
from tasks.layout.quality.measure import measure_layout

ROOT = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("GRAPHMILL_DATA", ROOT.parent / "shared" / "data"))
RESULTS = Path(__file__).parent / "results"
MEASURES = ("trustworthiness", "neighbors_kept", "knn_accuracy", "triplets")
TIMES = ("seconds", "cpu_seconds", "warm_seconds", "peak_mb")


def fashion_mnist(rows: int) -> tuple[Array, Array]:
    """Return the first vectors, float32 (rows, 784) from 0 to 1, and their labels."""
    folder = DATA / "vectors"
    images = np.concatenate([idx_bytes(folder / f"{name}-images-idx3-ubyte.gz", 16) for name in ("train", "t10k")])
    labels = np.concatenate([idx_bytes(folder / f"{name}-labels-idx1-ubyte.gz", 8) for name in ("train", "t10k")])
    return images.reshape(-1, 784)[:rows].astype(np.float32) / 255, labels[:rows].astype(np.int64)


def idx_bytes(file: Path, header: int) -> Array:
    """Return the bytes of a file of MNIST's format behind its header."""
    with gzip.open(file) as opened:
        return np.frombuffer(opened.read(), np.uint8, offset=header)


def run_side(words: list[str], options: Any) -> dict[str, Any]:
    """Run a module of benchmarks in a process of its own, with `options.peers` and `options.limit` seconds.

    Return what it says last. Raises RuntimeError with its last words where it fails.
    """
    path = os.pathsep.join([str(ROOT), *([str(options.peers.resolve())] if options.peers else [])])
    threads = str(getattr(options, "threads", 1))
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), threads)
    command = [sys.executable, "-m", f"benchmarks.{words[0]}", *words[1:]]
    environment = {**os.environ, "PYTHONPATH": path, **limits}
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=options.limit)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"it took more than {options.limit:.0f} s") from None
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1])
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare(sides: list[str], data: tuple[Array, Array], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return a line for each side: medians over rounds."""
    vectors, labels = data
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    given = json.dumps({"threads": options.threads, "largevis": str(options.largevis)})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "vectors.npy", vectors)
        for number in range(options.rounds):
            for side in list(found) if number % 2 == 0 else list(found)[::-1]:
                try:
                    words = ["layout_sides", side, str(folder / "vectors.npy"), str(folder / "out.npy"), given]
                    one = run_side(words, options)
                except RuntimeError as error:
                    print(f"{side} is left out: {error}", flush=True)
                    del found[side]
                    continue
                coordinates = np.load(folder / "out.npy")
                measures, sampled = measure_layout(coordinates, vectors, labels=labels, threads=options.threads)
                found[side].append(one | measures | {"errors": sampled})
                print(
                    f"round {number + 1}: {side} {one['seconds']:.1f} s, {one['cpu_seconds']:.1f} CPU s, {measures}",
                    flush=True,
                )
    lines = []
    for side, rounds in found.items():
        medians = {name: statistics.median(one[name] for one in rounds) for name in (*TIMES, *MEASURES)}
        lines.append({"side": side, "version": rounds[0]["version"], **medians, "rounds": rounds})
    return lines


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--largevis", type=Path)
    parser.add_argument("--rows", type=int, default=70_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds that a side may take")
    parser.add_argument("--sides", nargs="*", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.rows < 1000 or options.rounds < 1 or options.threads < 1:
        parser.error("give --rows of 1000 or more, and --rounds and --threads of 1 or more")
    if options.peers is not None and not options.peers.is_dir():
        parser.error(f"--peers {options.peers} is no folder: leave it out, or fill it as --help says")
    if options.largevis is not None and not options.largevis.is_file():
        parser.error(f"--largevis {options.largevis} is no file: leave it out, or build the program as --help says")
    if options.largevis is None:
        options.sides = [side for side in options.sides if side != "LargeVis C++"]
    lines = compare(options.sides, fashion_mnist(options.rows), options)
    print("\n| side | s | CPU s | compiling s | peak MB | trustworthiness@15 | kNN kept | kNN accuracy | triplets |")
    print("|---|---|---|---|---|---|---|---|---|")
    for line in lines:
        times = " | ".join(f"{line[name]:.1f}" for name in TIMES)
        print(
            f"| {line['side']} {line['version']} | {times} | {' | '.join(f'{line[name]:.4f}' for name in MEASURES)} |"
        )
    options.out.mkdir(parents=True, exist_ok=True)
    written = json.dumps({"rows": options.rows, "threads": options.threads, "lines": lines}, indent=1)
    (options.out / "layout_peers.json").write_text(written + "\n")


if __name__ == "__main__":
    main()
