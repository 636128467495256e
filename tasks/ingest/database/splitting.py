"""Which tasks train, validate and test: by their moments, and never by what another split's horizon shows already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from configs.errors import RecipeError
from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.database.moments import length_time, moment_time, time_text
from tasks.ingest.database.predict_configs import PredictConfig
from tasks.ingest.database.targets import Tasks
from tasks.ingest.labels import has_label
from tasks.storage.manifests import SPLITS


class Dealt(NamedTuple):
    """What became of the moments."""

    splits: dict[str, Array]
    """Split to the rows of its tasks, int64, ascending."""
    first_valid: int
    """The first moment that validates: what is fitted is fitted on what is older."""
    left_out: int
    """Tasks of no split, whose horizon reaches into a later one."""


def deal_by_moment(tasks: Tasks, predict: PredictConfig, unit: TimeUnit) -> Dealt:
    """Deal the tasks that have a label out.

    A task's horizon ends before the first moment of the next split: its label would else say what is asked there.

    Raises:
        RecipeError: a split is empty.
    """
    labelled = has_label(tasks.label)
    moments = np.unique(tasks.moment[labelled])
    horizon = length_time(predict.horizon, unit, "dataset.predict.horizon") if predict.horizon else 0
    valid, test = _cuts(moments, horizon, predict, unit)
    end = tasks.moment + horizon
    owner = np.full(len(tasks.moment), -1, np.int8)
    owner[(tasks.moment < valid) & (end <= valid)] = 0
    owner[(tasks.moment >= valid) & (tasks.moment < test) & (end <= test)] = 1
    owner[tasks.moment >= test] = 2
    owner[~labelled] = -1
    splits = {name: np.flatnonzero(owner == code) for code, name in enumerate(SPLITS)}
    empty = [name for name, rows in splits.items() if not len(rows)]
    if empty:
        names = " and the ".join(empty)
        raise RecipeError(
            f"dataset.predict: the {names} split is empty: moments are {_listed(moments, unit)}, validation begins "
            f"at {time_text(valid, unit)} and test at {time_text(test, unit)}, and a horizon"
            f"{f' of {predict.horizon}' if predict.horizon else ''} must end before the next split begins; name "
            "earlier moments (at), or where validation and test begin (split: {valid: ..., test: ...})"
        )
    return Dealt(splits, int(tasks.moment[splits["valid"]].min()), int(np.count_nonzero((owner < 0) & labelled)))


def _cuts(moments: Array, horizon: int, predict: PredictConfig, unit: TimeUnit) -> tuple[int, int]:
    """Return from where on moments validate, and test."""
    if predict.split is not None:
        option = "dataset.predict.split"
        valid, test = (moment_time(m, unit, option) for m in (predict.split.valid, predict.split.test))
        if valid >= test:
            raise RecipeError(f"{option}: validation begins at {predict.split.valid}, which is not before the test")
        return valid, test
    test = int(moments[-1])
    before = moments[(moments < test) & (moments + horizon <= test)]
    return (int(before[-1]) if len(before) else test), test


def _listed(moments: Array, unit: TimeUnit) -> str:
    shown = [time_text(int(moment), unit) for moment in moments[:8]]
    return ", ".join(shown) + (f", ... ({len(moments):,})" if len(moments) > len(shown) else "")
