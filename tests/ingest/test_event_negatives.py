"""Negatives of events, against sets of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import DataError
from tasks.ingest.graph_tables.link_splits import EventNegatives, Events
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save

NODES = 30
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
