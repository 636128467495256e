"""What is predicted: an entity at a moment each, with its label, computed from the tables.

Memory: 24 bytes for each row of the target's table (and of the table that says who is active), 24 for each task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean, listed
from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.moments import end_of_data, length_time, moment_time, time_text
from tasks.ingest.database.predicted.configs import (
    NEWEST,
    MomentsConfig,
    NamedTargetConfig,
    PredictConfig,
    TargetConfig,
)
from tasks.ingest.database.predicted.label_values import LabelFacts, head_of
from tasks.ingest.database.predicted.link_paths import LinkPath
from tasks.ingest.database.rows import TableRows, look_up
from tasks.ingest.labels import LabelKind, wrong_labels
from tasks.ingest.tables.columns import numbers
from tasks.ingest.tables.intake import Intake
from tasks.sizes import need_memory
from tasks.storage.graph_store import ALWAYS


class Links(NamedTuple):
    """All links there are, oldest first."""

    path: LinkPath
    entity: Array
    """int64 (n,): dense ids."""
    target: Array
    """int64 (n,): dense ids of the other table's rows."""
    time: Array
    """int64 (n,): when the rows that make it up were all there."""

    def between(self, start: int, end: int) -> slice:
        """Return those of start <= time < end."""
        first, last = np.searchsorted(self.time, [start, end])
        return slice(int(first), int(last))


class PositiveLinks(NamedTuple):
    """What entities are linked to within their horizons."""

    all: Links
    """All links of all times."""
    task: Array
    """int64 (m,), ascending: the task's row."""
    target: Array
    """int64 (m,): dense id of what its entity is linked to, each once."""
    without: int
    """Entities at moments that are left out, without any link."""


_MOST_MOMENTS = 100_000
_SHOWN = 3
_STRAGGLERS, _FEWEST_ROWS = 1000, 100
"""One row in so many may be a mistake; of fewer rows than that each counts."""


class Tasks(NamedTuple):
    """Entities at moments, by moment and entity; or rows of a table as of their own times, in its order."""

    entity: Array
    """int64 (n,): dense ids."""
    moment: Array | None
    """int64 (n,); None: rows have no times."""
    label: Array
    """The column `label`: int64 (n,) of classes, else float32 (n, width)."""
    facts: LabelFacts
    links: PositiveLinks | None = None
    """Of a ranking."""
    past: Mapping[str, Array] = MappingProxyType({})
    """Of computed labels, float32 (n, width) each with NaN for none: `last_value`, the same figure of as long before
    the moment, and `own_mean`, the mean of the entity's earlier labels that were known by then."""


def _moments_of(at: MomentsConfig, unit: TimeUnit, newest: int) -> Array:
    """Return the moments, int64, ascending; `newest` is the last one that the data can tell of. Raises RecipeError."""
    option = "dataset.predict.at"
    if at.moments:
        times = np.array(sorted(moment_time(moment, unit, option) for moment in at.moments), np.int64)
        twice = times[1:][np.diff(times) == 0]
        if len(twice):
            raise RecipeError(f"{option}: {time_text(int(twice[0]), unit)} stands twice, written in two ways")
        return times
    assert at.first is not None
    assert at.last is not None
    assert at.every is not None
    first = moment_time(at.first, unit, option)
    last = newest if at.last == NEWEST else moment_time(at.last, unit, option)
    step = length_time(at.every, unit, f"{option}.every")
    if last < first and at.last == NEWEST:
        raise RecipeError(
            f"{option}: the horizon of the first moment, {at.first}, is not over by the end of the data: the last one "
            f"that it tells of is {time_text(newest, unit)}; name an earlier one"
        )
    if last < first:
        raise RecipeError(f"{option}: the last moment, {at.last}, is before the first, {at.first}")
    if (last - first) // step >= _MOST_MOMENTS:
        raise RecipeError(
            f"{option}: every {at.every} from {at.first} to {at.last} is more than {_MOST_MOMENTS:,} moments"
        )
    return np.arange(first, last + 1, step, dtype=np.int64)


def presence_of(config: DatabaseConfig, tables: Mapping[str, TableRows], unit: TimeUnit) -> Callable[[int], Array]:
    """Return what tells which entities are predicted at a moment, bool (num_rows,): those there, and active."""
    predict, active, entities = config.predict, config.predict.active, tables[config.predict.table]
    events_by_key: list[_Events] = []
    within = 0
    if active is not None:
        within = length_time(active.within, unit, "dataset.predict.active.within")
        counted = predict.target is not None and not predict.target.is_ranked and predict.target.table == active.any
        rows = tables[active.any]
        keys = [column for column, target in rows.config.foreign.items() if target == predict.table]
        keys = [predict.via] if counted and predict.via else keys
        events_by_key = [_events(rows, key, None, tables) for key in keys]

    def at(moment: int) -> Array:
        there = np.ones(entities.num_rows, np.bool_) if entities.time is None else entities.time < moment
        if active is not None:
            recent = np.zeros(entities.num_rows, np.bool_)
            for events in events_by_key:
                recent[events.entity[events.between(moment - within, moment)]] = True
            there &= recent
        return there

    return at


def computed_tasks(config: DatabaseConfig, tables: Mapping[str, TableRows], unit: TimeUnit) -> Tasks:
    """Compute the labels of all entities at all moments; NaN at those of which nothing is known yet.

    A row counts where moment <= time < moment + horizon; an entity, where it is older than the moment, and a row of
    the table `active` names it that is older by `within` or less.

    Raises DataError: a moment whose horizon reaches beyond the data, or at which there is nobody.
    """
    predict, targets, present = config.predict, config.predict.computed, presence_of(config, tables, unit)
    named = [tables[name] for name in dict.fromkeys(target.table for target in targets.values())]
    horizon, moments = checked_moments(predict, named, unit)
    figures = _Figures(config, tables, horizon, unit)
    parts: list[tuple[Array, ...]] = []
    for moment, is_later in moments:
        there = present(moment)
        last = figures.at(moment - horizon)
        label = np.full_like(last, np.nan) if is_later else figures.at(moment)
        ids = np.flatnonzero(there & (is_later | ~np.isnan(label).all(1)))
        if not len(ids):
            refuse_empty(predict, tables[predict.table], moment, unit, someone=bool(there.any()))
        parts.append((ids, np.full(len(ids), moment), label[ids], last[ids], figures.own_mean(moment, ids, label)))
        need = (16 + 12 * label.shape[1]) * sum(len(part[0]) for part in parts)
        need_memory(need, "what is to be predicted", "name fewer moments")
    entity, moment_of, labels, last, mean = (np.concatenate(each) for each in zip(*parts, strict=True))
    past = {"last_value": last, "own_mean": mean}
    return Tasks(entity, moment_of, labels, _kind_of(targets), past=past)


def _kind_of(targets: Mapping[str, TargetConfig]) -> LabelFacts:
    heads = []
    for name, one in targets.items():
        kind = LabelFacts("binary", 2) if one.figure in ("none", "any") else LabelFacts("regression", 0)
        if not isinstance(one, NamedTargetConfig):
            return kind
        heads.append(head_of(name, kind.task_type, one, kind.num_classes))
    return LabelFacts("several", 0, tuple(heads))


class _Figures:
    """All targets of all entities at a moment, and what was known of them before."""

    def __init__(self, config: DatabaseConfig, tables: Mapping[str, TableRows], horizon: int, unit: TimeUnit) -> None:
        predict, self._horizon, self._unit = config.predict, horizon, unit
        self._table, self._entities = predict.table, tables[predict.table].nodes
        self._num_entities = tables[predict.table].num_rows
        self._names = [(one.figure, tables[one.table], one.column) for one in predict.computed.values()]
        self._targets = [
            (one.figure, _events(tables[one.table], config.key_of_target(name, one), one.column, tables))
            for name, one in predict.computed.items()
        ]
        shape = (self._num_entities, len(self._targets))
        need_memory(32 * shape[0] * shape[1], "the entities' earlier labels", "take fewer entities")
        self._sum, self._count = np.zeros(shape), np.zeros(shape)
        self._waiting: list[tuple[int, Array, Array]] = []

    def at(self, moment: int) -> Array:
        """Return the labels of all entities, float32 (num_entities, targets); NaN: there is none.

        Raises DataError: one does not fit float32.
        """
        columns = [_figure(figure, rows, moment, self._horizon, self._num_entities) for figure, rows in self._targets]
        values = np.stack(columns, axis=1)
        for row, target in np.argwhere(wrong_labels(values, LabelKind("regression", 0, values.shape[1])))[:1]:
            figure, rows, column = self._names[target]
            until = time_text(moment + self._horizon, self._unit)
            raise DataError(
                f"the {figure} from {time_text(moment, self._unit)} to {until} of what names {self._table} "
                f"{self._entities.original(int(row))!r} is {values[row, target]:g}, which does not fit float32; scale "
                "the column, or mend its largest values",
                path=rows.config.names,
                column=column,
            )
        return values.astype(np.float32)

    def own_mean(self, moment: int, ids: Array, label: Array) -> Array:
        """Return the means of some entities' earlier labels that are known by a moment, and take these labels down.

        ids int64 (n,), label float (num_entities, targets); moments come in ascending order. Returns float32 (n,
        targets).
        """
        while self._waiting and self._waiting[0][0] + self._horizon <= moment:
            _, earlier, values = self._waiting.pop(0)
            is_known = ~np.isnan(values)
            self._sum[earlier] += np.where(is_known, values, 0)
            self._count[earlier] += is_known
        self._waiting.append((moment, ids, label[ids]))
        with np.errstate(invalid="ignore"):
            return np.asarray(self._sum[ids] / self._count[ids], np.float32)


def checked_moments(
    predict: PredictConfig, counted: Sequence[TableRows], unit: TimeUnit
) -> tuple[int, list[tuple[int, bool]]]:
    """Return the horizon, and the moments in ascending order with whether nothing is known of one yet.

    `counted`: the tables whose rows labels are made of. Raises RecipeError and DataError.
    """
    assert predict.at is not None
    assert predict.horizon is not None
    horizon = length_time(predict.horizon, unit, "dataset.predict.horizon")
    end = min(_data_end(predict, rows, unit) for rows in counted)
    moments = _moments_of(predict.at, unit, end - horizon)
    for rows in counted:
        _check_end(predict, rows, moments, horizon, unit)
    option = "dataset.predict.unlabelled"
    later = {end if moment == NEWEST else moment_time(moment, unit, option) for moment in predict.unlabelled}
    both = sorted(later & set(moments.tolist()))
    if both:
        raise RecipeError(f"{option}: {time_text(both[0], unit)} stands in dataset.predict.at too; take it out of one")
    return horizon, [(moment, moment in later) for moment in sorted([*moments.tolist(), *later])]


def _data_end(predict: PredictConfig, rows: TableRows, unit: TimeUnit) -> int:
    """Return the first time of which nothing can be known: `data_end`, or the end of the newest row's day."""
    if predict.data_end is not None:
        return moment_time(predict.data_end, unit, "dataset.predict.data_end")
    assert rows.newest is not None
    if rows.newest == ALWAYS:
        raise DataError(
            "no row has a time (on_missing_time: always): nothing comes after a moment that could be predicted",
            path=rows.config.names,
            column=rows.config.time,
        )
    return end_of_data(rows.newest, unit)


def _check_end(predict: PredictConfig, rows: TableRows, moments: Array, horizon: int, unit: TimeUnit) -> None:
    """Refuse moments whose horizon reaches beyond the newest row: what is not there yet would count as nothing."""
    newest, end = rows.newest, _data_end(predict, rows, unit)
    assert newest is not None
    late = moments[moments + horizon > end]
    if not len(late):
        if predict.data_end is None:
            _tell_stragglers(rows, int(moments[-1]), horizon, unit)
        return
    shown = ", ".join(time_text(int(moment), unit) for moment in late[:_SHOWN])
    shown += ", ..." if len(late) > _SHOWN else ""
    until = f"which is complete until {predict.data_end} (data_end)"
    more = ""
    if predict.data_end is None:
        until = f"whose newest row is of {time_text(newest, unit)}"
        more = "; if it is complete for longer, and merely has no rows, say until when: dataset.predict.data_end"
    raise DataError(
        f"the horizon of {len(late):,} moments ({shown}) reaches beyond {rows.name}, {until}: what nobody knows yet "
        f"would count as nothing; the last moment that it holds is {time_text(end - horizon, unit)}{more}",
        path=rows.config.names,
        column=rows.config.time,
    )


def _tell_stragglers(rows: TableRows, last: int, horizon: int, unit: TimeUnit) -> None:
    """Tell where hardly any row reaches beyond half of the last horizon: one mistaken time passes for complete data."""
    assert rows.time is not None
    few = max(1, len(rows.time) // _STRAGGLERS)
    if len(rows.time) < _FEWEST_ROWS:
        return
    before = int(np.partition(rows.time, -few - 1)[-few - 1])
    if last + horizon - end_of_data(before, unit) <= horizon / 2:
        return
    rows.intake.hints.append(
        f"{rows.config.names} (column {rows.config.time}): all rows but {few:,} are of {time_text(before, unit)} or "
        f"earlier, and the horizon of the last moment ends {time_text(last + horizon, unit)}: are those few mistakes? "
        "What nobody knows yet counts as nothing; name earlier moments (dataset.predict.at), or say until when the "
        "table is complete (dataset.predict.data_end)"
    )


def refuse_empty(predict: PredictConfig, entities: TableRows, moment: int, unit: TimeUnit, *, someone: bool) -> None:
    """Say why nobody is predicted at a moment; `someone`: there are entities, and none has a label."""
    words = f"at {time_text(moment, unit)} there is no row of {predict.table} to be predicted"
    oldest = None if entities.time is None else int(entities.time.min())
    figures = dict.fromkeys(one.figure for one in predict.computed.values())
    if someone:
        words += f": none has a row within the horizon of which {' or '.join(figures)} could be taken"
    elif oldest is not None and oldest >= moment:
        words += f": the oldest is of {time_text(oldest, unit)}"
    elif predict.active is not None:
        words += f": no row of {predict.active.any} names one in the {predict.active.within} before (active)"
    raise DataError(f"{words}; leave that moment out of dataset.predict.at", path=entities.config.names)


class _Events(NamedTuple):
    """Rows that name entities, oldest first."""

    entity: Array
    time: Array
    value: Array | None

    def between(self, start: int, end: int) -> slice:
        """Return those of start <= time < end."""
        first, last = np.searchsorted(self.time, [start, end])
        return slice(int(first), int(last))


def _events(rows: TableRows, key: str, column: str | None, tables: Mapping[str, TableRows]) -> _Events:
    """Read which entity each row names, and its value. Mistakes of the key were said before."""
    silent = Intake()
    if column is not None and column not in rows.column_names():
        names = rows.column_names()
        raise DataError(
            f"has no column {column!r}{did_you_mean(column, names)} (dataset.predict.target); it has {listed(names)}",
            path=rows.config.names,
        )
    need_memory(24 * rows.num_rows, f"the times of {rows.num_rows:,} rows of {rows.name}", "take fewer rows")
    entity, values = np.empty(rows.num_rows, np.int64), np.empty(rows.num_rows if column else 0)
    target = tables[rows.config.foreign[key]].nodes
    columns = [key, *([column] if column else [])]
    value_columns = [column] if column else []
    for chunk in rows.chunks(columns, rows.texts_of_keys(tables, [key]), value_columns, intake=silent):
        some = slice(chunk.first, chunk.first + chunk.batch.num_rows)
        entity[some] = look_up(chunk.batch, key, target)
        if column:
            cells = numbers(chunk.batch, column, missing=True)
            if cells.ndim != 1:
                raise DataError(
                    "is a column of lists; a sum or mean is one of numbers", path=chunk.batch.path, column=column
                )
            values[some] = cells
    silent.problems.raise_any()
    assert rows.time is not None
    counts = entity >= 0
    if column:
        counts &= ~np.isnan(values)
    order = np.argsort(rows.time[counts], kind="stable")
    return _Events(entity[counts][order], rows.time[counts][order], values[counts][order] if column else None)


def _figure(figure: str, events: _Events, moment: int, horizon: int, num_entities: int) -> Array:
    """Return the label of each entity at a moment, float64; NaN: it has none."""
    some = events.between(moment, moment + horizon)
    count = np.bincount(events.entity[some], minlength=num_entities)
    if figure in ("none", "any"):
        return ((count == 0) == (figure == "none")).astype(np.float64)
    if figure == "count":
        return count.astype(np.float64)
    assert events.value is not None
    total = np.bincount(events.entity[some], weights=events.value[some], minlength=num_entities)
    if figure == "sum":
        return total
    with np.errstate(invalid="ignore"):
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)
