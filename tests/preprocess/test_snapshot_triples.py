"""Triples as of a moment: which exist, how they are split, and that nothing of the future shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from tasks.storage.ids import relation_names
from tests.preprocess.snapshot_tables import SPLITS, Run

TYPES = {"a": "left", "b": "right"}


def rows_of(seed: int, count: int = 120) -> list[tuple[str, str, str, int]]:
    """Triples between entities a0, a1, ... and b0, b1, ..., which begin to be named one after the other."""
    rng = np.random.default_rng(seed)
    rows = set()
    while len(rows) < count:
        year = int(rng.integers(1, 11))
        head, tail = f"a{rng.integers(2 + 2 * year)}", f"{'ab'[rng.integers(2)]}{rng.integers(2 + year)}"
        rows.add((head, f"r{rng.integers(1 + year // 3)}", tail, year))
    by_name: dict[tuple[str, str, str], int] = {}
    for head, relation, tail, year in sorted(rows, key=lambda row: row[3]):
        by_name.setdefault((head, relation, tail), year)
    return [(*names, year) for names, year in by_name.items()]


def write(rows: list[tuple[str, str, str, int]], *, typed: bool = False) -> dict[str, Any]:
    lines = [",".join(map(str, row)) for row in rows]
    Path("triples.csv").write_text("\n".join(["head,relation,tail,year", *lines]) + "\n")
    section: dict[str, Any] = {"name": "triples", "triples": "triples.csv", "time": "year"}
    if typed:
        names = sorted({name for row in rows for name in (row[0], row[2])})
        Path("types.csv").write_text("\n".join(["entity,type", *(f"{name},{TYPES[name[0]]}" for name in names)]) + "\n")
        section["types"] = "types.csv"
    return {**section, "split": {"name": "random", "valid": 0.1, "test": 0.1}}


def triples_of(found: Any, split: str) -> set[tuple[str, str, str]]:
    names = [name.rpartition(":")[2] for name in found.names]
    relations = relation_names(found.dataset).to_pylist()
    edges, numbers = found.graph[f"{split}_edges"], found.graph[f"{split}_relation"]
    return {(names[u], relations[r], names[v]) for (u, v), r in zip(edges.tolist(), numbers.tolist(), strict=True)}


def without_loops(triples: set[tuple[str, str, str]]) -> set[tuple[str, str]]:
    return {(head, tail) for head, _, tail in triples if head != tail}


def edges_of(found: Any) -> set[tuple[str, str]]:
    names = [name.rpartition(":")[2] for name in found.names]
    indptr, indices = found.graph["csc_indptr"], found.graph["csc_indices"]
    ends = np.repeat(np.arange(len(names)), np.diff(indptr))
    return {(names[u], names[v]) for u, v in zip(indices.tolist(), ends.tolist(), strict=True)}


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_by_time(run: Run, seed: int, typed: bool) -> None:
    rows = rows_of(seed)
    section = write(rows, typed=typed)
    for year in (4, 8, 10):
        found = run(section, f"snapshot.as_of={year}", symmetrize=False)
        there = [row for row in rows if row[3] <= year]
        assert {name.rpartition(":")[2] for name in found.names} == {name for row in there for name in (row[0], row[2])}
        split = {name: triples_of(found, name) for name in SPLITS}
        assert set.union(*split.values()) == {row[:3] for row in there}
        assert sum(map(len, split.values())) == len(there)
        times = {row[:3]: row[3] for row in rows}
        spans = [[times[triple] for triple in split[name]] for name in SPLITS]
        assert max(spans[0]) <= min(spans[1])
        assert max(spans[1]) <= min(spans[2])
        assert found.manifest.report["snapshot"]["times"] == {
            name: [min(span), max(span)] for name, span in zip(SPLITS, spans, strict=True)
        }
        assert abs(len(split["train"]) - 0.8 * len(there)) < 8  # triples of the same ends and year stay together
        assert edges_of(found) == without_loops(split["train"])


def test_what_trains_now_trains_in_every_later_snapshot(run: Run) -> None:
    section = write(rows_of(7))
    before: set[tuple[str, str, str]] = set()
    for year in (3, 5, 7, 10):
        now = triples_of(run(section, f"snapshot.as_of={year}", symmetrize=False), "train")
        assert before <= now
        before = now


def test_own_split_as_far_as_it_exists(run: Run) -> None:
    section = write(rows_of(1))
    whole = run(section, symmetrize=False)
    found = run(section, "snapshot.as_of=6", "snapshot.split=keep", symmetrize=False)
    there = {row[:3] for row in rows_of(1) if row[3] <= 6}
    for name in SPLITS:
        assert triples_of(found, name) == triples_of(whole, name) & there
    assert edges_of(found) == without_loops(triples_of(found, "train"))


def test_nothing_of_the_future_shows(run: Run) -> None:
    """Each triple has a time of its own: equal ones are dealt out by numbers that entities have in the whole data."""
    rows = [(*row[:3], 1000 * row[3] + place) for place, row in enumerate(rows_of(2))]
    early = run(write([row for row in rows if row[3] <= 6999]), "snapshot.as_of=6999", symmetrize=False)
    late = run(write(rows), "snapshot.as_of=6999", symmetrize=False)
    for name in SPLITS:
        assert triples_of(early, name) == triples_of(late, name)
    assert edges_of(early) == edges_of(late)


def test_triples_without_times_and_moments_before_all(run: Run) -> None:
    section = write(rows_of(3))
    with pytest.raises(RecipeError, match="nothing exists yet"):
        run(section, "snapshot.as_of=0")
    with pytest.raises(RecipeError, match="has no times"):
        run({name: value for name, value in section.items() if name != "time"}, "snapshot.as_of=5")
