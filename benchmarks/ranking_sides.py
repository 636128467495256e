"""The sides of `benchmarks.ranking`, each in a process of its own.

    python -m benchmarks.ranking_sides graphmill|pykeen|large FOLDER OPTIONS

A parent asks as in `embeddings_peers`. FOLDER has graph.npz (`Tables`) or entities.bin; a side leaves what it found in
NAME-JOB.json, for the parent to compare.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.embeddings_peers import Done, Job, serve_side, timed
from benchmarks.triple_models import MODELS, columns, import_pykeen, pykeen_model
from tasks.evaluators.metrics import mrr_of_triples
from tasks.processes.children import die_with_parent
from tasks.ranking.entities import TableBlocks
from tasks.ranking.known_triples import KnownTriples
from tasks.ranking.queries import Queries
from tasks.ranking.rank import rank_candidates, rank_queries, top_entities
from tasks.ranking.ranks import TripleRanks
from tasks.ranking.terms import Kind

KINDS: dict[str, Kind] = {"TransE": "l1", "ComplEx": "dot", "RotatE": "complex"}
SPLITS = ("train", "valid", "test")
PEER_BATCH = 128
"""Triples of PyKEEN's batches: 32, which it takes by itself, is as fast, 512 up to twice as slow."""
CANDIDATES = 500
LARGE_QUERIES, LARGE_WIDTH = 5000, 200


class Tables:
    """Triples, and vectors of entities and relations: of complex models the real parts come before the imaginary."""

    def __init__(self, folder: Path) -> None:
        self.arrays = dict(np.load(folder / "graph.npz"))
        self.num_entities = len(self.arrays["TransE_entities"])
        self.num_relations = len(self.arrays["TransE_relations"])

    def triples(self, split: str) -> Any:
        return self.arrays[split]

    def vectors(self, model: str) -> tuple[torch.Tensor, torch.Tensor]:
        entities, relations = (self.arrays[f"{model}_{name}"] for name in ("entities", "relations"))
        return torch.from_numpy(entities), torch.from_numpy(relations)


def as_complex(vectors: torch.Tensor) -> torch.Tensor:
    return torch.complex(*vectors.chunk(2, dim=1))


def compose(model: str, given: torch.Tensor, relation: torch.Tensor, asked: str) -> torch.Tensor:
    """Return what entities are compared with."""
    if model == "TransE":
        return given + relation if asked == "tail" else given - relation
    x, r = as_complex(given), as_complex(relation)
    if asked == "tail":
        y = x * r
    elif model == "RotatE":
        y = x * r.conj()
    else:
        y = (r * x.conj()).conj()
    return torch.cat([y.real, y.imag], dim=1)


class Ours:
    """graphmill: queries, known triples and ranks all count."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.tables, self.folder, self.num_triples = Tables(folder), folder, options["triples"]
        self.jobs: dict[str, Job] = {}
        for model in MODELS:
            self.jobs[model] = lambda _, model=model: self._evaluate(model, self.num_triples)  # type: ignore[misc]
            self.jobs[f"{model}, all"] = lambda _, model=model: self._evaluate(model, None)  # type: ignore[misc]
        self.jobs["candidates"] = lambda _: self._candidates()

    def _evaluate(self, model: str, count: int | None) -> Done:
        found: dict[str, float] = {}

        def work() -> float:
            tables = self.tables
            splits = ((tables.triples(split)[:, [0, 2]], tables.triples(split)[:, 1]) for split in SPLITS)
            known = KnownTriples.of(splits, tables.num_entities, tables.num_relations)
            heads, relations, tails = tables.triples("test")[:count].T
            entities, relation = tables.vectors(model)
            parts = []
            for asked, given, truth in (("tail", heads, tails), ("head", tails, heads)):
                queries = Queries(KINDS[model], compose(model, entities[given], relation[relations], asked))
                own = known.tails(given, relations) if asked == "tail" else known.heads(relations, given)
                parts.append(rank_queries(queries, truth, TableBlocks(entities), own))
            found.update(mrr_of_triples(TripleRanks.joined(parts)))
            return len(heads)

        done = timed(work)
        (self.folder / f"graphmill-{model}.json").write_text(json.dumps(found))
        return done

    def _candidates(self) -> Done:
        """As many candidates for each tail as OGB draws, of RotatE."""
        heads, relations, tails = self.tables.triples("test")[: 4 * self.num_triples].T
        drawn = np.random.default_rng(1).integers(self.tables.num_entities, size=(len(heads), CANDIDATES))
        entities, relation = self.tables.vectors("RotatE")
        queries = Queries("complex", compose("RotatE", entities[heads], relation[relations], "tail"))
        ranks = partial(rank_candidates, queries, tails, drawn, lambda chosen: entities[chosen])
        return timed(lambda: float(ranks().candidates.sum()))


class Pykeen:
    """PyKEEN's RankBasedEvaluator with its own models, which hold the same vectors."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        import_pykeen(options["peers"], folder / "pykeen")
        from pykeen.nn import modules
        from pykeen.triples import CoreTriplesFactory

        # RotatE is the sum of moduli, as its authors have it (TransE's is the same norm here). PyKEEN 1.11.1 takes the
        # root of the sum of their squares, whatever `p` it is given.
        norm = modules.negative_norm
        modules.negative_norm = lambda x, p, power_norm: norm(x, p=1, power_norm=power_norm)
        self.tables, self.folder = Tables(folder), folder
        self.triples = {split: torch.from_numpy(self.tables.triples(split)) for split in SPLITS}
        self.test = self.triples["test"][: options["triples"]]
        numbers = {"num_entities": self.tables.num_entities, "num_relations": self.tables.num_relations}
        factory = CoreTriplesFactory(self.triples["train"], **numbers)
        self.jobs: dict[str, Job] = {}
        for name in MODELS:
            vectors = self.tables.vectors(name)
            model = pykeen_model(name, factory, vectors[0].shape[1] // columns(name, 1))
            for parameter, rows in zip(model.parameters(), vectors, strict=True):
                # Of complex numbers PyKEEN keeps the imaginary part beside the real one.
                pairs = rows if name == "TransE" else torch.view_as_real(as_complex(rows)).reshape(rows.shape)
                parameter.data.copy_(pairs)
            self.jobs[name] = lambda _, name=name, model=model: self._evaluate(name, model)  # type: ignore[misc]

    def _evaluate(self, name: str, model: Any) -> Done:
        from pykeen.evaluation import RankBasedEvaluator

        found: dict[str, float] = {}

        def work() -> float:
            known = [self.triples[split] for split in SPLITS]
            evaluator = RankBasedEvaluator(metrics=["mrr"], add_defaults=False)
            options = {"batch_size": min(PEER_BATCH, len(self.test)), "use_tqdm": False}
            result = evaluator.evaluate(model, self.test, additional_filter_triples=known, **options)
            found["mrr"] = result.get_metric("both.realistic.inverse_harmonic_mean_rank")
            return len(self.test)

        done = timed(work)
        (self.folder / f"pykeen-{name}.json").write_text(json.dumps(found))
        return done


class FileBlocks:
    """Entities of a file, read block by block into the same memory."""

    width = LARGE_WIDTH

    def __init__(self, path: Path, rows_a_block: int = 1 << 16) -> None:
        self.path, self.num_entities = path, path.stat().st_size // (4 * LARGE_WIDTH)
        self.block = np.empty((rows_a_block, LARGE_WIDTH), np.float32)

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        with self.path.open("rb", buffering=0) as file:
            for first in range(0, self.num_entities, len(self.block)):
                rows = self.block[: self.num_entities - first]
                assert file.readinto(rows.data.cast("B")) == rows.nbytes
                yield first, rows


class Large:
    """Ranks among entities that lie in a file: what a process takes beyond its imports, and how long."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.memory = folder, options["memory"]
        self.entities = FileBlocks(folder / "entities.bin")
        self.jobs: dict[str, Job] = {}
        for name, kind in (("l1", "l1"), ("dot", "dot")):
            self.jobs[name] = lambda _, kind=kind: self._run("ranks", lambda: self._rank(kind))  # type: ignore[misc]
        self.jobs["top 10"] = lambda _: self._run("top", self._best)

    def _queries(self, kind: Kind, count: int) -> Queries:
        drawn = np.random.default_rng(2).standard_normal((count, LARGE_WIDTH), dtype=np.float32)
        return Queries(kind, torch.from_numpy(drawn))

    def _rank(self, kind: Kind) -> float:
        truth = np.random.default_rng(3).integers(self.entities.num_entities, size=LARGE_QUERIES)
        ranks = rank_queries(self._queries(kind, LARGE_QUERIES), truth, self.entities, memory=self.memory)
        return float(ranks.candidates.sum())

    def _best(self) -> float:
        top_entities(self._queries("l1", 100), self.entities, 10, memory=self.memory)
        return 100.0 * self.entities.num_entities

    def _run(self, name: str, work: Callable[[], float]) -> Done:
        before = peak_bytes()
        done = timed(work)
        content = {"peak_bytes": peak_bytes(), "before_bytes": before}
        (self.folder / f"large-{name}.json").write_text(json.dumps(content))
        return done


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


def main() -> None:
    die_with_parent()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    serve_side({"graphmill": Ours, "pykeen": Pykeen, "large": Large})


if __name__ == "__main__":
    main()
