"""When rows of a database came to be known: seconds since 1970, or whole numbers in a unit of the user's own."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.tables.batches import TableBatch
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
