"""Users' Parquet files: names, types and sizes that are not what later code expects."""

# ruff: noqa: E501 -- one line a mistake reads as a table

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import DataError
from tasks.apply.vector_files.neighbors import nearest
from tasks.ingest.tables.files import TableFiles
from tasks.readers import parquet
from tasks.readers.limits import MAX_CELL_BYTES
from tests.ingest.conftest import Ingest


def broken_text(*values: bytes) -> pa.Array:
    """Texts that Parquet stores as they are: nothing in it looks whether they are UTF-8."""
    return pa.Array.from_buffers(pa.string(), len(values), pa.array(values).buffers())


def read(path: Path, *columns: str) -> pa.Table:
    return pa.Table.from_batches([batch.data for batch in TableFiles((str(path),)).batches(columns)])


TEXTS = ["b", "a", "b", None]


@pytest.mark.parametrize(
    ("values", "plain"),
    [
        (pa.array(TEXTS, pa.string_view()), pa.string()),
        (pa.array(TEXTS, pa.large_string()), pa.string()),
        (pa.array(TEXTS).dictionary_encode(), pa.string()),
        (pa.array(TEXTS, pa.large_string()).dictionary_encode(), pa.string()),
        (pa.array([7, 5, 7, None], pa.int32()).dictionary_encode(), pa.int32()),
        (pa.array(TEXTS, pa.binary()), pa.binary()),
        (pa.array([[1, 2], [3, 4], None, [5, 6]], pa.list_view(pa.int16())), pa.large_list(pa.int16())),
    ],
    ids=str,
)
def test_types_become_the_plain_ones(tmp_path: Path, values: Any, plain: pa.DataType) -> None:
    pq.write_table(pa.table({"a": values}), tmp_path / "x.parquet")
    column = read(tmp_path / "x.parquet", "a").column(0)
    assert column.type == plain
    assert column.to_pylist() == values.to_pylist()


REFUSED: list[tuple[str, Any, str]] = [
    ("duplicate", pa.table([[0, 1], [1, 0], [0, 1]], ["src", "dst", "dst"]), "names the column 'dst' twice"),
    ("not UTF-8", pa.table({"src": broken_text(b"a", b"Jos\xe9"), "dst": [1, 2]}), r"\(row 1, column src\): byte 0xE9"),
    (
        "not UTF-8 in a dictionary",
        pa.table({"src": pa.DictionaryArray.from_arrays(pa.array([0, 0, 1]), broken_text(b"a", b"\xe9")), "dst": [1] * 3}),
        "holds a text that is not UTF-8",
    ),
    ("long text", pa.table({"src": ["a", "b" * (MAX_CELL_BYTES + 1)], "dst": [1, 2]}), "the text has 65,537 bytes"),
    ("no such column", pa.table({"src": [1], "dts": [2]}), r"has no column 'dst' \(did you mean 'dts'\?\); it has src, dts"),
    ("empty", b"", "is not a whole Parquet file"),
    ("text", b"src,dst\n1,2\n", "is not a whole Parquet file"),
    ("encrypted", b"PARE" + b"\0" * 60 + b"PARE", "is encrypted"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), [x[1:] for x in REFUSED], ids=[x[0] for x in REFUSED])
def test_refused(tmp_path: Path, content: Any, words: str) -> None:
    path = tmp_path / "x.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        pq.write_table(content, path)
    with pytest.raises(DataError, match=rf"x\.parquet.*{words}"):
        read(path, "src", "dst")


def test_a_row_longer_than_a_row_can_be(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    long = pa.array([np.zeros(9 << 20, np.int8)] * 2, pa.list_(pa.int8()))
    pq.write_table(pa.table({"a": [1, 2], "v": long, "v.w": long}), path)
    assert read(path, "a").num_rows == 2
    for name in ("v", "v.w"):
        with pytest.raises(DataError, match=r"has rows of 37,748,736 bytes; a row may have 4,194,304"):
            read(path, name)


def test_wide_rows_come_in_small_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "BATCH_BYTES", 1 << 16)
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"v": pa.array(np.arange(500 * 100.0).reshape(500, 100).tolist())}), path)
    batches = list(TableFiles((str(path),)).batches(["v"]))
    assert max(batch.data.nbytes for batch in batches) <= 1 << 17
    assert sum(batch.data.num_rows for batch in batches) == 500


def test_a_broken_entry_of_a_column(tmp_path: Path) -> None:
    """Its statistics are those of a column that may have nulls, and it may have none: Arrow's `column` would abort."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1, 2, 3], "b": [4, 5, 6]}), path, row_group_size=2)
    content = path.read_bytes()
    optional, required = (b"\x25" + number + b"\x18\x01b" for number in (b"\x02", b"\x00"))
    assert content.count(optional) == 1
    path.write_bytes(content.replace(optional, required))
    with pytest.raises(DataError, match=r"x\.parquet: is damaged or not Parquet \(Definition level histogram"):
        read(path, "a", "b")


def test_zero_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": pa.array([], pa.string())}), path)
    assert list(TableFiles((str(path),)).batches(["a"])) == []


@pytest.mark.parametrize("kind", ["string_view", "large_string", "dictionary"])
def test_ids_of_any_kind_of_text(ingest: Ingest, folder: Path, kind: str) -> None:
    names = [f"n{i}" for i in range(20)]

    def made(texts: list[str]) -> pa.Array:
        return pa.array(texts).dictionary_encode() if kind == "dictionary" else pa.array(texts).cast(kind)

    pq.write_table(pa.table({"id": made(names), "c": made(names), "y": made(["p", "q"] * 10)}), folder / "n.parquet")
    pq.write_table(pa.table({"src": made(names), "dst": made(names[1:] + names[:1])}), folder / "e.parquet")
    store = ingest(
        name="tables", nodes={"files": "n.parquet", "label": "y", "categorical": "c"}, edges={"files": "e.parquet"}
    )
    assert store.read("ids/node").column("original_id").to_pylist() == names


def test_vectors_of_other_programs(tmp_path: Path) -> None:
    """Columns in another order, ids as views; and what is none."""
    vectors = pa.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]], pa.list_(pa.float64(), 2))
    path = tmp_path / "v.parquet"
    pq.write_table(pa.table({"v": vectors, "id": pa.array(["a", "b", "c"], pa.string_view())}), path)
    (found,) = nearest(path, ["a"], 1)
    assert found.ids == ["b"]
    holes = pa.array([[1.0, 0.0], None, [0.0, 1.0]], pa.list_(pa.float64(), 2))
    texts = pa.array([["x", "y"]] * 3, pa.list_(pa.string(), 2))
    for table, words in (
        (pa.table([["a", "b", "c"], ["a", "b", "c"], vectors], ["id", "id", "v"]), "names the column 'id' twice"),
        (pa.table({"id": ["a", "b", "c"], "v": holes}), "a list is missing"),
        (pa.table({"id": ["a", "b", "c"], "v": texts}), "vectors of numbers are needed"),
        (pa.table({"id": [0.5, 1.5, 2.5], "v": vectors}), "needs a column of ids"),
    ):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=rf"v\.parquet.*{words}"):
            list(nearest(path, ["a"], 1))
    path.write_bytes(b"PAR1" + b"x" * 30)
    with pytest.raises(DataError, match=r"v\.parquet: is "):
        list(nearest(path, ["a"], 1))
