"""`graphmill clean`: remove what no run needs."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.errors import RecipeError
from configs.schema import STAGES
from flows.parameters import BACKFILL_TAG
from flows.run_records import RunRecord, all_runs, is_alive, lock_path, record_path
from flows.terminal.console import format_bytes, out, table
from tasks.storage.artifacts import ArtifactStore, file_lock, is_locked
from tasks.storage.home import Home
from tasks.storage.temporary import PREFIX
from tasks.storage.temporary import lock_path as lock_path_of_temporary

_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


@dataclass(frozen=True)
class Removed:
    """Something that is (or would be) removed."""

    what: str
    path: Path
    num_bytes: int
    reason: str

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"what": self.what, "path": str(self.path), "bytes": self.num_bytes, "reason": self.reason}


def parse_age(text: str, option: str = "--older-than") -> float:
    """Return `7d`, `12h`, `30m`, `4w` in seconds. Raises RecipeError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip())
    if match is None:
        raise RecipeError(f"{option} {text!r} is not an age such as 12h, 7d or 4w (s, m, h, d, w)")
    return float(match.group(1)) * _UNIT_SECONDS[match.group(2)]


def needed_artifacts(home: Home, younger_than: float) -> set[tuple[str, str]]:
    """Return (stage, key) of what living, young and each recipe's latest successful runs stand on."""
    needed: set[tuple[str, str]] = set()
    records = all_runs(home)
    made = {stage["digest"]: (name, stage["key"]) for record in records for name, stage in record.stages.items()}
    for record in _standing(home, records, younger_than):
        needed.update((name, stage["key"]) for name, stage in record.stages.items())
        # What another run made: the training that a snapshot's began with is part of its key.
        parents = [item for stage in record.stages.values() for item in stage["parents"].items()]
        needed.update(made[digest] for name, digest in parents if name not in record.stages and digest in made)
    return needed


def _standing(home: Home, records: list[RunRecord], younger_than: float) -> Iterator[RunRecord]:
    """Yield living, young and each recipe's latest successful runs."""
    settled: set[str] = set()
    for record in records:
        latest = record.status == "completed" and record.recipe not in settled
        if latest and tuple(record.stages) == STAGES:  # a run of some stages does not stand for the whole
            settled.add(record.recipe)
        if latest or is_alive(home, record) or record.started.timestamp() >= younger_than:
            yield record


def clean_home(home: Home, age_seconds: float, *, dry_run: bool) -> list[Removed]:
    """Remove (or only find) what is not needed; what another process holds a lock on stays."""
    limit = time.time() - age_seconds
    needed, size = needed_artifacts(home, limit), _Sizes(dry_run)
    removed = [
        *_artifacts(home, needed, limit, dry_run, size),
        *_work_folders(home, limit, dry_run, size),
        *_pickles(home, limit, dry_run),
        *_results(home, limit, dry_run),
        *_models(home, limit, dry_run, size),
    ]
    gone = {item.path for item in removed}
    return [*removed, *_records(home, limit, gone, dry_run), *_locks(home, limit, gone, dry_run)]


def _artifacts(
    home: Home, needed: set[tuple[str, str]], limit: float, dry_run: bool, size: _Sizes
) -> Iterator[Removed]:
    store = ArtifactStore(home)
    for folder in sorted(home.artifacts.glob("*/*")):
        if not folder.is_dir():  # somebody else's link or file
            continue
        name, key = folder.parent.name, folder.name
        lock = store.lock_path(name, key)
        if (name, key) in needed or folder.stat().st_mtime >= limit or is_locked(lock):
            continue
        item = Removed("artifact", folder, size(folder), "no run needs it")
        if not dry_run:
            with file_lock(lock):
                if folder.stat().st_mtime >= limit:  # used while we waited
                    continue
                store.discard(folder)
        yield item


def _work_folders(home: Home, limit: float, dry_run: bool, size: _Sizes) -> Iterator[Removed]:
    for folder in sorted(home.work.glob("*")):
        if folder.name.startswith(".trash-"):
            owner = folder.name.rpartition("-")[2]
            if owner.isdigit() and Path(f"/proc/{owner}").exists():
                continue
            reason = "left by a process that ended"
        elif folder.name.startswith(PREFIX):
            if is_locked(lock_path_of_temporary(folder)):
                continue
            reason = "temporary files of a process that ended"
        elif is_locked(home.locks / f"{folder.name}.lock") or _last_used(folder) >= limit:
            continue  # being built, or its run waits to be started again and goes on from here
        else:
            reason = "an interrupted build; a rerun begins anew"
        item = Removed("work", folder, size(folder), reason)
        if not dry_run:
            shutil.rmtree(folder, ignore_errors=True)
        yield item


def _pickles(home: Home, limit: float, dry_run: bool) -> Iterator[Removed]:
    yield from _old_files(home.cache, "pickle", "not used for that long", limit, dry_run)


def _results(home: Home, limit: float, dry_run: bool) -> Iterator[Removed]:
    yield from _old_files(home.prefect / "results", "result", "of a flow run that old", limit, dry_run)


def _models(home: Home, limit: float, dry_run: bool, size: _Sizes) -> Iterator[Removed]:
    for folder in sorted((home.downloads / "models").glob("*")):
        # Files come with the times that they had in the store; the folder's change is the download.
        if max(folder.lstat().st_ctime, _last_used(folder, read=True)) >= limit:
            continue
        if is_locked(home.locks / f"model-{folder.name.removeprefix('.')}.lock"):
            continue
        item = Removed("model", folder, size(folder), "a copy not used for that long; it is fetched again")
        if not dry_run:
            shutil.rmtree(folder, ignore_errors=True)
        yield item


def _records(home: Home, limit: float, gone: set[Path], dry_run: bool) -> Iterator[Removed]:
    """Remove records of old runs, with their locks, that neither `needed_artifacts` nor a later snapshot asks for."""
    records = [record for record in all_runs(home) if record_path(home, record.id).exists()]
    needed = {record.id for record in _standing(home, records, limit)}
    needed |= {record.id for record in {record.recipe: record for record in reversed(records)}.values()}
    needed |= _telling(home, records, gone)
    ages = {record.id: record_path(home, record.id).stat().st_mtime for record in records}
    young_backfills = {tag for record in records if ages[record.id] >= limit for tag in _backfills(record)}
    for record in records:
        if record.id in needed or record.status == "running" or ages[record.id] >= limit:
            continue
        path, lock = record_path(home, record.id), lock_path(home, record.id)
        if is_locked(lock) or young_backfills.intersection(_backfills(record)):
            continue
        item = Removed("record", path, path.stat().st_size, "of a run that old")
        if not dry_run:
            path.unlink(missing_ok=True)
            lock.unlink(missing_ok=True)
        yield item


def _telling(home: Home, records: list[RunRecord], gone: set[Path]) -> set[str]:
    """Return ids of the newest records that tell whose a training or a publication is which is still there.

    Later snapshots find by them what they begin with and compare with (`tasks.storage.snapshots`).
    """
    store = ArtifactStore(home)
    newest: dict[tuple[Any, ...], str] = {}
    for record in records:
        for name in {"train", "publish"} & record.stages.keys():
            key = record.stages[name]["key"]
            folder = store.folder(name, key)
            if folder not in gone and folder.is_dir():
                newest.setdefault((record.recipe, record.as_of, name, key), record.id)
    return set(newest.values())


def _backfills(record: RunRecord) -> list[str]:
    return [tag for tag in record.tags if tag.startswith(BACKFILL_TAG)]


def _locks(home: Home, limit: float, gone: set[Path], dry_run: bool) -> Iterator[Removed]:
    """Remove locks of runs whose record is gone, and notes of who forced a stage."""
    for path in sorted([*home.locks.glob("run-*.lock"), *home.locks.glob("*.forced")]):
        work = home.work / path.stem
        if path.suffix == ".forced":
            used = is_locked(path.with_suffix(".lock")) or (work.exists() and work not in gone)
        else:
            used = is_locked(path) or record_path(home, path.stem.removeprefix("run-")).exists()
        if used or path.stat().st_mtime >= limit:
            continue
        item = Removed("lock", path, path.stat().st_size, "of a run that old")
        if not dry_run:
            path.unlink(missing_ok=True)
        yield item


def _last_used(folder: Path, *, read: bool = False) -> float:
    """Return when something in the folder was last written, or with `read` a file read (looking reads folders)."""
    newest = folder.lstat().st_mtime
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a build that begins anew
            status = path.lstat()
            newest = max(newest, status.st_mtime, status.st_atime if read and path.is_file() else 0.0)
    return newest


def _old_files(folder: Path, what: str, reason: str, limit: float, dry_run: bool) -> Iterator[Removed]:
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        if not path.is_file() or max(status.st_mtime, status.st_atime) >= limit:
            continue
        if not dry_run:
            path.unlink(missing_ok=True)
        yield Removed(what, path, status.st_size, reason)


class _Sizes:
    """Bytes that removing folders frees: a file lives on under its other names (hard links) until the last one goes."""

    def __init__(self, dry_run: bool) -> None:
        self._dry_run = dry_run
        self._gone: Counter[tuple[int, int]] = Counter()

    def __call__(self, folder: Path) -> int:
        if not self._dry_run:
            self._gone.clear()  # what was removed before is no longer counted by the file system
        total = 0
        for path in folder.rglob("*"):
            status = path.lstat()
            if path.is_dir():
                continue
            self._gone[status.st_dev, status.st_ino] += 1
            if self._gone[status.st_dev, status.st_ino] >= status.st_nlink:
                total += status.st_size
        return total


def show_removed(removed: list[Removed], *, dry_run: bool) -> None:
    """Print what went, and how much that is."""
    console = out()
    shown = table("what", "size", "why", "where", right=("size",))
    for item in removed:
        if item.what in ("artifact", "work", "model"):
            shown.add_row(item.what, format_bytes(item.num_bytes), item.reason, str(item.path))
    for what in ("pickle", "result", "record", "lock"):
        of_kind = [item for item in removed if item.what == what]
        if of_kind:
            size = format_bytes(sum(item.num_bytes for item in of_kind))
            shown.add_row(f"{len(of_kind)} {what}s", size, of_kind[0].reason, str(of_kind[0].path.parent))
    if removed:
        console.print(shown, markup=False)
    total = format_bytes(sum(item.num_bytes for item in removed))
    console.print(f"{'would remove' if dry_run else 'removed'} {len(removed)} items, {total}")
