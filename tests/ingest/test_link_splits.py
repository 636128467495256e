"""How edges of a link task are dealt out where some have unknown ends, or no split."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import save


@pytest.mark.parametrize("by", ["time", "column", "ratio"])
def test_unknown_ends_of_link_tasks(ingest: Ingest, folder: Path, by: str) -> None:
    """Each edge keeps its own split, wherever one was left out before it."""
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 40, (2, 400))
    unknown = rng.random(400) < 0.3
    src[unknown] += 100
    part = np.array(["train", "train", "valid", "test"])[np.arange(400) % 4]
    save("e.csv", pa.table({"src": src, "dst": dst, "t": np.arange(400), "part": part}))
    split = {"time": {"by": "time"}, "column": {"by": "column", "column": "part"}, "ratio": {}}[by]
    edges = {"files": "e.csv", "time": "t", "on_unknown_id": "drop"}
    store = ingest(
        name="tables", task="link", nodes={"count": 40}, edges=edges, split=split, directed=True, num_negatives=20
    )
    times = {name: store.column(f"split/{name}", "time") for name in ("train", "valid", "test")}
    found = np.concatenate(list(times.values()))
    for name in times:
        pairs = store.read(f"split/{name}")
        np.testing.assert_array_equal(pairs["src"], src[times[name]])
        np.testing.assert_array_equal(pairs["dst"], dst[times[name]])
        assert not unknown[times[name]].any()
        if by == "column":
            assert (part[times[name]] == name).all()
    if by == "time":
        assert times["train"].max() < times["valid"].min() <= times["valid"].max() < times["test"].min()
    if by != "ratio":
        assert sorted(found) == np.flatnonzero(~unknown).tolist()


@pytest.mark.parametrize("directed", [True, False])
def test_edges_of_no_split(ingest: Ingest, folder: Path, directed: bool) -> None:
    """They neither train nor carry messages, and a model that knows them is not told that it is wrong."""
    ends = np.array([(a, b) for a in range(14) for b in range(a)])
    part = np.array(["train", "valid", "test", "", "", "", ""])[np.arange(len(ends)) % 7]
    save("e.csv", pa.table({"src": ends[:, 0], "dst": ends[:, 1], "part": part}))
    edges, split = {"files": "e.csv"}, {"by": "column", "column": "part"}
    nodes = {"count": 40}  # pairs enough that are no edges
    store = ingest(
        name="tables", task="link", nodes=nodes, edges=edges, split=split, directed=directed, num_negatives=2000
    )
    there = {(int(a), int(b)) for a, b in ends} | {(int(b), int(a)) for a, b in ends}
    for name in ("valid", "test"):
        drawn = store.read(f"split/{name}_negative")
        assert not there & set(zip(drawn["src"].to_pylist(), drawn["dst"].to_pylist(), strict=True))
    left_out = int((part == "").sum())
    assert store.read("split/left_out").num_rows == left_out
    assert store.manifest.num_edges == int((part == "train").sum())
    assert store.manifest.adjusted == {"e.csv: edges of no split left out": left_out}
    assert f"{left_out} edges are of no split" in store.manifest.warnings[0]


def test_shares_are_those_of_the_edges_that_stay(ingest: Ingest, folder: Path) -> None:
    """By time, the oldest of which have unknown ends."""
    src = np.arange(100) % 40 + np.where(np.arange(100) < 60, 1000, 0)
    save("e.csv", pa.table({"src": src, "dst": (np.arange(100) + 1) % 40, "t": np.arange(100)}))
    edges = {"files": "e.csv", "time": "t", "on_unknown_id": "drop"}
    split = {"by": "time", "train": 0.5, "valid": 0.25, "test": 0.25}
    store = ingest(name="tables", task="link", nodes={"count": 40}, edges=edges, split=split, num_negatives=20)
    assert store.manifest.splits == {"train": 20, "valid": 10, "test": 10}
