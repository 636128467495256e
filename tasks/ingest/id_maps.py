"""Id maps: which dense id stands for which original one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from configs.errors import DataError
from tasks.ingest.csv_reader import STREAM_ERRORS, open_stream, stream_error
from tasks.ingest.writer import DatasetWriter
from tasks.stage import StageContext


def read_text_table(path: Path, types: dict[str, Any] | None = None) -> pa.Table:
    """Read a CSV with a header, all columns as text unless `types` says otherwise. Raises DataError."""
    try:
        with open_stream(path) as stream:
            header = stream.readline().decode("utf-8").strip()
        names = pc.read_csv(pa.BufferReader(f"{header}\n".encode())).column_names
        kinds = {name: pa.string() for name in names} | (types or {})
        with open_stream(path) as stream:
            return pc.read_csv(
                pa.PythonFile(stream, "r"),
                parse_options=pc.ParseOptions(newlines_in_values=True),
                convert_options=pc.ConvertOptions(column_types=kinds, strings_can_be_null=False),
            )
    except (*STREAM_ERRORS, UnicodeDecodeError) as error:
        raise stream_error(error, path) from error
    except pa.ArrowInvalid as error:
        raise DataError(str(error), path=path) from error


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
    read = read_text_table(path)
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
