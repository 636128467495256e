"""How rows that link an entity to another table's rows lead to the entity: a foreign key, or a path of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from configs.matching import did_you_mean

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
    """Table and foreign key of each step from the table to the entity."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose rows make up a link: it is there once all of them are."""
        return tuple(table for table, _ in self.steps)

    @property
    def is_link_table(self) -> bool:
        """Whether the two foreign keys are of one table."""
        return len(self.steps) == 1


def link_path(predict: PredictConfig, tables: Mapping[str, DatabaseTableConfig]) -> LinkPath:
    """Return how `predict.target: {links: TABLE.COLUMN}` leads to the entities. Raises ValueError."""
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
            f"{where}: links: {name}.{column}: {column} is no foreign key of {name}{did_you_mean(column, foreign)}; "
            f"its own are {', '.join(foreign) or 'none'}"
        )
    paths = _paths(name, predict.table, tables, besides=column)
    if not paths:
        raise ValueError(
            f"{where}: no foreign keys lead from {name} to {predict.table} within {_MOST_STEPS} steps (but by "
            f"{column}, which names what is linked); name them (foreign: {{COLUMN: TABLE}})"
        )
    found = _chosen(paths, predict.via, name, predict.table)
    made = LinkPath(name, column, foreign[column], found)
    if not any(tables[table].time for table in made.tables):
        raise ValueError(
            f"{where}: neither {' nor '.join(made.tables)} has a time, and which links are behind a moment is not "
            "known; name the column (time: ...)"
        )
    return made


def _paths(
    table: str, entity: str, tables: Mapping[str, DatabaseTableConfig], besides: str
) -> list[tuple[tuple[str, str], ...]]:
    """Return all paths of foreign keys from a table to the entities that visit no table twice, the shortest first."""
    found: list[tuple[tuple[str, str], ...]] = []
    ways: list[tuple[str, tuple[tuple[str, str], ...]]] = [(table, ())]
    while ways:
        place, steps = ways.pop(0)
        visited = {name for name, _ in steps}
        for column, target in tables[place].foreign.items() if len(steps) < _MOST_STEPS else ():
            if place == table and column == besides:
                continue
            further = (*steps, (place, column))
            if target == entity:
                found.append(further)
            elif target not in visited | {place} and target in tables:
                ways.append((target, further))
    return found


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
