"""Id maps: which dense id stands for which original one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.ingest.writer import DatasetWriter
from tasks.readers.csv_tables import as_texts, open_table, read_rows
from tasks.stage import StageContext


def read_text_table(path: Path, num_rows: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Read columns of a CSV with a header (the first two) as texts, up to some more rows than `num_rows`.

    Raises DataError.
    """
    with open_table(path, ",", True) as (names, stream):
        wanted = list(names[:2]) if columns is None else [name for name in columns if name in names]
        batches, rows = [], 0
        for data in read_rows(path, names, stream, ",", as_texts(wanted)) if wanted else ():
            batches.append(data)
            rows += data.num_rows
            if rows > num_rows:
                break
        return pa.Table.from_batches(batches, pa.schema([(name, pa.string()) for name in wanted]))


def write_mapping(
    writer: DatasetWriter,
    table: str,
    id_column: str,
    path: Path,
    count: int,
    context: StageContext,
    names: str = "original_id",
) -> None:
    """Write OGB's `index,name` file as an id map (a class table with `names="name"`).

    The whole map is in memory for a moment (a name a node). A map that does not name every id once is left out with a
    warning: it is an aid for people, and nothing else depends on it.
    """
    read = read_text_table(path, count)
    if read.num_columns < 2:
        context.warn(f"{path} has {read.num_columns} column; index and name are needed; it is left out")
        return
    try:
        index = np.asarray(read.column(0).cast(pa.int64()))
    except pa.ArrowInvalid:
        index = np.empty(0, np.int64)
    order = np.argsort(index, kind="stable")
    if len(index) != count or not np.array_equal(index[order], np.arange(count)):
        context.warn(f"{path} does not name each of 0..{count - 1} exactly once; it is left out")
        return
    original = read.column(1).take(pa.array(order)).combine_chunks()
    if names == "original_id":
        original = whole_numbers(original)
    writer.write(table, {id_column: np.arange(count, dtype=np.int64), names: original})


def whole_numbers(texts: pa.Array) -> pa.Array:
    """Return int64 where every text is a plain whole number (written as int64 prints it), else the texts."""
    try:
        numbers = texts.cast(pa.int64())
    except pa.ArrowInvalid:
        return texts
    return numbers if numbers.cast(pa.string()).equals(texts) else texts
