"""What rows in fewer bits cost: two short trainings, without and with them, before the one that is asked for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from configs.errors import RecipeError
from tasks.train.job import RESULT, GnnJob

if TYPE_CHECKING:
    from tasks.train.strategies.configs import PartitionedConfig

_FOLDERS = ("probe-stored", "probe-rows")


def trainings(job: GnnJob) -> list[GnnJob]:
    """Return two probes and the job itself; nothing where no tolerance is given."""
    strategy = job.train.strategy
    if getattr(strategy, "rows_tolerance", None) is None or strategy.rows == "stored":  # type: ignore[attr-defined]
        return []
    options: PartitionedConfig = strategy  # type: ignore[assignment]
    folders = job.work / _FOLDERS[0], job.work / _FOLDERS[1]
    probes = []
    for folder, rows in zip(folders, ("stored", options.rows), strict=True):
        nothing_judged = {name: type(options).model_fields[name].default for name in ("rows_tolerance", "rows_epochs")}
        changed = options.model_copy(update={"rows": rows, **nothing_judged})
        train = job.train.model_copy(update={"epochs": options.rows_epochs, "strategy": changed})
        probes.append(replace(job, work=folder, digest=f"{job.digest}-{folder.name}", train=train))
    return [*probes, replace(job, probes=folders)]


def judge(job: GnnJob) -> str:
    """Say what the rows cost. Raises RecipeError: more than is tolerated."""
    options: PartitionedConfig = job.train.strategy  # type: ignore[assignment]
    assert job.probes is not None
    assert options.rows_tolerance is not None
    stored, rows = (json.loads((folder / RESULT).read_text())["best_metric"] for folder in job.probes)
    text = (
        f"train.strategy.rows={options.rows}: the validation metric after {options.rows_epochs} epochs is {rows:.4f}, "
        f"with rows as they are stored {stored:.4f}"
    )
    if not stored - rows <= options.rows_tolerance:
        raise RecipeError(
            f"{text}: {stored - rows:.4f} less, and train.strategy.rows_tolerance={options.rows_tolerance:g} is "
            "tolerated; take rows of more bits, or raise the tolerance"
        )
    return text
