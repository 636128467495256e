"""The peers of `benchmarks.embeddings`, each in a process of its own, run by the Python that has them.

    PEERS/bin/python benchmarks/embeddings_peers.py gensim|pecanpy|ensmallen FOLDER OPTIONS

Nothing of graphmill is imported here. A parent asks by lines of JSON on stdin, {"job": NAME, "seconds": ABOUT}, and
reads what was done (pairs, tokens) in how many seconds of CPU time and of wall time. FOLDER has the graph: graph.npz
(indptr, indices and data, as pecanpy reads it) and edges.tsv (both directions, in ascending order).
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Done(NamedTuple):
    """What a job did in a round."""

    done: float
    cpu: float
    wall: float


Job = Callable[[float], Done]
"""Works for about so many seconds, or once."""


def timed(work: Callable[[], float]) -> Done:
    """Run it; it returns how many pairs or tokens it made."""
    cpu, wall = time.process_time(), time.perf_counter()
    done = work()
    return Done(float(done), time.process_time() - cpu, time.perf_counter() - wall)


class Paced:
    """A job of units (chunks, batches, passes), as many as take about the seconds that are asked for."""

    def __init__(self, work: Callable[[int], Done], first: int = 4) -> None:
        """`work(units)` does so many of them; `first` tell how long one takes."""
        self.work, self.first, self.pace = work, first, 0.0

    def __call__(self, seconds: float) -> Done:
        if not self.pace:
            self.work(1)  # compiles
            self.pace = self.first / self.work(self.first).wall
        units = max(1, round(seconds * self.pace))
        found = self.work(units)
        self.pace = units / found.wall
        return found


def window_pairs(length: int, before: int, after: int) -> int:
    """Pairs of a walk of so many nodes, each with so many before and after it."""
    return sum(min(before, at) + min(after, length - 1 - at) for at in range(length))


def random_walks(indptr: np.ndarray, indices: np.ndarray, count: int, length: int, rng: np.random.Generator) -> Any:
    """Walks of first order over a symmetric graph, from nodes that have edges: (count, length)."""
    degree = np.diff(indptr)
    walks = np.empty((count, length), np.int64)
    walks[:, 0] = rng.choice(np.flatnonzero(degree), count)
    for at in range(1, length):
        here = walks[:, at - 1]
        walks[:, at] = indices[indptr[here] + (rng.random(count) * degree[here]).astype(np.int64)]
    return walks


class Gensim:
    """Word2Vec fed with walks that are made beforehand; only `train` counts."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        from gensim.models import Word2Vec

        with np.load(folder / "graph.npz") as graph:
            self.indptr, self.indices = graph["indptr"], graph["indices"]
        self.length, window = options["length"], options["window"]
        self.pairs = window_pairs(self.length, window, window)
        self.model = Word2Vec(
            vector_size=options["dim"],
            window=window,
            negative=options["negatives"],
            sg=1,
            sample=0,
            min_count=1,
            workers=1,
            shrink_windows=False,
        )
        degree = np.diff(self.indptr)
        self.model.build_vocab_from_freq({str(v): int(degree[v]) for v in np.flatnonzero(degree)})
        self.rng, self.pace = np.random.default_rng(1), 0.0
        self.jobs: dict[str, Job] = {"train": self._train}

    def _train(self, seconds: float) -> Done:
        count = max(32, round(seconds * self.pace / self.pairs))
        walks = random_walks(self.indptr, self.indices, count, self.length, self.rng)
        sentences = [[str(node) for node in walk] for walk in walks.tolist()]

        def train() -> float:
            self.model.train(sentences, total_examples=count, epochs=1)
            return count * self.pairs

        found = timed(train)
        self.pace = found.done / found.cpu
        return found


class Pecanpy:
    """Walks by `simulate_walks`, a list of lists of names, and by the loop in it alone, which fills an array.

    pecanpy compiles its loop again at every call; here it keeps what it compiled.
    """

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        from pecanpy import pecanpy

        kinds = {
            "first-order": pecanpy.FirstOrderUnweighted(p=1, q=1, workers=1),
            "node2vec": pecanpy.SparseOTF(p=options["p"], q=options["q"], workers=1),
        }
        self.steps, self.jobs = options["length"] - 1, {}
        for name, walker in kinds.items():
            walker.read_npz(str(folder / "graph.npz"), weighted=False, implicit_ids=True)
            forward, has_nbrs = walker.get_move_forward(), walker.get_has_nbrs()
            walker.get_move_forward = lambda forward=forward: forward
            walker.get_has_nbrs = lambda has_nbrs=has_nbrs: has_nbrs
            self.jobs[name] = lambda seconds, walker=walker: self._walk(walker)
            self.jobs[f"{name}, loop alone"] = lambda seconds, walker=walker: self._loop(walker)

    def _walk(self, walker: Any) -> Done:
        return timed(lambda: sum(map(len, walker.simulate_walks(1, self.steps))))

    def _loop(self, walker: Any) -> Done:
        from numba_progress import ProgressBar

        starts = np.random.default_rng(1).permutation(walker.num_nodes).astype(np.uint32)
        with ProgressBar(total=len(starts), disable=True) as progress:
            arguments = (starts, walker.get_has_nbrs(), walker.get_move_forward(), progress)
            return timed(lambda: walker._random_walks(len(starts), self.steps, None, *arguments)[:, -1].sum())


class Ensmallen:
    """GRAPE's walks, exact ones, and its skip-gram; a short training taken off, so that what it sets up does not count.

    It draws negatives for each centre, not for each pair; so that a pair has as many as elsewhere, one job draws that
    many times as many. A centre has one context less after it than before it, and none that is the centre itself.
    """

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        from ensmallen import Graph

        with np.load(folder / "graph.npz") as graph:
            self.indptr, self.indices = graph["indptr"], graph["indices"]
        self.graph = Graph.from_csv(
            directed=False,
            edge_path=str(folder / "edges.tsv"),
            edge_list_separator="\t",
            edge_list_header=False,
            sources_column_number=0,
            destinations_column_number=1,
            edge_list_numeric_node_ids=True,
            numeric_node_ids=True,
            number_of_nodes=len(self.indptr) - 1,
            number_of_edges=len(self.indices),
            minimum_node_id=0,
            edge_list_is_complete=True,
            edge_list_may_contain_duplicates=False,
            edge_list_is_sorted=True,
            edge_list_is_correct=True,
            load_edge_list_in_parallel=False,
            verbose=False,
            name="graph",
        )
        self.options, self.seed = options, 0
        weights = {"return_weight": 1 / options["p"], "explore_weight": 1 / options["q"]}
        each = options["negatives"] * (2 * options["window"] - 1)
        self.jobs: dict[str, Job] = {
            "first-order": lambda seconds: self._walk(),
            "node2vec": lambda seconds: self._walk(**weights),
            "negatives of a pair": lambda seconds: self._train(each),
            "negatives of a centre": lambda seconds: self._train(options["negatives"]),
        }

    def _walk(self, **weights: float) -> Done:
        self.seed += 1
        length = self.options["length"]
        return timed(
            lambda: (
                self.graph.complete_walks(
                    walk_length=length, max_neighbours=None, random_state=self.seed, **weights
                ).size
            )
        )

    def _train(self, negatives: int) -> Done:
        (long, long_pairs), (short, short_pairs) = (
            (self._fit(length, negatives), self._pairs(length)) for length in (self.options["fit_length"], 2)
        )
        return Done(long_pairs - short_pairs, long.cpu - short.cpu, long.wall - short.wall)

    def _fit(self, length: int, negatives: int) -> Done:
        from ensmallen import models

        self.seed += 1
        model = models.SkipGram(
            embedding_size=self.options["dim"],
            number_of_negative_samples=negatives,
            window_size=self.options["window"],
            walk_length=length,
            iterations=1,
            epochs=1,
            max_neighbours=None,
            random_state=self.seed,
            verbose=False,
        )
        return timed(lambda: len(model.fit_transform(self.graph)))

    def _pairs(self, length: int) -> float:
        """Expected: some walks' pairs are counted, and there is a walk from every node with edges."""
        window, count = self.options["window"], 4000
        walks = random_walks(self.indptr, self.indices, count, length, np.random.default_rng(self.seed))
        pairs = 0
        for far in range(1, min(window, length - 1) + 1):
            differ = int((walks[:, far:] != walks[:, :-far]).sum())
            pairs += differ + (differ if far < window else 0)
        return pairs / count * int((np.diff(self.indptr) > 0).sum())


def serve(jobs: dict[str, Job], versions: dict[str, str], answers: Any) -> None:
    """Answer the parent until it closes the pipe."""

    def answer(values: dict[str, Any]) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    answer({"versions": versions})
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer(jobs[request["job"]](request["seconds"])._asdict())
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"})


def take_stdout() -> Any:
    """Return stdout for the answers; whatever else is printed goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def serve_side(kinds: dict[str, Any]) -> None:
    """Be the side that the command line has: NAME FOLDER OPTIONS; say why if it does not come up."""
    name, folder, options = sys.argv[1:]
    answers = take_stdout()
    try:
        side = kinds[name](Path(folder), json.loads(options))
    except Exception as error:
        answers.write(json.dumps({"error": f"{type(error).__name__}: {error}"}) + "\n")
        return
    versions = {}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        versions[name] = importlib.metadata.version(name)
    serve(side.jobs, versions, answers)


def main() -> None:
    serve_side({"gensim": Gensim, "pecanpy": Pecanpy, "ensmallen": Ensmallen})


if __name__ == "__main__":
    main()
