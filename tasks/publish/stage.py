"""The publish stage: where a training is published, and under which name."""

from __future__ import annotations

from typing import Any

from configs.schema import Recipe
from tasks.processes.run_context import current_run
from tasks.publish.tracking.store_uris import tracking_target
from tasks.stage import Stage, build_of
from tasks.storage.outcomes import PublishManifest

_PARENTS = ("ingest", "preprocess", "components", "partition", "train", "evaluate")


def config(recipe: Recipe) -> dict[str, Any]:
    """Return where and under which name the run is published; a snapshot's report names its moment.

    A publication that leaves the champion alone (a backfill's) is another one than one that lets the gate choose: that
    one is still to come, where somebody asks for it.
    """
    layout = recipe.evaluate.layout
    moment = {} if recipe.snapshot.as_of is None else {"as_of": recipe.snapshot.as_of}
    return {
        **moment,
        **({} if layout is None or layout.color is None else {"color": layout.color}),  # what colours the map first
        **({"champion": "left alone"} if current_run().leave_champion else {}),
        "name": recipe.name,
        "description": recipe.description,
        "tracking": recipe.tracking.model_dump(mode="json"),
        "store": tracking_target(),
    }


STAGE: Stage[PublishManifest] = Stage("publish", 10, PublishManifest, _PARENTS, config, build_of("publish"))
