"""How edges of a link task are dealt out where some have unknown ends, or no split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from configs.errors import DataError
from configs.load import edge_list
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
    link = {"name": "tables", "task": "link", "nodes": {"count": 40}, "directed": True}
    store = ingest(**link, edges=edges, split=split, num_negatives=20)
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
    link = {"name": "tables", "task": "link", "nodes": {"count": 40}}  # pairs enough that are no edges
    store = ingest(**link, edges=edges, split=split, directed=directed, num_negatives=2000)
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


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_edges_to_hold_some_out(ingest: Ingest, folder: Path, count: int) -> None:
    Path("few.csv").write_text("src,dst\n" + "".join(f"{i},{i + 1}\n" for i in range(count)))
    with pytest.raises(DataError, match=rf"^few\.csv: the \w+ split is empty \({count} edges in all; .*add edges, or"):
        ingest(**edge_list("few.csv"))


@pytest.mark.parametrize("odd", ["\0", "x"])
def test_ends_of_two_kinds_without_a_table_of_nodes(ingest: Ingest, folder: Path, odd: str) -> None:
    Path("e.csv").write_text(f"src,dst\n1,2\n{odd},3\n")
    message = r"^e\.csv \(row 0, column dst\): the id 2 is a whole number, .* such as "
    with pytest.raises(DataError, match=message) as caught:
        ingest(**edge_list("e.csv"))
    assert repr(odd) in str(caught.value)


def multiplex_files() -> None:
    save("e.csv", pa.table({"a": [*"xyzx"], "b": [*"yzxz"], "layer": ["view", "buy"] * 2}))
    pairs = {"layer": ["buy", "view"] * 2, "a": [*"xyzy"], "b": [*"zxyy"]}
    for name in ("valid", "test"):
        save(f"{name}.csv", pa.table({**pairs, "is_edge": [1, 0, 0, 1]}))


MULTIPLEX: dict[str, Any] = {
    "name": "tables",
    "task": "link",
    "edges": {"files": "e.csv", "source": "a", "target": "b", "relation_column": "layer"},
}
BY_FILES: dict[str, Any] = {
    "by": "files",
    "files": {"valid": "valid.csv", "test": "test.csv"},
    "header": True,
    "relation_column": "layer",
    "label": "is_edge",
}


def test_pairs_of_files_have_relations_and_labels(ingest: Ingest, folder: Path) -> None:
    multiplex_files()
    store = ingest(**MULTIPLEX, split=BY_FILES)
    manifest = store.manifest
    assert [edge_type.relation for edge_type in manifest.edge_types] == ["view", "buy"]
    assert manifest.num_relations == 2
    for name in ("valid", "test"):
        rows = {kind: store.read(f"split/{name}{kind}").to_pydict() for kind in ("", "_negative")}
        assert rows[""] == {"src": [0, 1], "dst": [2, 1], "relation": [1, 0]}
        assert rows["_negative"] == {"src": [1, 2], "dst": [0, 1], "relation": [0, 1]}
    assert store.column("split/train", "relation").tolist() == [0, 1, 0, 1]
    assert not manifest.keep_known_pairs
    assert ingest(**MULTIPLEX, split={**BY_FILES, "known_pairs": "keep"}).manifest.keep_known_pairs


@pytest.mark.parametrize("by", ["ratio", "column"])
def test_relations_are_dealt_out_and_negatives_follow(ingest: Ingest, folder: Path, by: str) -> None:
    rng = np.random.default_rng(0)
    ends = np.unique(rng.integers(0, 60, (900, 2)), axis=0)
    layer = np.where(rng.random(len(ends)) < 0.25, "rare", "usual")
    part = rng.choice(["train", "valid", "test"], len(ends))
    save("e.csv", pa.table({"a": ends[:, 0], "b": ends[:, 1], "layer": layer, "part": part}))
    split = {"by": by, "column": "part"} if by == "column" else {"by": by}
    store = ingest(**MULTIPLEX, nodes={"count": 60}, split=split, num_negatives=400, directed=True)
    names = [edge_type.relation for edge_type in store.manifest.edge_types]
    known = {(int(a), int(b)): str(kind) for (a, b), kind in zip(ends, layer, strict=True)}
    for name in ("train", "valid", "test"):
        rows = store.read(f"split/{name}").to_pydict()
        of_pairs = [known[pair] for pair in zip(rows["src"], rows["dst"], strict=True)]
        assert of_pairs == [names[number] for number in rows["relation"]]
        if name != "train":
            tables = f"split/{name}_negative", f"split/{name}"
            negative, own = (np.bincount(store.column(table, "relation"), minlength=2) for table in tables)
            np.testing.assert_allclose(negative / negative.sum(), own / own.sum(), atol=0.01)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("layer", "like", "valid.csv.*row 1.*layer.*no edge of relation 'like' trains; known: view, buy"),
        ("layer", "", "the relation is missing"),
        ("is_edge", 2, "the label 2 is neither 1"),
        ("b", "w", "'w'"),
    ],
)
def test_mistakes_in_files_of_pairs(ingest: Ingest, folder: Path, column: str, value: Any, message: str) -> None:
    multiplex_files()
    rows = pa.csv.read_csv("valid.csv").to_pydict()
    rows[column][1] = value
    save("valid.csv", pa.table(rows))
    with pytest.raises(DataError, match=message):
        ingest(**MULTIPLEX, split=BY_FILES)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({**BY_FILES, "relation_column": None}, "edges.relation_column needs split.relation_column"),
        ({"label": "is_edge"}, "split.label is for `by: files`"),
        ({"id": "who"}, "split.id is for `by: files` of nodes or graphs; files of pairs have source and target"),
        ({"known_pairs": "keep"}, "split.known_pairs is for `by: files or time`"),
        ({**BY_FILES, "label": "nowhere"}, "nowhere"),
    ],
)
def test_options_of_pairs_that_do_not_fit(ingest: Ingest, folder: Path, split: Any, message: str) -> None:
    multiplex_files()
    with pytest.raises((ValueError, DataError), match=message):
        ingest(**MULTIPLEX, split=split)


def test_a_relation_of_which_nothing_trains(ingest: Ingest, folder: Path) -> None:
    ends = np.arange(30)
    layer, part = np.where(ends < 25, "view", "buy"), np.array(["train", "valid", "test"])[ends % 3]
    part[ends >= 25] = "test"
    save("e.csv", pa.table({"a": ends, "b": ends + 1, "layer": layer, "part": part}))
    with pytest.raises(DataError, match="no edge of relation 'buy' trains"):
        ingest(**MULTIPLEX, split={"by": "column", "column": "part"}, num_negatives=20)
