"""Copies of a database's own files in which everything from a moment on is something else.

Late rows get other cells, some of them are left out, and new ones come. Earlier rows stay as they are and in their
order, so that they are known by their place among the earlier ones.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
import pyarrow.parquet as pq

from tasks.arrays import Array
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.features import feature_candidates
from tasks.ingest.database.ingest import scan_tables, settled
from tasks.ingest.database.predicted.configs import LabelTableConfig, columns_of
from tasks.ingest.database.relations import row_times
from tasks.ingest.database.rows import RowTimes, TableRows, look_up
from tasks.ingest.database.table_configs import DatabaseFilesConfig
from tasks.ingest.tables.columns import is_list
from tasks.ingest.tables.intake import Intake, table_files
from tasks.readers.columns import is_text
from tasks.readers.formulas import guarded
from tasks.stage import StageContext

_SHARE = 0.25
"""Of late rows: so many go, and so many new ones come."""
Batches = Iterator[tuple[Path, pa.RecordBatch]]


def change_tables(
    config: DatabaseConfig, context: StageContext, moment: int, spared: Mapping[str, Array], seed: int = 0
) -> DatabaseConfig:
    """Write changed copies of all files into `context.work`; return the options that read them.

    How many rows the predicted table and the table of labels have, and when these are, stays where labels are read:
    splits may go by that. The newest row of a table stays too, and so do the `spared` rows, table to dense ids int64
    (n,): seeds see their own row. `moment` is in the unit of the tables' times; `seed`: which other cells.
    """
    intake = Intake()
    config = settled(config, intake)
    tables = scan_tables(config, context, intake)
    late = late_rows(config, tables, moment, intake)
    predict, changes = config.predict, {}
    for number, (name, table) in enumerate(tables.items()):
        with_label = late[name].own.copy()  # of spared rows too: no input has it
        spared_rows = spared.get(name, np.empty(0, np.int64))
        late[name].spare(spared_rows if table.kept is None else np.flatnonzero(table.kept)[spared_rows])
        own = table.config
        read = {own.key, own.time, *own.foreign, *feature_candidates(table), *table.labels}
        read |= {target.column for target in predict.computed.values() if target.table == table.name}
        columns = [column for column in table.column_names() if column in read]
        writer = _ChangedTable(config, table, late[name], with_label, np.random.default_rng([seed, number]))
        update = _write(table.config, columns, writer.batches(columns, intake), context.work / f"table-{number}")
        update["columns"] = {column: kind for column, kind in table.config.columns.items() if column in columns}
        if isinstance(table.config.time_format, dict):
            forms = table.config.time_format
            update["time_format"] = {column: form for column, form in forms.items() if column in columns}
        changes[name] = table.config.model_copy(update=update)
    if predict.labels is not None:
        of_moment = late_labels(predict.labels, moment, intake)
        labels = predict.labels
        columns = [name for name in (labels.key, labels.time, *columns_of(labels.label)) if name is not None]
        random = np.random.default_rng([seed, len(tables)])
        batches = _changed_labels(labels, columns, of_moment, intake, random)
        update = _write(predict.labels, columns, batches, context.work / "labels")
        predict = predict.model_copy(update={"labels": predict.labels.model_copy(update=update)})
    intake.problems.raise_any()
    return config.model_copy(update={"tables": changes, "predict": predict})


class _ChangedTable:
    """One table, as it is written."""

    def __init__(
        self, config: DatabaseConfig, table: TableRows, late: LateRows, with_label: Array, random: np.random.Generator
    ) -> None:
        """`with_label`: rows whose labels change places, bool (n,), of a table that is predicted by its own columns."""
        own = table.config
        self._table, self._late, self._random = table, late, random
        self._with_label = with_label
        self._has_labels = not config.predict.computed and config.predict.table == table.name
        self._kept = {own.key, own.time} if self._has_labels else {own.key}
        self._swapped = {*own.foreign, own.time, *own.dated_columns}
        index = table.nodes.index
        self._is_text_key = index is not None and bool(index.is_text)
        self._next_key = 0
        if own.key and not self._is_text_key:
            self._next_key = 1 + (compute.max(index.keys()).as_py() if index is not None else table.num_rows)

    def batches(self, columns: Sequence[str], intake: Intake) -> Batches:
        """Yield batches with the file that each is of."""
        config, first = self._table.config, 0
        for batch in intake.batches(config, columns, columns if _is_csv(config) else ()):
            rows = slice(first, first + batch.num_rows)
            own, late = self._late.own[rows], self._late.any[rows]
            data, first = batch.data, rows.stop
            if not self._has_labels:
                stays = ~self._leaves(data, rows)
                data, own, late = data.filter(pa.array(stays)), own[stays], late[stays]
                some = np.flatnonzero(own & (self._random.random(len(own)) < _SHARE))
                more = self._with_new_keys(data.take(pa.array(some)))
                if more is not None:
                    data = pa.concat_batches([data, more])
                    own, late = (np.concatenate([rows, np.ones(len(some), np.bool_)]) for rows in (own, late))
            data = self._with_other_cells(data, np.flatnonzero(own), np.flatnonzero(late))
            for column in self._table.labels:
                data = _with_other_labels(data, column, self._with_label[rows], self._random)
            yield batch.path, data

    def _leaves(self, data: pa.RecordBatch, rows: slice) -> Array:
        """Return which rows go: nobody names them, and none of their cells is empty, which would say so by itself."""
        late = self._late
        leaving = late.own[rows] & ~late.named[rows] & ~late.newest[rows]
        for column in data.columns:
            leaving &= ~np.asarray(compute.is_null(column, nan_is_null=pa.types.is_floating(column.type)))
        return leaving & (self._random.random(len(leaving)) < _SHARE)

    def _with_new_keys(self, data: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return rows with keys that no other row has; None where its type has no more of them."""
        key = self._table.config.key
        if key is None:
            return data
        kind, numbers = data.schema.field(key).type, range(self._next_key, self._next_key + data.num_rows)
        if pa.types.is_integer(kind) and (self._is_text_key or numbers.stop > np.iinfo(kind.to_pandas_dtype()).max):
            return None
        self._next_key = numbers.stop
        cells: Any = [f"late-{number}~" for number in numbers] if self._is_text_key else numbers
        keys = pa.array(cells, pa.string() if self._is_text_key else pa.int64()).cast(kind)
        return data.set_column(data.schema.get_field_index(key), data.schema.field(key), keys)

    def _with_other_cells(self, data: pa.RecordBatch, own: Array, late: Array) -> pa.RecordBatch:
        cells = []
        for name, column in zip(data.schema.names, data.columns, strict=True):
            if name in self._kept or name in self._table.labels:
                cells.append(column)
            elif name in self._swapped:
                cells.append(swapped(column, own, self._random))
            else:
                cells.append(changed(column, late, self._random))
        return pa.RecordBatch.from_arrays(cells, schema=data.schema)


def _changed_labels(
    labels: LabelTableConfig, columns: Sequence[str], late: Array, intake: Intake, random: np.random.Generator
) -> Batches:
    """Yield the labels, in which those of `late` rows, bool (n,), have changed places."""
    first = 0
    for batch in intake.batches(labels, columns, columns if _is_csv(labels) else ()):
        data, some = batch.data, late[first : first + batch.num_rows]
        first += batch.num_rows
        for column in columns_of(labels.label):
            data = _with_other_labels(data, column, some, random)
        yield batch.path, data


def _with_other_labels(data: pa.RecordBatch, column: str, rows: Array, random: np.random.Generator) -> pa.RecordBatch:
    """Return rows of which some, bool (n,), have each other's labels; empty ones stay."""
    place = data.schema.get_field_index(column)
    label = data.column(place)
    some = np.flatnonzero(rows & np.asarray(compute.is_valid(label)))
    return data.set_column(place, data.schema.field(place), swapped(label, some, random))


def _is_csv(config: DatabaseFilesConfig) -> bool:
    """Whether cells are texts, whatever they mean."""
    if config.format != "auto":
        return config.format in ("csv", "tsv")
    return bool({".csv", ".tsv"} & {suffix.lower() for suffix in table_files(config).paths()[0].suffixes})


def _write(config: DatabaseFilesConfig, columns: Sequence[str], batches: Batches, folder: Path) -> dict[str, Any]:
    """Write batches, a file for each that they are of; return the options that read these."""
    folder.mkdir(parents=True)
    is_csv, files = _is_csv(config), list[Path]()
    quoted = pc.WriteOptions(quoting_style="all_valid")
    for _, group in itertools.groupby(batches, key=lambda one: one[0]):
        files.append(folder / f"{len(files):06d}.{'csv' if is_csv else 'parquet'}")
        parts = (_as_texts(batch, config.missing_values) if is_csv else batch for _, batch in group)
        first = next(parts)
        new = pc.CSVWriter(files[-1], first.schema, write_options=quoted) if is_csv else None
        with new or pq.ParquetWriter(files[-1], first.schema) as writer:
            for part in itertools.chain([first], parts):
                writer.write(part)
    return {
        "files": tuple(glob.escape(str(file)) for file in files),
        "format": "csv" if is_csv else "parquet",
        "header": True,
        "delimiter": None,
    }


def _as_texts(batch: pa.RecordBatch, missing: Sequence[str]) -> pa.RecordBatch:
    """Return columns of texts, an empty cell as the text that stands for one."""
    cells = [compute.fill_null(column.cast(pa.string()), missing[0] if missing else "") for column in batch.columns]
    return guarded(pa.RecordBatch.from_arrays(cells, names=batch.schema.names))


_WHOLE = r"^\s*[+-]?[0-9]{1,15}\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_KEPT = r"(?i)^\s*(\d{4}-\d{2}-\d{2}([T ].*)?|true|false)\s*$"
_FAR = 1000
_MOST = 1 << 40


def swapped(column: pa.Array, rows: Array, random: np.random.Generator) -> pa.Array:
    """Return a column in which the cells of some rows, int64 (n,), have changed places."""
    order = np.arange(len(column))
    order[rows] = random.permutation(rows)
    return column.take(pa.array(order))


def changed(column: pa.Array, rows: Array, random: np.random.Generator) -> pa.Array:
    """Return a column in which some rows, int64 (n,), have cells of other rows among them, and those other values.

    Empty cells change places only: whether a column has any is known of all rows.
    """
    column = swapped(column, rows, random)
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return _replaced(column, rows, _other_numbers(column.take(pa.array(rows)), random))
    if is_text(kind):
        return _replaced(column, rows, _other_texts(column.take(pa.array(rows)), random))
    if is_list(kind) and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        cells = column.take(pa.array(rows))
        flat = _other_numbers(cells.flatten(), random)
        lengths = np.asarray(compute.fill_null(compute.list_value_length(cells), 0))
        ends = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        there = np.asarray(compute.is_valid(cells)).tolist()
        other = [
            flat.slice(a, b - a).to_pylist() if known else None
            for a, b, known in zip(ends[:-1], ends[1:], there, strict=True)
        ]
        return _replaced(column, rows, pa.array(other, kind))
    return column


def _replaced(column: pa.Array, rows: Array, other: pa.Array) -> pa.Array:
    """Return the column with `other` in some rows."""
    place = np.arange(len(column))
    place[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, other]).take(pa.array(place))


def _other_numbers(cells: pa.Array, random: np.random.Generator) -> pa.Array:
    """Return other numbers of the same type; empty cells and NaN stay."""
    kind, missing = cells.type, np.asarray(compute.is_null(cells))
    if pa.types.is_floating(kind):
        values = np.asarray(compute.fill_null(cells, 0), np.float64)
        values = values * random.uniform(2, 3, len(values)) + _FAR * random.normal(size=len(values))
        return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=missing)
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = max(limits.min, -_MOST), min(limits.max, _MOST)
    values = np.asarray(compute.fill_null(cells, 0)).astype(object if kind == pa.uint64() else np.int64)
    values = np.clip(values + random.integers(1, _FAR, len(values)), low, high).astype(kind.to_pandas_dtype())
    return pa.array(values, kind, mask=missing)


def _other_texts(cells: pa.Array, random: np.random.Generator) -> pa.Array:
    """Return other texts: of a number another number, of a date and of a truth value the same, else a new text."""
    whole, number, kept = (
        compute.fill_null(compute.match_substring_regex(cells, pattern), False) for pattern in (_WHOLE, _NUMBER, _KEPT)
    )
    new = compute.if_else(random.random(len(cells)) < 0.5, compute.binary_join_element_wise(cells, "late", "~"), cells)
    more = pa.array(random.integers(1, _FAR, len(cells)))
    digits = compute.if_else(whole, compute.utf8_trim_whitespace(cells), "0")
    sums = compute.add(compute.utf8_ltrim(digits, "+").cast(pa.int64()), more).cast(pa.string())
    decimals = pa.array((random.normal(size=len(cells)) * _FAR).round(4)).cast(pa.string())
    plain = compute.if_else(number, compute.if_else(whole, sums, decimals), new)
    return compute.if_else(kept, cells, plain).cast(cells.type)


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
        is_late = np.zeros(table.num_rows, np.bool_) if table.time is None else table.time >= moment
        both = is_late.copy()
        keys = list(table.config.foreign)
        for chunk in table.chunks(keys, table.texts_of_keys(tables, keys), intake=intake) if keys else ():
            codes = {key: look_up(chunk.batch, key, tables[table.config.foreign[key]].nodes) for key in keys}
            for key, named_rows in codes.items():
                named[table.config.foreign[key]][named_rows[named_rows >= 0]] = True
            times = row_times(table, tables, chunk.time, codes)
            if times is not None:
                both[chunk.first : chunk.first + len(times)] = times >= moment
        late[name] = is_late, both
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


def late_labels(labels: LabelTableConfig, moment: int, intake: Intake) -> Array:
    """Return which labels are of the moment or later, bool (n,)."""
    assert labels.time is not None
    clock = RowTimes(labels.time, labels.form_of(labels.time), labels.epoch)
    batches = intake.batches(labels, [labels.time], clock.texts, (), clock.inferred)
    return np.concatenate([clock.read_rows(batch, gaps=True)[0] >= moment for batch in batches])
