"""Link tasks as of a moment: the newest edges are held out, and nothing of the future shows."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.errors import DataError
from tasks.storage.home import Home
from tests.preprocess.snapshot_tables import SHARES, SPLITS, Run, edges_of, link_tables, pairs_of, write


def test_links_by_hand(run: Run) -> None:
    """The newest edges that exist are held out, whatever the data set's own split says; they carry no messages."""
    names = "abcdefghij"
    write(
        "edges", src=list(names), dst=list(names[1:] + "a"), time=list(range(10)), weight=[float(t) for t in range(10)]
    )
    found = run(link_tables(weight="weight"), "snapshot.as_of=7", *SHARES)
    assert found.names == list("abcdefghi")
    ring = list(zip(names, names[1:] + "a", strict=True))
    assert pairs_of(found, "train_edges") == ring[:4] or set(pairs_of(found, "train_edges")) == set(ring[:4])
    assert set(pairs_of(found, "valid_edges")) == set(ring[4:6])
    assert set(pairs_of(found, "test_edges")) == set(ring[6:8])
    assert edges_of(found) == {*ring[:4], *((b, a) for a, b in ring[:4])}
    assert sorted(found.graph["train_edge_weight"].tolist()) == [0, 1, 2, 3]
    assert sorted(found.graph["edge_weight"].tolist()) == [0, 0, 1, 1, 2, 2, 3, 3]
    for split in ("valid", "test"):
        negative = found.graph[f"{split}_negative"]
        assert negative.shape == (40, 2)
        assert 0 <= negative.min() <= negative.max() < 9
    assert found.manifest.report["snapshot"]["times"] == {"train": [0, 3], "valid": [4, 5], "test": [6, 7]}


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32 - 1), until=st.integers(8, 25), by=st.sampled_from(["time", "ratio"]))
def test_links_know_nothing_of_the_future(run: Run, home: Home, seed: int, until: int, by: str) -> None:
    rng = np.random.default_rng(seed)
    count = 400
    edges = {
        "src": rng.integers(0, 40, count),
        "dst": rng.integers(0, 40, count) + 1,
        "time": np.sort(rng.integers(0, 30, count)),
    }
    write("edges", **edges)
    own = {"by": by, "train": 0.6, "valid": 0.2, "test": 0.2}
    found = run({**link_tables(), "split": own}, f"snapshot.as_of={until}", transforms=[{"name": "degree"}])
    there = [
        (t, s, d) for s, d, t in zip(*(edges[k].tolist() for k in ("src", "dst", "time")), strict=True) if t <= until
    ]
    assert sorted(set(found.names)) == sorted({v for _, s, d in there for v in (s, d)})
    dealt = {split: pairs_of(found, f"{split}_edges") for split in SPLITS}
    left_out = found.manifest.report["held_out"]["left_out"]
    assert found.manifest.splits == {split: len(pairs) for split, pairs in dealt.items()}
    assert left_out["train"] == 0
    assert sum(left_out.values()) == len(there) - sum(map(len, dealt.values()))
    sides = [{frozenset(pair) for pair in dealt[split]} for split in SPLITS]
    assert set.union(*sides) == {frozenset((s, d)) for _, s, d in there}
    assert sum(map(len, sides)) == len(set.union(*sides)), "each pair is in one split"
    when: dict[tuple[int, int], list[int]] = {}
    for t, s, d in there:
        when.setdefault((s, d), []).append(t)
    spans = found.manifest.report["snapshot"]["times"]
    assert spans["train"][1] <= spans["valid"][0] <= spans["valid"][1] <= spans["test"][0] <= spans["test"][1] <= until
    for split in SPLITS:
        assert all(min(when[pair]) <= spans[split][1] and max(when[pair]) >= spans[split][0] for pair in dealt[split])
    train = {pair for pair in dealt["train"] if pair[0] != pair[1]}
    assert edges_of(found) == train | {(d, s) for s, d in train}
    degree = np.diff(found.graph["csc_indptr"])
    np.testing.assert_allclose(found.graph["feat"][:, 0], np.log1p(degree), rtol=1e-6)
    known = {pair for _, s, d in there for pair in ((s, d), (d, s))}
    for split in ("valid", "test"):
        assert not set(pairs_of(found, f"{split}_negative")) & known
    shutil.rmtree(home.artifacts)


def test_equal_events_of_a_pair_go_to_one_split(run: Run) -> None:
    rng = np.random.default_rng(0)
    src, dst = rng.integers(0, 30, (2, 300))
    keep = src != dst
    src, dst = src[keep], dst[keep]
    write("edges", src=[*src, *dst], dst=[*dst, *src], time=np.zeros(2 * len(src), np.int64))
    found = run(link_tables(), "snapshot.as_of=0", *SHARES)
    sides = [{frozenset(pair) for pair in pairs_of(found, f"{split}_edges")} for split in SPLITS]
    assert not sides[0] & sides[1]
    assert not (sides[0] | sides[1]) & sides[2]
    sizes = np.array([found.manifest.splits[split] for split in SPLITS])
    np.testing.assert_allclose(sizes / sizes.sum(), [0.5, 0.25, 0.25], atol=0.02)


@pytest.mark.parametrize(
    ("directed", "symmetrize", "reversed_too"), [(False, False, 1), (True, True, 1), (True, False, 0)]
)
def test_pairs_that_come_up_again_are_not_tested(run: Run, directed: bool, symmetrize: bool, reversed_too: int) -> None:
    """One of two edges of each held-out split joins a pair that trains, the one of valid the other way round."""
    src, dst = list("abcdefghbaxc"), list("bcdefghiacyd")
    write("edges", src=src, dst=dst, time=list(range(12)))
    shares = ("snapshot.train=0.67", "snapshot.valid=0.16", "snapshot.test=0.17")
    section = {**link_tables(), "directed": directed}
    found = run(section, "snapshot.as_of=11", *shares, symmetrize=symmetrize)
    assert found.manifest.splits == {"train": 8, "valid": 2 - reversed_too, "test": 1}
    assert found.manifest.report["held_out"]["left_out"] == {"train": 0, "valid": reversed_too, "test": 1}
    told = [message.split(" ", 4)[:4] for message in found.messages if "in an earlier split" in message]
    assert told == [["1", "of", "2", split] for split in ("valid", "test")[1 - reversed_too :]]
    once = run(section, "snapshot.as_of=7", *shares, symmetrize=symmetrize)
    assert not any("earlier split" in message for message in once.messages)


def test_a_split_of_nothing_but_old_pairs_is_refused(run: Run) -> None:
    write("edges", src=list("abcdabcd"), dst=list("bcdebcde"), time=list(range(8)))
    with pytest.raises(DataError, match="every pair of the valid split came up in an earlier split already"):
        run(link_tables(), "snapshot.as_of=7", *SHARES)


def test_own_split_of_links(run: Run) -> None:
    rng = np.random.default_rng(3)
    count = 600
    src, dst, time = rng.integers(0, 30, count), rng.integers(0, 30, count), np.arange(count) // 10
    write("edges", src=src, dst=dst, time=time)
    section = {**link_tables(), "split": {"by": "ratio", "train": 0.6, "valid": 0.2, "test": 0.2}}
    everything = run(section)
    found = run(section, "snapshot.as_of=20", "snapshot.split=keep")
    known = {(s, d) for s, d, t in zip(src.tolist(), dst.tolist(), time.tolist(), strict=True) if t <= 20}
    for split in SPLITS:
        pairs = pairs_of(found, f"{split}_edges")
        assert set(pairs) == known & set(pairs_of(everything, f"{split}_edges"))
        assert found.manifest.splits[split] == len(pairs) > 0
    assert edges_of(found) <= edges_of(everything)
    people = {v for pair in known for v in pair}
    wanted = [pair for pair in pairs_of(everything, "test_negative") if set(pair) <= people]
    assert pairs_of(found, "test_negative") == wanted


@pytest.mark.parametrize("directed", [True, False])
def test_edges_of_no_split_are_no_negatives(run: Run, directed: bool) -> None:
    """Those that exist by then: of later ones nothing may show."""
    ends = np.array([(a, b) for a in range(12) for b in range(a)])
    part = np.array(["train", "valid", "test", "", "", ""])[np.arange(len(ends)) % 6]
    write("edges", src=ends[:, 0], dst=ends[:, 1], time=np.arange(len(ends)), part=part)
    write("nodes", id=np.arange(30), time=np.zeros(30, np.int64))  # pairs enough that are no edges
    section = {
        **link_tables(),
        "nodes": {"files": "nodes.parquet", "time": "time"},
        "directed": directed,
        "split": {"by": "column", "column": "part"},
        "num_negatives": 2000,
    }
    found = run(section, "snapshot.as_of=59", *SHARES)
    there = {(int(a), int(b)) for a, b in ends[:60]}
    there |= {(b, a) for a, b in there}
    for split in ("valid", "test"):
        drawn = set(pairs_of(found, f"{split}_negative"))
        assert not drawn & there
        later = {(int(a), int(b)) for a, b in ends[60:]}
        assert drawn & later, "an edge of the future is no edge yet"
