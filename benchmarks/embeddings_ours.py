"""graphmill's side of `benchmarks.embeddings`, in a process of its own: `python -m benchmarks.embeddings_ours`.

The steps are those of `graphmill run`: the trainer's engine draws chunks of walks or edges, their negatives, and trains
them. The walks are those that its loader draws. See `benchmarks.embeddings_peers` for what is asked and answered.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from benchmarks.embeddings_peers import Job, Paced, serve, take_stdout, timed
from benchmarks.gnn_graphs import RECIPES, graph_recipe
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from models.kernels.simd.vector import Lanes, load, prefetch, store
from models.kernels.tables.row_tables import RowTable
from tasks.processes.children import die_with_parent
from tasks.processes.device import use_threads
from tasks.sampling.walks.random_walks import Walks
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job as TrainingJob
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_engine import BlockEngine, PairEngine

GENERATED = {"toy": (500, 2000), "10k": (10_000, 50_000), "100k": (100_000, 500_000), "1.1m": (1_100_000, 5_000_000)}
"""Nodes and edges."""
_WALKS = 1 << 13
_ROWS = 1 << 20
_AHEAD = (4, 8, 16, 32)


def make_recipe(graph: str, options: dict[str, Any], loader: str = "walks", shared: int = 1) -> Recipe:
    """Return the recipe of a training without end; `shared`: pairs that share their negatives."""
    if graph in GENERATED:
        nodes, edges = GENERATED[graph]
        dataset: dict[str, Any] = {"name": "synthetic", "num_nodes": nodes, "num_edges": edges, "feature_dim": 0}
    else:
        dataset = dump_recipe(graph_recipe(str(RECIPES / f"{graph}.yaml")))["dataset"]
    walks = {"name": "walks", "length": options["length"], "window": options["window"]}
    model = {"dim": options["dim"], "negatives": options["negatives"], "shared_negatives": shared}
    return build_recipe(
        {
            "name": f"embeddings-{graph}",
            "dataset": dataset,
            "model": {"name": "skipgram", **model},
            "train": {
                "samples": 1e12,
                "loader": walks if loader == "walks" else loader,
                "strategy": {"name": "block_grid", "blocks": 1},
                "device": "cpu",
            },
        }
    )


def training_job(recipe: Recipe, folder: Path, work: Path) -> TrainingJob[Any]:
    """Return a training of a prepared graph that keeps its files in a folder of its own."""
    manifest = PartitionManifest.model_validate_json((folder / "manifest.json").read_text())
    work.mkdir(parents=True, exist_ok=True)
    return TrainingJob.make(recipe, folder, manifest.digest, work)


def train_chunks(engine: BlockEngine, chunks: range) -> float:
    """Take the steps of some chunks as a training in memory takes them; return how many samples they had."""
    with engine.taking_steps():
        loss, samples = engine.train_chunks(chunks)
    assert np.isfinite(loss)
    return samples


def _job(work: Callable[[int], float]) -> Job:
    return Paced(lambda units: timed(lambda: work(units)))


@njit(cache=True, nogil=True)
def _touch(lanes, tile, stride, table, rows, ahead):  # type: ignore[no-untyped-def]
    """Read and write whole rows, one after the other, and ask for those that come later."""
    for i in range(len(rows)):
        if i + ahead < len(rows):
            for column in range(0, stride, tile):
                prefetch(lanes, table, np.int64(rows[i + ahead]) * stride + column)
        for column in range(0, stride, tile):
            at = np.int64(rows[i]) * stride + column
            store(lanes, table, at, load(lanes, table, at, tile) + np.float32(1), tile)


class Ours:
    """What graphmill does with one graph."""

    def __init__(self, graph: str, folder: Path, work: Path, options: dict[str, Any]) -> None:
        self.graph, self.folder, self.work, self.options = graph, folder, work, options
        self.engines: dict[tuple[str, int], PairEngine] = {}
        self.chunk, self.walk = 0, 0
        biased = {"p": options["p"], "q": options["q"]}
        self.jobs: dict[str, Job] = {
            "walks": self._training("walks"),
            "walks, 2 threads": self._training("walks", threads=2),
            "edges": self._training("edges"),
            "negatives shared": self._training("walks", shared=2 * options["window"] - 1),
            "first-order": self._walking(),
            "node2vec": self._walking(**biased),
            "roof": _job(self._make_roof()),
        }

    def _training(self, loader: str, shared: int = 1, threads: int = 1) -> Job:
        def train(chunks: int) -> float:
            engine = self._engine(loader, shared)
            use_threads(threads)
            first, self.chunk = self.chunk, self.chunk + chunks
            return train_chunks(engine, range(first, first + chunks))

        return _job(train)

    def _engine(self, loader: str, shared: int) -> PairEngine:
        engine = self.engines.get((loader, shared))
        if engine is None:
            recipe = make_recipe(self.graph, self.options, loader, shared)
            engine = PairEngine(training_job(recipe, self.folder, self.work / f"{loader}-{shared}"), Ranks())
            self.engines[loader, shared] = engine
        return engine

    def _walking(self, p: float = 1.0, q: float = 1.0) -> Job:
        walks: list[Walks] = []

        def walk(times: int) -> float:
            if not walks:
                store = self._engine("walks", 1).store
                arrays = (np.asarray(store[key]) for key in ("csr_indptr", "csr_indices"))
                walks.append(Walks(*arrays, key=1, length=self.options["length"], p=p, q=q))
            tokens = np.empty((_WALKS, self.options["length"]), walks[0].indices.dtype)
            for _ in range(times):
                walks[0].fill(self.walk, tokens)
                self.walk += _WALKS
            return times * tokens.size

        return _job(walk)

    def _make_roof(self) -> Callable[[int], float]:
        """Return what reads and writes random rows of a table as large as both that are trained."""
        num_nodes = json.loads((self.folder / "manifest.json").read_text())["num_nodes"]
        table = RowTable.zeros(2 * num_nodes, self.options["dim"])
        table.values[:] = 1  # the pages are there
        rows = np.random.default_rng(1).integers(table.num_rows, size=_ROWS, dtype=np.int32)
        lanes = Lanes(min(table.stride & -table.stride, 128))
        arguments = lanes, lanes.count, table.stride, table.values, rows
        _touch(*arguments, 1)
        best = min(_AHEAD, key=lambda ahead: timed(lambda: _touch(*arguments, ahead) or 0).cpu)

        def touch(times: int) -> float:
            for _ in range(times):
                _touch(*arguments, best)
            return times * len(rows)

        return touch


def main() -> None:
    die_with_parent()
    graph, folder, work, options = sys.argv[1:]
    answers = take_stdout()
    serve(Ours(graph, Path(folder), Path(work), json.loads(options)).jobs, {}, answers)


if __name__ == "__main__":
    main()
