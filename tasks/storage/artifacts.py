"""The artifact store: folders named by what made them, written whole or not at all, verified when read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

from configs.errors import GraphmillError, IntegrityError, RecipeError, StageError
from configs.source_files import is_file
from tasks.storage.file_names import beside, file_name
from tasks.storage.home import Home
from tasks.storage.manifests import FileEntry, Manifest

M = TypeVar("M", bound=Manifest)
MANIFEST_NAME = "manifest.json"
_HASH_CHUNK_BYTES = 1 << 22
_DRAFT = ".draft"
FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_FULL_DISK_WORDS = re.compile(
    r"No space left on device|database or disk is full|\d+ requested and \d+ written|unexpected pos \d+ vs \d+"
)
"""How safetensors, SQLite, NumPy and torch say it, whose errors have no number."""


def artifact_key(stage: str, version: int, config: dict[str, Any], parents: dict[str, str]) -> str:
    """Name an artifact by what makes it: stage, stage version, configuration and parents' digests."""
    content = {"stage": stage, "version": version, "config": config, "parents": parents}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, read in chunks."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def describe_files(folder: Path) -> dict[str, FileEntry]:
    """Return size and sha256 of every file below `folder`, by relative path."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MANIFEST_NAME)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashlib releases the GIL
        digests = pool.map(file_digest, paths)
        return {
            path.relative_to(folder).as_posix(): FileEntry(size=path.stat().st_size, sha256=digest)
            for path, digest in zip(paths, digests, strict=True)
        }


def write_atomic(path: Path, content: bytes | Iterable[bytes], mode: int = 0o666) -> None:
    """Write a file whole or not at all (`atomic_file`); `content` may come in parts."""
    with atomic_file(path, mode) as file:
        file.writelines([content] if isinstance(content, bytes) else content)


@contextlib.contextmanager
def atomic_file(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Open a file under another name; when the block ends it is flushed to the disk and renamed: it is whole or absent.

    `mode` (less the umask) holds from the first byte on: a secret is never readable by others, not for a moment. Raises
    DataError where a device, a pipe or a folder stands there, which no file takes the place of.
    """
    is_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft, descriptor = _locked_draft(path, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            draft.replace(path)  # while its lock is held
    finally:
        draft.unlink(missing_ok=True)


def _locked_draft(path: Path, mode: int) -> tuple[Path, int]:
    """Make an empty file for what becomes `path`, locked as long as it is open; remove those of killed processes."""
    for left in path.parent.glob(f"{glob.escape(beside(path, '').name)}.*-*{_DRAFT}"):
        with contextlib.suppress(OSError), try_lock(left) as held:
            if held:
                left.unlink(missing_ok=True)
    while True:
        # Process ids alone are not enough: containers that share a folder count them from 1 each.
        draft = beside(path, f".{os.getpid()}-{secrets.token_hex(3)}{_DRAFT}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with contextlib.suppress(OSError):  # a disk without locks, where nothing is removed either
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return draft, descriptor
        os.close(descriptor)  # another process saw it before its lock, and removed it


def empty_draft(path: Path) -> Path:
    """Make an empty file beside `path`, which it becomes later; one that a killed process or another user left goes."""
    draft = beside(path, ".partial")
    draft.unlink(missing_ok=True)
    draft.touch(exist_ok=False)
    return draft


@contextlib.contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold an exclusive kernel lock, which goes with the process; `on_wait` is called once if another one holds it."""
    with _lock_file(path) as descriptor:
        if not _take(descriptor):
            if on_wait is not None:
                on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of `file_lock` if nobody does; yields whether it is held now."""
    with _lock_file(path) as descriptor:
        yield _take(descriptor)


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock."""
    if not path.exists():
        return False
    with try_lock(path) as held:
        return not held


def is_full_disk(error: BaseException | None) -> bool:
    """Whether an error, or one that it came of, says that a disk is full."""
    while error is not None:
        if (isinstance(error, OSError) and error.errno in FULL_DISK) or _FULL_DISK_WORDS.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


@contextlib.contextmanager
def disk_errors(folder: Path, output: Path | None = None) -> Iterator[None]:
    """Turn 'no space left' into a message that says where, how much is free, and a way out.

    `output` is what a user wants written in `folder`, which then is none of the home's.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, GraphmillError) or not is_full_disk(error):
            raise
        there = next(place for place in (folder, *folder.parents) if place.exists())
        full = f"the disk that holds {folder} is full ({shutil.disk_usage(there).free / 1e6:.0f} MB free)"
        if output is not None:
            raise StageError(
                f"--output {output} is not written: {full}; nothing half-written is kept. Free some space there, or "
                "write to another disk"
            ) from error
        raise StageError(
            f"{full}; nothing half-written is kept. Free some space (graphmill clean) or put the home elsewhere "
            "(--home DIR), then run again: it goes on."
        ) from error


@contextlib.contextmanager
def output_errors(output: Path) -> Iterator[None]:
    """Turn what the system says of a file that a user wants written, or of its drafts, into a message that names it.

    Raises StageError where the disk is full, RecipeError where nothing can be written there.
    """
    with disk_errors(output.parent, output):
        try:
            yield
        except OSError as error:
            about = error.filename if isinstance(error.filename, str | os.PathLike) else None
            if about is None or error.errno in FULL_DISK or output.parent not in Path(about).parents:
                raise
            raise RecipeError(f"--output {output} cannot be written ({error.strerror}); write elsewhere") from error


class ArtifactStore:
    """Artifacts of one home, by stage and key."""

    def __init__(self, home: Home) -> None:
        self.home = home

    def folder(self, stage: str, key: str) -> Path:
        """Folder of a finished artifact."""
        return self.home.artifacts / file_name(stage) / file_name(key)

    def work_folder(self, stage: str, key: str) -> Path:
        """Folder of an artifact in the making; outlives a crash, so that a stage can resume from it."""
        return self.home.work / f"{file_name(stage)}-{file_name(key)}"

    def lock_path(self, stage: str, key: str) -> Path:
        """Lock that the one builder of an artifact holds."""
        return self.home.locks / f"{file_name(stage)}-{file_name(key)}.lock"

    def load(self, stage: str, key: str, kind: type[M], *, deep: bool = False) -> M | None:
        """Return the verified manifest (sizes, with `deep` sha256 too), or None where there is no such artifact.

        Raises IntegrityError: the artifact is damaged; the message names the file.
        """
        folder = self.folder(stage, key)
        path = folder / MANIFEST_NAME
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            if folder.exists():
                raise IntegrityError(f"{folder} has no {MANIFEST_NAME}") from None
            return None
        try:
            manifest = kind.model_validate_json(text)
        except ValueError as error:
            raise IntegrityError(f"{path} cannot be read: {error}") from error
        for name, entry in manifest.files.items():
            self._verify(folder / name, entry, deep)
        return manifest

    @staticmethod
    def _verify(path: Path, entry: FileEntry, deep: bool) -> None:
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise IntegrityError(f"{path} is gone") from None
        if size != entry.size:
            raise IntegrityError(f"{path} has {size:,} bytes, {entry.size:,} were written")
        if deep and file_digest(path) != entry.sha256:
            raise IntegrityError(f"{path} does not match its sha256")

    def commit(self, work: Path, manifest: Manifest) -> Path:
        """Write the manifest into `work`, flush all files and rename the folder to its final name."""
        folder = self.folder(manifest.stage, manifest.key)
        for name in manifest.files:
            _sync(work / name)
        write_atomic(work / MANIFEST_NAME, manifest.model_dump_json(indent=1).encode())
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():  # a damaged or forced one: set aside first, since a rename cannot replace a full folder
            self.discard(folder)
        work.rename(folder)
        _sync(folder.parent)
        return folder

    def discard(self, folder: Path) -> None:
        """Remove an artifact so that no reader ever sees half of it."""
        if not folder.exists():
            return
        trash = self.home.work / f".trash-{folder.parent.name}-{folder.name}-{os.getpid()}"
        trash.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(trash, ignore_errors=True)
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def link_or_copy(source: Path, target: Path) -> None:
    """Give an unchanged file a second name: artifacts never change, so a hard link is as good as a copy and free."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
