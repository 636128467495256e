"""Copies of a database's own files in which everything from a moment on is something else.

Late rows get other cells, some of them are left out, and new ones come. Earlier rows stay as they are and in their
order, so that they are known by their place among the earlier ones.
"""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
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
from tasks.ingest.database.rows import TableRows
from tasks.ingest.database.table_configs import DatabaseFilesConfig
from tasks.ingest.tables.intake import Intake, table_files
from tasks.leak_check.changed_cells import changed, swapped
from tasks.leak_check.late_rows import LateRows, late_labels, late_rows, rows_in_files
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
        late[name].spare(rows_in_files(table, spared.get(name, np.empty(0, np.int64))))
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
        self,
        config: DatabaseConfig,
        table: TableRows,
        late: LateRows,
        with_label: Array,
        random: np.random.Generator,
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
        found = late.own[rows] & ~late.named[rows] & ~late.newest[rows]
        for column in data.columns:
            found &= ~np.asarray(compute.is_null(column, nan_is_null=pa.types.is_floating(column.type)))
        return found & (self._random.random(len(found)) < _SHARE)

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
