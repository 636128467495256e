"""Small files of every format that readers know, with what they hold; and ways to break them."""

from __future__ import annotations

import functools
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import scipy.sparse as sp
import zstandard
from hypothesis import strategies as st

from tests.fuzz.mutations import broken
from tests.matlab_files import elements_of, mat_file, packed

Draw = Callable[..., Any]


@dataclass(frozen=True)
class Sample:
    """A file's name and content, how it is read, and what must come out as long as it is whole."""

    name: str
    data: bytes
    work: str
    arguments: dict[str, Any] = field(default_factory=dict)
    expected: str | None = None


def write_small(folder: Path, read: Callable[[Path], None]) -> None:
    """Write a small file of numbers, read it, take it away."""
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".csv") as file:
        file.write(b"1,2\n3,4\n")
        file.flush()
        read(Path(file.name))


WHOLE = st.integers(0, 2**63 - 1) | st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**53 + 1, 2**63 - 1])
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
# Texts that CSV's own rules for numbers, dates and missing values leave alone.
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=12).map(lambda text: "x" + text + "x")
WORDS = st.text(st.characters(exclude_categories=("C", "Z"), exclude_characters=",;"), max_size=12).map("x{}".format)
NAMES = st.lists(
    st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n"), min_size=1, max_size=8).map(lambda t: f"c{t}"),
    min_size=2, max_size=2, unique=True,
)  # fmt: skip


def _quoted(cell: object, delimiter: str) -> str:
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in f'"{delimiter}\n') else text


@st.composite
def delimited(draw: Draw) -> Sample:
    """CSV and TSV, with any line ends, marks and blank lines, compressed or not."""
    ending, delimiter = draw(st.sampled_from([(".csv", ","), (".tsv", "\t")]))
    names, header = draw(NAMES), draw(st.booleans())
    rows = [list(row) for row in draw(st.lists(st.tuples(TEXTS, FLOATS), min_size=1, max_size=20))]
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = [delimiter.join(_quoted(cell, delimiter) for cell in row) for row in ([names] if header else []) + rows]
    for at in draw(st.lists(st.integers(0, len(lines)), max_size=3)):
        lines.insert(at, "")
    text = draw(st.sampled_from(["", "\ufeff"])) + end.join(lines) + draw(st.sampled_from(["", end]))
    columns = names if header else ["0", "1"]
    arguments = {"texts": columns[:1], "numbers": columns[1:], "header": header}
    suffix, data = draw(compressed(text.encode()))
    return Sample(f"x{ending}{suffix}", data, "table", arguments, repr(rows))


@st.composite
def compressed(draw: Draw, data: bytes) -> tuple[str, bytes]:
    """A name's ending and the data, compressed or not."""
    return draw(st.sampled_from([("", data), (".gz", gzip.compress(data)), (".zst", zstandard.compress(data))]))


@st.composite
def edge_lists(draw: Draw) -> Sample:
    """Numbers, or words beside numbers, between blanks or delimiters, with comments."""
    cells, kinds = draw(st.sampled_from([((WHOLE, WHOLE), ([], [])), ((WORDS, WHOLE, FLOATS), (["0"], ["2"]))]))
    delimiter = draw(st.sampled_from([None, ",", ";", "\t"]))
    between = st.sampled_from([delimiter] if delimiter else [" ", "\t", "  \t"])
    rows = [list(row) for row in draw(st.lists(st.tuples(*cells), min_size=1, max_size=20))]
    lines = [draw(between).join(map(str, row)) for row in rows]
    mark = draw(st.sampled_from("#%"))
    for at in draw(st.lists(st.integers(0, len(lines)), max_size=3)):
        lines.insert(at, draw(st.sampled_from([mark + " a comment", "", "" if delimiter else "  "])))
    if mark == "%":
        lines.insert(0, "% a comment")
    suffix, data = draw(compressed("\n".join(lines).encode()))
    arguments = {"texts": kinds[0], "numbers": kinds[1], "delimiter": delimiter}
    return Sample(f"x.txt{suffix}", data, "table", arguments, repr(rows))


@st.composite
def ntriples(draw: Draw) -> Sample:
    """Statements of IRIs, blank nodes and literals, with comments; escapes have a test of their own."""
    iris = st.text(st.characters(codec="utf-8", min_codepoint=0x21, exclude_characters='<>"{}|^`\\'), max_size=12)
    iri = iris.map("<{}>".format)
    literal = st.text(st.characters(codec="utf-8", exclude_characters='"\\\n\r'), max_size=12).map('"{}"@en'.format)
    rows = draw(st.lists(st.tuples(iri, iri, iri | literal | st.just("_:b.1")), min_size=1, max_size=20))
    lines = [" ".join(row) + draw(st.sampled_from([" .", ".", " . # a comment"])) for row in rows]
    for at in draw(st.lists(st.integers(0, len(lines)), max_size=3)):
        lines.insert(at, draw(st.sampled_from(["# <a> <b> <c> .", "", " \t"])))
    suffix, data = draw(compressed("\n".join(lines).encode()))
    expected = [[cell[1:-1] if cell[0] == "<" else cell for cell in row] for row in rows]
    return Sample(f"x.nt{suffix}", data, "statements", {}, repr(expected))


@st.composite
def parquet_files(draw: Draw) -> Sample:
    """Columns of texts of several kinds and of numbers."""
    names = draw(NAMES)
    rows = [list(row) for row in draw(st.lists(st.tuples(TEXTS, WHOLE), min_size=1, max_size=20))]
    kind = draw(st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
    texts = pa.array([row[0] for row in rows], kind)
    if draw(st.booleans()) and kind != pa.string_view():
        texts = texts.dictionary_encode()
    sink = io.BytesIO()
    pq.write_table(
        pa.table([texts, pa.array([row[1] for row in rows], pa.int64())], names),
        sink,
        compression=draw(st.sampled_from(["none", "snappy", "gzip", "zstd", "brotli"])),
        row_group_size=draw(st.integers(1, 30)),
        use_dictionary=draw(st.booleans()),
        data_page_version=draw(st.sampled_from(["1.0", "2.0"])),
        store_schema=draw(st.booleans()),
    )
    return Sample("x.parquet", sink.getvalue(), "table", {"texts": [], "numbers": []}, repr(rows))


@st.composite
def raw_numbers(draw: Draw) -> Sample:
    """Numbers as OGB's folders hold them."""
    kind = draw(st.sampled_from(["<i8", "<f8"]))
    width = draw(st.integers(1, 4))
    cells = st.lists(WHOLE if kind == "<i8" else FLOATS, min_size=width, max_size=width)
    rows = draw(st.lists(cells, min_size=1, max_size=20))
    _, data = draw(compressed("\n".join(",".join(map(str, row)) for row in rows).encode()))
    return Sample("x.csv.gz", data, "raw_numbers", {"kind": kind, "missing": draw(st.booleans())}, repr(rows))


@st.composite
def small_texts(draw: Draw) -> Sample:
    """Lists of words, id maps, descriptions."""
    work = draw(st.sampled_from(["words", "id_map", "description"]))
    if work == "description":
        value = draw(st.recursive(st.none() | st.integers() | TEXTS, lambda inner: st.lists(inner, max_size=4)))
        return Sample("x.json", json.dumps(value).encode(), work, {}, repr(value)[:1000])
    rows = draw(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=10))
    lines = [",".join(_quoted(cell, ",") for cell in row) for row in [("index", "name"), *rows]]
    _, data = draw(compressed(("\n".join(lines) + "\n").encode()))
    plain: list[Any] = [["index", "name"], *map(list, rows)]
    if work == "id_map":
        plain = [{"index": index, "name": name} for index, name in rows]
    return Sample("x.csv.gz", data, work, {}, repr(plain))


@st.composite
def arrays(draw: Draw) -> Sample:
    """`.npy` files and members of archives."""
    kind = draw(st.sampled_from(["<i8", ">i4", "<f8", "<f4", "|b1", "|u1"]))
    rows, width = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    values = (np.arange(rows * width).reshape(rows, width) % 100).astype(kind)
    sink = io.BytesIO()
    packed = draw(st.sampled_from(["npy", "npz", "compressed"]))
    if packed == "npy":
        np.save(sink, values)
        return Sample("x.npy", sink.getvalue(), "array", {}, repr(values.tolist()))
    (np.savez if packed == "npz" else np.savez_compressed)(sink, a=values)
    return Sample("x.npz", sink.getvalue(), "array", {"member": "a"}, repr(values.tolist()))


@st.composite
def torch_files(draw: Draw) -> Sample:
    """What torch.save writes of arrays and tensors, in old and new formats."""
    sizes = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    data = _torch_file(*sizes, draw(st.booleans()), draw(st.sampled_from([2, 4])))
    edge, year = (list(range(size)) for size in sizes)
    return Sample("x.pt", data, "torch_file", {}, repr({"edge": edge, "year": year}))


@functools.cache  # torch writes addresses into its old format: the same draws have to give the same bytes
def _torch_file(edges: int, years: int, zipped: bool, protocol: int) -> bytes:
    import torch

    sink = io.BytesIO()
    values = {"edge": np.arange(edges), "year": torch.arange(years)}
    torch.save(values, sink, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    return sink.getvalue()


@st.composite
def vector_files(draw: Draw) -> Sample:
    """Vectors as other programs write them."""
    rows = draw(st.integers(1, 8))
    ids = [f"n{i}" for i in range(rows)]
    values = [[float(i), i / 2] for i in range(rows)]
    columns = {"id": pa.array(ids), "v": pa.array(values, pa.list_(pa.float32(), 2))}
    if draw(st.booleans()):
        columns = dict(reversed(columns.items()))
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return Sample("x.parquet", sink.getvalue(), "vectors", {}, repr([(ids, values)]))


@st.composite
def matlab_files(draw: Draw) -> Sample:
    """Graphs and groups of nodes as scipy writes them for MATLAB."""
    size, kind = draw(st.integers(10, 20)), draw(st.sampled_from(["f8", "f4", "i4", "u1", "bool"]))
    ends = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=1, max_size=20))
    network, group = np.zeros((size, size), kind), np.ones((size, 2), kind)
    for source, target in ends:
        network[source, target] = 1
    values = {"network": network, "group": group}
    sink = io.BytesIO()
    given = {name: sp.csc_array(value) for name, value in values.items()} if draw(st.booleans()) else values
    scipy.io.savemat(sink, given, do_compression=draw(st.booleans()))
    expected = {name: (value.shape, np.argwhere(value.T).tolist()) for name, value in values.items()}
    data = b"MATLAB 5.0".ljust(124) + sink.getvalue()[124:]  # without the time, which is another at each draw
    return Sample("x.mat", data, "matlab", {}, repr(expected))


SAMPLES: dict[str, st.SearchStrategy[Sample]] = {
    "delimited": delimited(),
    "edge lists": edge_lists(),
    "ntriples": ntriples(),
    "parquet": parquet_files(),
    "raw numbers": raw_numbers(),
    "small texts": small_texts(),
    "arrays": arrays(),
    "torch": torch_files(),
    "vectors": vector_files(),
    "matlab": matlab_files(),
}


@st.composite
def inside_out(draw: Draw, sample: Sample) -> bytes:
    """The file's content broken before it is compressed, so that its checksums hold."""
    for start, unpack, pack in (
        (b"\x1f\x8b", gzip.decompress, gzip.compress),
        (b"\x28\xb5", zstandard.decompress, zstandard.compress),
    ):
        if sample.data.startswith(start):
            return pack(draw(broken(unpack(sample.data))))
    if sample.name == "x.mat":
        elements = elements_of(sample.data)
        at = draw(st.integers(0, len(elements) - 1))
        elements[at] = draw(broken(elements[at]))
        return mat_file(*map(packed, elements))
    return draw(broken(sample.data))
