"""Run a stage: find its artifact or build it once, whoever asks, and leave nothing half-written."""

from __future__ import annotations

import datetime
import importlib
import logging
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from configs.errors import DataError, IntegrityError
from configs.schema import Recipe
from tasks.processes import ending
from tasks.processes.code_version import code_version
from tasks.processes.memory import PeakMemory
from tasks.processes.run_context import current_run
from tasks.storage.artifacts import (
    MANIFEST_NAME,
    ArtifactStore,
    artifact_key,
    describe_files,
    disk_errors,
    file_lock,
    write_atomic,
)
from tasks.storage.file_names import beside
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.storage.home_files.source_digests import SourceDigests
from tasks.storage.manifests import Manifest

M = TypeVar("M", bound=Manifest)
logger = logging.getLogger(__name__)
MapShards = Callable[[Callable[[Any], Any], Sequence[Any]], Iterable[Any]]
"""Applies a module-level function to each item, in any order and any process; results come in the items' order."""


def map_in_process(function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Apply in this process, one after the other."""
    return map(function, items)


class Listener:
    """Receives what a running stage reports. This one only logs; flows have one for the terminal and Prefect."""

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """`done` of `total` units are finished; 0: nobody knows how many there are."""

    def message(self, stage: str, text: str) -> None:
        """A line of information."""
        logger.info("%s: %s", stage, text)

    def warning(self, stage: str, text: str) -> None:
        """A warning, which also stays in the manifest."""
        logger.warning("%s: %s", stage, text)

    def failure(self, stage: str, text: str) -> None:
        """The error that ends the stage; the exception itself follows."""

    def metrics(self, stage: str, record: dict[str, float]) -> None:
        """A record of training metrics, with `step` and `epoch`."""


class InnerListener(Listener):
    """Of stages that run inside another one: passes on how far they are, and not what was said of the same before."""

    def __init__(self, outer: Listener, stage: str, note: str) -> None:
        self.outer, self.stage, self.note = outer, stage, note

    def progress(self, stage: str, done: float, total: float, unit: str, note: str = "") -> None:
        """Passed on."""
        self.outer.progress(self.stage, done, total, unit, f"{self.note}: {stage} {note}".strip())

    def message(self, stage: str, text: str) -> None:
        """Ignored."""

    def warning(self, stage: str, text: str) -> None:
        """Ignored."""


@dataclass
class StageContext:
    """What a stage's builder works with."""

    stage: str
    work: Path
    """Folder to write the artifact's files into; a resumable stage may find its own earlier files there."""
    home: Home
    cache: PickleCache
    listener: Listener = field(default_factory=Listener)
    map_shards: MapShards = map_in_process
    warnings: list[str] = field(default_factory=list)

    def progress(self, done: float, total: float, unit: str, note: str = "") -> None:
        """Report progress."""
        self.listener.progress(self.stage, done, total, unit, note)

    def message(self, text: str) -> None:
        """Report a line of information."""
        self.listener.message(self.stage, text)

    def warn(self, text: str) -> None:
        """Warn the user; the warning stays in the manifest and is shown again when the artifact is reused."""
        self.warnings.append(text)
        self.listener.warning(self.stage, text)

    def metrics(self, record: dict[str, float]) -> None:
        """Pass on a record of training metrics."""
        self.listener.metrics(self.stage, record)


@dataclass(frozen=True)
class Parent:
    """A finished artifact: its manifest and where it lies."""

    manifest: Any
    folder: Path


@dataclass(frozen=True)
class Stage(Generic[M]):
    """One stage: a name, a version to raise when its output changes, and plain functions."""

    name: str
    version: int
    manifest: type[M]
    parents: tuple[str, ...]
    config: Callable[[Recipe], dict[str, Any]]
    """The part of the recipe that decides the output."""
    build: Callable[[StageContext, Recipe, dict[str, Parent]], dict[str, Any]]
    """Write files into `context.work`; return the manifest's own fields (the common ones are filled in here).

    `parents` holds those named in `parents`, by stage."""
    resumable: bool = False
    """Whether files of an interrupted build are kept for the next one."""
    further: Mapping[str, Callable[[Recipe, Home, dict[str, Parent]], Parent | None]] = field(default_factory=dict)
    """Name to the function that finds an artifact of an earlier run, where the recipe asks for one; part of the key."""
    source: Callable[[Recipe, SourceDigests], dict[str, Any]] | None = None
    """State of the source files that the output depends on, known by their content."""

    def key_content(self, recipe: Recipe, digests: SourceDigests) -> dict[str, Any]:
        """Return all that decides the output besides the parents: part of the recipe, and the source's state."""
        return self.config(recipe) | ({"source": self.source(recipe, digests)} if self.source else {})


def build_of(name: str) -> Callable[[StageContext, Recipe, dict[str, Parent]], dict[str, Any]]:
    """Return `tasks.NAME.build.build`, which is imported when it runs: a stage that is cached needs none of it."""

    def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
        fields: dict[str, Any] = importlib.import_module(f"tasks.{name}.build").build(context, recipe, parents)
        return fields

    return build


@dataclass(frozen=True)
class StageOutcome(Generic[M]):
    """Result of a call of a stage."""

    manifest: M
    folder: Path
    cached: bool
    seconds: float
    repaired: str = ""
    """What was wrong with a stored artifact that was therefore built again."""

    @property
    def parent(self) -> Parent:
        """The outcome as the next stage reads it."""
        return Parent(self.manifest, self.folder)


def stage_key(stage: Stage[M], recipe: Recipe, parents: dict[str, Parent], home: Home) -> str:
    """Return the key that the stage's artifact has for this recipe and these parents (further ones included)."""
    content = stage.key_content(recipe, SourceDigests(home))
    return artifact_key(stage.name, stage.version, content, _digests(stage, parents))


def _digests(stage: Stage[Any], parents: dict[str, Parent]) -> dict[str, str]:
    names = (*stage.parents, *(name for name in stage.further if name in parents))
    return {name: parents[name].manifest.digest for name in names}


def run_stage(
    stage: Stage[M],
    recipe: Recipe,
    parents: dict[str, Parent],
    home: Home,
    *,
    listener: Listener | None = None,
    map_shards: MapShards = map_in_process,
    force: bool = False,
) -> StageOutcome[M]:
    """Return the stage's artifact, building it if there is none that can be trusted.

    Two processes that ask at once do the work once: the second waits for the first, then finds it done.
    """
    started = time.perf_counter()
    listener = listener or Listener()
    store = ArtifactStore(home)
    sources = SourceDigests(home, partial(listener.progress, stage.name))
    config = stage.key_content(recipe, sources)
    key = artifact_key(stage.name, stage.version, config, _digests(stage, parents))
    folder, lock = store.folder(stage.name, key), store.lock_path(stage.name, key)
    waiting = partial(listener.message, stage.name, "another run is building this; waiting for it")
    repaired = ""
    called_at = time.time()
    with disk_errors(home.root), file_lock(lock, waiting):
        try:
            stored = store.load(stage.name, key, stage.manifest)
        except IntegrityError as error:
            repaired, stored = str(error), None
            listener.warning(stage.name, f"a stored artifact is damaged and is made again: {error}")
        # A forced run takes what another forced run finished while it waited, and what it made itself before it was
        # killed and started again; its own unfinished work it resumes.
        mark = lock.with_suffix(".forced")
        forced_at = _forced_at(mark) if force else None
        fresh = stored is not None and (folder / MANIFEST_NAME).stat().st_mtime >= (forced_at or called_at)
        if stored is not None and (not force or fresh):
            return StageOutcome(stored, folder, True, time.perf_counter() - started)
        work = store.work_folder(stage.name, key)
        first_forced = force and forced_at is None
        if work.exists() and (first_forced or not stage.resumable):
            shutil.rmtree(work)
        if first_forced:  # only now: another run's work must not pass for this one's
            write_atomic(mark, current_run().flow_run_id.encode())
        context = StageContext(stage.name, work, home, PickleCache(home), listener, map_shards)
        manifest = _build(stage, recipe, parents, context, {"key": key, "config": config}, sources)
        folder = store.commit(work, manifest)
    return StageOutcome(manifest, folder, False, time.perf_counter() - started, repaired)


def _build(
    stage: Stage[M],
    recipe: Recipe,
    parents: dict[str, Parent],
    context: StageContext,
    identity: dict[str, Any],
    sources: SourceDigests,
) -> M:
    """Build into `context.work` and return the manifest; a failed build leaves only what can be resumed."""
    started = time.perf_counter()

    def clean_up() -> None:
        if stage.resumable:
            return
        # A signal's thread may run this while the builder still writes: after the rename it cannot.
        gone = beside(context.work, ".gone")
        with suppress(OSError):
            context.work.rename(gone)
        for folder in (context.work, gone):
            shutil.rmtree(folder, ignore_errors=True)

    try:
        with ending.closing(clean_up), PeakMemory() as memory:
            context.work.mkdir(parents=True, exist_ok=True)
            fields = stage.build(context, recipe, parents)
        _refuse_change(stage, recipe, identity["config"], sources)
    except BaseException:
        clean_up()
        raise
    return stage.manifest(
        stage=stage.name,
        stage_version=stage.version,
        parents=_digests(stage, parents),
        files=describe_files(context.work),
        code_version=code_version(),
        created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seconds=round(time.perf_counter() - started, 3),
        peak_bytes=max(memory.peak_bytes, fields.pop("peak_bytes", 0)),
        warnings=tuple(context.warnings),
        **identity,
        **fields,
    )


def _refuse_change(stage: Stage[Any], recipe: Recipe, config: dict[str, Any], before: SourceDigests) -> None:
    """Raise DataError where the source is not what it was when the artifact's key was made."""
    now = SourceDigests(before.home)
    if stage.key_content(recipe, now) == config:
        return
    paths = {path for path, _ in before.seen.items() ^ now.seen.items()}
    named = ", ".join(map(str, sorted(paths)[:3])) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    raise DataError(
        f"changed while it was read; nothing of it is kept. Run again when nobody writes to {stage.name}'s source",
        path=named or None,
    )


def _forced_at(mark: Path) -> float | None:
    """Return when this flow run forced the stage; None where it has not, or where there is no flow run."""
    run_id = current_run().flow_run_id
    try:
        return mark.stat().st_mtime if run_id and mark.read_text(encoding="utf-8") == run_id else None
    except FileNotFoundError:
        return None
