"""Which number each entity and relation has in the end: by type, then in the order of the list or of the ids.

Numbers by first appearance would depend on how files are cut; ascending ids do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array, offsets
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import with_nulls
from tasks.ingest.tables.problems import Problems
from tasks.ingest.triples.names import Names
from tasks.ingest.triples.reader import TablePlan, first_cells, read_texts
from tasks.ingest.triples.sources import format_of
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.storage.file_names import file_name

ENTITY = "entity"
"""The type of entities without types."""


@dataclass(frozen=True)
class FinalNumbers:
    """Numbers from 0 over all types end to end, and the numbers that names were met in."""

    order: Array
    """For each final number the one that the name was met in, (n,)."""
    types: list[tuple[str, int]]
    """Name and size of each type."""
    new: Array
    """For each number that a name was met in the final one; -1: it is in no triple."""

    @property
    def bounds(self) -> Array:
        """Where each type begins, and where the last ends."""
        return offsets([count for _, count in self.types])


def number_names(names: Names, uses: Array, kinds: Array | None = None, kind_names: Sequence[str] = ()) -> FinalNumbers:
    """Number entities or relations; `kinds`: type of each by the number it was met in, (names.count,), None: one."""
    if names.listed:
        order = np.arange(names.count)
    else:
        order = np.asarray(compute.sort_indices(names.keys())).astype(np.int64)
        order = order[uses[order] > 0]
    types = [(ENTITY, len(order))]
    if kinds is not None:
        order = order[np.argsort(kinds[order], kind="stable")]
        sizes = np.bincount(kinds[order], minlength=len(kind_names)).tolist()
        # A type whose entities are in no triple is no type of this graph.
        types = [(name, size) for name, size in zip(kind_names, sizes, strict=True) if size]
    new = np.full(names.count, -1, np.int64)
    new[order] = np.arange(len(order))
    return FinalNumbers(order, types, new)


def read_types(path: Path, names: Names, uses: Array) -> tuple[Array, list[str], int]:
    """Read a table of entities and types.

    Returns:
        The type of each entity by the number it was met in, the types' names, and how many rows name no entity.

    Raises DataError: an entity of two types, or of none.
    """
    problems, unknown, seen = Problems(), 0, 0
    kinds, words = np.full(names.count, -1, np.int64), IdIndex()
    for data in _two_columns(path):
        entity, kind = data.schema.names
        batch = TableBatch(path, seen, data, problems)
        codes = names.find(compute.fill_null(batch.column(entity).cast(pa.string()), ""))
        there = codes >= 0
        # A first line that names columns names no entity, and is left out like other rows of none.
        unknown += int(np.count_nonzero(~there[1 if seen == 0 else 0 :]))
        seen += data.num_rows
        batch = batch.keep(there)
        texts = compute.fill_null(batch.column(kind).cast(pa.string()), "")
        batch.wrong(compute.equal(texts, ""), kind, "the type is missing")
        given, codes = words.add(texts), codes[there]
        before = kinds[codes]
        kinds[codes] = given
        two = ((before >= 0) & (before != given)) | (kinds[codes] != given)
        batch.wrong(two, kind, "an entity of two types", partial(_two_types, batch.column(entity)))
    problems.raise_any()
    missing = np.flatnonzero((kinds < 0) & ((uses > 0) | names.listed))
    if len(missing):
        first = names.keys()[int(missing[0])].as_py()
        raise DataError(f"gives no type for {len(missing):,} entities, {first!r} the first; add them", path=path)
    ranks = words.sort()
    return np.where(kinds >= 0, ranks[kinds], 0), [file_name(word) for word in words.keys().to_pylist()], unknown


def _two_types(entities: pa.Array, row: int) -> str:
    return f"{entities[row].as_py()!r} has another type too; keep one of them"


def _two_columns(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the first two columns of a table as texts."""
    kind = format_of(path, "auto")
    if kind == "parquet":
        with open_parquet(path) as file:
            columns = list(file.schema_arrow.names)[:2]
        batches = read_parquet(path, columns) if len(columns) == 2 else None
    elif kind == "ntriples":
        raise DataError("is N-Triples; a table of entity and type is needed", path=path)
    else:
        delimiter, quotes = ("\t", False) if kind == "tsv" else (",", True)
        columns = [str(i) for i in range(len(first_cells(path, delimiter, quotes)))]
        plan = TablePlan(path, delimiter, False, quotes, columns)
        batches = read_texts(plan, columns[:2]) if len(columns) >= 2 else None
    if batches is None:
        raise DataError("has one column; entity and type are needed", path=path)
    for data in batches:
        filled = [with_nulls(values, ("",)) for values in data.columns]
        yield pa.RecordBatch.from_arrays(filled, names=data.schema.names)
