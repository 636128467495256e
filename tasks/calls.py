"""A stage called by its name: what a Prefect task does, and what a run remembers of it.

Prefect sees names and small numbers only; manifests and arrays stay in the home.
"""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from configs.schema import Recipe
from tasks.stage import Listener, MapShards, Parent, Stage, StageOutcome, map_in_process, run_stage, stage_key
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home


class ParentGoneError(Exception):
    """An artifact that a stage reads is no longer there; its stage has to run again first."""

    def __init__(self, stage: str) -> None:
        super().__init__(f"the artifact of {stage} is gone")
        self.stage = stage


class StageRecord(BaseModel):
    """What a run remembers of a stage, as plain JSON values."""

    name: str
    status: Literal["cached", "ran"]
    key: str
    digest: str
    version: int
    config: dict[str, Any]
    parents: dict[str, str]
    """Stage to the digest of its artifact."""
    seconds: float
    build_seconds: float
    """What making it took, perhaps in an earlier run."""
    peak_bytes: int
    rows: int
    bytes: int
    folder: str
    warnings: list[str]
    repaired: str

    @classmethod
    def of(cls, outcome: StageOutcome[Any]) -> StageRecord:
        """Return the record of a stage that has run or was found, and was used so."""
        manifest = outcome.manifest
        mark_used(outcome.folder)
        return cls(
            name=manifest.stage,
            status="cached" if outcome.cached else "ran",
            key=manifest.key,
            digest=manifest.digest,
            version=manifest.stage_version,
            config=manifest.config,
            parents=manifest.parents,
            seconds=round(outcome.seconds, 3),
            build_seconds=manifest.seconds,
            peak_bytes=manifest.peak_bytes,
            rows=manifest.rows,
            bytes=manifest.num_bytes,
            folder=str(outcome.folder),
            warnings=list(manifest.warnings),
            repaired=outcome.repaired,
        )


def load_stage(name: str) -> Stage[Any]:
    """Import a stage; only then are its libraries loaded."""
    stage: Stage[Any] = importlib.import_module(f"tasks.{name}.stage").STAGE
    return stage


def load_parents(stage: Stage[Any], home: Home, keys: dict[str, str]) -> dict[str, Parent]:
    """Open the artifacts that `stage` reads. Raises ParentGoneError (one is gone) and IntegrityError (is damaged)."""
    store = ArtifactStore(home)
    parents = {}
    for name in stage.parents:
        manifest = store.load(name, keys[name], load_stage(name).manifest)
        if manifest is None:
            raise ParentGoneError(name)
        parents[name] = Parent(manifest, store.folder(name, keys[name]))
    return parents


def _all_parents(stage: Stage[Any], recipe: Recipe, home: Home, keys: dict[str, str]) -> dict[str, Parent]:
    """Open what `load_parents` does and the artifacts of earlier runs that the recipe asks for."""
    parents = load_parents(stage, home, keys)
    further = {name: find(recipe, home, parents) for name, find in stage.further.items()}
    return parents | {name: parent for name, parent in further.items() if parent is not None}


def find_stage(name: str, recipe: Recipe, parents: dict[str, str], home: Home) -> StageOutcome[Any] | None:
    """Return the verified artifact of a stage, None: there is none; nothing is built. Raises as `load_parents` does."""
    key, store = expected_key(name, recipe, parents, home), ArtifactStore(home)
    manifest = store.load(name, key, load_stage(name).manifest)
    return None if manifest is None else StageOutcome(manifest, store.folder(name, key), True, 0.0)


def expected_key(name: str, recipe: Recipe, parents: dict[str, str], home: Home) -> str:
    """Return the key that a stage's artifact has or will have. Raises as `find_stage` does."""
    stage = load_stage(name)
    return stage_key(stage, recipe, _all_parents(stage, recipe, home, parents), home)


def call_stage(
    name: str,
    recipe: Recipe,
    home: Home,
    parents: dict[str, str],
    *,
    listener: Listener | None = None,
    map_shards: MapShards = map_in_process,
    force: bool = False,
) -> StageRecord:
    """Run (or find) a stage; `parents` maps stage to key."""
    stage = load_stage(name)
    try:
        opened = _all_parents(stage, recipe, home, parents)
        outcome = run_stage(stage, recipe, opened, home, listener=listener, map_shards=map_shards, force=force)
    except Exception as error:
        if listener is not None:
            listener.failure(name, f"{type(error).__name__}: {error}")
        raise
    return StageRecord.of(outcome)


def mark_used(folder: Path) -> None:
    """Remember that an artifact was used now; `graphmill clean --older-than` looks at it."""
    os.utime(folder)
