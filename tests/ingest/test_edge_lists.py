"""Edge lists of numbers, texts and both: no column depends on which others are read with it; weights that are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from tasks.ingest.edges import WeightCheck
from tasks.storage.snapshots import time_unit
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import SPLIT, save, section

NUM = 10
BARE = {"name": "tables", "labels": {"files": "l.csv", "label": "y"}, "split": SPLIT}


def write_lines(name: str, line: str, *before: str) -> None:
    """A cycle over the nodes: `line` with `a`, `b` (ends) and `i`."""
    lines = [*before, *(line.format(i=i, a=i, b=(i + 1) % NUM) for i in range(NUM))]
    Path(name).write_text("".join(f"{one}\n" for one in lines))


def write_labels(id_form: str) -> None:
    save("l.csv", pa.table({"id": [id_form.format(i) for i in range(NUM)], "y": list("ab" * 5)}))


@pytest.mark.parametrize("line", ["{a} {b} 0.5", "{a}\t{b}\tfriend", "{a} {b} 2023-01-01"])
def test_a_column_that_nobody_asked_for(ingest: Ingest, folder: Path, line: str) -> None:
    """Also where the ids are looked up first, and where it begins to be no number behind many rows."""
    write_labels("{}")
    Path("e.txt").write_text("".join(f"{i % NUM} {(i + 1) % NUM} 7\n" for i in range(300_000)))
    with Path("e.txt").open("a") as file:
        file.write(line.format(a=3, b=5) + "\n")
    store = ingest(**BARE, edges={"files": "e.txt", "source": "0", "target": "1"})
    edges = store.read("edges/node__to__node").to_pydict()
    assert len(edges["src"]) == 300_001
    assert (edges["src"][-1], edges["dst"][-1]) == (3, 5)


@pytest.mark.parametrize("form", ["{}", "a{}"])
@pytest.mark.parametrize("delimiter", [None, ",", "\t"])
def test_weights_and_times_beside_ids_of_any_kind(
    ingest: Ingest, folder: Path, form: str, delimiter: str | None
) -> None:
    write_labels(form)
    ends = (delimiter or " ").join([form.replace("{}", "{a}"), form.replace("{}", "{b}"), "0.{i}", "2023-01-0{i}"])
    write_lines("e.txt", ends.replace("2023-01-00", "2023-01-10"), "# source, target, weight, day")
    text = Path("e.txt").read_text().replace("2023-01-00", "2023-01-10")
    Path("e.txt").write_text(text)
    edges = {"files": "e.txt", "source": "0", "target": "1", "weight": "2", "time": "3", "delimiter": delimiter}
    dataset = {**BARE, "edges": edges, "text_ids": form == "a{}"}
    store = ingest(**dataset)
    np.testing.assert_allclose(store.column("edges/node__to__node", "weight"), np.arange(NUM) / 10)
    assert store.column("edges/node__to__node", "time").min() == 1_672_531_200
    recipe = build_recipe({"name": "x", "dataset": dataset, "model": {"name": "graphsage"}})
    assert time_unit(recipe) == "seconds"


@pytest.mark.parametrize(("delimiter", "comment"), [(None, "# from to"), (",", "# from,to"), ("\t", "%from\tto")])
def test_comments_are_no_edges(ingest: Ingest, folder: Path, delimiter: str | None, comment: str) -> None:
    write_labels("{}")
    sep = delimiter or " "
    write_lines("e.txt", f"{{a}}{sep}{{b}}", comment, "")
    for text_ids in (False, True):
        edges = {"files": "e.txt", "source": "0", "target": "1", "delimiter": delimiter}
        store = ingest(**BARE, text_ids=text_ids, edges=edges)
        assert store.manifest.num_nodes == NUM
        assert store.manifest.num_edges == NUM


def test_a_single_column_is_a_cell_not_the_line(ingest: Ingest, folder: Path) -> None:
    """Categories are read by themselves once; whole lines would hold the label."""
    write_lines("n.txt", "c{i} v{i} k")
    lines = [line.replace("k", str(i % 2)) for i, line in enumerate(Path("n.txt").read_text().splitlines())]
    Path("n.txt").write_text("\n".join(lines))
    write_lines("e.csv", "v{a},v{b}", "src,dst")
    nodes = {"files": "n.txt", "id": "1", "categorical": ["0"], "label": "2"}
    store = ingest(**section(nodes=nodes, edges={"files": "e.csv"}, text_ids=True))
    assert store.read("categories/node/0").column("name").to_pylist() == [f"c{i}" for i in range(NUM)]


def test_types_that_one_column_of_an_edge_list_names(ingest: Ingest, folder: Path) -> None:
    save("n.csv", pa.table({"id": [f"a{i}" for i in range(NUM)], "y": list("ab" * 5)}))
    write_lines("e.txt", "b{a} a{b}")
    ends = {"source": "0", "target": "1", "source_type": "b", "target_type": "a", "relation": "r"}
    nodes = {"files": "n.csv", "label": "y", "type": "a"}
    store = ingest(**section(nodes=nodes, edges={"files": "e.txt", **ends}, target_type="a", text_ids=True))
    assert store.read("ids/b").column("original_id").to_pylist() == [f"b{i}" for i in range(NUM)]


@pytest.mark.parametrize(("cell", "delimiter", "words"), [("", ",", [""]), ("NA", None, ["", "NA"]), ("", "\t", [""])])
def test_empty_numbers_are_a_matter_of_policies(
    ingest: Ingest, folder: Path, cell: str, delimiter: str | None, words: list[str]
) -> None:
    sep = delimiter or " "
    Path("n.txt").write_text("".join(f"{i}{sep}{i % 2}{sep}{cell if i == 3 else i}\n" for i in range(NUM)))
    save("e.csv", pa.table({"src": [0, 1], "dst": [1, 2]}))
    nodes = {"files": "n.txt", "id": "0", "label": "1", "features": "2", "delimiter": delimiter}
    store = ingest(**section(nodes={**nodes, "missing": "zero", "missing_values": words}))
    assert store.column("nodes/node", "2").tolist() == [0, 1, 2, 0, 4, 5, 6, 7, 8, 9]
    assert store.column("nodes/node", "2_missing").sum() == 1
    with pytest.raises(DataError, match=r"n\.txt \(row 3, column 2\): the cell is empty"):
        ingest(**section(nodes={**nodes, "missing_values": words}))


MISTAKES: list[tuple[str, dict[str, Any], str]] = [
    ("0 1 2\n1 x 2\n", {}, r"row 1, column 1\): the id 'x' is a text, .* whole numbers"),
    ("0 1 x\n1 2\n", {}, r"row 1\): the row has 2 columns, the others have 3"),
    ("0,1\n1,\n", {"delimiter": ","}, r"row 1, column 1\): the id is missing"),
    ("0,1\n1,2,3\n", {"delimiter": ","}, r"row 1\): the row has 3 columns, the others have 2"),
    ("src dst w\n0 1 2\n1 2 3\n", {}, r"row 0, column 0\): 'src' is above numbers"),
    ("0 1 2 t\n1 2 x t\n", {"weight": "2"}, r"row 1, column 2\): 'x' is not a number"),
    ("0 1\n1 0x2\n", {}, r"row 1, column 1\): '0x2' is hexadecimal"),
    ("0 1\n1 2.5\n", {}, r"row 1, column 1\): the id 2\.5 is a decimal number"),
    ("0 1\n1 9223372036854775808\n", {}, r"row 1, column 1\): the id 9223372036854775808 does not fit int64"),
]


@pytest.mark.parametrize(("text", "options", "message"), MISTAKES)
def test_mistakes_name_row_and_column(
    ingest: Ingest, folder: Path, text: str, options: dict[str, Any], message: str
) -> None:
    write_labels("{}")
    Path("e.txt").write_text(text)
    with pytest.raises(DataError, match=r"e\.txt \(" + message):
        ingest(**BARE, nodes={"count": NUM}, edges={"files": "e.txt", "source": "0", "target": "1", **options})


def test_cells_between_quotes(ingest: Ingest, folder: Path) -> None:
    """As in a CSV, where a delimiter separates cells."""
    write_labels("a {}")
    write_lines("e.txt", '"a {a}","a {b}"')
    store = ingest(**BARE, edges={"files": "e.txt", "source": "0", "target": "1", "delimiter": ","})
    assert store.read("ids/node").column("original_id").to_pylist() == [f"a {i}" for i in range(NUM)]


@pytest.mark.parametrize(
    ("name", "head", "sep"),
    [("e.csv", "from,to", ","), ("e.tsv", "1\t0", "\t"), ("e.txt", None, " "), ("e.parquet", "from,to", "")],
)
def test_ends_by_their_places(ingest: Ingest, folder: Path, name: str, head: str | None, sep: str) -> None:
    """A header whose names are numbers is believed before places are."""
    if name.endswith("parquet"):
        save(name, pa.table({"from": list(range(NUM)), "to": [(i + 1) % NUM for i in range(NUM)]}))
    else:
        write_lines(name, f"{{a}}{sep}{{b}}", *([head] if head else []))
    edges = {"files": name, "source": "0", "target": "1"}
    store = ingest(name="tables", task="link", edges=edges, split={"train": 0.4, "valid": 0.3, "test": 0.3})
    assert store.manifest.num_nodes == NUM
    pairs = store.read("edges/node__to__node").to_pydict()
    forward = [(b - a) % NUM for a, b in zip(pairs["src"], pairs["dst"], strict=True)]
    assert set(forward) == {NUM - 1 if name == "e.tsv" else 1}


# The weight of the third row, what is said.
WRONG = [
    ("-1", r"e\.csv \(row 2, column w\): the weight -1 is below 0: weights are 0 or more; .*feature.* \(2 such rows\)"),
    ("1e-60", r"e\.csv \(row 2, column w\): the weight 1e-60 is not 0, and is in float32.*scale.* \(2 such rows\)"),
]


@pytest.mark.parametrize(("weight", "message"), WRONG)
def test_wrong_weights_of_tables(ingest: Ingest, folder: Path, weight: str, message: str) -> None:
    rows = [f"{i},{i + 1},{weight if i in (2, 5) else 1}" for i in range(20)]
    Path("e.csv").write_text("src,dst,w\n" + "\n".join(rows) + "\n")
    with pytest.raises(DataError, match=message):
        ingest(name="tables", task="link", edges={"files": "e.csv", "weight": "w"}, split=SPLIT)
    store = ingest(name="tables", task="link", edges={"files": "e.csv", "features": "w"}, split=SPLIT)
    assert len(store.column("edges/node__to__node", "w"))


def test_weights_that_are_all_zero(ingest: Ingest, folder: Path) -> None:
    Path("e.csv").write_text("src,dst,w\n" + "".join(f"{i},{i + 1},0\n" for i in range(20)))
    with pytest.raises(DataError, match=r"e\.csv \(column w\): all weights are 0.*leave the weights out"):
        ingest(name="tables", task="link", edges={"files": "e.csv", "weight": "w"}, split=SPLIT)


def test_weights_in_chunks() -> None:
    check = WeightCheck("w.csv.gz")
    assert check.add(np.array([0.0, 0.0])).dtype == np.float32
    with pytest.raises(DataError, match=r"w\.csv\.gz \(row 3, column 0\): the weight -2 is below 0.*\(2 such"):
        check.add(np.array([1.0, -2.0, -3.0]))
    with pytest.raises(DataError, match="all weights are 0"):
        check.finish()
    with pytest.raises(DataError, match=r"\(row 2, column 0\): the weight 1e\+39 is more than float32 can hold"):
        check.add(np.array([1e39]))
    check.add(np.array([1e-30]))
    check.finish()
