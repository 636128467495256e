"""Which tasks train, validate and test: by their moments, and never by what another split's horizon shows already."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from configs.errors import RecipeError
from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.database.moments import length_time, moment_time, time_text
from tasks.ingest.database.predicted.configs import PredictConfig
from tasks.ingest.database.predicted.targets import Tasks
from tasks.ingest.ids.id_index import hash_ids
from tasks.ingest.ids.node_set import NodeSet
from tasks.ingest.labels import has_label
from tasks.storage.manifests import SPLITS

_SHOWN = 8
_SHARES = (0.1, 0.1)
"""Of rows that validate, and that test, where nobody says it."""


class DealtTasks(NamedTuple):
    """What became of the moments."""

    splits: dict[str, Array]
    """Split to the rows of its tasks, int64, ascending."""
    first_valid: int | None
    """The first moment that validates: what is fitted is fitted on what is older. None: tasks have no moments."""
    left_out: int
    """Tasks of no split, whose horizon reaches into a later one."""


def deal(tasks: Tasks, predict: PredictConfig, entities: NodeSet, unit: TimeUnit) -> DealtTasks:
    """Deal the tasks that have a label out.

    A task's horizon ends before the first moment of the next split: its label would else say what is asked there. Rows
    without times are dealt at random, each as its key says: more rows leave it where it was.

    Raises RecipeError: a split is empty.
    """
    labelled = has_label(tasks.label)
    if tasks.moment is None:
        return _deal_at_random(labelled, predict, entities)
    horizon = length_time(predict.horizon, unit, "dataset.predict.horizon") if predict.horizon else 0
    valid, test = _cuts(tasks.moment[labelled], horizon, predict, unit)
    end = tasks.moment + horizon
    owner = np.full(len(tasks.moment), -1, np.int8)
    owner[(tasks.moment < valid) & (end <= valid)] = 0
    owner[(tasks.moment >= valid) & (tasks.moment < test) & (end <= test)] = 1
    owner[tasks.moment >= test] = 2
    splits, empty = _by_split(owner, labelled)
    if empty:
        moments = np.unique(tasks.moment[labelled])
        shown = ", ".join(time_text(int(moment), unit) for moment in moments[:_SHOWN])
        shown += f", ... ({len(moments):,})" if len(moments) > _SHOWN else ""
        raise RecipeError(
            f"dataset.predict: the {empty} split is empty: moments are {shown}, validation begins "
            f"at {time_text(valid, unit)} and test at {time_text(test, unit)}, and a horizon"
            f"{f' of {predict.horizon}' if predict.horizon else ''} must end before the next split begins; name "
            "earlier moments (at), or where validation and test begin (split: {valid: ..., test: ...})"
        )
    return DealtTasks(splits, int(tasks.moment[splits["valid"]].min()), int(np.count_nonzero((owner < 0) & labelled)))


def _cuts(moments: Array, horizon: int, predict: PredictConfig, unit: TimeUnit) -> tuple[int, int]:
    """Return from where on moments (n,), those of labelled tasks, validate, and test."""
    split = predict.split
    if split is None and not predict.own_rows:
        distinct = np.unique(moments)
        test = int(distinct[-1])
        before = distinct[(distinct < test) & (distinct + horizon <= test)]
        return (int(before[-1]) if len(before) else test), test
    if split is not None and not isinstance(split.valid, float):
        option = "dataset.predict.split"
        valid, test = (moment_time(str(m), unit, option) for m in (split.valid, split.test))
        if valid >= test:
            raise RecipeError(f"{option}: validation begins at {split.valid}, which is not before the test")
        return valid, test
    # Rows of one moment are in one split.
    ordered = np.sort(moments)
    first = [int(len(ordered) * (1 - share)) for share in _from_the_end(predict)]
    valid, test = (int(ordered[min(place, len(ordered) - 1)]) for place in first)
    return valid, test


def _from_the_end(predict: PredictConfig) -> tuple[float, float]:
    """Return which share of the rows validates or tests, and which tests."""
    split = predict.split
    valid, test = _SHARES if split is None else (float(split.valid), float(split.test))
    return valid + test, test


def _deal_at_random(labelled: Array, predict: PredictConfig, entities: NodeSet) -> DealtTasks:
    if predict.horizon is not None or (predict.split is not None and not isinstance(predict.split.valid, float)):
        raise RecipeError(
            f"dataset.predict: rows of {predict.table} have no time that horizon or split could be about; name the "
            f"column (dataset.tables.{predict.table}.time), or give shares: split: {{valid: 0.1, test: 0.1}}"
        )
    held, tested = _from_the_end(predict)
    keys = pa.array(np.arange(len(labelled))) if entities.index is None else entities.index.keys()
    drawn = (hash_ids(keys.cast(pa.string())) >> np.uint64(11)) / float(1 << 53)
    owner = np.where(drawn < tested, 2, np.where(drawn < held, 1, 0))
    splits, empty = _by_split(owner, labelled)
    if empty:
        raise RecipeError(
            f"dataset.predict.split: of {np.count_nonzero(labelled):,} labelled rows none is left for the {empty} "
            "split; give larger shares, or more rows"
        )
    return DealtTasks(splits, None, 0)


def _by_split(owner: Array, labelled: Array) -> tuple[dict[str, Array], str]:
    """Return the labelled rows of each split, and the names of splits without any, for a sentence."""
    splits = {name: np.flatnonzero((owner == code) & labelled) for code, name in enumerate(SPLITS)}
    return splits, " and the ".join(name for name, rows in splits.items() if not len(rows))
