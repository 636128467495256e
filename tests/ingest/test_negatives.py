"""Negatives of evaluation: no edges, no loops, the same ones each time; of events by kind; and sets of pairs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import DataError, RecipeError
from configs.load import build_recipe
from tasks.ingest.graph_tables.link_splits import EventNegatives, Events
from tasks.ingest.stage import build
from tasks.negatives import draw_negatives, draw_pool
from tasks.pair_set import PairSet
from tasks.stage import StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save
from tests.preprocess.ears import Ears

NODES = 30


def edges(directed: bool) -> set[tuple[int, int]]:
    """A third of all pairs."""
    dense = np.random.default_rng(0).random((NODES, NODES)) < (0.5 if directed else 0.3)
    np.fill_diagonal(dense, False)
    return set(zip(*(ends.tolist() for ends in np.nonzero(dense)), strict=True))


def draw(found: set[tuple[int, int]], src: np.ndarray | None = None, **options: Any) -> list[tuple[int, int]]:
    pairs = np.array(sorted(found), np.int32)

    def chunks() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, len(pairs), 50):
            yield pairs[start : start + 50, 0], pairs[start : start + 50, 1]

    sources, targets = np.empty(3000, np.int32) if src is None else src.copy(), np.empty(3000, np.int32)
    draw_negatives(1, sources, targets, NODES, 5, chunks, keep_src=src is not None, **options)
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_negatives_are_no_edges(directed: bool, keep: bool) -> None:
    known = edges(directed)
    src = np.random.default_rng(1).integers(0, NODES, 3000).astype(np.int32) if keep else None
    found = draw(known, src, directed=directed)
    taken = known if directed else known | {(v, u) for u, v in known}
    left = {(u, v) for u in range(NODES) for v in range(NODES) if u != v} - taken
    assert set(found) <= left
    assert len(set(found)) > 0.9 * len(left), "all others may be drawn"
    if src is not None:
        assert [u for u, _ in found] == src.tolist()
    assert found == draw(known, src, directed=directed)


def test_a_node_with_all_others_as_neighbours_ends_the_draws() -> None:
    known = {(0, v) for v in range(1, NODES)}
    found = draw(known, np.zeros(3000, np.int32), directed=False)
    assert all(u != v for u, v in found)


def test_a_pool_has_no_edges_in_it_at_all() -> None:
    """Where hardly any other pairs exist it is smaller, where none do it is refused."""
    everything = {(u, v) for u in range(NODES) for v in range(u)}
    left = {(1, 0), (7, 3)}
    pairs = np.array(sorted(everything - left), np.int32)
    pool = draw_pool(1, 3000, NODES, 5, lambda: iter([(pairs[:, 0], pairs[:, 1])]))
    found = {(max(pair), min(pair)) for pair in zip(pool["src"].tolist(), pool["dst"].tolist(), strict=True)}
    assert found == left
    assert len(pool["src"]) < 3000
    pairs = np.array(sorted(everything), np.int32)
    with pytest.raises(DataError, match="nearly all pairs of nodes are edges"):
        draw_pool(1, 3000, NODES, 5, lambda: iter([(pairs[:, 0], pairs[:, 1])]))


def is_clean(store: DatasetStore) -> None:
    parts = [store.read(f"split/{name}") for name in ("train", "valid", "test")]
    known = {pair for part in parts for pair in zip(part["src"].to_pylist(), part["dst"].to_pylist(), strict=True)}
    known |= {(v, u) for u, v in known}  # preprocess may add reverses
    for split in ("valid", "test"):
        negative = store.read(f"split/{split}_negative")
        pairs = set(zip(negative["src"].to_pylist(), negative["dst"].to_pylist(), strict=True))
        assert len(pairs) > 50
        assert not pairs & known


def test_a_dense_generated_graph(ingest: Callable[..., DatasetStore]) -> None:
    options = {"num_nodes": 100, "num_edges": 1500, "num_classes": 4, "feature_dim": 0, "num_negatives": 400}
    is_clean(ingest(name="synthetic", task="link", **options))


@pytest.mark.parametrize("directed", [False, True])
def test_a_dense_table(ingest: Callable[..., DatasetStore], folder: Path, directed: bool) -> None:
    (folder / "e.csv").write_text("src,dst\n" + "".join(f"{u},{v}\n" for u, v in sorted(edges(directed))))
    section = {"edges": {"files": "e.csv"}, "num_negatives": 300, "directed": directed}
    is_clean(ingest(name="tables", task="link", **section))


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"num_negatives": 2**31 - 1}, "dataset.num_negatives=2147483647 takes at least 85.9 GB"),
        ({"nodes": {"count": 10**10}}, "a graph of dataset.nodes.count=10000000000 takes at least 160.0 GB"),
        ({"nodes": {"count": 10**9}}, "a graph of dataset.nodes.count=1000000000 takes at least 16.0 GB"),
    ],
)
def test_what_no_memory_holds_is_refused_before_anything_is_read(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, section: dict[str, Any], named: str
) -> None:
    monkeypatch.setattr("tasks.sizes.available_bytes", lambda: 10 * 10**9)
    dataset = {"name": "tables", "task": "link", "edges": {"files": str(tmp_path / "none.csv")}, **section}
    recipe = build_recipe({"name": "demo", "dataset": dataset, "model": "gcn"})
    with pytest.raises(RecipeError, match=f"{re.escape(named)} of memory.*set it lower"):
        build(StageContext("ingest", tmp_path, home, PickleCache(home), Ears()), recipe, {})


def test_a_pool_that_no_memory_holds_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"drawing 1,000,000,000,000 negative pairs takes .* dataset.num_negatives"):
        draw_pool(1, 10**12, NODES, 5, lambda: iter([]))


KINDS = ("random", "historical", "inductive")


def events(rng: np.random.Generator, count: int) -> Events:
    src, dst = rng.integers(0, NODES, (2, count))
    return Events(src, dst, rng.integers(0, 20, count))


def pairs(some: Any, directed: bool) -> list[tuple[int, int]]:
    ordered = np.asarray(some) if directed else np.sort(some, 1)
    return [tuple(pair) for pair in ordered.tolist()]


@pytest.mark.parametrize("directed", [True, False])
def test_kinds_are_what_they_say(directed: bool) -> None:
    rng = np.random.default_rng(0)
    train, own = events(rng, 150), events(rng, 130)
    draws = EventNegatives(train, NODES, directed=directed, seed=3)
    drawn = draws.draw(own, KINDS, 4, 1)
    assert drawn["src"].shape == (130, 12)
    again = EventNegatives(train, NODES, directed=directed, seed=3).draw(own, KINDS, 4, 1)
    np.testing.assert_array_equal(drawn["dst"], again["dst"])
    assert (drawn["dst"] != draws.draw(own, KINDS, 4, 2)["dst"]).any()

    known = set(pairs(np.stack([train.src, train.dst], 1), directed))
    there = pairs(np.stack([own.src, own.dst], 1), directed)
    at_once = set(zip(there, own.time.tolist(), strict=True))
    found = np.stack([drawn["src"], drawn["dst"]], 2)
    for i in range(130):
        random, historical, inductive = (pairs(found[i, 4 * kind : 4 * kind + 4], directed) for kind in range(3))
        assert (found[i, :4, 0] == own.src[i]).all()
        assert not set(random) & set(there)
        assert all(a != b for a, b in random)
        assert set(historical) <= known - set(there)
        assert set(inductive) <= set(there) - known
        assert all((pair, int(own.time[i])) not in at_once for pair in inductive)
    # A few of many may be rare; that all of them come up says that none is left out.
    assert {pair for row in found[:, 4:8] for pair in pairs(row, directed)} == known - set(there)


def test_kinds_of_which_there_are_none() -> None:
    rng = np.random.default_rng(0)
    train = events(rng, 60)
    draws = EventNegatives(train, NODES, directed=True, seed=0)
    with pytest.raises(DataError, match="no historical negatives, because all pairs"):
        draws.draw(train, ("historical",), 1, 1)
    with pytest.raises(DataError, match="no inductive negatives, because all edges"):
        draws.draw(train, ("inductive",), 1, 1)


EVENTS: dict[str, Any] = {
    "name": "tables",
    "task": "link",
    "directed": True,
    "nodes": {"count": NODES},
    "edges": {"files": "e.csv", "time": "time"},
}
SPLIT: dict[str, Any] = {"by": "time", "known_pairs": "keep", "negatives": list(KINDS), "per_edge": 2}


def save_events() -> None:
    rng = np.random.default_rng(1)
    src, dst = rng.integers(0, NODES, (2, 500))
    save("e.csv", pa.table({"src": src, "dst": dst, "time": np.arange(500) // 3}))


def test_ingest_draws_them_for_each_edge(ingest: Ingest, folder: Path) -> None:
    save_events()
    store = ingest(**EVENTS, split=SPLIT)
    assert store.manifest.negative_kinds == KINDS
    assert store.manifest.keep_known_pairs
    for name in ("valid", "test"):
        assert store.column(f"split/{name}_negative", "dst").shape == (store.manifest.splits[name], 6)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({**SPLIT, "negatives": ["histrical"]}, "unknown kind 'histrical'.*historical"),
        ({**SPLIT, "negatives": ["random", "random"]}, "a kind stands twice"),
        ({**SPLIT, "known_pairs": "take_out"}, "set split.known_pairs: keep"),
        ({**SPLIT, "negatives": []}, "name the kinds"),
        ({**SPLIT, "by": "ratio"}, "is for `by: files or time`|is for `by: time`"),
    ],
)
def test_options_that_do_not_fit(ingest: Ingest, folder: Path, split: Any, message: str) -> None:
    save_events()
    with pytest.raises(ValueError, match=message):
        ingest(**EVENTS, split=split)


LARGE = 2**31  # nodes: numbers of pairs are near the end of int64


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_pairs_and_marks(directed: bool, kind: type) -> None:
    rng = np.random.default_rng(0)
    far = 0 if kind is np.int32 else LARGE - 40
    added, marked, asked = (rng.integers(far, far + 40, (2, 300)).astype(kind) for _ in range(3))
    expected: dict[tuple[int, int], int] = {}

    def name(u: int, v: int) -> tuple[int, int]:
        return (u, v) if directed else (min(u, v), max(u, v))

    for u, v in added.T.tolist():
        expected[name(u, v)] = 1
    for pair in {name(u, v) for u, v in marked.T.tolist()} & expected.keys():
        expected[pair] |= 4
    found = PairSet(300, LARGE, directed=directed)
    found.add(*added, 1)
    found.mark(*marked, 4)
    assert found.marks(*asked).tolist() == [expected.get(name(u, v), 0) for u, v in asked.T.tolist()]
    assert (found.count(1), found.count(4)) == (len(expected), sum(marks == 5 for marks in expected.values()))
    assert set(zip(*(ends.tolist() for ends in found.pairs()), strict=True)) == set(expected)
    rest = zip(*(ends.tolist() for ends in found.pairs(without=4)), strict=True)
    assert set(rest) == {pair for pair, marks in expected.items() if marks == 1}


def test_an_empty_set() -> None:
    nothing = np.empty(0, np.int32)
    found = PairSet(0, 5, directed=True)
    found.add(nothing, nothing, 1)
    assert found.marks(np.array([1]), np.array([2])).tolist() == [0]
    assert [len(ends) for ends in found.pairs()] == [0, 0]
