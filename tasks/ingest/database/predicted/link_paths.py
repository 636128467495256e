"""How rows that link an entity to another table's rows lead to the entity, and links between both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from configs.matching import did_you_mean
from tasks.arrays import Array

if TYPE_CHECKING:
    from tasks.ingest.database.predicted.configs import PredictConfig
    from tasks.ingest.database.table_configs import DatabaseTableConfig

_MOST_STEPS = 4


class LinkPath(NamedTuple):
    """Rows of `table` link entities to rows of `target`."""

    table: str
    column: str
    """Foreign key of the table to `target`."""
    target: str
    steps: tuple[tuple[str, str], ...]
    """Table and foreign key of each step from the table to the owner."""
    owner: str
    """Table of the entities; of what is had together, of what it is had in."""
    together: bool = False
    """Whether rows of the target are recommended by what they are had together with."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose rows make up a link: it is there once all of them are."""
        of_steps = tuple(table for table, _ in self.steps)
        return (*of_steps, self.owner) if self.together else of_steps


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


def link_path(predict: PredictConfig, tables: Mapping[str, DatabaseTableConfig]) -> LinkPath:
    """Return how `predict.target: {links: TABLE.COLUMN}`, or `together`, leads to its owners. Raises ValueError."""
    where = "predict.target"
    assert predict.target is not None
    name, column = predict.target.table, predict.target.column
    assert column is not None
    if name not in tables:
        raise ValueError(
            f"{where}: there is no table {name!r}{did_you_mean(name, tables)}; tables: {', '.join(tables)}"
        )
    foreign = tables[name].foreign
    if column not in foreign:
        raise ValueError(
            f"{where}: {predict.target.figure}: {name}.{column}: {column} is no foreign key of {name}"
            f"{did_you_mean(column, foreign)}; its own are {', '.join(foreign) or 'none'}"
        )
    if predict.target.together is not None:
        return _timed(_together_path(predict, name, column, tables), tables)
    paths = _paths(name, predict.table, tables, besides=column)
    if not paths:
        raise ValueError(
            f"{where}: no foreign keys lead from {name} to {predict.table} within {_MOST_STEPS} steps (but by "
            f"{column}, which names what is linked); name them (foreign: {{COLUMN: TABLE}})"
        )
    steps = _chosen(paths, predict.via, name, predict.table)
    return _timed(LinkPath(name, column, foreign[column], steps, predict.table), tables)


def _timed(made: LinkPath, tables: Mapping[str, DatabaseTableConfig]) -> LinkPath:
    """Return a path if it has a time. Raises ValueError."""
    if not any(tables[table].time for table in made.tables):
        raise ValueError(
            f"predict.target: neither {' nor '.join(made.tables)} has a time, and which links are behind a moment is "
            "not known; name the column (time: ...)"
        )
    return made


def _together_path(
    predict: PredictConfig, name: str, column: str, tables: Mapping[str, DatabaseTableConfig]
) -> LinkPath:
    """Return how rows lead to what they are together in (`by`). Raises ValueError."""
    where = "predict.target.by"
    assert predict.target is not None
    assert predict.target.by is not None
    target = tables[name].foreign[column]
    if target != predict.table:
        raise ValueError(
            f"predict.target: together: {name}.{column} names {target}, and rows of {predict.table} are predicted: "
            f"what is together is of one table; set predict.table: {target}"
        )
    place, steps = name, []
    for step in predict.target.by.split("."):
        foreign = tables[place].foreign
        if step not in foreign or (place, step) == (name, column):
            others = [one for one in foreign if (place, one) != (name, column)]
            raise ValueError(
                f"{where}: {step!r} is no foreign key of {place} by which rows can be together"
                f"{did_you_mean(step, others)}; its own are {', '.join(others) or 'none'}"
            )
        steps.append((place, step))
        place = foreign[step]
    if place == target:
        raise ValueError(f"{where}: {predict.target.by} leads to {target} themselves; name what they are together in")
    return LinkPath(name, column, target, tuple(steps), place, together=True)


def _paths(
    table: str, entity: str, tables: Mapping[str, DatabaseTableConfig], besides: str
) -> list[tuple[tuple[str, str], ...]]:
    """Return all paths of foreign keys from a table to the entities that visit no table twice, the shortest first."""
    paths: list[tuple[tuple[str, str], ...]] = []
    ways: list[tuple[str, tuple[tuple[str, str], ...]]] = [(table, ())]
    while ways:
        place, steps = ways.pop(0)
        visited = {name for name, _ in steps}
        for column, target in tables[place].foreign.items() if len(steps) < _MOST_STEPS else ():
            if place == table and column == besides:
                continue
            further = (*steps, (place, column))
            if target == entity:
                paths.append(further)
            elif target not in visited | {place} and target in tables:
                ways.append((target, further))
    return paths


def _chosen(
    paths: list[tuple[tuple[str, str], ...]], via: str | None, table: str, entity: str
) -> tuple[tuple[str, str], ...]:
    by_name = {".".join(column for _, column in steps): steps for steps in paths}
    if via is not None:
        if via not in by_name:
            raise ValueError(
                f"predict.via: {via!r} does not lead from {table} to {entity}{did_you_mean(via, by_name)}; what does: "
                f"{', '.join(by_name)}"
            )
        return by_name[via]
    direct = [steps for steps in paths if len(steps) == 1]
    if len(direct) == 1:
        return direct[0]
    if len(paths) > 1:
        raise ValueError(
            f"predict.target: {table} leads to {entity} by {', '.join(by_name)}; say which counts: predict.via"
        )
    return paths[0]
