"""What stands at a path that a user gives is looked at before it is opened."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from configs.errors import DataError, RecipeError
from configs.source_files import check_file, is_file, is_folder, open_file, read_json, user_path
from tasks.apply.vector_files.reader import VectorFile
from tasks.ingest.tables.files import TableFiles
from tasks.readers.arrays.npy import NpyFile
from tasks.readers.arrays.torch_files import load_torch
from tasks.readers.parquet import open_parquet
from tasks.readers.streams import open_stream


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path.name)


KINDS: list[tuple[str, Callable[[Path], object], str]] = [
    ("pipe", os.mkfifo, "is a pipe, and nothing is waited for"),
    ("socket", bind, "is a socket"),
    ("folder", Path.mkdir, "is a folder"),
    ("dangling link", lambda path: path.symlink_to("nowhere"), "is a link to nowhere, where nothing is"),
    ("loop of links", lambda path: path.symlink_to(path), "is a link that leads back to itself"),
    ("link to a device", lambda path: path.symlink_to("/dev/zero"), "is a device"),
    ("nothing", lambda path: None, "there is no such file"),
]
OPENERS: list[Callable[[Path], object]] = [
    open_file,
    open_stream,
    load_torch,
    read_json,
    lambda path: NpyFile(path).header(),
    lambda path: open_parquet(path).__enter__(),
    VectorFile,
    lambda path: next(TableFiles((str(path),)).batches(["0"])),
]


@pytest.mark.parametrize(("make", "words"), [x[1:] for x in KINDS], ids=[x[0] for x in KINDS])
@pytest.mark.parametrize("opener", OPENERS, ids=range(len(OPENERS)))
def test_what_is_no_file_is_refused_by_every_opener(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    opener: Callable[[Path], object],
    make: Callable[[Path], object],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    path = tmp_path / "x.parquet"
    make(path)
    with pytest.raises(DataError, match=rf"x\.parquet: .*{words}" if words == "is a folder" else words):
        opener(path)


@pytest.mark.parametrize(("make", "words"), [x[1:] for x in KINDS[:-1]], ids=[x[0] for x in KINDS[:-1]])
def test_one_odd_entry_among_a_pattern_s_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("e-1.csv").write_text("src,dst\n0,1\n")
    make(Path("e-2.csv"))
    for pattern in ("e-*.csv", "."):
        with pytest.raises(DataError, match=rf"e-2\.csv: .*{words}"):
            TableFiles((pattern,)).paths()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a" * 300 + ".csv", r"the name is too long: .*its longest part 304"),
        ("a/" * 2500 + "x.csv", r"the name is too long: the path has 5,005 bytes"),
        ("a\0b.csv", "has a NUL byte in its name"),
        (os.fsdecode(b"a\xff.csv"), "has a name that is not UTF-8; rename it"),
        ("~nobody-of-this-name/x.csv", "names no folder"),
        ("x.csv/y.csv", "there is no such file"),
    ],
)
def test_names_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.csv").touch()
    with pytest.raises(DataError, match=words) as caught:
        TableFiles((name,)).paths()
    assert len(str(caught.value)) < 1500
    str(caught.value).encode()  # can be printed anywhere
    for look in (check_file, is_file, is_folder, open_file) if not name.startswith(("~", "x")) else ():
        with pytest.raises(DataError):
            look(Path(name))


def test_a_name_that_is_not_utf8_in_a_folder(tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/e\xff.csv", "w") as file:  # noqa: PTH123 -- bytes
        file.write("src,dst\n0,1\n")
    with pytest.raises(DataError, match=r"e\\udcff\.csv: has a name that is not UTF-8"):
        TableFiles((str(tmp_path / "*.csv"),)).paths()


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv"
    path.write_text("src,dst\n")

    def refuse(*_: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)  # tests may run as root, who may read everything
    with pytest.raises(DataError, match=r"x\.csv: may not be read: permission is denied"):
        open_stream(path)


def test_a_file_with_brackets_in_its_name(tmp_path: Path) -> None:
    (tmp_path / "e[1].csv").touch()
    (tmp_path / "e1.csv").touch()
    assert [path.name for path in TableFiles((str(tmp_path / "e[1].csv"),)).paths()] == ["e[1].csv"]
    assert [path.name for path in TableFiles((str(tmp_path / "e[1-2].csv"),)).paths()] == ["e1.csv"]


def test_descriptions_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"a": [1]}')
    assert read_json(path) == {"a": [1]}
    for text, words in (("[" * 100_000, "nested too deep"), ("{", "is not JSON"), ("\udcff", "is not JSON")):
        path.write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(DataError, match=rf"x\.json: .*{words}"):
            read_json(path)
    monkeypatch.setattr("configs.source_files.MAX_JSON_BYTES", 100)
    path.write_text("[" + "1," * 100 + "1]")
    with pytest.raises(DataError, match="has more than 100 bytes"):
        read_json(path)


def test_messages_quote_little(tmp_path: Path) -> None:
    error = DataError("x" * 10**6, path="p" * 10**4)
    assert len(str(error)) < 9000
    assert str(RecipeError("a\0b\udcff")) == "a\\0b\\udcff"
    assert str(user_path("~")) == str(Path.home())
