"""The rows of one table of a database: which of them count, when they came to be known, and what they refer to.

A table is read several times, and gives the same rows in the same order each time. Memory: 8 bytes a row for the
times, the index of the keys, and a byte a row where rows are left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError, RecipeError
from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.database.table_configs import DatabaseTableConfig
from tasks.ingest.ids.node_set import UNKNOWN, NodeSet
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import Intake, table_files
from tasks.ingest.tables.table_configs import NodeTableConfig
from tasks.ingest.tables.times import TimeReader
from tasks.storage.graph_store import ALWAYS

_OF_DAY = r"\d{2}:\d{2}"
_ZONED = r"\d{2}:\d{2}.*(Z|[+-]\d{2}(:?\d{2})?)\s*$"
_PER_SECOND = {None: 1, "seconds": 1, "milliseconds": 1000}


class RowTimes(TimeReader):
    """A column of times, batch by batch; cells of one column all have an offset from UTC, or none has."""

    def __init__(
        self, column: str, time_format: str | None = None, epoch: str | None = None, *, way_out: str = ""
    ) -> None:
        """`epoch`: what whole numbers count since 1970, seconds or milliseconds; None: a unit of their own.

        `way_out`: what one may do about rows without a time, for messages.
        """
        super().__init__(column, time_format)
        self._epoch = epoch
        self.every_row = way_out or self.every_row
        self.zoned: bool | None = None
        """Whether time stamps have an offset from UTC; None: there was none."""

    @property
    def unit(self) -> TimeUnit | None:
        """What the times count; None before a row was read."""
        return "seconds" if self._epoch and self._unit else self._unit

    def read_rows(self, batch: TableBatch, *, gaps: bool) -> tuple[Array, Array]:
        """Return times, int64 (n,), and which rows have none, bool (n,); their time is ALWAYS.

        Empty cells are gathered as mistakes unless `gaps`.
        """
        values = batch.column(self.column)
        missing = np.asarray(compute.is_null(values, nan_is_null=True))
        there = batch.keep(~missing) if gaps else batch
        times = np.full(batch.num_rows, ALWAYS, np.int64)
        if there.num_rows == 0:
            return times, missing
        read = self.read(there)
        if self._epoch and self._unit == "seconds":
            batch.wrong_column(self.column, "holds dates or time stamps already: leave epoch out")
        times[~missing] = (read if gaps else read[~missing]) // _PER_SECOND[self._epoch]
        return times, missing

    def _read(self, batch: TableBatch, values: pa.Array) -> Array:
        if pa.types.is_timestamp(values.type):
            zoned = values.type.tz is not None
            if self.zoned not in (None, zoned):
                batch.wrong_column(
                    self.column, f"{_words(zoned)} here, and those before {_words(not zoned)}; {_WAY_OUT}"
                )
            self.zoned = zoned
        return super()._read(batch, values)

    def _parse(self, batch: TableBatch, values: pa.Array) -> Array:
        if self.format is None:
            texts = values.cast(pa.string())
            stamps = np.asarray(compute.fill_null(compute.match_substring_regex(texts, _OF_DAY), False))
            zoned = np.asarray(compute.fill_null(compute.match_substring_regex(texts, _ZONED), False))
            if self.zoned is None and stamps.any():
                self.zoned = bool(zoned[stamps][0])
            batch.wrong(
                stamps & (zoned != self.zoned),
                self.column,
                "times with an offset and without one",
                lambda row: (
                    f"the time {texts[row].as_py()[:40]!r} {_words(not self.zoned)}, and those before "
                    f"{_words(bool(self.zoned))}; {_WAY_OUT}"
                ),
            )
        return super()._parse(batch, values)


_WAY_OUT = "write all of them with one (2024-01-31T12:00:00+01:00), or none: then they are UTC"


def _words(zoned: bool) -> str:
    return "has an offset from UTC" if zoned else "has no offset from UTC"


_LEAVE_OUT = ("drop", "first", "last")  # policies
EMPTY = -3
"""In the place of a dense id: the cell is empty, and names nothing."""


@dataclass(frozen=True)
class Chunk:
    """Some rows of a table, those that count."""

    batch: TableBatch
    first: int
    """Number of the first among all rows that count: of a table of nodes, its dense id."""
    time: Array | None
    """int64 (n,); None: the table has none."""


class TableRows:
    """One table."""

    def __init__(self, name: str, config: DatabaseTableConfig, intake: Intake, *, text_ids: bool) -> None:
        self.name, self.config, self.intake = name, config, intake
        as_nodes = NodeTableConfig(type=name, files=config.files, id=config.key, on_duplicate_id=config.on_duplicate_id)
        place = f"dataset.tables.{name}"
        self.nodes = NodeSet(name, as_nodes, text_ids=text_ids, section=place, key=f"{place}.key")
        self.clock: RowTimes | None = None
        if config.time:
            way_out = f"{place}.on_missing_time: drop leaves such rows out, always takes them to have always been there"
            self.clock = RowTimes(config.time, config.form_of(config.time), config.epoch, way_out=way_out)
        self.labels: tuple[str, ...] = ()
        """Columns that are predicted, and so no features."""
        self.time: Array | None = None
        """int64 (num_rows,)."""
        self.num_rows = 0
        self.kept: Array | None = None
        """Which rows of the files count, bool; None: all."""

    @property
    def newest(self) -> int | None:
        """The newest time of a row; None: there is none."""
        return None if self.time is None or not len(self.time) else int(self.time.max())

    def scan(self, tables: Mapping[str, TableRows]) -> None:
        """Read keys and times; `tables` are those whose keys are known. Raises DataError where there are no rows."""
        config, clock = self.config, self.clock
        dropping = [column for column in config.foreign if config.on_unknown_id == "drop"]
        columns = [name for name in (config.key, config.time) if name] + dropping
        texts = [*(self.nodes.texts(config.key) if config.key else ()), *(clock.texts if clock else ())]
        for column in dropping:
            texts += tables[config.foreign[column]].nodes.texts(column)
        times: list[Array] = []
        kept: list[Array] = []
        num_missing = num_unknown = 0
        inferred = clock.inferred if clock else ()
        for whole in self.intake.batches(config, columns or self._any_column(), texts, (), inferred):
            keep = np.ones(whole.num_rows, np.bool_)
            if clock:
                batch_times, missing = clock.read_rows(whole, gaps=config.on_missing_time != "error")
                if config.on_missing_time == "drop":
                    keep &= ~missing
                    num_missing += int(np.count_nonzero(missing))
                times.append(batch_times)
            for column in dropping:
                unknown = (look_up(whole, column, tables[config.foreign[column]].nodes) == UNKNOWN) & keep
                num_unknown += int(np.count_nonzero(unknown))
                keep &= ~unknown
            if config.values_of and config.key:  # where the foreign key is empty, it names nothing
                keep &= ~np.asarray(compute.is_null(whole.column(config.key), nan_is_null=True))
            if config.key:
                self.nodes.add_rows(whole.keep(keep))
            kept.append(keep)
        read = sum(map(len, kept))
        if read == 0:
            raise DataError(
                f"has no rows; leave the table {self.name} out of dataset.tables, or give it some",
                path=config.names,
            )
        self._settle(np.concatenate(kept), times)
        intake = self.intake
        intake.adjust(config, "rows without a time dropped", num_missing)
        intake.adjust(config, "rows with a foreign key that names no row dropped", num_unknown)
        if config.values_of:
            return
        intake.adjust(config, "rows of a repeated key dropped", self.nodes.num_repeated)
        policies = ("on_unknown_id", "on_missing_time", "on_duplicate_id")
        why = ", ".join(f"{name}: {value}" for name in policies if (value := getattr(config, name)) in _LEAVE_OUT)
        if self.num_rows == 0 and not intake.problems:
            raise DataError(f"has {read:,} rows, none of which is left ({why})", path=config.names)
        dropped = read - self.num_rows
        if dropped:
            intake.hints.append(
                f"{config.names}: {dropped:,} of {read:,} rows are left out ({why} in dataset.tables.{self.name})"
            )

    def _any_column(self) -> list[str]:
        """A table without anything to look at still says how many rows there are."""
        return [*self.config.foreign, *self.column_names()][:1]

    def column_names(self) -> list[str]:
        """Return the table's columns. Raises DataError."""
        return table_files(self.config).column_names()

    def _settle(self, kept: Array, times: list[Array]) -> None:
        if self.config.key:
            self.nodes.drop_repeated()
            if self.nodes.kept is not None:
                kept[kept] = self.nodes.kept
            self.nodes.settle()
            if self.nodes.index is not None:
                keys = self.nodes.index.keys()
                self.intake.hint_at_similar_texts(self.config, self.config.key, "ids", keys, letters=False)
        # A key that could not be read counts for no id, and its row is said to be wrong.
        self.num_rows = int(np.count_nonzero(kept))
        if not self.config.key:
            self.nodes.settle_dense(self.num_rows)
        self.kept = None if kept.all() else kept
        if times:
            whole = np.concatenate(times)
            self.time = whole if self.kept is None else whole[self.kept]

    def chunks(
        self,
        columns: Sequence[str],
        texts: Sequence[str] = (),
        numbers: Sequence[str] = (),
        times: Sequence[str] = (),
        *,
        intake: Intake | None = None,
    ) -> Iterator[Chunk]:
        """Yield the rows that count, with some columns. `intake`: where mistakes go; None: the data set's."""
        read = first = 0
        names = list(dict.fromkeys(columns)) or self._any_column()
        for whole in (intake or self.intake).batches(self.config, names, texts, numbers, times):
            batch = whole if self.kept is None else whole.keep(self.kept[read : read + whole.num_rows])
            read += whole.num_rows
            count = batch.num_rows
            yield Chunk(without_decimals(batch), first, None if self.time is None else self.time[first : first + count])
            first += count

    def texts_of_keys(self, tables: Mapping[str, TableRows], columns: Sequence[str]) -> list[str]:
        """Return which of some foreign keys a CSV must give as texts."""
        foreign = self.config.foreign
        return [name for column in columns for name in tables[foreign[column]].nodes.texts(column)]


def look_up(batch: TableBatch, column: str, target: NodeSet) -> Array:
    """Return the dense ids that a foreign key names, int64 (n,): EMPTY, UNKNOWN or WRONG (said) where it names none."""
    values = batch.column(column)
    if pa.types.is_floating(values.type):  # many tools write 3.0 for 3 where a column has empty cells
        with contextlib.suppress(pa.ArrowInvalid):
            values = compute.if_else(compute.is_nan(values), None, values).cast(pa.int64())
    missing = np.asarray(compute.is_null(values, nan_is_null=True))
    codes = np.full(batch.num_rows, EMPTY, np.int64)
    if missing.all():
        return codes
    place = batch.data.schema.get_field_index(column)
    there = replace(batch, data=batch.data.set_column(place, column, values)).keep(~missing)
    codes[~missing] = target.look_up(there, column)
    return codes


def without_decimals(batch: TableBatch) -> TableBatch:
    """Return a batch whose columns of decimal type, which databases write, are float64."""
    data = batch.data
    for place, field in enumerate(data.schema):
        if pa.types.is_decimal(field.type):
            data = data.set_column(place, field.name, data.column(place).cast(pa.float64()))
    return batch if data is batch.data else replace(batch, data=data)


def in_order(tables: Mapping[str, DatabaseTableConfig]) -> list[str]:
    """Return the tables so that each stands behind those that its foreign keys name, as far as there is such an order.

    Raises RecipeError: rows are to be dropped by a foreign key whose table is known only later: a circle.
    """
    order: list[str] = []
    while len(order) < len(tables):
        left = [name for name in tables if name not in order]
        ready = [name for name in left if not (set(tables[name].foreign.values()) - {name} - set(order))]
        order += ready or left[:1]
    for place, name in enumerate(order):
        for column, target in tables[name].foreign.items() if tables[name].on_unknown_id == "drop" else ():
            if target not in order[:place]:
                raise RecipeError(
                    f"dataset.tables.{name}.on_unknown_id: drop cannot follow {column}, which leads in a circle to "
                    f"{'the table itself' if target == name else target}; count lets such rows stay without that edge"
                )
    return order
