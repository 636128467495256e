"""What source files hold: the sha256 of each, remembered, so that a file that stayed as it was is not read again.

A file stayed where device, inode, size, time of change and time of status change (which only the kernel sets) are all
the same. One that changed a moment before it was read is not remembered: a second change within the clock's resolution
would leave them (git calls such a file racy). The memory is one signed file in the home, bounded in size.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from configs.errors import IntegrityError
from configs.source_files import check_file, open_file, refusal
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.home import Home
from tasks.storage.home_files.caching import seal, unseal

Progress = Callable[[float, float, str, str], None]
"""Called with done, total, unit and a note."""
Files = Sequence[tuple[str, Path]]
"""Names by which a source knows its files, in an order that matters, and where they lie."""

_MAX_REMEMBERED = 50_000  # files; 140 bytes each
_SETTLED_NS = 3_000_000_000  # FAT counts in steps of 2 s, a client of NFS may see times 3 s late
_CHUNK_BYTES = 1 << 22
_SAY_EVERY_SECONDS = 1.0
_NAME = "sources"


class Identity(NamedTuple):
    """What identifies a file and its state."""

    device: int
    inode: int
    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Identity:
        """Take it from what the file system says."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    @property
    def place(self) -> str:
        """Key of the memory: a file has one entry."""
        return f"{self.device}:{self.inode}"


@dataclass(frozen=True)
class _Read:
    sha256: str
    identity: Identity
    lasting: bool
    """Whether any later change shows in the identity."""


class SourceDigests:
    """Digests of source files, by the memory of a home."""

    def __init__(self, home: Home, progress: Progress = lambda done, total, unit, note: None) -> None:
        """Nothing is read yet; `progress` is called while reading takes longer than a second."""
        self.home = home
        self.seen: dict[Path, str] = {}
        """Digest of every file that was asked for."""
        self.missing: list[str] = []
        """What is wrong with sources that could not be found."""
        self._progress = progress

    def describe(self, sources: Mapping[str, Files]) -> dict[str, dict[str, Any]]:
        """Return what identifies each group of files, wherever they lie: `files`, `bytes` and `sha256`.

        Raises DataError: one cannot be read, or is no regular file.
        """
        paths = list(dict.fromkeys(path for files in sources.values() for _, path in files))
        digests = dict(zip(paths, self._look_up(paths), strict=True))
        self.seen.update({path: sha256 for path, (sha256, _) in digests.items()})
        described = {}
        for group, files in sources.items():
            sha256 = group_digest((name, digests[path][0]) for name, path in files)
            size = sum(digests[path][1] for _, path in files)
            described[group] = {"files": len(files), "bytes": size, "sha256": sha256}
        return described

    def _look_up(self, paths: list[Path]) -> list[tuple[str, int]]:
        identities = [Identity.of(check_file(path)) for path in paths]
        memory = _Memory(self.home)
        remembered = memory.read() if paths else {}
        digests: list[str | None] = []
        for identity in identities:
            entry = remembered.get(identity.place)
            digests.append(str(entry[-1]) if entry is not None and entry[:-1] == list(identity[2:]) else None)
        missing = [row for row, digest in enumerate(digests) if digest is None]
        if missing:
            total = sum(identities[row].size for row in missing)
            read = self._read_all([paths[row] for row in missing], total)
            memory.add([one for one in read if one.lasting])
            for row, one in zip(missing, read, strict=True):
                digests[row], identities[row] = one.sha256, one.identity
        return [(str(digest), identity.size) for digest, identity in zip(digests, identities, strict=True)]

    def _read_all(self, paths: list[Path], total: int) -> list[_Read]:
        reader = _Reader()
        pool = ThreadPoolExecutor(min(8, os.cpu_count() or 1), thread_name_prefix="sources")
        try:
            futures: list[Future[_Read]] = [pool.submit(reader.read, path) for path in paths]
            while wait(futures, timeout=_SAY_EVERY_SECONDS).not_done:
                self._progress(reader.done, total, "bytes", "reading source files to know them by their content")
            return [future.result() for future in futures]
        finally:  # also by a signal: threads end within one chunk
            reader.stop.set()
            pool.shutdown(cancel_futures=True)


def group_digest(files: Iterable[tuple[str, str]]) -> str:
    """Return the digest of a group of files, each a name and its own digest."""
    return hashlib.sha256(json.dumps([list(file) for file in files]).encode()).hexdigest()


def files_below(folder: Path, names: Sequence[str]) -> list[tuple[str, Path]]:
    """Return all files below some folders of `folder`, named by their place in it, sorted; links are followed."""
    below, visited = [], set()
    for name in names:
        for place, inside, files in os.walk(folder / name, followlinks=True):
            here = Path(place).stat()
            if (here.st_dev, here.st_ino) in visited:  # a link that leads back
                inside.clear()
                continue
            visited.add((here.st_dev, here.st_ino))
            below += [Path(place, file) for file in files]
    return sorted((path.relative_to(folder).as_posix(), path) for path in below if path.is_file())


class _Reader:
    """Reads files in several threads; hashlib lets go of the interpreter."""

    def __init__(self) -> None:
        self.done = 0
        """Bytes read by all threads."""
        self.stop = threading.Event()
        self._lock = threading.Lock()

    def read(self, path: Path) -> _Read:
        started, digest = time.time_ns(), hashlib.sha256()
        try:
            with open_file(path) as file:
                before = Identity.of(os.fstat(file.fileno()))
                while (chunk := file.read(_CHUNK_BYTES)) and not self.stop.is_set():
                    digest.update(chunk)
                    with self._lock:
                        self.done += len(chunk)
                after = Identity.of(os.fstat(file.fileno()))
        except OSError as error:
            raise refusal(path, error) from error
        lasting = before == after and after.changed_ns < started - _SETTLED_NS and not self.stop.is_set()
        return _Read(digest.hexdigest(), after, lasting)


class _Memory:
    """A home's file of device and inode to size, times and digest; what was read last stands last."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._path = home.root / "source-digests"

    def read(self) -> dict[str, Any]:
        try:
            sealed = self._path.read_bytes()
            content: dict[str, Any] = json.loads(unseal(self._home.secret_key(), _NAME, sealed))
        except (OSError, IntegrityError):
            return {}
        return content

    def add(self, read: list[_Read]) -> None:
        """Remember more files. A home that cannot be written to costs the memory, not the answer."""
        if not read:
            return
        with suppress(OSError), file_lock(self._home.locks / "sources.lock"):
            digests = self.read()
            for one in read:
                digests.pop(one.identity.place, None)
                digests[one.identity.place] = [*one.identity[2:], one.sha256]
            for place in list(digests)[:-_MAX_REMEMBERED]:
                del digests[place]
            content = json.dumps(digests, separators=(",", ":")).encode()
            write_atomic(self._path, seal(self._home.secret_key(), _NAME, content), mode=0o600)
