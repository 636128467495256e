"""`graphmill clean`: remove what no run needs."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configs.schema import STAGES
from flows.records.parameters import BACKFILL_TAG
from flows.records.run_record import RunRecord, all_runs, is_alive, lock_path, record_path
from flows.terminal.console import format_bytes, out, table
from tasks.storage.artifacts import ArtifactStore, file_lock, is_locked
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import PREFIX
from tasks.storage.home_files.temporary import lock_path as lock_path_of_temporary
from tasks.storage.outcomes import VECTORS


@dataclass(frozen=True)
class Removed:
    """Something that is (or would be) removed."""

    what: str
    path: Path
    num_bytes: int
    reason: str


def needed_artifacts(home: Home, younger_than: float) -> set[tuple[str, str]]:
    """Return (stage, key) of what living, young and each recipe's latest successful runs stand on."""
    needed: set[tuple[str, str]] = set()
    records = all_runs(home)
    made = {stage.digest: (name, stage.key) for record in records for name, stage in record.stages.items()}
    for record in _needed_runs(home, records, younger_than):
        needed.update((name, stage.key) for name, stage in record.stages.items())
        # What another run made: the training that a snapshot's began with is part of its key.
        parents = [item for stage in record.stages.values() for item in stage.parents.items()]
        needed.update(made[digest] for name, digest in parents if name not in record.stages and digest in made)
        needed.update((VECTORS, key) for key in record.vectors)
    return needed


def _needed_runs(home: Home, records: list[RunRecord], younger_than: float) -> Iterator[RunRecord]:
    settled: set[str] = set()
    for record in records:
        latest = record.status == "completed" and record.recipe not in settled
        if latest and (record.written or tuple(record.stages) == STAGES):  # some stages do not stand for all
            settled.add(record.recipe)
        if latest or is_alive(home, record) or record.started.timestamp() >= younger_than:
            yield record


def clean_home(home: Home, age_seconds: float, *, dry_run: bool, keep_versions: int | None = None) -> list[Removed]:
    """Remove (or only find) what is not needed; what another process holds a lock on stays.

    With `keep_versions` also versions of registered models beyond the last so many of each, with their MLflow runs.
    Raises StageError: MLflow cannot be reached.
    """
    limit = time.time() - age_seconds
    versions = [] if keep_versions is None else _old_versions(home, keep_versions, limit, dry_run=dry_run)
    return [*_Cleaning(home, limit, dry_run).run(), *versions]


def _old_versions(home: Home, keep: int, limit: float, *, dry_run: bool) -> list[Removed]:
    """Remove versions of registered models that no alias, no recipe of a run and no rollback names."""
    from tasks.publish.tracking.model_registry import remove_old_versions

    if not (home.mlflow / "mlflow.db").exists() and "MLFLOW_TRACKING_URI" not in os.environ:
        return []
    in_use = {model for record in all_runs(home) for model in record.models}
    reason = f"beyond the last {keep}, and no alias names it"
    removed = remove_old_versions(home, keep, limit, in_use, dry_run=dry_run)
    return [Removed("version", Path(reference), size, reason) for reference, size in removed]


class _Cleaning:
    """Each method yields what it has removed, or would remove in a dry run."""

    def __init__(self, home: Home, limit: float, dry_run: bool) -> None:
        """`limit`: what was used after that moment stays."""
        self.home, self.limit, self.dry_run = home, limit, dry_run
        self.store = ArtifactStore(home)
        self.names_gone: Counter[tuple[int, int]] = Counter()

    def run(self) -> list[Removed]:
        removed = [
            *self.artifacts(needed_artifacts(self.home, self.limit)),
            *self.work_folders(),
            *self.old_files(self.home.cache, "pickle", "not used for that long"),
            *self.texts(),
            *self.models(),
        ]
        gone = {item.path for item in removed}
        return [*removed, *self.records(gone), *self.locks(gone)]

    def artifacts(self, needed: set[tuple[str, str]]) -> Iterator[Removed]:
        for folder in sorted(self.home.artifacts.glob("*/*")):
            if not folder.is_dir():  # somebody else's link or file
                continue
            name, key = folder.parent.name, folder.name
            lock = self.store.lock_path(name, key)
            if (name, key) in needed or folder.stat().st_mtime >= self.limit or is_locked(lock):
                continue
            item = Removed("artifact", folder, self.freed_bytes(folder), "no run needs it")
            if not self.dry_run:
                with file_lock(lock):
                    if folder.stat().st_mtime >= self.limit:  # used while we waited
                        continue
                    self.store.discard(folder)
            yield item

    def work_folders(self) -> Iterator[Removed]:
        for folder in sorted(self.home.work.glob("*")):
            if folder.name.startswith(".trash-"):
                owner = folder.name.rpartition("-")[2]
                if owner.isdigit() and Path(f"/proc/{owner}").exists():
                    continue
                reason = "left by a process that ended"
            elif folder.name.startswith(PREFIX):
                if is_locked(lock_path_of_temporary(folder)):
                    continue
                reason = "temporary files of a process that ended"
            elif is_locked(self.home.locks / f"{folder.name}.lock") or _last_used(folder) >= self.limit:
                continue  # being built, or its run waits to be started again and goes on from here
            else:
                reason = "an interrupted build; a rerun begins anew"
            yield self.remove("work", folder, reason)

    def old_files(self, folder: Path, what: str, reason: str) -> Iterator[Removed]:
        for path in sorted(folder.rglob("*")):
            status = path.lstat()
            if path.is_file() and max(status.st_mtime, status.st_atime) < self.limit:
                yield self.remove(what, path, reason)

    def texts(self) -> Iterator[Removed]:
        """Remove vectors of texts by the day when they were last asked for, and files without any."""
        for path in sorted(self.home.texts.glob("*.sqlite")):
            from tasks.preprocess.texts.kept import remove_unused  # NumPy, where there are any

            size = remove_unused(path, self.limit, dry_run=self.dry_run)
            if size:
                yield Removed("texts", path, size, "vectors not used for that long; they are encoded again")

    def models(self) -> Iterator[Removed]:
        for folder in sorted((self.home.downloads / "models").glob("*")):
            # Files come with the times that they had in the store; the folder's change is the download.
            if max(folder.lstat().st_ctime, _last_used(folder, read=True)) >= self.limit:
                continue
            if not is_locked(self.home.locks / f"model-{folder.name.removeprefix('.')}.lock"):
                yield self.remove("model", folder, "a copy not used for that long; it is fetched again")

    def records(self, gone: set[Path]) -> Iterator[Removed]:
        """Remove records of old runs, with their locks, that `needed_artifacts` and later snapshots do not read."""
        records = [record for record in all_runs(self.home) if record_path(self.home, record.id).exists()]
        needed = {record.id for record in _needed_runs(self.home, records, self.limit)}
        needed |= {record.id for record in {record.recipe: record for record in reversed(records)}.values()}
        needed |= self.records_of_snapshots(records, gone)
        ages = {record.id: record_path(self.home, record.id).stat().st_mtime for record in records}
        young_backfills = {tag for record in records if ages[record.id] >= self.limit for tag in _backfills(record)}
        for record in records:
            if record.id in needed or record.status == "running" or ages[record.id] >= self.limit:
                continue
            lock = lock_path(self.home, record.id)
            if is_locked(lock) or young_backfills.intersection(_backfills(record)):
                continue
            yield self.remove("record", record_path(self.home, record.id), "of a run that old")
            if not self.dry_run:
                lock.unlink(missing_ok=True)

    def records_of_snapshots(self, records: list[RunRecord], gone: set[Path]) -> set[str]:
        """Return ids of the newest record of each training and publication: later snapshots find them by these."""
        newest: dict[tuple[Any, ...], str] = {}
        for record in records:
            for name in {"train", "publish"} & record.stages.keys():
                key = record.stages[name].key
                folder = self.store.folder(name, key)
                if folder not in gone and folder.is_dir():
                    newest.setdefault((record.recipe, record.as_of, name, key), record.id)
        return set(newest.values())

    def locks(self, gone: set[Path]) -> Iterator[Removed]:
        """Remove locks of runs whose record is gone, and notes of who forced a stage."""
        for path in sorted([*self.home.locks.glob("run-*.lock"), *self.home.locks.glob("*.forced")]):
            work = self.home.work / path.stem
            if path.suffix == ".forced":
                used = is_locked(path.with_suffix(".lock")) or (work.exists() and work not in gone)
            else:
                used = is_locked(path) or record_path(self.home, path.stem.removeprefix("run-")).exists()
            if not used and path.stat().st_mtime < self.limit:
                yield self.remove("lock", path, "of a run that old")

    def remove(self, what: str, path: Path, reason: str) -> Removed:
        """Remove a file or a folder; a dry run only measures it."""
        is_folder = path.is_dir()
        item = Removed(what, path, self.freed_bytes(path) if is_folder else path.lstat().st_size, reason)
        if is_folder and not self.dry_run:
            shutil.rmtree(path, ignore_errors=True)
        elif not self.dry_run:
            path.unlink(missing_ok=True)
        return item

    def freed_bytes(self, folder: Path) -> int:
        """Return what removing a folder frees: a file lives on under its other names (hard links) until the last."""
        if not self.dry_run:
            self.names_gone.clear()  # what was removed before is no longer counted by the file system
        total = 0
        for status in [path.lstat() for path in folder.rglob("*") if not path.is_dir()]:
            self.names_gone[status.st_dev, status.st_ino] += 1
            if self.names_gone[status.st_dev, status.st_ino] >= status.st_nlink:
                total += status.st_size
        return total


def _backfills(record: RunRecord) -> list[str]:
    return [tag for tag in record.tags if tag.startswith(BACKFILL_TAG)]


def _last_used(folder: Path, *, read: bool = False) -> float:
    """Return when something in the folder was last written, or with `read` a file read (looking reads folders)."""
    newest = folder.lstat().st_mtime
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a build that begins anew
            status = path.lstat()
            newest = max(newest, status.st_mtime, status.st_atime if read and path.is_file() else 0.0)
    return newest


def show_removed(removed: list[Removed], *, dry_run: bool) -> None:
    """Print what went, and how much that is."""
    console = out()
    shown = table("what", "size", "why", "where", right=("size",))
    for item in removed:
        if item.what in ("artifact", "work", "texts", "model", "version"):
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
