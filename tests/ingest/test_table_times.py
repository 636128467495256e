"""Times of nodes and edges: forms that are read, and cells that hold none."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from configs.errors import DataError
from tests.ingest.conftest import Ingest
from tests.ingest.small_tables import SPLIT, save, section

FORMS = [
    ("2023-12-31", None, 1_703_980_800),
    ("2023-12-31 23:59:59", None, 1_704_067_199),
    ("2023-12-31T23:59:59Z", None, 1_704_067_199),
    ("2023-12-31T23:59:59+01:00", None, 1_704_063_599),
    ("2023-12-31T23:59:59.75-0230", None, 1_704_076_199),
    ("1969-12-31T23:59:59.5Z", None, -1),
    ("31.12.2023", "%d.%m.%Y", 1_703_980_800),
    ("12/31/23 11:59 PM", "%m/%d/%y %I:%M %p", 1_704_067_140),
    ("20231231", "%Y%m%d", 1_703_980_800),
    ("20231231T235959+01:00", "%Y%m%dT%H%M%S%z", 1_704_063_599),
    ("31Dec2023 9:05", "%d%b%Y %H:%M", 1_704_013_500),
    ("2023 52 0", "%Y %W %w", 1_703_980_800),
    ("31 Dec 2023 +0100", "%d %b %Y %z", 1_703_977_200),
]


@pytest.mark.parametrize(("text", "form", "seconds"), FORMS)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_forms_of_times(ingest: Ingest, folder: Path, text: str, form: str | None, seconds: int, ending: str) -> None:
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save(f"e.{ending}", pa.table({"src": [0, 1, 2], "dst": [1, 2, 3], "t": [text] * 3}))
    store = ingest(**section(edges={"files": f"e.{ending}", "time": "t", "time_format": form}))
    assert store.column("edges/node__to__node", "time").tolist() == [seconds] * 3


NO_TIMES = [
    (["2023-12-31", "31.12.2023"], None, r"row 1, column t\): '31\.12\.2023' is not a date or time in a form"),
    (["31.12.2023", "31.02.2023"], "%d.%m.%Y", r"'31\.02\.2023' is not a date or time; there is no such day"),
    (["31.12.2023", "31.12.2023x"], "%d.%m.%Y", r"row 1, column t\): '31\.12\.2023x' is not a date"),
    (["31122023", "1022023"], "%d%m%Y", r"row 1, column t\): '1022023' is not a date or time as time_format '%d%m%Y'"),
    (["501020", "50102"], "%y%m%d", r"row 1, column t\): '50102' is not a date"),
    (["20231231T235959Z", "20231231T23599Z"], "%Y%m%dT%H%M%S%z", r"row 1, column t\): '20231231T23599Z' is not"),
    (["2023-12-31", "2023-12-31" + " " * 300 + "x"], "%Y-%m-%d", r"row 1, column t\): '2023-12-31 "),
    (["2023-12-31", "2023-13-01"], None, r"row 1, column t\): '2023-13-01' is not a date"),
    (["2023-12-31", "2022-02-30"], None, r"row 1, column t\): '2022-02-30' is not .*; there is no such day"),
]


@pytest.mark.parametrize(("texts", "form", "message"), NO_TIMES)
def test_what_is_no_time(ingest: Ingest, folder: Path, texts: list[str], form: str | None, message: str) -> None:
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save("e.csv", pa.table({"src": [0, 1], "dst": [1, 2], "t": texts}))
    with pytest.raises(DataError, match=message):
        ingest(**section(edges={"files": "e.csv", "time": "t", "time_format": form}))


NO_TIME_CELLS = [
    (["nan", "5", "7"], r"row 0, column t\): the time is missing; every row needs one"),
    (["1.0", "5", "NaN"], r"row 2, column t\): the time is missing; every row needs one"),
    (["true", "false", "true"], r"column t\): holds true and false; a time is a whole number"),
    (["2023-12-31", "31.12.2023", "2023-12-30"], r'say which: time_format: "%d\.%m\.%Y"'),
]


@pytest.mark.parametrize(("cells", "message"), NO_TIME_CELLS)
def test_cells_that_hold_no_time(ingest: Ingest, folder: Path, cells: list[str], message: str) -> None:
    """NaN is a missing time, not 1970; true is not one second after it."""
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    Path("e.csv").write_text("src,dst,t\n" + "".join(f"{i},{i + 1},{cell}\n" for i, cell in enumerate(cells)))
    with pytest.raises(DataError, match=message):
        ingest(**section(edges={"files": "e.csv", "time": "t"}))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_nan_among_times_of_nodes(ingest: Ingest, folder: Path, kind: pa.DataType) -> None:
    times = pa.array([float("nan"), *range(8), None], kind)
    save("n.parquet", pa.table({"id": list(range(10)), "y": list("ab" * 5), "t": times}))
    save("e.csv", pa.table({"src": [0, 1], "dst": [1, 2]}))
    nodes = {"files": "n.parquet", "label": "y", "time": "t"}
    with pytest.raises(DataError, match=r"row 0, column t\): the time is missing.* \(2 such rows\)"):
        ingest(**section(nodes=nodes, split={**SPLIT, "by": "time"}))


def test_dates_and_numbers_in_one_column(ingest: Ingest, folder: Path) -> None:
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    Path("e1.csv").write_text("src,dst,t\n0,1,2020-01-01\n")
    Path("e2.csv").write_text("src,dst,t\n0,1,20200101\n")
    with pytest.raises(DataError, match=r"e2\.csv \(column t\): holds whole numbers here and dates .* do not compare"):
        ingest(**section(edges={"files": ["e1.csv", "e2.csv"], "time": "t"}))


def test_whole_numbers_without_a_separator(ingest: Ingest, folder: Path) -> None:
    """A column of numbers loses the 0 in front, and the 1st of February looks like the 10th."""
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save("e.parquet", pa.table({"src": [0, 1], "dst": [1, 2], "t": [10022023, 1022023]}))
    with pytest.raises(DataError, match=r"row 1, column t\): '1022023' is not a date"):
        ingest(**section(edges={"files": "e.parquet", "time": "t", "time_format": "%d%m%Y"}))


@pytest.mark.parametrize("kind", ["csv", "txt"])
def test_days_and_then_time_stamps(ingest: Ingest, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of the first block's cells does not bind those of later ones."""
    monkeypatch.setattr("tasks.readers.csv_tables.BLOCK_BYTES", 4096)
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    sep = "," if kind == "csv" else "\t"
    rows = [f"{i % 10}{sep}{(i + 1) % 10}{sep}2023-01-01\n" for i in range(2000)]
    rows.append(sep.join(["1", "2", "2023-01-02 10:00:00\n"]))
    Path(f"e.{kind}").write_text(("0,1,2\n" if kind == "csv" else "") + "".join(rows))
    edges = {"files": f"e.{kind}", "source": "0", "target": "1", "time": "2", "delimiter": sep}
    times = ingest(**section(edges=edges)).column("edges/node__to__node", "time")
    assert times.tolist() == [1_672_531_200] * 2000 + [1_672_653_600]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_year_that_is_a_category_too(ingest: Ingest, folder: Path, ending: str) -> None:
    save("n.csv", pa.table({"id": list(range(10)), "y": list("ab" * 5)}))
    save(f"e.{ending}", pa.table({"src": [0, 1], "dst": [1, 2], "year": [1999, 2000]}))
    store = ingest(**section(edges={"files": f"e.{ending}", "time": "year", "categorical": "year"}))
    assert store.column("edges/node__to__node", "time").tolist() == [1999, 2000]
