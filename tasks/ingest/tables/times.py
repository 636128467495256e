"""Times in users' tables: whole numbers as they are, dates and time stamps as seconds since 1970 (UTC)."""

from __future__ import annotations

import calendar
import contextlib
import datetime
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import EXACT, int64, numbers
from tasks.readers.columns import is_text
from tasks.storage.manifests import SPLITS

# Whole days and time stamps of ISO 8601; a bare `20231231` may as well be a number, and is one.
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.,]\d+)?)?\s?(Z|[+-]\d{2}(:?\d{2})?)?)?")
_EXAMPLE = 'time_format: "%d.%m.%Y"'
_FORMS = "2023-12-31, 2023-12-31 23:59:59 (UTC) or 2023-12-31T23:59:59+01:00"
_FIRST, _LAST = -62_135_596_800, 253_402_300_799  # the calendar's years 1 to 9999
_WHOLE_NUMBER = r"^\s*[-+]?\d+\s*$"
_NO_DIGIT = re.compile(r"\D")
_SIDE_BY_SIDE = re.compile("%[YGmdHIMSyjUWVuw]%[YGmdHIMSyjUWVuw]")
"""Of parts without a separator only digits in full tell where one ends: strptime reads `1022023` by `%d%m%Y`."""
_MAX_CHARACTERS = 200  # of a time as a text
_MAX_NUMBER = 2**62  # what is beyond leaves no room for "always" and "never"
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def time_unit(batch: TableBatch, column: str) -> TimeUnit:
    """Return what `TimeReader` makes of a column: seconds of dates and time stamps, else numbers of the user's own."""
    kind = _cells(batch, column).type
    dates = pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_text(kind) or pa.types.is_dictionary(kind)
    return "seconds" if dates else "number"


def _cells(batch: TableBatch, column: str) -> pa.Array:
    """Return a column, texts that are all whole numbers as these: a CSV's are texts where they are categories too."""
    values = batch.column(column)
    if is_text(values.type):
        with contextlib.suppress(pa.ArrowInvalid):
            return values.cast(pa.int64())
    return values


class TimeReader:
    """The time column of one table, batch by batch."""

    def __init__(self, column: str, time_format: str | None) -> None:
        """`time_format`: as of Python's strptime, for texts; None: ISO 8601."""
        self.column, self.format = column, time_format
        self.texts = (column,) if time_format else ()
        """Columns that a CSV gives as texts."""
        self.inferred = () if time_format else (column,)
        """Columns that a CSV gives as it understands their cells."""
        self._full_width = _SIDE_BY_SIDE.search(time_format or "") is not None
        self._unit: TimeUnit | None = None

    every_row = "every row needs one: fill it in, leave the row out, or leave `time` out of the recipe"
    """What one may do about a row without a time, for messages."""

    def read(self, batch: TableBatch) -> Array:
        """Return times, int64 (n,)."""
        values = batch.column(self.column) if self.format else _cells(batch, self.column)
        missing = compute.is_null(values, nan_is_null=True)
        none = batch.wrong(missing, self.column, "the time is missing", f"the time is missing; {self.every_row}")
        if none is not None and none.all():
            return np.zeros(len(values), np.int64)
        unit = "seconds" if self.format else time_unit(batch, self.column)
        if self._unit not in (None, unit):
            words = {"seconds": "dates or time stamps", "number": "whole numbers"}
            batch.wrong_column(
                self.column, f"holds {words[unit]} here and {words[self._unit or unit]} before; they do not compare"
            )
        self._unit = self._unit or unit
        out = np.zeros(len(values), np.int64)
        there = slice(None) if none is None else ~none
        out[there] = self._read(batch, values)[there]
        return out

    def _read(self, batch: TableBatch, values: pa.Array) -> Array:
        kind = values.type
        if self.format or is_text(kind):
            return self._parse(batch, values)
        if pa.types.is_timestamp(kind):
            return self._calendar(batch, _whole_seconds(values) // _PER_SECOND[kind.unit])
        if pa.types.is_date32(kind):
            return self._calendar(batch, _whole_seconds(values.cast(pa.int32())) * 86400)
        if pa.types.is_date64(kind):
            return self._calendar(batch, _whole_seconds(values) // 1000)
        if pa.types.is_integer(kind):
            whole = _whole_seconds(int64(batch, self.column, values, "time")[0])
            large = (whole > _MAX_NUMBER) | (whole < -_MAX_NUMBER)
            batch.wrong(large, self.column, "out of range", lambda row: f"the time {whole[row]} is beyond 2^62")
            return whole
        if pa.types.is_boolean(kind):
            batch.wrong_column(self.column, "holds true and false; a time is a whole number, a date or a time stamp")
            return np.zeros(len(values), np.int64)
        out = numbers(batch, self.column, missing=True)
        if out.ndim != 1:
            batch.wrong_column(self.column, "is a column of lists; a time is one value")
            return np.zeros(len(values), np.int64)
        there = np.nan_to_num(out)  # NaN is a missing time, which was gathered before
        broken, inexact = there != np.floor(there), np.abs(there) > EXACT
        words = "is no whole number, date or time stamp"
        if batch.wrong(broken, self.column, "not whole", lambda row: f"the time {out[row]} {words}") is not None:
            return np.zeros(len(values), np.int64)
        way_out = "is not exact as a decimal number; store whole numbers as int64"
        batch.wrong(inexact, self.column, "not exact", lambda row: f"the time {out[row]} {way_out}")
        return np.where(inexact, 0, there).astype(np.int64)

    def _calendar(self, batch: TableBatch, seconds: Array) -> Array:
        beyond = (seconds < _FIRST) | (seconds > _LAST)
        words = "seconds from 1970, beyond the years 1 to 9999; was it stored in another unit than it says?"
        batch.wrong(beyond, self.column, "beyond the calendar", lambda row: f"the date is {seconds[row]:,} {words}")
        return seconds

    def _parse(self, batch: TableBatch, values: pa.Array) -> Array:
        """Read texts. Each distinct one is read once: most days come again and again."""
        if not is_text(values.type) and not pa.types.is_integer(values.type):
            batch.wrong_column(self.column, f"is {values.type} already: leave time_format out")
            return np.zeros(len(values), np.int64)
        if not self.format and self._are_mostly_numbers(batch, values):
            return np.zeros(len(values), np.int64)
        encoded = compute.dictionary_encode(compute.utf8_trim_whitespace(values.cast(pa.string())))
        moments = [self._seconds(text) for text in encoded.dictionary.to_pylist()]
        codes = np.asarray(compute.fill_null(encoded.indices, 0))
        bad = np.array([seconds is None for seconds in moments], np.bool_)[codes] & np.asarray(compute.is_valid(values))
        how = f"as time_format {self.format!r} has it" if self.format else "in a form that is known"
        words = how if self.format else f"{how} ({_FORMS}); say which: {_EXAMPLE}"

        def message(row: int) -> str:
            text = str(values[row]).strip()
            why = "; there is no such day or time of day" if self._has_form(text) else f" {words}"
            return f"{str(values[row])[:40]!r} is not a date or time{why}"

        batch.wrong(bad, self.column, "no time", message)
        return np.array([seconds or 0 for seconds in moments], np.int64)[codes]

    def _are_mostly_numbers(self, batch: TableBatch, values: pa.Array) -> bool:
        """Whether texts are whole numbers but for a few, which are gathered."""
        whole = np.asarray(compute.fill_null(compute.match_substring_regex(values, _WHOLE_NUMBER), False))
        if 2 * np.count_nonzero(whole) <= len(values):
            return False
        bad = ~whole & np.asarray(compute.is_valid(values))
        words = f"is not a whole number, as {np.count_nonzero(whole):,} others are"
        batch.wrong(bad, self.column, "no number", lambda row: f"the time {str(values[row])[:40]!r} {words}")
        return True

    def _has_form(self, text: str) -> bool:
        """Whether a text that is no time looks like one, such as the 30th of February."""
        if not self.format:
            return _ISO.fullmatch(text) is not None
        try:
            datetime.datetime.strptime(text, self.format)
        except ValueError as error:
            return "out of range" in str(error)
        return False

    def _seconds(self, text: str) -> int | None:
        """Return seconds since 1970; without a zone the time is UTC."""
        if len(text) > _MAX_CHARACTERS:
            return None
        try:
            if self.format:
                moment = datetime.datetime.strptime(text, self.format)
                plain = moment.replace(tzinfo=None).strftime(self.format)
                if self._full_width and not _NO_DIGIT.sub("", text).startswith(_NO_DIGIT.sub("", plain)):
                    return None
            elif _ISO.fullmatch(text):
                moment = datetime.datetime.fromisoformat(text.replace(" Z", "Z").replace(",", "."))
            else:
                return None
            return calendar.timegm(moment.utctimetuple())
        except (ValueError, OverflowError):
            return None


def _whole_seconds(values: pa.Array) -> Array:
    """Return the integers of whole numbers or times, int64 (n,); 0 for null."""
    return np.asarray(compute.fill_null(values.cast(pa.int64()), 0))


def cut_by_time(
    time: Array, train: float, valid: float, names: str, column: str, at_random: str = "dataset.split.by=ratio"
) -> Array:
    """Return codes, int8: the oldest share trains, the newest tests; equal times stay together.

    Raises DataError naming the files and the column: a split is empty; `at_random` is the option that needs no times.
    """
    codes = np.zeros(len(time), np.int8)
    if len(time) == 0:
        return codes
    for share in (train, train + valid):
        at = min(round(share * len(time)), len(time) - 1)
        codes += time >= np.partition(time, at)[at]
    for name, count in zip(SPLITS, np.bincount(codes, minlength=len(SPLITS)), strict=True):
        if count == 0:
            distinct = len(np.unique(time))
            equal = f"all {len(time):,} are equal" if distinct == 1 else f"{len(time):,} have {distinct:,} values"
            raise DataError(
                f"the {name} split by these times is empty: {equal}, and rows of one time stay together; {at_random} "
                "deals rows at random, or name another column of times, or other shares",
                path=names,
                column=column,
            )
    return codes
