"""Graphs as of a moment: who exists, how they are split, and that nothing of the future shows anywhere."""

from __future__ import annotations

import datetime
import itertools
import re
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from configs.base import cache_view
from configs.errors import DataError, RecipeError
from configs.load import load_recipe
from tasks.preprocess import stage
from tasks.storage.home import Home
from tests.ingest.ogb_folders import node_folder
from tests.preprocess.snapshot_tables import (
    SHARES,
    SPLITS,
    Run,
    by_hand,
    by_name,
    edges_of,
    grown,
    link_tables,
    make_recipe,
    pairs_of,
    split_of,
    tables,
    write,
)


@pytest.mark.parametrize("order", ["abcdefgh", "hcafdbge"])
def test_who_exists_by_hand(run: Run, order: str) -> None:
    """Whatever the order in which the tables list them."""
    by_hand(order)
    found = run(tables(), "snapshot.as_of=5", *SHARES, symmetrize=False)
    assert found.names == [name for name in order if name <= "e"]
    assert edges_of(found) == {("a", "b"), ("b", "c"), ("e", "a"), ("d", "c")}
    assert by_name(found, found.graph["feat"][:, 0]) == [1, 2, 3, 4, 5]
    assert by_name(found, found.graph["label"]) == [0, 1, -1, 2, 0]
    assert by_name(found, found.graph["node_time"]) == [1, 2, 3, 4, 5]
    assert [sorted(split_of(found, s)) for s in ("train", "valid", "test")] == [["a", "b"], ["d"], ["e"]]
    assert found.manifest.report["snapshot"] == {
        "unit": "number",
        "times": {"train": [1, 2], "valid": [4, 4], "test": [5, 5]},
        "labels": {"kind": "classes", "rows": 4, "counts": [2, 1, 1]},
    }
    scaled = run(tables(), "snapshot.as_of=5", *SHARES, transforms=[{"name": "standardize"}])
    assert by_name(scaled, scaled.graph["feat"][:, 0]) == [-1, 1, 3, 5, 7]  # mean 1.5, deviation 0.5: those of a and b
    earlier = run(tables(), "snapshot.as_of=4", *SHARES, symmetrize=False)
    assert sorted(earlier.names) == list("abcd")  # e does not exist: neither does the old edge from it
    assert edges_of(earlier) == {("a", "b"), ("d", "c")}
    ends = [earlier.names[v] for v in earlier.graph["csc_indices"].tolist()]
    assert dict(zip(ends, earlier.graph["edge_time"].tolist(), strict=True)) == {"a": 2, "d": 4}


def test_the_moment_compares_in_the_unit_of_the_times(run: Run) -> None:
    days = [datetime.date(2023, 6, day) for day in (1, 10, 20, 29, 30)] + [datetime.date(2023, 7, 1)]
    write("nodes", id=list("abcdef"), x=[0.0] * 6, label=[0, 1, 2, 0, 1, 2], time=days)
    write("edges", src=["a"], dst=["f"], time=[datetime.datetime(2023, 7, 1, 12)])
    for as_of, last in {
        "2023-06": "abcde",
        "2023-06-30": "abcde",
        "2023-06-29": "abcd",
        "2023-06-30T00:00:00+00:00": "abcde",
        "2023-06-30T01:00:00+02:00": "abcd",
        "2023": "abcdef",
    }.items():
        found = run(tables(), f"snapshot.as_of={as_of}", *SHARES)
        assert found.names == list(last), as_of
    stamps = [int(datetime.datetime(d.year, d.month, d.day, tzinfo=datetime.UTC).timestamp()) for d in days]
    write("nodes", id=list("abcdef"), x=[0.0] * 6, label=[0, 1, 2, 0, 1, 2], time=stamps)
    write("edges", src=["a"], dst=["f"], time=[stamps[-1]])
    found = run(tables(), "snapshot.as_of=2023-06", "snapshot.unit=seconds", *SHARES)
    assert found.names == list("abcde")
    with pytest.raises(RecipeError, match=r"whole numbers of no known unit.*snapshot\.unit"):
        run(tables(), "snapshot.as_of=2023-06", *SHARES)


def test_nodes_without_times_exist_from_their_first_edge_on(run: Run) -> None:
    """Where edges have times; a node that never has an edge is always there."""
    write("nodes", id=list("abcdef"), x=[1.0] * 6, label=[0, 1, 2, 0, 1, 2])
    write("edges", src=list("abcd"), dst=list("bcde"), time=[10, 20, 30, 40])
    untimed = {"files": "nodes.parquet", "features": ["x"], "label": ["label"]}
    found = run(tables(nodes=untimed), "snapshot.as_of=25", *SHARES)
    assert found.names == ["a", "b", "c", "f"]
    assert edges_of(found) == {("a", "b"), ("b", "a"), ("b", "c"), ("c", "b")}
    assert [split_of(found, s) for s in ("train", "test")][1] == ["c"]  # the newest by its first edge
    assert "f" in split_of(found, "train")


def test_types_of_nodes(run: Run) -> None:
    """Users have times, items have not: an item is there from its first rating on, a rating with both ends."""
    write("users", id=["u1", "u2", "u3", "u4"], label=[0, 1, 2, 0], x=[1.0, 2, 3, 4], time=[1, 2, 3, 9])
    write(
        "ratings", src=["u1", "u2", "u3", "u4"], dst=["i1", "i2", "i3", "i1"], time=[5, 6, 7, 9], weight=[1.0, 2, 3, 4]
    )
    dataset = {
        "name": "tables",
        "num_classes": 3,
        "nodes": {"type": "user", "files": "users.parquet", "label": ["label"], "features": ["x"], "time": "time"},
        "edges": {
            "files": "ratings.parquet",
            "source_type": "user",
            "target_type": "item",
            "time": "time",
            "weight": "weight",
        },
        "split": {"by": "ratio", "train": 0.34, "valid": 0.33, "test": 0.33},
    }
    found = run(dataset, "snapshot.as_of=6", "snapshot.train=0.34", "snapshot.valid=0.33", "snapshot.test=0.33")
    assert found.names == ["user:u1", "user:u2", "user:u3", "item:i1", "item:i2"]
    assert edges_of(found) == {
        (a, b) for x in ("1", "2") for a, b in ((f"user:u{x}", f"item:i{x}"), (f"item:i{x}", f"user:u{x}"))
    }
    assert found.graph["node_type"].tolist() == [0, 0, 0, 1, 1]
    assert found.graph["node_time"].tolist() == [1, 2, 3, -1, -1]
    assert found.graph["feat"][:, 0].tolist() == [1, 2, 3, 0, 0]
    assert sorted(found.graph["edge_weight"].tolist()) == [1, 1, 2, 2]
    kinds = [found.manifest.edge_types[t] for t in found.graph["edge_type"]]
    assert kinds == ["item__rev_to__user"] * 2 + ["user__to__item"] * 2


TRANSFORMS = [
    {"name": "standardize", "columns": "x"},
    {"name": "min_max", "columns": "y"},
    {"name": "codes", "columns": "z"},
    {"name": "degree"},
    {"name": "embedding", "dim": 4, "method": "fastrp"},
    {"name": "hops", "features": ["in", "in-in"], "labels": ["in"]},
]


def first_rows(columns: dict[str, Any], until: int) -> dict[str, Any]:
    there = int(np.searchsorted(columns["time"], until, side="right"))
    return {name: values[:there] for name, values in columns.items()}


@pytest.mark.slow
@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    until=st.integers(12, 25),
    ties=st.sampled_from([1, 2, 5]),
    task=st.sampled_from(["node", "link"]),
    options=st.sampled_from(
        [{}, {"symmetrize": False, "self_loops": "add"}, {"deduplicate": False, "self_loops": "keep"}]
    ),
)
def test_the_future_shows_nowhere(
    run: Run, home: Home, seed: int, until: int, ties: int, task: str, options: dict[str, Any]
) -> None:
    """A snapshot is, to the last bit and digest, what one gets who has only ever seen what existed then.

    Structure, features that were fitted or come from the structure, labels of neighbours, splits, negatives, report.
    """
    nodes, edges = grown(np.random.default_rng(seed), 30 * ties, 150 * ties, ties)
    people = {"files": "nodes.parquet", "features": ["x", "y", "z"], "time": "time"}
    section = tables(
        nodes={**people, "label": ["label"]}, edges={"files": "edges.parquet", "time": "time", "weight": "weight"}
    )
    transforms = TRANSFORMS
    if task == "link":
        section = {**link_tables(weight="weight"), "nodes": people}
        transforms = [*TRANSFORMS[:-1], {"name": "hops", "features": ["in", "in-in"]}]
    fresh = Home.open(home.root / f"fresh-{secrets.token_hex(4)}")  # its caches have seen nothing
    override = f"snapshot.as_of={until}"
    write("nodes", **first_rows(nodes, until))
    write("edges", **first_rows(edges, until))
    try:
        then = run(section, override, at=fresh, transforms=transforms, **options)
    except DataError as refused:  # few edges can leave a split without a new pair
        write("nodes", **nodes)
        write("edges", **edges)
        with pytest.raises(DataError, match=re.escape(str(refused))):
            run(section, override, at=home, transforms=transforms, **options)
        return
    write("nodes", **nodes)
    write("edges", **edges)
    now = run(section, override, at=home, transforms=transforms, **options)
    for name in sorted(then.manifest.arrays):
        np.testing.assert_array_equal(np.asarray(now.graph[name]), np.asarray(then.graph[name]), err_msg=name)
    assert now.manifest.digest == then.manifest.digest
    times = now.graph["node_time"]
    assert times.max() <= until
    assert now.graph["edge_time"].max() <= until
    if task == "node":
        spans = [times[now.graph[f"{split}_idx"]] for split in SPLITS]
        assert spans[0].max() <= spans[1].min() <= spans[1].max() <= spans[2].min()
    shutil.rmtree(fresh.root)


@pytest.mark.parametrize("task", ["node", "link"])
def test_what_trains_now_trains_in_every_later_snapshot(run: Run, task: str) -> None:
    """So a warm start has never learnt from what it is tested on; with many equal times as well."""
    nodes, edges = grown(np.random.default_rng(5), 60, 200, 20)
    write("nodes", **nodes)
    write("edges", **edges)
    section = tables() if task == "node" else link_tables()
    read = split_of if task == "node" else (lambda found, split: pairs_of(found, f"{split}_edges"))
    found = [run(section, f"snapshot.as_of={t}") for t in (0, 1, 2, 4)]
    sizes = [found[-1].manifest.splits[split] for split in SPLITS]
    assert abs(sizes[0] / sum(sizes) - 0.8) < 0.02
    for earlier, later in itertools.pairwise(found):
        train = read(earlier, "train")
        assert set(train) <= set(read(later, "train"))
        if task == "node":  # (pairs repeat)
            assert not set(train) & {*read(later, "valid"), *read(later, "test")}


def test_ties_do_not_depend_on_nodes_of_other_types(run: Run) -> None:
    """A new shop moves the ids of all people, which come behind: their splits stay."""
    people, rng = [f"p{i}" for i in range(60)], np.random.default_rng(0)
    write("people", id=people, label=rng.integers(0, 3, 60), time=[1] * 60)
    write("sales", src=[f"s{i % 5}" for i in range(120)], dst=people * 2, time=[1] * 120)
    person = {"type": "person", "files": "people.parquet", "label": ["label"], "time": "time"}
    section = {
        "name": "tables",
        "num_classes": 3,
        "nodes": [{"type": "shop", "files": "shops.parquet", "time": "time"}, person],
        "edges": {"files": "sales.parquet", "source_type": "shop", "target_type": "person", "time": "time"},
        "target_type": "person",
    }
    dealt = []
    for shops in (5, 6):
        write("shops", id=[f"s{i}" for i in range(shops)], time=[1] * shops)
        found = run(section, "snapshot.as_of=1", *SHARES)
        dealt.append([split_of(found, split) for split in SPLITS])
    assert dealt[0] == dealt[1]


def test_own_split_as_far_as_it_exists(run: Run, tmp_path: Path) -> None:
    made = node_folder(tmp_path / "ogbn_mine")
    section = {"name": "ogb", "dataset": "ogbn_mine", "root": str(tmp_path), "task": "node", "num_classes": 3}
    found = run(section, "snapshot.as_of=2010", "snapshot.split=keep", symmetrize=False)
    assert found.names == [f"n{i}" for i in range(11)]
    assert [split_of(found, s) for s in SPLITS] == [[f"n{i}" for i in range(6)], ["n6", "n7", "n8"], ["n9", "n10"]]
    assert edges_of(found) == {(f"n{s}", f"n{d}") for s, d in made["edge"] if s != d and max(s, d) <= 10}
    whole = run(section, "snapshot.as_of=2030", "snapshot.split=keep", symmetrize=False)
    plain = run(section, symmetrize=False)
    for name in plain.manifest.arrays:
        np.testing.assert_array_equal(whole.graph[name], plain.graph[name], err_msg=name)
    with pytest.raises(RecipeError, match=r"the test split is empty.*snapshot\.split=time"):
        run(section, "snapshot.as_of=2008", "snapshot.split=keep")
    with pytest.raises(RecipeError, match="nothing exists yet; the oldest node is from 2000"):
        run(section, "snapshot.as_of=1999")
    yearly = run(section, "snapshot.as_of=2006-05", *SHARES)
    assert len(yearly.names) == 7
    assert any("takes all of 2006" in message for message in yearly.messages)


def test_without_a_moment_nothing_changes(run: Run) -> None:
    by_hand()
    plain = make_recipe(tables())
    assert stage.config(plain) == cache_view(plain.preprocess)
    idle = make_recipe(tables(), "snapshot.split=keep", "snapshot.warm_start=true", "snapshot.seed=3")
    assert stage.config(idle) == stage.config(plain)
    timely = make_recipe(tables(), "snapshot.as_of=5")
    assert stage.config(timely) != stage.config(plain)
    assert stage.config(make_recipe(tables(), "snapshot.as_of=5", "snapshot.warm_start=true")) == stage.config(timely)
    keep = [make_recipe(tables(), "snapshot.as_of=5", "snapshot.split=keep", f"snapshot.seed={n}") for n in (0, 1)]
    assert stage.config(keep[0]) == stage.config(keep[1]) != stage.config(timely)


def test_snapshots_share_what_does_not_depend_on_them(run: Run) -> None:
    nodes, edges = grown(np.random.default_rng(0), 60, 100, 1)
    write("nodes", **nodes)
    write("edges", **edges)
    section = tables(nodes={"files": "nodes.parquet", "features": ["x", "y"], "label": ["label"], "time": "time"})
    options = {"transforms": [{"name": "log1p", "columns": "x"}, {"name": "standardize", "columns": "y"}]}
    reused = [
        [text for text in run(section, *overrides, **options).messages if "reused" in text]
        for overrides in ((), ("snapshot.as_of=20",), ("snapshot.as_of=40",))
    ]
    assert reused[0][0] == "edges: 13 of 13 shards computed, 0 reused"
    for later in reused[1:]:
        assert later[0] == "edges: 0 of 13 shards computed, 13 reused"
        assert any(text == f"features: 0 of {n} shards computed, {n} reused" for n in (3, 6) for text in later)
        assert any(text.startswith("fit standardize") and not text.startswith("fit standardize: 0") for text in later)


def test_a_snapshot_in_which_nothing_is_new_has_the_same_digest(run: Run) -> None:
    """So a night without news trains nothing."""
    by_hand()
    first, again = (run(tables(), f"snapshot.as_of={t}", *SHARES) for t in (8, 80))
    assert first.manifest.key != again.manifest.key
    assert first.manifest.digest == again.manifest.digest


def test_what_is_refused(run: Run) -> None:
    by_hand()
    untimed = {"files": "nodes.parquet", "features": ["x"], "label": ["label"]}
    timeless = tables(nodes=untimed, edges={"files": "edges.parquet"})
    with pytest.raises(RecipeError, match=r"snapshot\.as_of=5: .* has no times.*dataset\.nodes\.time"):
        run(timeless, "snapshot.as_of=5")
    with pytest.raises(RecipeError, match="the train and valid split is empty"):
        run(tables(), "snapshot.as_of=1")
    write("edges", src=["a"], dst=["b"], time=[datetime.date(2020, 1, 1)])
    with pytest.raises(
        RecipeError, match=r"time of dataset\.edges holds dates or time stamps, time of dataset\.nodes whole"
    ):
        run(tables(), "snapshot.as_of=5")
    names = "abcdefghij"
    write("edges", src=list(names), dst=list(names[1:] + "a"), time=list(range(10)), x=[0.5] * 10)
    with pytest.raises(DataError, match=r"of held-out ones, and those have no features.*snapshot\.split=keep"):
        run(link_tables(features=["x"]), "snapshot.as_of=7", *SHARES)
    Path("pairs.csv").write_text("a,c\nb,d\n")
    given_pairs = {**link_tables(), "split": {"by": "files", "files": {"valid": "pairs.csv", "test": "pairs.csv"}}}
    with pytest.raises(DataError, match=r"split/valid: the held-out edges have no times"):
        run(given_pairs, "snapshot.as_of=7")


@pytest.mark.parametrize("name", ["quickstart", "ogbg-molhiv"])
def test_shipped_recipes_without_times_are_refused_before_anything_is_read(name: str) -> None:
    from tasks.storage.snapshots import check_snapshot

    recipe = load_recipe(name, ["snapshot.as_of=2023"])
    with pytest.raises(RecipeError, match=r"snapshot\.as_of=2023.*has no times"):
        check_snapshot(recipe)
    check_snapshot(load_recipe(name))
    check_snapshot(load_recipe("ogbn-arxiv", ["snapshot.as_of=2018"]))  # still to be downloaded: it may have years
