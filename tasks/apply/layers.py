"""Kept outputs of a model's layers as artifacts: found, made, and told of (`graphmill predict --keep-layers`)."""

from __future__ import annotations

import datetime
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from configs.errors import IntegrityError, RecipeError
from models.kernels.processor import instructions
from tasks.apply.model.files import MODEL, WEIGHTS
from tasks.apply.model.published import Published
from tasks.calls import load_stage, mark_used
from tasks.inference.former_layers import FormerLayers, KeepJob
from tasks.kinds.of import kind_named
from tasks.processes.code_version import code_digest, code_version
from tasks.stage import Listener, Parent
from tasks.storage.artifacts import ArtifactStore, artifact_key, describe_files, disk_errors, file_digest, file_lock
from tasks.storage.home import Home
from tasks.storage.outcomes import LAYERS, LayersManifest
from tasks.train.job import OWN_MODEL

_VERSION = 2
_LIBRARIES = ("torch", "numpy", "numba", "llvmlite", "dgl")
"""What computes rows."""


def check_keeps(published: Published, device: str) -> None:
    """Refuse `--keep-layers` where it cannot be. Raises RecipeError; the worker looks at the model itself."""
    if not kind_named(published.task).keeps_layers:
        raise RecipeError(f"--keep-layers: this is a model of {published.task}s; it is for models of nodes and links")
    if device == "cuda":
        raise RecipeError(
            "--keep-layers computes on the CPU, where a row's bits can be made its own; leave train.device=cuda out"
        )


@dataclass
class Keeping:
    """One pass whose layers are kept."""

    store: ArtifactStore
    key: str
    config: dict[str, Any]
    parents: dict[str, Parent]
    model: str
    as_of: str | None
    job: KeepJob
    former: LayersManifest | None = None
    written: dict[str, Any] = field(default_factory=dict)
    """What is told of it, once the pass is done."""

    def finish(self, told: dict[str, Any], warn: Callable[[str], None]) -> None:
        """Put the outputs in their place; `told` is what the worker says of the pass."""
        if told["warning"] is not None:
            warn(told["warning"])
        num_nodes, seconds = self.parents["partition"].manifest.num_nodes, told["seconds"]
        computed, former = tuple(told["computed"]), None if told["warning"] is not None else self.former
        full = (seconds, told["rows"]) if former is None else (former.full_seconds, former.full_nodes)
        folder = self.store.folder(LAYERS, self.key)
        if not self.job.is_complete:
            manifest = LayersManifest(
                stage=LAYERS, stage_version=_VERSION, key=self.key, config=self.config,
                parents={name: parent.manifest.digest for name, parent in self.parents.items()},
                files=describe_files(self.job.folder), code_version=code_version(), seconds=seconds,
                created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
                rows=sum(computed), model_name=self.model, ingest=self.parents["ingest"].manifest.key,
                partition=self.parents["partition"].manifest.key, as_of=self.as_of, num_nodes=num_nodes,
                computed=computed, full_seconds=full[0], full_nodes=full[1],
            )  # fmt: skip
            folder = self.store.commit(self.job.folder, manifest)
        mark_used(folder)
        self.written = {
            "former": None if former is None else former.key,
            "former_as_of": None if former is None else former.as_of,
            "computed": list(computed),
            "shares": [round(count / max(1, told["rows"]), 6) for count in computed],
            "audited": told["audited"],
            "seconds": round(seconds, 3),
            "full_seconds": round(full[0] * told["rows"] / max(1, full[1]), 3),
            "bytes": sum(path.stat().st_size for path in folder.iterdir()),
            "folder": str(folder),
        }


@contextmanager
def keeping(
    home: Home, listener: Listener, published: Published, parents: dict[str, Parent], as_of: str | None
) -> Iterator[Keeping]:
    """Hold the place of a graph's kept layers while they are made; finds those of an earlier graph.

    Raises StageError where the home's disk is full.
    """
    store = ArtifactStore(home)
    paths = (published.folder / name for name in (WEIGHTS, MODEL, OWN_MODEL))
    config = {  # what outputs follow from beside the graph: the model's files, and who computes
        "model": {path.name: file_digest(path) for path in paths if path.exists()},
        "libraries": {name: version(name) for name in _LIBRARIES if find_spec(name)},
        "processor": hashlib.sha256("\n".join(instructions()).encode()).hexdigest()[:16],
        "code": code_digest(),
    }
    digests = {name: parent.manifest.digest for name, parent in parents.items()}
    key = artifact_key(LAYERS, _VERSION, config, digests)
    work = store.work_folder(LAYERS, key)

    def waiting() -> None:
        listener.message(LAYERS, "another run computes these layers; waiting for it")

    with disk_errors(home.root), file_lock(store.lock_path(LAYERS, key), waiting):
        complete = _load(store, key, deep=True)
        former = complete or _newest(store, config, parents["partition"].manifest.key)
        shutil.rmtree(work, ignore_errors=True)
        folder = store.folder(LAYERS, key) if complete else work
        folder.mkdir(parents=True, exist_ok=True)
        job = KeepJob(folder, is_complete=complete is not None, former=_places(store, former))
        try:
            yield Keeping(store, key, config, parents, published.name, as_of, job, former)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _load(store: ArtifactStore, key: str, *, deep: bool = False) -> LayersManifest | None:
    """Return what was kept, with `deep` read whole first; None where nothing was or it is damaged."""
    try:
        return store.load(LAYERS, key, LayersManifest, deep=deep)
    except IntegrityError:
        store.discard(store.folder(LAYERS, key))
        return None


def _newest(store: ArtifactStore, config: dict[str, Any], partition: str) -> LayersManifest | None:
    """Return the newest kept layers of the same model, computed by the same code, whose graph is still there."""
    kept = [_load(store, folder.name) for folder in (store.home.artifacts / LAYERS).glob("*")]
    for one in sorted((one for one in kept if one is not None), key=lambda one: one.created_at, reverse=True):
        if one.config != config or one.partition == partition:
            continue
        graph = store.folder("ingest", one.ingest), store.folder("partition", one.partition)
        if all(folder.is_dir() for folder in graph) and _load(store, one.key, deep=True) is not None:
            return one
    return None


def _places(store: ArtifactStore, former: LayersManifest | None) -> FormerLayers | None:
    """Return where an earlier graph's layers lie, verified; None where they or the graph are damaged."""
    if former is None:
        return None
    folders = {}
    for name, key in (("ingest", former.ingest), ("partition", former.partition)):
        try:
            if store.load(name, key, load_stage(name).manifest) is None:
                return None
        except IntegrityError:
            return None
        folders[name] = store.folder(name, key)
    for folder in folders.values():
        mark_used(folder)  # both are needed as long as the layers are
    return FormerLayers(store.folder(LAYERS, former.key), folders["partition"], folders["ingest"])


def describe_kept(kept: dict[str, Any]) -> str:
    """Say for people what was computed and what was taken over."""
    size, took = f"{kept['bytes'] / 1e6:,.0f} MB kept", f"{kept['seconds']:.1f} s"
    if kept["former"] is None:
        return f"all rows computed, {took}; {size}"
    shares = ", ".join(f"{100 * share:.2f} %" for share in kept["shares"])
    since = f" as of {kept['former_as_of']}" if kept["former_as_of"] else ""
    return (
        f"computed {shares} of the rows, layer by layer; the others are those of the graph before{since}; {took}, a "
        f"full pass about {kept['full_seconds']:.1f} s; {kept['audited']:,} rows computed both ways, equal; {size}"
    )
