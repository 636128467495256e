"""Files between machines, as far as they are no matter of Ray's; `test_files_over_ray` has the rest."""

from __future__ import annotations

import fcntl
import os
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.cluster.files import HomeFiles, _FetchedParts, _make_room, rerooted
from tasks.storage.home import Home

_RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted), max_size=8)


@given(_RANGES, st.tuples(st.integers(0, 40), st.integers(0, 40)).map(sorted))
def test_parts_of_a_file_are_a_set_of_bytes(added: list[list[int]], asked: list[int]) -> None:
    parts, there = _FetchedParts(40, []), set[int]()
    for start, stop in added:
        parts.add(start, stop)
        there |= set(range(start, stop))
    assert {byte for start, stop in parts.parts for byte in range(start, stop)} == there
    missing = parts.missing(*asked)
    assert [byte for start, stop in missing for byte in range(start, stop)] == sorted(set(range(*asked)) - there)


def test_a_record_of_parts_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert _FetchedParts.read(record).size is None
    _FetchedParts(9, [[0, 3]]).write(record)
    assert (_FetchedParts.read(record).size, _FetchedParts.read(record).parts) == (9, [[0, 3]])
    record.write_bytes(record.read_bytes()[:-4])
    assert _FetchedParts.read(record).size is None


def artifact(cache: Path, name: str, num_bytes: int, age_seconds: int) -> Path:
    folder = cache / "partition" / name
    folder.mkdir(parents=True)
    (folder / "feat.npy").write_bytes(os.urandom(num_bytes))
    (folder / ".used").touch()
    used = (folder / ".used").stat().st_mtime - age_seconds
    os.utime(folder / ".used", (used, used))
    return folder


def test_what_was_not_used_for_longest_makes_room(tmp_path: Path) -> None:
    old, newer, new = (artifact(tmp_path, name, 1 << 20, age) for name, age in (("a", 9), ("b", 5), ("c", 1)))
    _make_room(tmp_path, 4 << 20)
    assert all(folder.exists() for folder in (old, newer, new))
    with (old / ".used").open() as user:
        fcntl.flock(user, fcntl.LOCK_SH)
        _make_room(tmp_path, 2.5 * (1 << 20))
        assert [folder.exists() for folder in (old, newer, new)] == [True, False, True]
    _make_room(tmp_path, 1.5 * (1 << 20))
    assert [folder.exists() for folder in (old, new)] == [False, True]
    _make_room(tmp_path, 1)
    assert not new.exists()


@pytest.fixture
def files(home: Home) -> HomeFiles:
    (home.artifacts / "partition" / "key").mkdir(parents=True)
    (home.artifacts / "partition" / "key" / "feat.npy").write_bytes(bytes(range(100)))
    (home.work / "train-key").mkdir(parents=True)
    home.secret_key()
    return HomeFiles(str(home.root), str(home.work / "train-key"))


def test_a_home_gives_artifacts_and_nothing_else(home: Home, files: HomeFiles) -> None:
    name = "artifacts/partition/key/feat.npy"
    assert files.size(name) == 100
    block, checksum = files.read(name, 10, 20)
    assert block.tobytes() == bytes(range(10, 20))
    assert checksum == zlib.crc32(bytes(range(10, 20)))
    (home.artifacts / "link").symlink_to("/etc")
    (home.root / "cluster").mkdir()
    (home.root / "cluster" / "token").write_text("secret")
    for other in (
        *("secret.key", "cluster/token", "runs", "/etc/passwd", "../home/secret.key", "artifacts/../secret.key"),
        *("artifacts/partition/../../cluster/token", "artifacts/link/passwd", "work/../secret.key", "artifacts2/x", ""),
    ):
        with pytest.raises(PermissionError, match="none of the files that other machines may read"):
            files.read(other, 0, 10)
        with pytest.raises(PermissionError):
            files.size(other)


def write(files: HomeFiles, name: str, start: int, content: bytes, *, whole: bool = True) -> None:
    files.write(name, start, np.frombuffer(content, np.uint8), zlib.crc32(content), whole=whole)


def test_a_home_takes_files_into_one_work_folder(home: Home, files: HomeFiles, tmp_path: Path) -> None:
    work = home.work / "train-key"
    write(files, "best.pt", 0, b"first", whole=False)
    assert not (work / "best.pt").exists()
    write(files, "best.pt", 5, b" second")
    assert (work / "best.pt").read_bytes() == b"first second"
    assert [path.name for path in work.iterdir()] == ["best.pt"]
    write(files, "logs/rank-1.log", 0, b"one\ntw", whole=False)
    write(files, "logs/rank-1.log", 4, b"two\n")
    assert (work / "logs/rank-1.log").read_bytes() == b"one\ntwo\n"
    assert files.in_work() == [("work/train-key/best.pt", 12)]
    elsewhere = (
        "../x",
        "/tmp/x",
        "logs/../x",
        "other/x",
        "logs/deep/x",
        "..",
        "logs/..",
        ".seen",
        "logs/.seen",
        "logs/x/",
    )
    for name in elsewhere:
        with pytest.raises(ValueError, match="no name of a file in a work folder"):
            write(files, name, 0, b"x")
    for name in ("", "logs/"):
        with pytest.raises((ValueError, OSError)):
            write(files, name, 0, b"x")
    with pytest.raises(OSError, match="other bytes than it was sent with"):
        files.write("last.pt", 0, np.zeros(3, np.uint8), 1, whole=True)
    assert sorted(path.name for path in work.rglob("*")) == ["best.pt", "logs", "rank-1.log"]


@pytest.mark.parametrize("name", ["last.pt", "metrics.jsonl", "logs/rank-0.log"])
def test_a_home_writes_through_no_link(home: Home, files: HomeFiles, tmp_path: Path, name: str) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    path = home.work / "train-key" / name
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(target)
    path.with_name(f".{path.name}.coming").symlink_to(target)
    with pytest.raises(OSError, match="symbolic link"):
        write(files, name, 0, b"lost")
    assert target.read_text() == "kept"


def test_paths_begin_with_what_is_theirs_here() -> None:
    roots = {"/home/a/work/train-1": "/there/work", "/home/a/artifacts": "/there/cache", "/home/a": "/there/scratch"}
    job = {"graph": "/home/a/artifacts/partition/k", "work": "/home/a/work/train-1", "seed": 3, "none": None}
    job["lists"] = ["/home/a/work/train-12/x", "/home/ab", {"deep": "/home/a/work/train-1/best.pt"}, "epoch"]
    assert rerooted(job, roots) == {
        "graph": "/there/cache/partition/k",
        "work": "/there/work",
        "seed": 3,
        "none": None,
        "lists": ["/there/scratch/work/train-12/x", "/home/ab", {"deep": "/there/work/best.pt"}, "epoch"],
    }
