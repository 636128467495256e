"""Mistakes in users' tables: all of one run named at once, each by its own row, and none stored as another value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from tasks.ingest.tables.batches import MAX_LISTED, TableError
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import SPLIT

NODES = {"id": list(range(10)), "x": [float(i) for i in range(10)], "y": list("ab" * 5)}


def section(**change: Any) -> dict[str, Any]:
    nodes = {"files": "n.parquet", "label": "y"}
    return {"name": "tables", "nodes": nodes, "edges": {"files": "e.parquet"}, "split": SPLIT, **change}


def write(nodes: dict[str, Any] | None = None, edges: dict[str, Any] | None = None) -> None:
    pq.write_table(pa.table({**NODES, **(nodes or {})}), "n.parquet")
    pq.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 3], **(edges or {})}), "e.parquet")


def refused(ingest: Ingest, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        ingest(**options)
    return str(caught.value)


STAMPS = [2**50, 0, 1]
RANGES: list[tuple[str, pa.Array | list[Any], str]] = [
    ("w", [1.0, 1e300, 2.0], "row 1, column w): 1e+300 does not fit float32"),
    ("w", [1.0, -1e39, 2.0], "row 1, column w): the weight -1e+39 is below 0"),
    ("f", [1.0, -1e39, 2.0], "row 1, column f): -1e+39 does not fit float32"),
    ("w", [1.0, float("nan"), 2.0], "row 1, column w): nan is not a finite"),
    ("t", pa.array([0, 2**63 + 5, 1], pa.uint64()), "row 1, column t): the time 9223372036854775813 does not"),
    ("t", pa.array([0, 1, -(2**63)]), "row 2, column t): the time -9223372036854775808 is beyond 2^62"),
    ("t", [0.0, 1e300, 1.0], "row 1, column t): the time 1e+300 is not exact"),
    ("t", [0.0, 1.5, 1.0], "row 1, column t): the time 1.5 is no whole number"),
    ("t", pa.array(STAMPS, pa.timestamp("s")), "row 0, column t): the date is 1,125,899,906,842,624 seconds"),
    ("t", pa.array([2**61, 0, 1], pa.timestamp("ms")), "row 0, column t): the date is"),
    ("t", pa.array([0, 2**31 - 1, 1], pa.int32()).cast(pa.date32()), "row 1, column t): the date is"),
    ("t", pa.array([0, 86_400_000 * 10**9, 1]).cast(pa.date64()), "row 1, column t): the date is"),
    ("f", [1.0, 2.0, 1e39], "row 2, column f): 1e+39 does not fit float32"),
]  # fmt: skip


@pytest.mark.parametrize(("column", "values", "message"), RANGES)
def test_values_out_of_range_of_edges(ingest: Ingest, folder: Path, column: str, values: Any, message: str) -> None:
    write(edges={column: values})
    role = {"w": {"weight": "w"}, "t": {"time": "t"}, "f": {"features": "f"}}[column]
    said = refused(ingest, **section(edges={"files": "e.parquet", **role}))
    assert said.startswith(f"e.parquet ({message}")


@pytest.mark.parametrize("task", ["node", "link", "edge"])
@pytest.mark.parametrize(
    ("times", "said"),
    [([7] * 10, "all 10 are equal"), ([7] * 5 + [8] * 5, "10 have 2 values")],
)
def test_too_few_times_to_split_by(ingest: Ingest, folder: Path, task: str, times: list[int], said: str) -> None:
    write(nodes={"t": times})
    ends = {"src": list(range(10)), "dst": [(one + 1) % 10 for one in range(10)]}
    pq.write_table(pa.table({**ends, "t": times, "y": list("ab" * 5)}), "e.parquet")
    nodes = {"files": "n.parquet", **({"label": "y", "time": "t"} if task == "node" else {})}
    edges = {"files": "e.parquet", "time": "t", **({"label": "y"} if task == "edge" else {})}
    split = {"by": "time", "train": 0.6, "valid": 0.2, "test": 0.2}
    message = refused(ingest, **section(task=task, nodes=nodes, edges=edges, split=split))
    assert message.startswith(f"{'n' if task == 'node' else 'e'}.parquet (column t): the ")
    assert f"split by these times is empty: {said}" in message
    assert "dataset.split.by=ratio deals rows at random" in message


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_ids_of_labelled_edges_that_stand_twice(ingest: Ingest, folder: Path, kind: pa.DataType) -> None:
    write()
    count = 200_000
    ids = np.arange(count)
    ids[[5, 150_000]] = 3, 7  # the second in a later batch
    ends = {"src": np.zeros(count, int), "dst": np.ones(count, int), "y": np.arange(count) % 2}
    pq.write_table(pa.table({**ends, "id": pa.array(ids).cast(kind)}), "e.parquet")
    edges = {"files": "e.parquet", "id": "id", "label": "y"}
    message = refused(ingest, **section(task="edge", nodes={"files": "n.parquet"}, edges=edges, split={"by": "ratio"}))
    assert message.startswith("e.parquet (row 5, column id): the id '3' stands in the table twice; without edges.id")
    assert "2 such rows" in message


def test_times_of_all_units_are_seconds_rounded_down(ingest: Ingest, folder: Path) -> None:
    for unit, scale in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        values = pa.array([-1 * scale - (scale > 1), 0, 1_700_000_000 * scale], pa.timestamp(unit))
        pq.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 3], "t": values}), f"e-{unit}.parquet")
        write()
        store = ingest(**section(edges={"files": f"e-{unit}.parquet", "time": "t"}))
        first = -1 if scale == 1 else -2
        assert store.column("edges/node__to__node", "time").tolist() == [first, 0, 1_700_000_000], unit


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ([1.0, [1.0, 2.0]], "holds lists of 2 values here and numbers in 0.parquet"),
        ([[1.0, 2.0], 5.0], "holds numbers here and lists of 2 values in 0.parquet"),
    ],
)
def test_numbers_in_one_file_and_lists_in_another(ingest: Ingest, folder: Path, cells: list[Any], said: str) -> None:
    write()
    for number, cell in enumerate(cells):
        ids = np.arange(10) + 10 * number
        pq.write_table(pa.table({"id": ids, "y": list("ab" * 5), "x": [cell] * 10}), f"{number}.parquet")
    nodes = {"files": ["0.parquet", "1.parquet"], "label": "y", "features": "x"}
    assert refused(ingest, **section(nodes=nodes)).startswith(f"1.parquet (column x): {said}")


@pytest.mark.parametrize("where", ["nodes", "labels"])
def test_labels_out_of_range(ingest: Ingest, folder: Path, where: str) -> None:
    write(nodes={"y": [1.0, 2.0, 1e300, *range(7)]})
    pq.write_table(pa.table({"id": list(range(10)), "y": [1.0, 2.0, -1e300, *range(7)]}), "l.parquet")
    options: dict[str, Any] = {"task_type": "regression"}
    if where == "labels":
        options |= {"nodes": {"files": "n.parquet"}, "labels": {"files": "l.parquet", "label": "y"}}
    said = refused(ingest, **section(**options))
    assert said == f"{where[0]}.parquet (row 2, column y): label {'-' * (where == 'labels')}1e+300 does not fit float32"


def test_classes_beyond_exact_numbers(ingest: Ingest, folder: Path) -> None:
    write(nodes={"y": [1.0, 2.0] * 4 + [1e300, 2.0]})
    assert "(row 8, column y): the class 1e+300 is not a whole number" in refused(ingest, **section())


def test_all_mistakes_of_all_tables_at_once(ingest: Ingest, folder: Path) -> None:
    Path("n.csv").write_text(
        "id,x,z,y,t\n1,0.5,1,a,2020-01-01\n2,,1,b,31.12.2020\n1,inf,1,a,2020-01-02\n4,big,1,b,2020-01-03\n,1,huge,a,\n"
    )
    Path("e.csv").write_text("src,dst,w\n1,2,0.5\n1,9,much\n8,9,1e300\n")
    nodes = {"files": "n.csv", "features": ["x", "z"], "label": "y", "time": "t"}
    with pytest.raises(TableError) as caught:
        ingest(**section(nodes=nodes, edges={"files": "e.csv", "weight": "w"}))
    said = [(str(one), one.count) for one in caught.value.mistakes]
    wanted = [
        ("n.csv (row 4, column id): the id is missing", 1),
        ("n.csv (row 2, column id): the id 1 stands in the table twice", 1),
        ("n.csv (row 4, column t): the time is missing", 1),
        ("n.csv (row 1, column t): '31.12.2020' is not a date or time", 1),
        ("n.csv (row 3, column x): 'big' is not a number", 1),
        ("n.csv (row 4, column z): 'huge' is not a number", 1),
        ("n.csv (row 1, column x): the cell is empty", 1),
        ("n.csv (row 2, column x): inf is not a finite number", 1),
        ("e.csv (row 1, column w): 'much' is not a number", 1),
        ("e.csv (row 2, column src): unknown node id 8: it is not in n.csv", 1),
        ("e.csv (row 1, column dst): unknown node id 9: it is not in n.csv; on_unknown_id: drop leaves", 2),
        ("e.csv (row 2, column w): 1e+300 does not fit float32", 1),
    ]
    assert len(said) == len(wanted), said
    for (message, count), (text, times) in zip(said, wanted, strict=True):
        assert message.startswith(text), message
        assert count == times


def test_a_million_mistakes_are_a_few_lines(ingest: Ingest, folder: Path) -> None:
    """One line a cause and column; beyond the first twenty a number."""
    count = 200_000
    pq.write_table(pa.table({"src": np.arange(count) + 100, "dst": np.arange(count) % 10}), "e.parquet")
    names = [f"f{i}" for i in range(30)]
    pq.write_table(pa.table({**NODES, **{name: [1.0] * 9 + [None] for name in names}}), "n.parquet")
    nodes = {"files": "n.parquet", "label": "y", "features": names}
    with pytest.raises(TableError) as caught:
        ingest(**section(nodes=nodes))
    assert len(caught.value.mistakes) == MAX_LISTED
    assert caught.value.num_others == 10 + count
    assert "and 200,010 more of other kinds or columns" in str(caught.value)


@pytest.mark.parametrize("kind", ["csv", "parquet", "headless"])
def test_rows_are_counted_over_batches_and_within_files(ingest: Ingest, folder: Path, kind: str) -> None:
    """The second of two files, several batches long, is wrong in its last rows."""
    rows = 180_000
    pad = ["x" * 60] * rows  # a CSV's batch is 8 MB
    ids = np.arange(rows)
    for number in range(2):
        columns = {"src": ids, "dst": ids, "w": np.ones(rows), "pad": pad}
        if number:
            columns = {**columns, "src": np.append(ids[:-1], rows + 5), "w": np.append(np.ones(rows - 2), [np.inf, 1])}
        table = pa.table(columns)
        if kind == "parquet":
            pq.write_table(table, f"e{number}.parquet")
        else:
            pc.write_csv(table, f"e{number}.csv", pc.WriteOptions(include_header=kind == "csv"))
    pq.write_table(pa.table({"id": ids, "y": np.arange(rows) % 2}), "n.parquet")
    names = {"source": "0", "target": "1", "weight": "2", "header": False} if kind == "headless" else {"weight": "w"}
    ending = "parquet" if kind == "parquet" else "csv"
    said = refused(ingest, **section(edges={"files": f"e*.{ending}", **names}))
    source, weight = names.get("source", "src"), names["weight"]
    assert f"e1.{ending} (row {rows - 1}, column {source}): node id {rows + 5} is not in 0..{rows - 1}" in said
    assert f"e1.{ending} (row {rows - 2}, column {weight}): inf is not a finite number" in said


def test_rows_behind_those_that_a_policy_left_out(ingest: Ingest, folder: Path) -> None:
    Path("n.csv").write_text("id,x,y\n1,0,0\n1,x,1\n2,0,1\n1,0,1\n3,0,7\n4,inf,1\n")
    Path("e.csv").write_text("src,dst,w\n9,1,1\n1,2,1\n8,8,inf\n1,2,inf\n")
    nodes = {"files": "n.csv", "features": "x", "label": "y", "on_duplicate_id": "first"}
    edges = {"files": "e.csv", "weight": "w", "on_unknown_id": "drop"}
    said = refused(ingest, **section(nodes=nodes, edges=edges, task_type="binary"))
    assert "n.csv (row 4, column y): label 7 is not 0 or 1" in said
    assert "n.csv (row 5, column x): inf is not a finite number" in said
    assert "e.csv (row 3, column w): inf is not a finite number" in said
    assert "(row 2, column w)" not in said


@pytest.mark.parametrize("header", [True, False])
def test_words_among_numbers_far_into_a_file(ingest: Ingest, folder: Path, header: bool) -> None:
    rows = 180_000
    lines = [f"{i},{i % 7}.5,{'x' * 60}" for i in range(rows)]
    lines[170_000] = "170000,NA,x"
    Path("n.csv").write_text("\n".join(["id,f,pad"] * header + lines) + "\n")
    Path("e.csv").write_text("src,dst\n0,1\n")
    Path("l.csv").write_text("id,label\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(10)))
    names = {} if header else {"header": False, "id": "0"}
    nodes = {"files": "n.csv", "features": "f" if header else "1", **names}
    others: dict[str, Any] = {"edges": {"files": "e.csv"}, "labels": {"files": "l.csv"}}
    said = refused(ingest, **section(nodes=nodes, **others))
    assert said.startswith(f"n.csv (row 170000, column {'f' if header else '1'}): 'NA' is not a number; if it stands")
    store = ingest(**section(nodes={**nodes, "missing_values": ["", "NA"], "missing": "zero"}, **others))
    values = store.column("nodes/node", "f" if header else "1")
    assert values[[169_999, 170_000, 170_001]].tolist() == [4.5, 0, 6.5]


def test_a_text_among_ids_far_into_a_file(ingest: Ingest, folder: Path) -> None:
    lines = [f"{i},{'ab'[i % 2]},{'x' * 60}" for i in range(180_000)]
    lines[170_000] = "x7,a,x"
    Path("n.csv").write_text("\n".join(["id,y,pad", *lines]) + "\n")
    Path("e.csv").write_text("src,dst\n0,1\n")
    options = section(nodes={"files": "n.csv", "label": "y"}, edges={"files": "e.csv"})
    said = refused(ingest, **options)
    assert said.startswith("n.csv (row 170000, column ")
    assert "'x7' is not an integer; the cells before are of another kind: if these are ids, dataset.text_ids=" in said
    assert ingest(**options, text_ids=True).manifest.num_nodes == 180_000


IDS: list[tuple[str, str, dict[str, Any], str]] = [
    ("3.0 in a CSV", "src,dst\n1,3\n3,5.0\n", {}, "e.csv (column dst): holds decimal numbers; ids are whole numbers"),
    ("a plus sign", "src,dst\n1,3\n3,+5\n", {}, "e.csv (column dst): holds decimal numbers; ids are whole numbers"),
    ("a fraction", "src,dst\n1,3\n3.5,5\n", {}, r"e.csv (row 1, column src): the id 3.5 is a decimal number"),
    ("too long", "src,dst\n1,3\n3,99999999999999999999\n", {}, "e.csv (row 1, column dst): the id 1000000000000000"),
    ("a date", "src,dst\n2020-01-01,3\n", {}, "e.csv (column src): holds date32[day]; ids are"),
    ("a word", "src,dst\n1,3\n3,x7\n", {}, "e.csv (row 1, column dst): the id 'x7' is a text, those in n.csv are"),
    ("bool", "", {"src": [True, False], "dst": [1, 3]}, "e.parquet (column src): holds true and false"),
    ("float", "", {"src": [1, 3], "dst": [3.0, 5.0]}, "e.parquet (column dst): holds decimal numbers; ids are"),
    ("texts", "", {"src": ["1", "007"], "dst": [3, 5]}, "e.parquet (row 1, column src): the id '007' is a text"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "columns", "message"), [x[1:] for x in IDS], ids=[x[0] for x in IDS])
def test_ids_of_another_kind(ingest: Ingest, folder: Path, text: str, columns: dict[str, Any], message: str) -> None:
    Path("n.csv").write_text("id,y\n" + "".join(f"{2 * i + 1},{'ab'[i % 2]}\n" for i in range(10)))
    if text:
        Path("e.csv").write_text(text)
    else:
        pq.write_table(pa.table(columns), "e.parquet")
    edges = {"files": "e.csv" if text else "e.parquet"}
    said = refused(ingest, **section(nodes={"files": "n.csv", "label": "y"}, edges=edges))
    assert said.startswith(message)
    assert "\n" not in said


def test_text_ids_join_numbers_of_parquet_and_texts_of_csv(ingest: Ingest, folder: Path) -> None:
    write()
    Path("e.csv").write_text("src,dst\n7,8\n1,2\n")
    store = ingest(**section(edges={"files": "e.csv"}, text_ids=True))
    assert store.read("edges/node__to__node").to_pydict() == {"src": [7, 1], "dst": [8, 2]}


def test_ids_of_messages_are_the_users(ingest: Ingest, folder: Path) -> None:
    """Not the dense ones that they become."""
    Path("n.csv").write_text("id,y\n" + "".join(f"acc-{i},{'ab'[i % 2] if i < 8 else ''}\n" for i in range(10)))
    Path("e.csv").write_text("src,dst\nacc-1,acc-2\n")
    for name, ids in (("train", "12345"), ("valid", "69"), ("test", "78")):
        Path(f"{name}.csv").write_text("".join(f"acc-{i}\n" for i in ids))
    files = {name: f"{name}.csv" for name in ("train", "valid", "test")}
    split = {"by": "files", "files": files}
    options = section(nodes={"files": "n.csv", "label": "y"}, edges={"files": "e.csv"}, split=split)
    assert "1 of 2 nodes of the valid split have no label, such as node 'acc-9'" in refused(ingest, **options)
    Path("test.csv").write_text("acc-7\nacc-3\nacc-7\nacc-x\n")
    said = refused(ingest, **options)
    assert "test.csv (row 1, column 0): node 'acc-3' is in the train split too; splits overlap (2 such rows)" in said
    assert "test.csv (row 3, column 0): unknown node id 'acc-x': it is not in n.csv" in said


@pytest.mark.parametrize("policy", ["error", "add", "drop"])
def test_nodes_without_any_id_hide_no_mistake_in_edges(ingest: Ingest, folder: Path, policy: str) -> None:
    """Whatever kind of ids the edges have: the check goes on, and says nothing that follows from the nodes."""
    write(nodes={"id": [True] * 10}, edges={"src": ["a", "b", "c"], "f": [1.0, 2.0, np.inf]})
    edges = {"files": "e.parquet", "features": "f", "missing": "zero", "on_unknown_id": policy}
    said = refused(ingest, **section(edges=edges))
    assert "n.parquet (column id): holds true and false" in said
    assert "e.parquet (row 2, column f): inf is not a finite number" in said
    assert "unknown" not in said


def test_a_table_that_cannot_be_read_hides_no_other(ingest: Ingest, folder: Path) -> None:
    """And nothing is said that follows from it: no id is unknown where the ids are."""
    Path("n.csv").write_text("id,y\n1,a\n2,b,c\n")
    Path("e.csv").write_text("src,dst,w\n1,2,x\n1,2,1\n")
    said = refused(ingest, **section(nodes={"files": "n.csv", "label": "y"}, edges={"files": "e.csv", "weight": "w"}))
    assert "n.csv (row 1)" in said
    assert "e.csv (row 0, column w): 'x' is not a number" in said
    assert "unknown" not in said
