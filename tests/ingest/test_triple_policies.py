"""Repeats, splits, what training never shows, and mistakes in users' triples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from configs.errors import DataError
from configs.registry import DATASETS
from tasks.ingest.triples.policies import IN_EARLIER, IN_SPLIT, find_repeated, hold_out
from tests.ingest.conftest import Ingest
from tests.ingest.triple_files import SPLITS, TEST, TRAIN, VALID, Triple, lines, named, put, put_splits


def adjusted(store: Any) -> dict[str, int]:
    return dict(store.manifest.adjusted)


def test_repeats(ingest: Ingest, folder: Path) -> None:
    put_splits(folder, train=[*TRAIN, TRAIN[1]], valid=[TRAIN[0], *VALID, *VALID], test=[*TEST, VALID[0], TRAIN[3]])
    store = ingest(name="triples", path=str(folder))
    assert named(store) == SPLITS  # the first of each stays
    assert adjusted(store) == {
        "train.txt: triples that stand twice dropped": 1,
        "valid.txt: triples that stand twice dropped": 1,
        "valid.txt: triples of an earlier split dropped": 1,
        "test.txt: triples of an earlier split dropped": 2,
    }
    assert "3 triples of validation or test are in an earlier split too" in store.manifest.warnings[0]


def test_repeats_like_a_set() -> None:
    rng = np.random.default_rng(0)
    src, relation, dst = (rng.integers(0, most, 20_000).astype(np.int32) for most in (30, 5, 30))
    owner = np.sort(rng.integers(0, 3, 20_000)).astype(np.int8)
    for order in (None, np.lexsort((rng.random(20_000), owner))):
        seen: dict[Triple, int] = {}
        expected = np.zeros(20_000, np.uint8)
        for i in range(20_000) if order is None else order:
            key = src[i], relation[i], dst[i]
            if key in seen:
                expected[i] = IN_SPLIT if seen[key] == owner[i] else IN_EARLIER
            else:
                seen[key] = owner[i]
        np.testing.assert_array_equal(find_repeated(src, relation, dst, owner, order), expected)


def test_what_training_never_shows(ingest: Ingest, folder: Path) -> None:
    put_splits(folder, valid=[*VALID, ("eve", "knows", "ann")], test=[*TEST, ("ann", "hates", "bob"), ("x", "y", "z")])
    store = ingest(name="triples", path=str(folder))
    assert named(store)["test"] == [*TEST, ("ann", "hates", "bob"), ("x", "y", "z")]
    assert adjusted(store) == {
        "valid.txt: valid triples with an entity that training never shows kept": 1,
        "test.txt: test triples with an entity that training never shows kept": 1,
        "test.txt: test triples with a relation that training never shows kept": 2,
    }
    assert "3 triples of validation and test have an entity or a relation that no" in store.manifest.warnings[0]


def random_graph(seed: int, count: int = 3000) -> list[Triple]:
    rng = np.random.default_rng(seed)
    rows = zip(rng.zipf(1.6, count) % 400, rng.zipf(1.6, count) % 40, rng.zipf(1.6, count) % 400, strict=True)
    return sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in rows})


def test_dealt_out_at_random(ingest: Ingest, folder: Path) -> None:
    rows = random_graph(0)
    put(folder / "t.tsv", lines(rows))
    section: dict[str, Any] = {"name": "triples", "triples": "t.tsv"}
    store = ingest(**section)
    found = named(store)
    held = round(0.1 * len(rows))
    assert store.manifest.splits == {"train": len(rows) - 2 * held, "valid": held, "test": held}
    assert sorted(row for split in found.values() for row in split) == rows
    shown = {cell for row in found["train"] for cell in row}
    assert {cell for row in rows for cell in row} == shown
    (what, stayed), *_ = adjusted(store).items()
    assert what == "t.tsv: triples that alone show an entity or a relation kept in training"
    assert stayed > 0
    assert named(ingest(**section, split={"seed": 0})) == found
    other = named(ingest(**section, split={"name": "random", "seed": 1, "valid": 0.2, "test": 0.05}))
    assert (len(other["valid"]), len(other["test"])) == (round(0.2 * len(rows)), round(0.05 * len(rows)))
    assert set(other["test"]) != set(found["test"])


def test_little_can_be_held_out(ingest: Ingest, folder: Path) -> None:
    """A path of relations that stand once each, and two triples that others show too."""
    path = [(f"e{i}", f"r{i}", f"e{i + 1}") for i in range(30)]
    put(folder / "t.tsv", lines([*path, ("e0", "r1", "e3"), ("e4", "r2", "e9")]))
    store = ingest(name="triples", triples="t.tsv", split={"valid": 0.3, "test": 0.3})
    # Of two triples of one relation either may leave, and one of them has to stay.
    assert store.manifest.splits == {"train": 30, "valid": 1, "test": 1}
    assert "2 triples of 20 are held out" in store.manifest.warnings[0]
    put(folder / "t.tsv", lines(path))
    with pytest.raises(DataError, match=r"t\.tsv: the valid split is empty \(30 triples were read; 30 triples that"):
        ingest(name="triples", triples="t.tsv")


def test_triples_of_one_time_are_not_split_by_it(ingest: Ingest, folder: Path) -> None:
    put(folder / "t.tsv", "".join(f"a\tr\te{i}\t5\n" for i in range(9)))
    with pytest.raises(DataError, match=r"t.tsv \(column 3\): .* all 9 are equal.*dataset.split.name=random"):
        ingest(name="triples", triples="t.tsv", time="3", split={"name": "time"})


def test_loops_show_their_entity_once() -> None:
    src = np.array([0, 0, 1, 1, 2], np.int32)
    dst = np.array([0, 0, 1, 0, 2], np.int32)
    relation = np.zeros(5, np.int32)
    owner, order = np.zeros(5, np.int8), np.arange(5)
    taken = hold_out(src, relation, dst, order, (5, 0), owner, np.array([5, 3, 2]), np.array([9]))
    # The first two go, for the fourth shows 0 still; 1's loop goes too, and then the fourth is all that is left of
    # both. Nothing but its loop shows 2.
    assert (taken, owner.tolist()) == ((3, 2), [1, 1, 1, 0, 0])


def test_dealt_out_by_time(ingest: Ingest, folder: Path) -> None:
    rows = [(f"e{i % 7}", "r", f"e{i % 5}", 2000 + (i * 37) % 100) for i in range(35)]
    put(folder / "t.csv", lines([*rows, (*rows[3][:3], 1990)], ",", "head,relation,tail,year\n"))
    section: dict[str, Any] = {"name": "triples", "triples": "t.csv", "time": "year"}
    store = ingest(**section, split={"name": "time", "valid": 0.2, "test": 0.2})
    times = [store.read(f"split/{split}")["time"].to_pylist() for split in ("train", "valid", "test")]
    assert store.manifest.splits == {"train": 21, "valid": 7, "test": 7}
    assert max(times[0]) < min(times[1])
    assert max(times[1]) < min(times[2])
    assert 1990 in times[0]  # of a triple that stands twice the older one counts
    assert adjusted(store)["t.csv: triples that stand twice dropped"] == 1
    with pytest.raises(ValidationError, match="split by time needs the column of times"):
        ingest(name="triples", triples="t.csv", split={"name": "time"})


def test_literals(ingest: Ingest, folder: Path) -> None:
    text = '<a> <p> <b> .\n<a> <label> "A"@en .\n<b> <p> <a> .\n<b> <label> "A"@en .\n'
    files = {"name": "files", "files": {"valid": "v.nt", "test": "w.nt"}}
    put(folder / "t.nt", text)
    put(folder / "v.nt", "<a> <p> <a> .\n")
    put(folder / "w.nt", "<b> <p> <b> .\n")
    store = ingest(name="triples", triples="t.nt", split=files)
    assert named(store)["train"] == [("a", "p", "b"), ("b", "p", "a")]
    assert adjusted(store) == {"t.nt: triples with a literal dropped": 2}
    assert "2 triples are left out, because their object is a literal" in store.manifest.warnings[0]
    store = ingest(name="triples", triples="t.nt", split=files, literals="keep")
    assert ("b", "label", '"A"@en') in named(store)["train"]
    put(folder / "t.nt", '<a> <label> "A"@en .\n')
    with pytest.raises(DataError, match=r"t\.nt: has no triples \(1 have literals: dataset\.literals=keep\)"):
        ingest(name="triples", triples="t.nt", split=files)


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        ("train.txt", "a\tb\nc\td\n", {}, r"train\.txt: has 2 columns; head, relation and tail are needed"),
        ("train.txt", "a,b,c\n", {}, r"train\.txt: has 1 column; .*; is another character between its cells"),
        ("train.txt", "a\tb\tc\rd\te\tf\r", {}, r"train\.txt: its lines end in a carriage return alone"),
        ("train.txt", "a\tb\tc\td\n", {}, r"train\.txt: has 4 columns; .*name the three: dataset\.head=0"),
        ("train.txt", "a\tb\tc\na\tb\n", {}, r"train\.txt \(row 1\): the row has 2 columns, the others have 3"),
        ("train.txt", "a\tb\tc\na\tb\tc\td\n", {}, r"train\.txt \(row 1\): the row has 4 columns, the others have 3"),
        ("train.txt", "a\tb\tc\na\t\tc\n", {}, r"train\.txt \(row 1, column 1\): the id is missing"),
        ("train.txt", "", {}, r"train\.txt: is empty"),
        ("train.txt", "\n\n", {}, r"train\.txt: is empty"),
        ("train.txt", "a\tb\tc\nb\tb\t\udcff\n", {}, r"train\.txt \(row 1, column 2\): byte 0xFF .* is not UTF-8"),
        ("test.txt", None, {}, r"data: has no file of the test split: train\.txt, valid\.txt; one is needed"),
        ("train.tsv", "a\tb\tc\n", {}, r"has several files of the train split: train\.tsv, train\.txt"),
        ("entities.txt", "ann\nbob\n\ncy\n", {}, r"entities\.txt: line 3 is blank"),
        ("entities.txt", "ann\nbob\ncy\nbob\n", {}, r"entities\.txt: line 4: 'bob' stands in the list twice"),
        ("entities.txt", "", {}, r"entities\.txt: is empty"),
        ("entities.txt", "ann\tA\nbob\tB\n", {}, r"is not in .*txt, whose lines are names as a whole, such as 'ann"),
        ("relations.txt", "knows\n", {}, r"unknown relation 'likes': it is not in .*relations\.txt"),
    ],
)  # fmt: skip
def test_mistakes_in_a_folder(
    ingest: Ingest, folder: Path, name: str, text: str | None, options: dict[str, str], message: str
) -> None:
    put_splits(folder)
    for other, content in options.items():
        put(folder / other, content)
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(DataError, match=message):
        ingest(name="triples", path=str(folder))


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("h", pa.array([1.0, np.nan, 2.0, 3.0]), r"column h\): holds decimal numbers; ids are whole"),
        ("h", pa.array([1, None, 2, 3]), r"\(row 1, column h\): the id is missing"),
        ("h", pa.array([1, -2, 2, 3]), r"\(row 1, column h\): the id -2 is negative"),
        ("t", pa.array(["a", "", "b", "c"]), r"\(row 1, column t\): the id is missing"),
        ("r", pa.array([0, 1, None, 1]), r"\(row 2, column r\): the id is missing"),
        ("t", pa.array(["a", "b", " \t", "c"]), r"\(row 2, column t\): the entity ' \\t' is blank or has a NUL"),
        ("r", pa.array(["a", "b\0", " ", "\0"]), r"\(row 1, column r\): the relation 'b.*NUL character \(3 such rows"),
        ("h", pa.array([True, False, True, True]), r"\(column h\): holds true and false; ids are whole numbers"),
        ("w", pa.array([1.0, -2.0, 0.0, 1.0]), r"\(row 1, column w\): the weight -2 is below 0: weights are 0 or more"),
        ("w", pa.array([1.0, 2.0, np.nan, 1.0]), r"\(row 2, column w\): nan is not a finite number; a triple without"),
        ("w", pa.array([1.0, None, 0.0, 1.0]), r"\(row 1, column w\): the cell is empty; a triple without a weight"),
        ("w", pa.array(["1", "two", "3", "x"]), r"\(row 1, column w\): 'two' is not a number \(2 such rows\)"),
        ("w", pa.array([1.0, 1e-300, 0.0, 1.0]), r"\(row 1, column w\): the weight 1e-300 is not 0, and is in float32"),
        ("w", pa.array([1e300, 0.0, 0.0, 1.0]), r"\(row 0, column w\): 1e\+300 does not fit float32"),
        ("y", pa.array([1, None, 2, 3]), r"\(row 1, column y\): the time is missing; every row needs one"),
        ("y", pa.array(["2020", "soon", "2021", "2022"]), r"\(row 1, column y\): the time 'soon' is not a whole"),
        ("y", pa.array(["2020-01-01", "soon", "7", "8"]), r"\(row 1, column y\): 'soon' is not a date or time"),
    ],
)  # fmt: skip
def test_mistakes_in_columns(ingest: Ingest, folder: Path, column: str, cells: pa.Array, message: str) -> None:
    table = {"h": [0, 1, 2, 3], "r": [0, 1, 0, 1], "t": [1, 2, 3, 0], "w": [1.0] * 4, "y": [1, 2, 3, 4]}
    pq.write_table(pa.table(table | {column: cells}), folder / "t.parquet")
    with pytest.raises(DataError, match=message):
        ingest(name="triples", triples="t.parquet", weight="w", time="y")


def test_all_mistakes_at_once(ingest: Ingest, folder: Path) -> None:
    put_splits(folder, train=[("a", "", "b"), ("", "r", "b")], test=[("a", "r", "")])
    with pytest.raises(DataError) as error:
        ingest(name="triples", path=str(folder))
    put(folder / "valid.txt", "a\tr\tb\nb\tr\n")
    with pytest.raises(DataError) as error:
        ingest(name="triples", path=str(folder))
    places = ("train.txt (row 0, column 1)", "train.txt (row 1, column 0)", "valid.txt (row 1)", "test.txt (row 0, ")
    for place in places:
        assert place in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give path .* or triples"),
        ({"path": "x", "triples": "y"}, "leave out triples and split"),
        ({"path": "x", "split": {"valid": 0.2}}, "leave out triples and split"),
        ({"triples": "x", "split": {"valid": 0.5, "test": 0.5}}, "must leave something to train on"),
        ({"triples": "x", "split": {"name": "files"}}, "`files` and `name: files` go together"),
        ({"triples": "x", "split": {"name": "files", "files": {"valid": "v"}}}, "test is missing"),
        ({"split": {"name": "files", "files": {"valid": "v", "test": "t"}}}, "train is missing"),
        ({"triples": "x", "split": {"name": "files", "files": {"train": "a", "valid": "v", "test": "t"}}}, "twice"),
        ({"split": {"name": "files", "files": {"vaild": "v"}}}, "did you mean 'valid'"),
        ({"triples": "x", "head": "h"}, "named together; relation and tail is missing"),
        ({"triples": "x", "head": "a", "relation": "b", "tail": "a"}, "column 'a' is named as head and as tail"),
        ({"triples": "x", "time_format": "%Y"}, "time_format without a column"),
        ({"triples": "x", "entites": "e"}, "did you mean 'entities'"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DATASETS.config({"name": "triples", **options})


def test_ntriples_have_no_columns(ingest: Ingest, folder: Path) -> None:
    put(folder / "t.nt", "<a> <p> <b> .\n")
    with pytest.raises(DataError, match=r"t\.nt: is N-Triples, .*; leave out dataset\.weight"):
        ingest(name="triples", triples="t.nt", weight="w")
    put(folder / "t.xyz", "a\tb\tc\n")
    with pytest.raises(DataError, match=r"t\.xyz: the name does not tell the format; known: \.parquet"):
        ingest(name="triples", triples="t.xyz")
