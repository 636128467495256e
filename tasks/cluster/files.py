"""Files between the machine that has the home and one that does not see it.

There an actor reads and writes (`HomeFiles`), here a cache holds what was fetched (`FetchedFiles`). Of artifacts whole
files are checked by the digests of their manifest; every block by a checksum of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from configs.errors import IntegrityError, StageError
from tasks.cluster.connect import first_line
from tasks.cluster.machines import Machine, end_with_raylet
from tasks.cluster.settings import BLOCK_BYTES, BLOCKS_AHEAD, PART_BYTES
from tasks.storage.artifacts import MANIFEST_NAME, file_digest, file_lock, write_atomic
from tasks.storage.file_names import beside

Block = NDArray[np.uint8]
_ARTIFACTS = "artifacts"
_READABLE = (_ARTIFACTS, "work")
_PARTS = ".parts"
"""Ends the file beside a fetched one that tells which of its bytes are there; without it nothing counts as fetched."""
_USED, _ROOM_LOCK, _FETCHING = ".used", ".room", ".fetching"
_DRAFT = ".coming"
_GROWING = (".log", ".jsonl")
"""Endings of files of which what is new is sent, without waiting for more."""
_END_BYTES = 256


class HomeFiles:
    """Reads artifacts, and writes into one stage's work folder. An actor on the machine of the home, one an attempt:
    with it ends what a rank of that attempt, cut off somewhere, may write."""

    def __init__(self, home: str, work: str) -> None:
        end_with_raylet()
        self._home, self._work = Path(home), Path(work)

    def size(self, name: str) -> int:
        """Return a file's bytes."""
        return self._readable(name).stat().st_size

    def read(self, name: str, start: int, stop: int) -> tuple[Block, int]:
        """Return bytes of a file, and their CRC-32."""
        with self._readable(name).open("rb") as file:
            block = np.fromfile(file, np.uint8, stop - start, offset=start)
        return block, zlib.crc32(block.data)

    def in_work(self) -> list[tuple[str, int]]:
        """Return names, relative to the home, and sizes of files in the work folder itself."""
        paths = sorted(path for path in self._work.iterdir() if path.is_file())
        return [(path.relative_to(self._home).as_posix(), path.stat().st_size) for path in paths]

    def write(self, name: str, start: int, block: Block, checksum: int, *, whole: bool) -> None:
        """Write bytes of a file of the work folder, which is seen once they are its last (`whole`); of one that grows
        at once."""
        folder, _, plain = name.rpartition("/")
        if folder not in ("", "logs") or not plain or plain.startswith(".") or plain != Path(plain).name:
            raise ValueError(f"{name!r} is no name of a file in a work folder")
        if zlib.crc32(block.data) != checksum:
            raise OSError(f"{name} came with other bytes than it was sent with")
        path = self._work / folder / plain
        path.parent.mkdir(exist_ok=True)
        grows = path.suffix in _GROWING
        draft = path if grows else beside(path, _DRAFT)
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(start)
            file.seek(start)
            file.write(block.data)
            if whole and not grows:
                file.flush()
                os.fsync(file.fileno())
                draft.replace(path)

    def _readable(self, name: str) -> Path:
        path = (self._home / name).resolve()
        if not any(path.is_relative_to((self._home / folder).resolve()) for folder in _READABLE):
            raise PermissionError(f"{name} is none of the files that other machines may read")
        return path


def home_files(own: Machine, home: str, work: str) -> Any:
    """Return the handle of a HomeFiles on this machine, which goes with this process."""
    import ray

    options = {"num_cpus": 0, "resources": {own.place: 0.0001}, "max_concurrency": 8}
    return ray.remote(HomeFiles).options(**options).remote(home, work)


def blocks_of(files: Any, name: str, start: int, stop: int) -> Iterator[tuple[int, Block]]:
    """Yield a file's bytes from start to stop - 1 as blocks and where each begins, some of them on their way."""
    import ray

    coming: deque[tuple[int, Any]] = deque()
    for begin in range(start, stop, BLOCK_BYTES):
        coming.append((begin, files.read.remote(name, begin, min(begin + BLOCK_BYTES, stop))))
        if len(coming) > BLOCKS_AHEAD:
            yield _received(name, *coming.popleft(), ray.get)
    while coming:
        yield _received(name, *coming.popleft(), ray.get)


def _received(name: str, begin: int, coming: Any, get: Any) -> tuple[int, Block]:
    block, checksum = get(coming)
    if zlib.crc32(block.data) != checksum:
        raise IntegrityError(f"{name} did not come as it was sent; run again")
    return begin, block


class FetchedFiles:
    """A cache on this machine of what the home has, within a bound; what is in use is not taken out of it."""

    def __init__(self, files: Any, home: str, folder: Path, scratch: Path, limit_bytes: float) -> None:
        """`files`: the handle of a HomeFiles; `folder`: of the cache; `scratch`: what goes with this process."""
        self._files, self._folder, self._scratch = files, folder, scratch
        self.roots = {f"{home}/{_ARTIFACTS}": str(folder), home: str(scratch)}
        """What a path of the home begins with, and with what here."""
        self.fetched_bytes = 0
        self._used: dict[Path, int] = {}
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file_lock(folder / _ROOM_LOCK):
            _make_room(folder, limit_bytes)

    def here(self, path: str) -> Path:
        """Fetch a whole file of the home, and return where it lies."""
        local = Path(rerooted(path, self.roots))
        self.fetch(local)
        return local

    def close(self) -> None:
        """Let others take out of the cache what this one has used."""
        for descriptor in self._used.values():
            os.close(descriptor)
        self._used.clear()

    def fetch(self, path: Path, start: int = 0, stop: int | None = None) -> None:
        """Have bytes start to stop - 1 (None: all) of a file here. Raises IntegrityError, OSError."""
        if path.is_relative_to(self._folder):
            relative = path.relative_to(self._folder)
            artifact = self._folder / Path(*relative.parts[:2])
            with self._lock:
                self._use(artifact)
                if path != artifact / MANIFEST_NAME:
                    with file_lock(artifact / _FETCHING):
                        self._complete(path, f"{_ARTIFACTS}/{relative.as_posix()}", start, stop, artifact)
        elif path.is_relative_to(self._scratch):
            with self._lock:
                self._complete(path, path.relative_to(self._scratch).as_posix(), start, stop, None)

    def _use(self, artifact: Path) -> None:
        """Keep an artifact from being taken out, and have the home's manifest in it: what was fetched of one that has
        another is forgotten. The home has made it anew since, or another home has."""
        if artifact in self._used:
            return
        manifest = artifact / MANIFEST_NAME
        content = self._whole(f"{_ARTIFACTS}/{manifest.relative_to(self._folder).as_posix()}")
        with file_lock(self._folder / _ROOM_LOCK):
            artifact.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(artifact / _USED, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if not manifest.exists() or manifest.read_bytes() != content:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _empty(artifact)
                    write_atomic(manifest, content)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            except BlockingIOError:
                os.close(descriptor)
                raise IntegrityError(
                    f"{artifact} was made anew since it was fetched, and another run reads what was; run again after it"
                ) from None
            os.utime(artifact / _USED)
        self._used[artifact] = descriptor

    def _whole(self, name: str) -> bytes:
        import ray

        size = ray.get(self._files.size.remote(name))
        self.fetched_bytes += size
        return b"".join(block.tobytes() for _, block in blocks_of(self._files, name, 0, size))

    def _complete(self, path: Path, name: str, start: int, stop: int | None, artifact: Path | None) -> None:
        import ray

        record = beside(path, _PARTS)
        parts = _FetchedParts.read(record) if path.exists() else _FetchedParts(None, [])
        if parts.size is None:
            parts.size = ray.get(self._files.size.remote(name))
            path.parent.mkdir(parents=True, exist_ok=True)
            parts.write(record)
            with path.open("wb") as file:
                file.truncate(parts.size)
        size = parts.size
        stop = size if stop is None else min(size, -(-stop // PART_BYTES) * PART_BYTES)
        missing = parts.missing(start // PART_BYTES * PART_BYTES, stop)
        if not missing:
            return
        digest = hashlib.sha256() if missing == [(0, size)] else None  # while more comes
        with path.open("r+b") as file:
            for first, last in missing:
                for begin, block in blocks_of(self._files, name, first, last):
                    file.seek(begin)
                    file.write(block.data)
                    if digest is not None:
                        digest.update(block.data)
                    self.fetched_bytes += len(block)
            file.flush()
            os.fsync(file.fileno())
        parts.add(start // PART_BYTES * PART_BYTES, stop)
        if artifact is not None and not parts.missing(0, size):
            files = json.loads((artifact / MANIFEST_NAME).read_bytes())["files"]
            came = file_digest(path) if digest is None else digest.hexdigest()
            if came != files[path.relative_to(artifact).as_posix()]["sha256"]:
                path.unlink()
                raise IntegrityError(f"{path} came with another digest than its manifest names; run again")
        parts.write(record)


class _FetchedParts:
    def __init__(self, size: int | None, parts: list[list[int]]) -> None:
        self.size, self.parts = size, parts

    @classmethod
    def read(cls, record: Path) -> _FetchedParts:
        try:
            return cls(**json.loads(record.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return cls(None, [])

    def write(self, record: Path) -> None:
        write_atomic(record, json.dumps({"size": self.size, "parts": self.parts}).encode())

    def missing(self, start: int, stop: int) -> list[tuple[int, int]]:
        gaps = []
        for first, last in self.parts:
            if first > start:
                gaps.append((start, min(first, stop)))
            start = max(start, last)
        return [(a, b) for a, b in [*gaps, (start, stop)] if a < b]

    def add(self, start: int, stop: int) -> None:
        merged: list[list[int]] = []
        for first, last in sorted([*self.parts, [start, stop]]):
            if merged and first <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], last)
            else:
                merged.append([first, last])
        self.parts = merged


def _make_room(folder: Path, limit_bytes: float) -> None:
    """Remove artifacts that were not used for longest, and that no process uses, until the rest is within the bound."""
    artifacts = sorted(folder.glob(f"*/*/{_USED}"), key=lambda used: used.stat().st_mtime)
    taken = {used: sum(map(_taken_bytes, used.parent.rglob("*"))) for used in artifacts}
    for used, num_bytes in taken.items():
        if sum(taken.values()) <= limit_bytes:
            return
        descriptor = os.open(used, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(used.parent)
            shutil.rmtree(used.parent, ignore_errors=True)
            taken[used] -= num_bytes
        except BlockingIOError:
            continue
        finally:
            os.close(descriptor)


def _empty(artifact: Path) -> None:
    """Remove what was fetched of an artifact; its file of who uses it stays, so that one half removed is seen."""
    for path in artifact.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (_USED, _FETCHING):
            path.unlink()


def _taken_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # another process has removed it since
        return 0


class Mirror:
    """Writes into the home's work folder what a rank on this machine writes into its own."""

    def __init__(self, files: Any, folder: Path) -> None:
        self._files, self._folder = files, folder
        self._sent: dict[Path, _FileState] = {}
        for path in self._paths():
            with path.open("rb") as file:
                self._sent[path] = _FileState.of(file)
        self._seen = dict(self._sent)

    def look(self, *, last: bool = False) -> None:
        """Send what has changed and is whole: files that did not change since the look before, or that have taken the
        place of others; at the `last` all.

        Raises StageError: the home takes no more from here.
        """
        for path in self._paths():
            try:
                file = path.open("rb")
            except FileNotFoundError:  # removed, or set aside, since
                continue
            with file:  # which stays what it is when another takes its name
                state, sent, seen = _FileState.of(file), self._sent.get(path), self._seen.get(path)
                grows, replaced = path.suffix in _GROWING, seen is not None and seen.inode != state.inode
                if sent != state and (last or grows or replaced or seen == state):
                    self._send(path, file, sent.size if grows and sent and sent.begins(file) else 0, state.size)
                    self._sent[path] = state
                self._seen[path] = state

    def _paths(self) -> list[Path]:
        """Return what counts, the oldest first: a result comes after what it speaks of."""
        changed: list[tuple[int, Path]] = []
        for path in [*self._folder.iterdir(), *self._folder.glob("logs/*")]:
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if S_ISREG(status.st_mode) and path.name[0] != "." and path.suffix not in (".npy", ".draft"):
                    changed.append((status.st_mtime_ns, path))
        return [path for _, path in sorted(changed)]

    def _send(self, path: Path, file: IO[bytes], start: int, size: int) -> None:
        import ray

        name = path.relative_to(self._folder).as_posix()
        file.seek(start)
        try:
            while True:
                block = np.frombuffer(file.read(min(BLOCK_BYTES, size - start)), np.uint8)
                whole = start + len(block) >= size or not len(block)
                ray.get(self._files.write.remote(name, start, block, zlib.crc32(block.data), whole=whole))
                start += len(block)
                if whole:
                    return
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None) or first_line(str(error))
            raise StageError(f"{name} could not be written into the home: {cause}") from error


class _FileState(NamedTuple):
    size: int
    changed_ns: int
    inode: int
    end: bytes
    """The last bytes: of a file that was cut back, and has grown beyond them again, they are others."""

    @classmethod
    def of(cls, file: IO[bytes]) -> _FileState:
        status = os.fstat(file.fileno())
        file.seek(max(0, status.st_size - _END_BYTES))
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, file.read(min(_END_BYTES, status.st_size)))

    def begins(self, file: IO[bytes]) -> bool:
        """Whether a file begins with what this one was."""
        file.seek(self.size - len(self.end))
        return file.read(len(self.end)) == self.end


def rerooted(value: Any, roots: dict[str, str]) -> Any:
    """Return plain values in which paths begin with what stands in `roots` for their present beginning."""
    if isinstance(value, dict):
        return {key: rerooted(item, roots) for key, item in value.items()}
    if isinstance(value, list):
        return [rerooted(item, roots) for item in value]
    if isinstance(value, str):
        for old, new in roots.items():
            if value == old or value.startswith(f"{old}/"):
                return new + value[len(old) :]
    return value
