"""What lies beside files of vectors: ids and labels, one for each row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.layout_options import LAYOUT
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.labels import NO_LABEL, LabelKind, count_no_label, to_labels
from tasks.ingest.tables.paths import files_of
from tasks.ingest.vectors.matrices import is_idx
from tasks.readers.arrays.idx import IdxFile
from tasks.readers.arrays.npy import NpyFile
from tasks.readers.columns import is_text, whole_numbers
from tasks.readers.lines import read_lines
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.storage.manifests import TaskType

ID_COLUMNS = ("id", "graph_id")
"""What `graphmill export embeddings` calls its ids."""
_MAX_EXACT = 2**53
Labels = tuple[TaskType, pa.Array | np.ndarray, pa.Array | None]


def read_column(patterns: Sequence[str], num_rows: int, what: str) -> pa.Array:
    """Return one value for each row from files: texts or numbers. Raises DataError where they are more or fewer."""
    paths = files_of(patterns)
    parts = [_read(path, num_rows) for path in paths]
    if any(is_text(part.type) for part in parts):
        parts = [part.cast(pa.string()) for part in parts]
    elif len({part.type for part in parts}) > 1:
        parts = [part.cast(pa.float64(), safe=False) for part in parts]
    values = pa.concat_arrays(parts)
    if len(values) != num_rows:
        why = f"{what} are {len(values):,}, and there are {num_rows:,} vectors; each has one"
        raise DataError(why, path=", ".join(patterns))
    return values


def _read(path: Path, num_rows: int) -> pa.Array:
    if path.suffix == ".parquet":
        with open_parquet(path) as opened:
            names = opened.schema_arrow.names
        column = next((name for name in ID_COLUMNS if name in names), ID_COLUMNS[0])
        columns = [batch.column(0) for batch in read_parquet(path, [column])]
        return pa.concat_arrays(columns) if columns else pa.array([], pa.string())
    if path.suffix != ".npy" and not is_idx(path):
        lines = [compute.utf8_rtrim(part, "\r\n") for _, part in read_lines(path)]
        return whole_numbers(pa.concat_arrays(lines) if lines else pa.array([], pa.string()))
    file = NpyFile(path) if path.suffix == ".npy" else IdxFile(path)
    shape = file.header().shape if isinstance(file, NpyFile) else file.shape()
    if not shape or shape[1:] != (1,) * (len(shape) - 1):
        raise DataError(f"has the shape {shape}; one value a row is needed, (rows,)", path=path)
    if shape[0] > num_rows:  # said before a small file is unpacked to gigabytes
        raise DataError(f"has {shape[0]:,} rows, and there are {num_rows:,} vectors; each has one", path=path)
    values = file.read().reshape(shape[0])
    return pa.array(values.astype(np.float32) if values.dtype == np.float16 else values)


def checked_ids(ids: pa.Array, name: object, column: object = None) -> pa.Array | None:
    """Return ids, int64 or texts; None where they are the rows' numbers.

    Raises DataError naming a row of no id, or of one that another row has.
    """
    if not is_text(ids.type) and not pa.types.is_integer(ids.type):
        why = f"holds {ids.type}; ids are whole numbers or texts: write them so, or name another column in dataset.id"
        raise DataError(why, path=name, column=column)
    missing = ids.is_null() if not is_text(ids.type) else compute.fill_null(compute.equal(ids, ""), True)
    if compute.any(missing).as_py():
        raise DataError("the id is missing", path=name, row=compute.index(missing, True).as_py(), column=column)
    try:
        ids = ids.cast(pa.string() if is_text(ids.type) else pa.int64())
    except pa.ArrowInvalid:
        raise DataError("holds an id too large for int64; write ids as texts", path=name, column=column) from None
    number = IdIndex().add(ids)
    again = np.flatnonzero(number != np.arange(len(number)))
    if len(again):
        row = int(again[0])
        raise DataError(
            f"the id {ids[row].as_py()!r} stands in row {int(number[row])} already, and an id names one vector; leave "
            "one of the rows out, or the ids: then rows are numbered",
            path=name,
            row=row,
            column=column,
        )
    if not is_text(ids.type) and np.array_equal(np.asarray(ids), np.arange(len(ids))):
        return None
    return ids


def label_column(values: pa.Array, name: object, column: object = None) -> Labels:
    """Return the task type, the column `label`, and the names of classes in the order of their codes.

    Classes are int64 (n,), -1 for none, amounts float32 (n, 1), NaN for none. Of whole numbers -1 and -100 are none.

    Raises DataError: neither texts nor numbers, or one class alone.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if not is_text(values.type):
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_null(values.type)):
            raise DataError(f"is {values.type}; labels are texts or numbers", path=name, column=column)
        numbers = np.asarray(compute.fill_null(values.cast(pa.float64(), safe=False), np.nan), np.float64)
        there = numbers[~np.isnan(numbers)]
        if (there != np.floor(there)).any():
            amounts = to_labels(numbers[:, None], LabelKind("regression", 0, 1), name, column=column)
            return "regression", amounts, None
        if (np.abs(there) > _MAX_EXACT).any():
            raise DataError("a class number exceeds 2^53; write classes as texts", path=name, column=column)
        whole = pa.array(np.nan_to_num(numbers, nan=-1).astype(np.int64))
        values = compute.if_else(pa.array(np.isnan(numbers)), None, whole).cast(pa.string())
    # Classes are numbered in ascending order, as numbers where all are numbers.
    texts = compute.fill_null(values.cast(pa.string()), "")
    keys = whole_numbers(compute.unique(texts.filter(compute.not_equal(texts, ""))))
    keys = keys.take(compute.sort_indices(keys))
    if not is_text(keys.type):
        keys = keys.slice(count_no_label(keys.slice(0, len(NO_LABEL) + 1).to_pylist()))
    names = keys.cast(pa.string())
    if len(names) < 2:
        count = f"has 1 class ({names[0]})" if len(names) else "has no label"
        raise DataError(f"{count}; two classes are needed: leave labels out", path=name, column=column)
    codes = compute.fill_null(compute.index_in(texts, value_set=names), -1)
    return "multiclass", np.asarray(codes).astype(np.int64), names


NO_LABELS: Labels = (LAYOUT, pa.array([], pa.int64()), None)
