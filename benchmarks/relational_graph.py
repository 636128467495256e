"""A generated shop: four node types, five relations and their reverses, in-degrees by a power law, a time on each edge.

A side that runs under another Python reads it from a file: this module needs NumPy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NODES = {"customer": 200_000, "product": 50_000, "order": 800_000, "review": 300_000}
TABLES = (
    ("order", "of", "customer", 800_000),
    ("order", "item", "product", 2_400_000),
    ("review", "by", "customer", 300_000),
    ("review", "about", "product", 300_000),
    ("customer", "views", "product", 1_500_000),
)
SEED_TYPE = "customer"
FANOUTS = (15, 10)
BATCH_SIZE = 1024
SPAN_SECONDS = 3 * 365 * 86_400


@dataclass
class Relation:
    """Edges of one kind by their target: sources of a target ascend by time."""

    source: str
    name: str
    target: str
    indptr: Array
    sources: Array
    times: Array


def popular(rng: np.random.Generator, num_nodes: int, count: int) -> Array:
    """Ends of `count` edges: the k-th busiest node of all has about k^(-1/2) times the first one's."""
    ranks = (num_nodes * rng.random(count) ** 2).astype(np.int64)
    return rng.permutation(num_nodes)[ranks]


def by_target(ends: tuple[str, str, str], src: Array, dst: Array, times: Array) -> Relation:
    order = np.lexsort((src, times, dst))
    counts = np.bincount(dst, minlength=NODES[ends[2]])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return Relation(*ends, indptr, src[order], times[order])


def shop(scale: float = 1.0) -> list[Relation]:
    """Each relation and its reverse: 10.6 M edges at scale 1."""
    rng = np.random.default_rng(0)
    relations = []
    for source, name, target, size in TABLES:
        count = int(size * scale)
        # A row names one target; what is no foreign key is drawn at both ends.
        own = count == NODES[source]
        src = np.arange(count) if own else popular(rng, NODES[source], count)
        dst = popular(rng, NODES[target], count)
        times = (SPAN_SECONDS * np.sqrt(rng.random(count))).astype(np.int64)
        relations.append(by_target((source, name, target), src, dst, times))
        relations.append(by_target((target, f"rev_{name}", source), dst, src, times))
    return relations


def batch(round_number: int) -> tuple[Array, Array]:
    """Seeds of a round, int64 (1024,), and a cut of its own for each."""
    rng = np.random.default_rng(1000 + round_number)
    seeds = np.sort(rng.choice(NODES[SEED_TYPE], BATCH_SIZE, replace=False))
    return seeds, rng.integers(SPAN_SECONDS // 3, SPAN_SECONDS, BATCH_SIZE)


def save(path: Path, relations: list[Relation]) -> None:
    arrays: dict[str, Any] = {"names": np.array([[r.source, r.name, r.target] for r in relations])}
    for i, relation in enumerate(relations):
        arrays |= {f"{i}p": relation.indptr, f"{i}s": relation.sources, f"{i}t": relation.times}
    np.savez(path, **arrays)


def load(path: Path) -> list[Relation]:
    with np.load(path) as file:
        names = file["names"].tolist()
        return [Relation(*ends, file[f"{i}p"], file[f"{i}s"], file[f"{i}t"]) for i, ends in enumerate(names)]
