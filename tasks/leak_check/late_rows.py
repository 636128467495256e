"""Which rows of a database's own files are of a moment or later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.arrays import Array
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.predicted.configs import LabelTableConfig
from tasks.ingest.database.relations import row_times
from tasks.ingest.database.rows import RowTimes, TableRows, look_up
from tasks.ingest.tables.intake import Intake


@dataclass
class LateRows:
    """Rows of one table's files, bool (n,) each, those that ingest leaves out included."""

    own: Array
    """Of the moment or later by their own time."""
    any: Array
    """Also, of rows that are edges, by the time of an end."""
    named: Array
    """Another row names them by their key."""
    newest: Array
    """None is later: they say how far the data reaches."""

    def spare(self, rows: Array) -> None:
        """Take rows, int64 (k,), for earlier ones."""
        self.own[rows] = self.any[rows] = False


def late_rows(config: DatabaseConfig, tables: dict[str, TableRows], moment: int, intake: Intake) -> dict[str, LateRows]:
    """Return the late rows of each table; memory: four bytes a row."""
    named = {name: np.zeros(table.num_rows, np.bool_) for name, table in tables.items()}
    late: dict[str, tuple[Array, Array]] = {}
    for name, table in tables.items():
        own = np.zeros(table.num_rows, np.bool_) if table.time is None else table.time >= moment
        both = own.copy()
        keys = list(table.config.foreign)
        for chunk in table.chunks(keys, table.texts_of_keys(tables, keys), intake=intake) if keys else ():
            codes = {key: look_up(chunk.batch, key, tables[table.config.foreign[key]].nodes) for key in keys}
            for key, named_rows in codes.items():
                named[table.config.foreign[key]][named_rows[named_rows >= 0]] = True
            times = row_times(table, tables, chunk.time, codes)
            if times is not None:
                both[chunk.first : chunk.first + len(times)] = times >= moment
        late[name] = own, both
    labels = config.predict.labels
    if labels is not None:
        entities = tables[config.predict.table]
        for batch in intake.batches(labels, [labels.key], entities.nodes.texts(labels.key)):
            labelled = entities.nodes.look_up(batch, labels.key)
            named[entities.name][labelled[labelled >= 0]] = True
    of_tables = {}
    for name, table in tables.items():
        newest = np.zeros(table.num_rows, np.bool_) if table.time is None else table.time == table.time.max()
        of_tables[name] = LateRows(*(_in_files(table, rows) for rows in (*late[name], named[name], newest)))
    return of_tables


def _in_files(table: TableRows, rows: Array) -> Array:
    """Return flags of a table's rows as flags of its files' rows; those that ingest leaves out are False."""
    if table.kept is None:
        return rows
    whole = np.zeros(len(table.kept), np.bool_)
    whole[table.kept] = rows
    return whole


def rows_in_files(table: TableRows, rows: Array) -> Array:
    """Return which rows of a table's files its rows (dense ids) are, int64 (n,)."""
    return rows if table.kept is None else np.flatnonzero(table.kept)[rows]


def late_labels(labels: LabelTableConfig, moment: int, intake: Intake) -> Array:
    """Return which labels are of the moment or later, bool (n,)."""
    assert labels.time is not None
    clock = RowTimes(labels.time, labels.form_of(labels.time), labels.epoch)
    batches = intake.batches(labels, [labels.time], clock.texts, (), clock.inferred)
    return np.concatenate([clock.read_rows(batch, gaps=True)[0] >= moment for batch in batches])
