"""Which earlier training a snapshot's begins with. No torch here: `plan` asks for the key that this is part of."""

from __future__ import annotations

from pathlib import Path

from configs.errors import IntegrityError
from configs.schema import Recipe
from tasks.calls import expected_key
from tasks.stage import Parent
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.outcomes import RunResult
from tasks.storage.snapshots import earlier_snapshots
from tasks.train.job import WarmStart

PARENT = "warm_start"
"""What the earlier training is called among the parents of this one."""


def earlier_training(recipe: Recipe, home: Home, parents: dict[str, Parent]) -> Parent | None:
    """Return the training of the newest earlier snapshot; None where the recipe asks for none or none is there.

    One with the very graph of `parents` is no earlier one: nothing has come since, and what that one began with counts
    here too. So the training is the same one, and a night without news trains nothing.

    Nor does one count that was split otherwise: it may have learnt from what this one is tested on. (Splits by time
    only grow, as long as data is added behind what was there; the data set's own split must be of the same ingestion.
    The rows themselves are compared when the training begins, see `warm_weights`: it begins afresh where some moved.)
    """
    if not recipe.snapshot.warm_start:
        return None
    store = ArtifactStore(home)
    for run in earlier_snapshots(home, recipe, "train"):
        other = recipe.snapshot.split == "keep" and run.keys.get("ingest") != expected_key("ingest", recipe, {}, home)
        if other or not run.same_split:
            continue
        try:
            manifest = store.load("train", run.keys["train"], RunResult)
        except IntegrityError:  # its own stage will make it again, when it is asked for
            continue
        if manifest is not None and manifest.parents["partition"] != parents["partition"].manifest.digest:
            return Parent(manifest, store.folder("train", manifest.key))
    return None


def warm_start(recipe: Recipe, home: Home, training: Parent) -> WarmStart:
    """Return what the processes that train have to know of the earlier training."""
    store, key = ArtifactStore(home), training.manifest.key
    run = next(run for run in earlier_snapshots(home, recipe, "train") if run.keys["train"] == key)

    def folder(stage: str, name: str) -> Path | None:
        place = store.folder(stage, name)
        return place if name and place.is_dir() else None

    return WarmStart(
        as_of=run.as_of,
        key=key,
        checkpoint=training.folder / training.manifest.best_checkpoint,
        graph=folder("partition", run.keys.get("partition", "")),
        dataset=folder("ingest", run.keys.get("ingest", "")),
        own_dataset=folder("ingest", expected_key("ingest", recipe, {}, home)),
        weights=training.manifest.files[training.manifest.best_checkpoint].sha256,
    )
