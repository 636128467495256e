"""CSV, TSV and edge lists: what is no table is called what it is, and messages name the right rows."""

from __future__ import annotations

import ast
import bz2
import gzip
import itertools
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pytest
import zstandard

from configs.errors import DataError, RecipeError
from tasks.apply.given import read_ids
from tasks.ingest.ogb.splits import read_text_table
from tasks.ingest.tables.files import TableFiles
from tasks.readers import csv_tables
from tasks.readers.formulas import guarded, unguarded, unguarded_name
from tasks.readers.limits import MAX_CELL_BYTES, MAX_COLUMNS, MAX_ROW_BYTES
from tasks.readers.streams import read_words
from tasks.storage.ids import as_kind

EDGES = "src,dst\n0,1\n1,2\n2,0\n"


def read(path: Path, columns: list[str] | None = None, texts: list[str] | None = None, **options: Any) -> list[tuple]:
    """Return all rows of a table."""
    files = TableFiles((str(path),), **options)
    rows: list[tuple] = []
    for batch in files.batches(columns or files.column_names(), texts or []):
        assert batch.first_row == len(rows)
        rows += zip(*(column.to_pylist() for column in batch.data.columns), strict=True)
    return rows


OTHERS: list[tuple[str, bytes, str]] = [
    ("x.csv", bz2.compress(EDGES.encode()), "is compressed by bzip2; gzip and Zstandard are read"),
    ("x.csv.gz", bz2.compress(EDGES.encode()), "is compressed by bzip2"),
    ("x.csv", lzma.compress(EDGES.encode()), "is compressed by xz"),
    ("x.txt", b"PK\x03\x04\x14\0" + b"\xff" * 40, "is a zip archive"),
    ("x.csv.gz", gzip.compress(b"PK\x03\x04\x14\0" + b"\xff" * 40), "what is compressed here is a zip archive"),
    ("x.csv", b"PAR1\x15\x04\x15", "is Parquet, not text"),
    ("x.csv", b"\x93NUMPY\x01\0", "is a NumPy array"),
    ("x.csv.gz", gzip.compress(gzip.compress(EDGES.encode())), "is compressed twice"),
    ("x.csv.zst", zstandard.compress(gzip.compress(EDGES.encode())), "is compressed twice"),
    ("x.csv.gz", gzip.compress(b"e.csv" + b"\0" * 252 + b"ustar\x0000" + b"\0" * 300), "is a tar archive"),
    ("x.csv", EDGES.encode("utf-16"), "is UTF-16 text"),
    ("x.txt", "0 1\n".encode("utf-16"), "is UTF-16 text"),
    ("x.csv", EDGES.encode("utf-16-le"), "has NUL bytes in its first line"),
    ("x.csv", EDGES.replace("\n", "\r").encode(), "its lines end in a carriage return alone"),
    ("x.csv", b"src,dst," + b"x" * 200_000 + b"\n0,1,2\n", "has a column name of more than 131,072 characters"),
    ("x.csv", b"x" * (MAX_ROW_BYTES + 9), "has a first line of more than 4,194,304 bytes"),
    ("x.csv", b'src,"dst\n' + b"0,1\n" * 9, "has a quote .* that is never closed"),
    ("x.csv", b"a," * MAX_COLUMNS + b"a\n", "has more than 131,072 columns"),
    ("x.txt", b"1 " * MAX_COLUMNS + b"1\n", "has more than 131,072 columns"),
    ("x.csv", "src,dst,café\n0,1,2\n".encode("latin-1"), r"byte 0xE9 in 'src,dst,café\\n' is not UTF-8; .*iconv"),
    ("x.csv", b"src,dst,src\n0,1,2\n", "names the column 'src' twice; it has src, dst, src"),
    ("x.csv", b"", "is empty"),
    ("x.csv", b"\n\n", "is empty"),
    ("x.csv", b"\n" * 9999, "is empty"),
    ("x.csv", b'src,dst\n0,"' + b"1\n" * (10 << 20), 'has a row of more than 4,194,304 bytes, or a quote'),
    ("x.csv", b"src,dst\n0," + b"x" * MAX_CELL_BYTES + b"x\n", "the text has 65,537 bytes"),
    ("x.txt", b"0 1\n" + b"1" * (13 << 20) + b" 2\n", "has a line of more than 4,194,304 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "words"), OTHERS, ids=[x[2][:40] for x in OTHERS])
def test_what_is_no_table_is_called_what_it_is(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name}.*{words}") as caught:
        read(tmp_path / name, ["src", "dst"] if "csv" in name else ["0", "1"])
    assert len(str(caught.value)) < 2000


FORMS = itertools.product([True, False], ["", "\ufeff"], ["\n", "\r\n"], ["", "\n\n"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("7,8,9", r"row ROW\): the row has 3 columns, the others have 2: '7,8,9'"),
        ("7", r"row ROW\): the row has 1 columns, the others have 2: '7'"),
        ("x,8", r"row ROW, column NAME\): 'x' is not a number"),
    ],
)
def test_rows_of_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: tuple[bool, str, str, str], line: str, words: str
) -> None:
    header, mark, end, before = form
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 256)  # many blocks
    rows = (f"{i},{i}" + ("\n" if i % 7 == 0 else "") for i in range(300))
    lines = [*(["a,b"] if header else []), *rows, line, "1,1"]
    path = tmp_path / "x.csv"
    path.write_bytes((mark + before + end.join(lines) + end).encode())
    name = "a" if header else "0"
    with pytest.raises(DataError, match=words.replace("ROW", "300").replace("NAME", name)):
        list(TableFiles((str(path),), header=header).batches([name], numbers=[name]))


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize(("line", "words"), [("7 8 9", "columns"), ("7", "columns")])
def test_rows_of_edge_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, texts: bool, mark: bytes, line: str, words: str
) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 256)
    path = tmp_path / "x.txt"
    lines = ["# from to", "", *(f"{i}\t {i}" + ("\n\n# here" if i % 7 == 0 else "") for i in range(300)), line, "1 1"]
    path.write_bytes(mark + "\n".join(lines).encode())
    with pytest.raises(DataError, match=rf"x\.txt \(row 300.*{words}"):
        read(path, texts=["0", "1"] if texts else [])


def test_the_byte_that_is_not_utf8_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", 256)
    path = tmp_path / "x.csv"
    rows = [f"n{i},{i}" for i in range(200)]
    for place in (0, 150):
        path.write_bytes("\n".join(["a,b", *rows[:place], "José,1", *rows[place:]]).encode("latin-1"))
        with pytest.raises(DataError, match=rf"row {place}, column a\): byte 0xE9 in 'José' is not UTF-8; .*iconv"):
            read(path)


@pytest.mark.parametrize("block", [32, 1 << 20])
def test_line_ends_and_delimiters_between_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", block)
    path = tmp_path / "x.csv"
    path.write_text('\ufeff"a, x",5" b\n' + '"u,\nv",1\nw,2\n' * 20)
    assert TableFiles((str(path),)).column_names() == ["a, x", '5" b']
    assert read(path) == [("u,\nv", 1), ("w", 2)] * 20


@pytest.mark.parametrize("header", [False, True])
def test_the_first_row_may_hold_line_ends_too(tmp_path: Path, header: bool) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b'\r\n"a\nb ""c""\n",2\n"d,e",3\n')
    first = 'a\nb "c"\n'
    rows = [(first, "2"), ("d,e", "3")]
    names = [first, "2"] if header else ["0", "1"]
    assert TableFiles((str(path),), header=header).column_names() == names
    assert read(path, names, names, header=header) == rows[header:]


def test_columns_of_an_edge_list_are_those_of_its_first_row(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("\ufeff# one\n\n  alice bob 3\ncarol  dave\t4\n# six\n")
    assert TableFiles((str(path),)).column_names() == ["0", "1", "2"]
    assert read(path, ["0", "2"], ["0", "2"]) == [("alice", "3"), ("carol", "4")]


def test_lines_of_an_edge_list_that_are_one_id_each(tmp_path: Path) -> None:
    """Blanks belong to them; a comment has a blank behind its mark, for `#topic` may be an id."""
    path = tmp_path / "x.txt"
    path.write_text("# ids, a line each\none text\n\n a line \n#topic\n  # more\n")
    assert read(path, ["0"], ["0"], whole_lines=True) == [("one text",), (" a line ",), ("#topic",)]
    assert read(path, ["0"], ["0"], delimiter=",")[0] == ("one text",)


@pytest.mark.parametrize("delimiter", ["é", '"', "\n", "\0", "1", "-", "x"])
def test_what_cannot_separate_cells(delimiter: str) -> None:
    with pytest.raises(RecipeError, match="cannot separate cells"):
        TableFiles(("x.csv",), delimiter=delimiter)


def test_a_header_alone_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    for text in ("src,dst", "src,dst\n", "src,dst\r\n\r\n"):
        path.write_text(text)
        assert read(path) == []


def test_words_and_maps_are_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(b"a" * (2 << 20)))
    with pytest.raises(DataError, match="has more than 1,048,576 bytes; a short list of words"):
        read_words(path)
    path.write_bytes(gzip.compress(b'a,"' + b"b" * 200_000))
    with pytest.raises(DataError, match="is no CSV"):
        read_words(path)
    path.write_bytes(gzip.compress(b"index,name\n" + b"1,NA\n" * 10_000_000))
    assert 100 < read_text_table(path, 100).num_rows < 10_000_000
    path.write_bytes(gzip.compress(b"index,name\n1,NA\n"))
    assert read_text_table(path, 100).to_pylist() == [{"index": "1", "name": "NA"}]


def test_numbers_at_the_edges(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("9223372036854775807 1234567890123456789\n-9223372036854775807 0\n")
    assert read(path) == [(2**63 - 1, 1234567890123456789), (1 - 2**63, 0)]
    path.write_text("9007199254740993 0.5\n")
    assert read(path) == [(9007199254740993, 0.5)]


def test_arrow_s_batches_keep_their_types(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\nx,1\n")
    batch = next(TableFiles((str(path),)).batches(["a", "b"]))
    assert batch.data.schema.types == [pa.string(), pa.int64()]


def test_a_first_line_of_ids_that_are_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is refused where it looks like the next line, and told where nobody can know."""
    path = tmp_path / "x.csv"
    path.write_text("C0001\nC0005\n")
    with pytest.raises(DataError, match=r"x\.csv: begins with 'C0001', which looks like ids, .* a first line 'id'"):
        read_ids(path, {"id": True})
    path.write_text("C1,C2\nC3,C4\n")
    with pytest.raises(DataError, match=r"begins with 'C1,C2', .* a first line 'source,target'"):
        read_ids(path, {"source": True, "target": True})
    assert not caplog.messages
    path.write_text("a,b\nc,d\n")
    assert [ids.to_pylist() for ids in read_ids(path, {"source": True, "target": True})] == [["c"], ["d"]]
    assert [text.split(": ", 1)[1] for text in caplog.messages] == [
        "the first line, 'a,b', is taken as the columns' names; if it holds ids, put a line 'source,target' before it"
    ]
    path.write_text("id\nid\n")
    assert read_ids(path, {"id": True})[0].to_pylist() == ["id"]
    assert len(caplog.messages) == 1


def test_ids_that_are_given(tmp_path: Path) -> None:
    """Of the kind that the data has; a first line of ids is no line of names."""
    path = tmp_path / "x.csv"
    path.write_text("id\n5\n9223372036854775807\n")
    assert read_ids(path, {"id": False})[0].to_pylist() == [5, 2**63 - 1]
    assert read_ids(path, {"id": True})[0].to_pylist() == ["5", "9223372036854775807"]
    path.write_text("17\n5\n")
    with pytest.raises(DataError, match=r"x\.csv: begins with ids, .* give it a first line 'id'"):
        read_ids(path, {"id": False})
    for wrong in ("٣x", "1_0", "-"):
        path.write_text(f"id\n1234567890123456789\n{wrong}\n7\n")
        with pytest.raises(DataError, match=rf"row 1, column id\): '{wrong}' is no id here"):
            read_ids(path, {"id": False})
    texts = pa.array(["1234567890123456789", "5", "99999999999999999999", "x"])
    with pytest.raises(DataError, match="'99999999999999999999' is no id here"):
        as_kind(texts, pa.int64())
    (tmp_path / "x.txt").write_text("% pairs\n1 2\n3 4\n")
    pairs = read_ids(tmp_path / "x.txt", {"source": False, "target": False})
    assert [ids.to_pylist() for ids in pairs] == [[1, 3], [2, 4]]
    texts_of = read_ids(tmp_path / "x.txt", {"source": True, "target": True})
    assert [ids.to_pylist() for ids in texts_of] == [["1", "3"], ["2", "4"]]


def test_lists_of_ids(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("# cities\nNew York\nWashington, DC\n")
    assert read_ids(path, {"id": True})[0].to_pylist() == ["New York", "Washington, DC"]
    path.write_text("# pairs\na b\nc\td\n")
    assert [ids.to_pylist() for ids in read_ids(path, {"source": True, "target": True})] == [["a", "c"], ["b", "d"]]
    path.write_text("# numbers\n7\n8\n")
    assert read_ids(path, {"id": False})[0].to_pylist() == [7, 8]
    path.write_text("1 a\n2 b\n")
    assert [ids.to_pylist() for ids in read_ids(path, {"source": False, "target": True})] == [[1, 2], ["a", "b"]]


def hexadecimal_lines(at: int) -> list[str]:
    return [f"{i},{'0x1F' if i == at else i},10x" for i in range(3000)]


@pytest.mark.parametrize("at", [0, 2999])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("block", [61, 4096])
def test_hexadecimal_numbers_are_no_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, header: bool, block: int
) -> None:
    """Arrow takes 0x1F for 31: refused where it did, wherever the file's blocks end; a text stays one."""
    monkeypatch.setattr(csv_tables, "BLOCK_BYTES", block)
    path, name = tmp_path / "x.csv", "b" if header else "1"
    lines = [*(["a,b,c"] if header else []), *hexadecimal_lines(at)]
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"row {at}, column {name}\): '0x1F' is hexadecimal; .*text_ids=true"):
        read(path, header=header)
    assert read(path, [name], [name], header=header)[at] == ("0x1F",)
    path.write_text("\n".join([*lines[:-3000], *hexadecimal_lines(-1)]))
    assert len(read(path, header=header)) == 3000


def test_hexadecimal_ids_are_refused_in_other_formats_too(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("4,3,0.5\n0x1F,5,1\n")
    with pytest.raises(DataError, match=r"row 1, column 0\): '0x1F' is hexadecimal"):
        read(path, delimiter=",")
    with pytest.raises(DataError, match="'0x1F' is no id here"):
        as_kind(pa.array(["7", "0x1F"]), pa.int64())


TEXTS = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\tx", "\rx", "\n=1", "\uff1d1", "'=1", "''@x", "'", "'plain",
    "-", "-5", "+3.5", "-1e-7", ".5", "plain", "a=b", "", "-5 ",
]  # fmt: skip
NUMBERS = {"-5", "+3.5", "-1e-7", ".5"}


def test_texts_and_names_come_back(tmp_path: Path) -> None:
    table = pa.table({"=name": TEXTS, "n": pa.array(range(-5, len(TEXTS) - 5)), "f": [-0.5] * len(TEXTS)})
    safe = guarded(table)
    assert safe.column("n") == table.column("n")
    assert safe.schema.names == ["'=name", "n", "f"]
    written = safe.column(0).to_pylist()
    assert not [text for text in written if text[:1] in "=+-@\t\r\n\uff1d" and text and text not in NUMBERS]
    assert set(written) >= NUMBERS
    assert unguarded(safe.column(0).combine_chunks()).to_pylist() == TEXTS
    assert unguarded_name("'=name") == "=name"
    pc.write_csv(safe, tmp_path / "t.csv")
    files = TableFiles((f"{tmp_path}/t.csv",), missing_values=())
    assert files.column_names() == ["=name", "n", "f"]
    read = pa.Table.from_batches([batch.data for batch in files.batches(["=name", "n", "f"], ["=name"])])
    assert read.to_pydict() == table.to_pydict()


@pytest.mark.parametrize("folder", ["configs", "flows", "models", "tasks"])
def test_whatever_writes_csv_guards_it(folder: str) -> None:
    for path in Path(folder).rglob("*.py"):
        source = path.read_text()
        names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
        writes = names & {"CSVWriter", "write_csv", "to_csv", "DictWriter"} or "csv.writer" in source
        assert not writes or "guarded(" in source, f"{path} writes CSV without `guarded`"
