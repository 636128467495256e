"""Files that ask for more memory than there is, read by a child process that has little."""

# ruff: noqa: E501 -- one line a bomb reads as a table

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.fuzz.oracle import Worker

MEMORY = 400 << 20
"""What the child may take, beyond what it has when all is imported: a block of CSV is copied some times."""
_ZEROS = bytes(64 << 20)


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker(tmp_path_factory.mktemp("bounds") / "inside", max_more_bytes=MEMORY) as worker:
        yield worker


@cache
def packed(fill: bytes) -> bytes:
    """64 MiB of one byte, compressed."""
    return gzip.compress(fill * len(_ZEROS))


def zeros(before: bytes = b"", fill: bytes = b"\0") -> bytes:
    """Some bytes and 3 GiB of one, compressed to some megabytes: gzip's members may follow one another."""
    return gzip.compress(before) + packed(fill) * 48


def npy_member(path: Path) -> None:
    """A member of 0.5 GB of zeros that belong to an array of that shape."""
    head = b"{'descr': '<f8', 'fortran_order': False, 'shape': (67108864, 1), }"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as out,
    ):
        out.write(b"\x93NUMPY\x01\0" + len(head).to_bytes(2, "little") + head)
        for _ in range(8):
            out.write(_ZEROS)


def texts(path: Path) -> None:
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int32)), pa.array(["x" * 900_000]))
    pq.write_table(pa.table({"a": values}), path, store_schema=False)


def long_lists(path: Path) -> None:
    """A list of 20 million zeros is a run of a few bytes."""
    pq.write_table(pa.table({"a": pa.array([np.zeros(20_000_000, np.int8)], pa.list_(pa.int8()))}), path)


def table(**more: Any) -> dict[str, Any]:
    return {"work": "table", "texts": [], "numbers": [], **more}


BOMBS: list[tuple[str, str, Callable[[Path], object], dict[str, Any], str]] = [
    ("header", "x.csv.gz", lambda p: p.write_bytes(zeros()), table(), "has a first line of more than 4,194,304 bytes"),
    ("row", "x.csv.gz", lambda p: p.write_bytes(zeros(b"a,b\n")), table(), "has a row of more than 4,194,304 bytes"),
    ("quoted cell", "x.csv.gz", lambda p: p.write_bytes(zeros(b'a,b\n1,"')), table(), "has a row of more than"),
    ("quoted name", "x.csv.gz", lambda p: p.write_bytes(zeros(b'a,"b\n', b"\n")), table(), "that is never closed"),
    ("zst", "x.csv.zst", lambda p: p.write_bytes(zstandard.compress(_ZEROS * 8)), table(), "has a first line of more"),
    ("edge list", "x.txt.gz", lambda p: p.write_bytes(zeros(b"1 2\n")), table(), "has a line of more than 4,194,304 bytes"),
    ("comment", "x.txt.gz", lambda p: p.write_bytes(zeros(b"#", b"a")), table(columns=["0"]), "has a line of more than"),
    ("texts of an edge list", "x.txt.gz", lambda p: p.write_bytes(zeros(b"a b\n", b"a")),
     table(columns=["0", "1"], texts=["0"]), "has a line of more than"),
    ("OGB's numbers", "x.csv.gz", lambda p: p.write_bytes(zeros(b"1,2\n", b"1")),
     {"work": "raw_numbers", "kind": "<f4", "missing": False}, "has a row of more than"),
    ("a wide first line", "x.csv", lambda p: p.write_bytes(b"1," * 50_000 + b"1\n" + b"1\n" * 900_000),
     {"work": "raw_numbers", "kind": "<f4", "missing": False}, "the row has 1 columns"),
    ("words", "x.csv.gz", lambda p: p.write_bytes(zeros()), {"work": "words"}, "has more than 1,048,576 bytes"),
    ("id map", "x.csv.gz", lambda p: p.write_bytes(zeros(b"index,name\n1,")), {"work": "id_map"}, "has a row of more than"),
    ("JSON", "x.json", lambda p: p.write_bytes(b"[" * (20 << 20)), {"work": "description"}, "has more than 16,777,216 bytes"),
    ("member of an archive", "x.npz", npy_member, {"work": "array", "member": "a"}, "the array takes 0.5 GB of memory"),
    ("texts of Parquet", "x.parquet", texts, table(), "it needs more memory than there is"),
    ("lists of Parquet", "x.parquet", long_lists, table(), "has rows of 80,000,000 bytes"),
    ("pickle: objects", "x.pt", lambda p: p.write_bytes(b"\x80\x02Nr\xff\xff\xff\x3f."), {"work": "torch_file"}, "impossible count"),
    ("pickle: bytes", "x.pt", lambda p: p.write_bytes(b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x."),
     {"work": "torch_file"}, "is damaged"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "job", "words"), [x[1:] for x in BOMBS], ids=[x[0] for x in BOMBS])
def test_bombs(worker: Worker, name: str, make: Callable[[Path], object], job: dict[str, Any], words: str) -> None:
    path = worker.folder / name
    make(path)
    assert path.stat().st_size < 30 << 20
    arguments = dict(job)
    answer = worker.ask(f"tests.fuzz.work:{arguments.pop('work')}", name, path=name, **arguments)
    path.unlink()
    assert answer.kind == "refused", answer
    assert words in answer.error


def test_lists_that_stand_for_thousands_of_millions_of_values(worker: Worker) -> None:
    import torch

    nested: list[Any] = [0, 1]
    for _ in range(40):
        nested = [nested, nested]
    torch.save({"edge": nested}, worker.folder / "x.pt", pickle_protocol=4)
    answer = worker.ask("tests.fuzz.work:torch_file", "x.pt", path="x.pt")
    assert answer.kind == "refused", answer
    assert "'edge' holds object" in answer.error


def test_what_the_worker_finds(tmp_path: Path) -> None:
    """The judge itself: a crash, a hang, another exception, a file written elsewhere, a refusal without a name."""
    with Worker(tmp_path / "inside", max_seconds=20) as worker:
        assert worker.ask("os:abort").error == "the process died of SIGABRT"
        assert worker.ask("math:sqrt", x=1).error.startswith("TypeError")
        assert "MemoryError" in worker.ask("tests.fuzz.work:take", size=8 << 30).error
        assert "outside of the folder" in worker.ask("os:mkdir", path="../elsewhere").error
        (tmp_path / "inside/x.csv").write_text("")
        assert worker.ask("tests.fuzz.work:words", "x.csv", path="x.csv").kind == "refused"
        assert "does not name z" in worker.ask("tests.fuzz.work:words", "z", path="x.csv").error
        worker.max_seconds = 0.5
        assert worker.ask("tests.fuzz.work:wait", seconds=30).error == "no answer within 0.5 seconds"
