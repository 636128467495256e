"""Source files are known by their content, whatever their names, sizes and times say; and read once."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from configs.errors import DataError
from tasks.storage.home import Home
from tasks.storage.home_files import source_digests
from tasks.storage.home_files.source_digests import SourceDigests, files_below

OLD = 10**18  # ns: some day in 2001


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Files that were read, in order."""
    found: list[Path] = []
    read = source_digests._Reader.read

    def noted(self: Any, path: Path) -> Any:
        found.append(path)
        return read(self, path)

    monkeypatch.setattr(source_digests._Reader, "read", noted)
    return found


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as if they had been there for long."""
    monkeypatch.setattr(source_digests, "_SETTLED_NS", -(10**12))


def write(path: Path, content: str, modified_ns: int = OLD) -> Path:
    """Write in place, so that the inode stays, and set the time of change back."""
    path.write_text(content)
    os.utime(path, ns=(modified_ns, modified_ns))
    return path


def digest_of(home: Home, *paths: Path) -> str:
    return str(SourceDigests(home).describe({"all": [(path.name, path) for path in paths]})["all"]["sha256"])


@pytest.mark.usefixtures("settled")
def test_a_file_is_read_once_and_again_when_it_changed(home: Home, tmp_path: Path, reads: list[Path]) -> None:
    path = write(tmp_path / "a.csv", "one")
    first = digest_of(home, path)
    assert digest_of(home, path) == first
    assert reads == [path]
    time.sleep(0.02)  # the kernel's clock ticks every 10 ms or faster
    write(path, "two")  # the same inode, size and time of change
    assert digest_of(home, path) != first
    write(tmp_path / "new", "one").replace(path)  # another file in its place
    assert digest_of(home, path) == first
    assert reads == [path] * 3


def test_a_file_that_has_just_changed_is_not_remembered(
    home: Home, tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the clock's resolution a second change shows nowhere: size, times and inode are what they were."""
    path = write(tmp_path / "a.csv", "one")
    assert digest_of(home, path) == digest_of(home, path)
    assert reads == [path, path]

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(source_digests, "_SETTLED_NS", -(10**12))
    monkeypatch.setattr(source_digests, "write_atomic", full)
    assert digest_of(home, path), "a home that cannot be written to remembers nothing either"


@pytest.mark.usefixtures("settled")
def test_where_files_lie_does_not_matter_their_names_and_order_do(home: Home, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    a, b = write(tmp_path / "one/a.csv", "a"), write(tmp_path / "one/b.csv", "b")
    first = digest_of(home, a, b)
    assert digest_of(home, b, a) != first
    (tmp_path / "one").rename(tmp_path / "two")
    assert digest_of(home, tmp_path / "two/a.csv", tmp_path / "two/b.csv") == first
    (tmp_path / "two/a.csv").rename(tmp_path / "two/c.csv")
    assert digest_of(home, tmp_path / "two/c.csv", tmp_path / "two/b.csv") != first


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 200, "tampered", "gone"])
def test_a_damaged_memory_is_an_empty_one(home: Home, tmp_path: Path, reads: list[Path], damage: bytes | str) -> None:
    path = write(tmp_path / "a.csv", "one")
    first, memory = digest_of(home, path), home.root / "source-digests"
    content = memory.read_bytes()
    if damage == "gone":
        memory.unlink()
    else:
        memory.write_bytes(content.replace(b'"', b"'") if isinstance(damage, str) else damage)
    assert digest_of(home, path) == first
    assert len(reads) == 2
    assert memory.read_bytes() == content


@pytest.mark.usefixtures("settled")
def test_the_memory_is_bounded_and_forgets_what_was_read_first(
    home: Home, tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_digests, "_MAX_REMEMBERED", 3)
    paths = [write(tmp_path / f"{number}.csv", "x") for number in range(4)]
    for path in paths:
        digest_of(home, path)
    digest_of(home, *paths[1:])
    assert reads == paths
    digest_of(home, paths[0])
    assert reads == [*paths, paths[0]]


@pytest.mark.usefixtures("settled")
def test_several_at_once_lose_nothing(home: Home, tmp_path: Path, reads: list[Path]) -> None:
    paths = [write(tmp_path / f"{number}.csv", "x") for number in range(40)]
    threads = [threading.Thread(target=digest_of, args=(home, *paths[at : at + 10])) for at in range(0, 40, 10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    digest_of(home, *paths)
    assert sorted(reads) == sorted(paths)


def test_reading_that_takes_long_is_told(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = SlowReading(monkeypatch)
    SourceDigests(home, reading.tell).describe({"a": [("a", write(tmp_path / "a.csv", "x" * 1000))]})
    assert reading.told[0][:3] == (0, 1000, "bytes")


def test_an_end_in_the_middle_does_not_wait_for_the_rest(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C and SIGTERM come out as exceptions of the thread that waits."""
    stopped: list[bool] = []
    path = write(tmp_path / "a.csv", "x")

    def wait(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def read(self: Any, path: Path) -> None:
        stopped.append(self.stop.wait(60))

    monkeypatch.setattr(source_digests, "wait", wait)
    monkeypatch.setattr(source_digests._Reader, "read", read)
    with pytest.raises(KeyboardInterrupt):
        digest_of(home, path)
    assert stopped in ([], [True])  # not begun yet, or ended by the flag


def test_what_is_no_file_is_refused_and_never_waited_for(home: Home, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv: is a pipe, and nothing is waited for"):
        digest_of(home, tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"gone\.csv: there is no such file"):
        digest_of(home, tmp_path / "gone.csv")


def test_files_below_a_folder_are_found_through_links_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    write(tmp_path / "real/train.csv", "1")
    (tmp_path / "set/split").mkdir(parents=True)
    (tmp_path / "set/split/time").symlink_to(tmp_path / "real")
    (tmp_path / "real/back").symlink_to(tmp_path / "set")
    assert [name for name, _ in files_below(tmp_path / "set", ("raw", "split"))] == ["split/time/train.csv"]


class SlowReading:
    """No file is read before `tell` was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told: list[tuple[Any, ...]] = []
        """What each call of `tell` was given."""
        self._heard = threading.Event()
        read = source_digests._Reader.read

        def slow(reader: Any, path: Path) -> Any:
            assert self._heard.wait(60), "nothing was told"
            return read(reader, path)

        monkeypatch.setattr(source_digests._Reader, "read", slow)
        monkeypatch.setattr(source_digests, "_SAY_EVERY_SECONDS", 0.0)

    def tell(self, *news: Any) -> None:
        self.told.append(news)
        self._heard.set()
