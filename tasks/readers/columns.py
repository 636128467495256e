"""Columns of users' tables: known by name once, of a type that later code knows, texts that are texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.readers.limits import MAX_CELL_BYTES, MAX_COLUMNS, MAX_ROW_BYTES
from tasks.readers.streams import no_utf8


def check_names(names: Sequence[str], path: Path) -> None:
    """Raise DataError where a file has no column, or a name twice in its header: which one would be meant?"""
    if not names:  # Arrow ends the process where it reads rows of such a file
        raise DataError("has no columns", path=path)
    if len(names) > MAX_COLUMNS:
        raise DataError(f"has more than {MAX_COLUMNS:,} columns", path=path)
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise DataError(f"names the column {twice!r} twice; it has {listed(names)}", path=path)


def check_columns(path: Path, columns: Sequence[str], there: Sequence[str]) -> None:
    """Raise DataError where a column is missing."""
    for name in columns:
        if name not in there:
            raise DataError(f"has no column {name!r}{did_you_mean(name, there)}; it has {listed(there)}", path=path)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are texts."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or (pa.types.is_dictionary(kind) and is_text(kind.value_type))
    )


def plain_batch(
    batch: pa.RecordBatch,
    path: Path,
    first_row: int,
    most_bytes: int = MAX_CELL_BYTES,
    documents: Collection[str] = (),
) -> pa.RecordBatch:
    """Return a batch of `plain` columns; `first_row` is its place in the file. Raises DataError as `plain` does.

    Cells of the columns `documents` may be as long as a row.
    """
    names, most = batch.schema.names, dict.fromkeys(documents, MAX_ROW_BYTES)
    columns = [
        plain(column, path, first_row, name, most.get(name, most_bytes))
        for name, column in zip(names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=names)


def plain(column: pa.Array, path: Path, first_row: int, name: str, most_bytes: int = MAX_CELL_BYTES) -> pa.Array:
    """Return a column in the one type that later code knows for it: texts as `string`, no dictionaries, no views.

    Extension types (uuid, json, tensors) become what stores them, halves float32.

    Raises DataError: a text that is not UTF-8 or longer than `most_bytes`, offsets or indices that lead nowhere, a time
    zone that is not known.
    """
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    kind = column.type
    if getattr(kind, "tz", None):
        try:
            compute.local_timestamp(pa.array([0], kind))
        except pa.ArrowInvalid:
            why = f"is in the time zone {kind.tz!r}, which is not known; write it in UTC"
            raise DataError(why, path=path, column=name) from None
    try:
        if pa.types.is_dictionary(kind):
            column = column.dictionary.take(column.indices)
            kind = column.type
        if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
            lengths = compute.fill_null(compute.list_value_length(column), 0)  # Arrow's own cast refuses large ones
            offsets = np.concatenate([[0], np.cumsum(np.asarray(lengths, np.int64))])
            column = pa.LargeListArray.from_arrays(offsets, column.flatten(), mask=compute.is_null(column))
        if _stored_plainly(column.type) != column.type:
            column = column.cast(_stored_plainly(column.type))
        column.validate(full=True)
    except pa.ArrowException as error:
        for row, value in enumerate(column.cast(pa.large_binary()).to_pylist() if is_text(kind) else ()):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as undecoded:
                raise no_utf8(value, undecoded.start, path, first_row + row, name) from None
        raise DataError(f"is damaged ({str(error)[:200]})", path=path, column=name) from None
    if is_text(kind) and len(column):
        lengths = compute.binary_length(column)
        longest = compute.max(lengths).as_py() or 0
        if longest > most_bytes:
            row = first_row + compute.index(lengths, longest).as_py()
            why = f"the text has {longest:,} bytes; an id, class or category has {MAX_CELL_BYTES:,} at most"
            raise DataError(why, path=path, row=row, column=name)
    return column


def _stored_plainly(kind: pa.DataType) -> pa.DataType:
    """Return a type without what Arrow cannot filter (views), at any depth, texts as `string`."""
    if is_text(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_stored_plainly(field.type)) for field in kind])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_stored_plainly(kind.value_type)), kind.list_size)
    if pa.types.is_large_list(kind) or pa.types.is_large_list_view(kind):
        return pa.large_list(kind.value_field.with_type(_stored_plainly(kind.value_type)))
    if pa.types.is_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(_stored_plainly(kind.value_type)))
    return kind


def first_hexadecimal(texts: pa.Array) -> int | None:
    """Return the place of the first text such as `0x1F`, which Arrow casts to an integer; None without one."""
    place = compute.index(compute.match_substring_regex(texts, r"^\s*0[xX]"), True).as_py()
    return None if place < 0 else int(place)


def to_int64(ids: pa.Array) -> pa.Array:
    """Return ids, numbers or texts, as int64. Raises ArrowInvalid, also for a text such as `0x1F`."""
    if is_text(ids.type) and first_hexadecimal(ids) is not None:
        raise pa.ArrowInvalid("a hexadecimal number")
    return ids.cast(pa.int64())


def whole_numbers(texts: pa.Array) -> pa.Array:
    """Return int64 where every text is a plain whole number (written as int64 prints it), else the texts."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts
    return numbers if numbers.cast(pa.string()).equals(texts) else texts


def first_not_whole(texts: pa.Array) -> int:
    """Return the row of the first text that is no whole number of 64 bits; there is one."""
    first, last = 0, len(texts)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            texts.slice(first, middle - first).cast(pa.int64())
        except pa.ArrowInvalid:
            last = middle
        else:
            first = middle
    return first
