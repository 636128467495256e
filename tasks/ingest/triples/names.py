"""Names of entities and relations as numbers: by a list that the user gives, or as they are met.

Ids are whole numbers where all of them are, else texts: `00260881` is not 260881.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array, offsets
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.batches import Problems, TableBatch
from tasks.ingest.tables.columns import checked_ids
from tasks.ingest.tables.intake import with_nulls
from tasks.ingest.triples.sources import format_of
from tasks.readers.columns import is_text, whole_numbers
from tasks.readers.csv_tables import TextTableFile, as_texts
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.readers.streams import read_names
from tasks.storage.file_names import file_name

UNKNOWN = -1


class Names:
    """Entities, or relations: cells to numbers from 0."""

    def __init__(self, what: str, path: Path | None, *, texts: bool) -> None:
        """`what` says what they are, for messages; `path` is a list of all of them; `texts`: none is a number.

        Raises DataError where the list cannot be read.
        """
        self.what, self.path, self._texts = what, path, texts
        self.index = IdIndex()
        self._by_line: bool | None = None if path is not None and not texts else False
        """Whether cells are numbers of the list's lines; None until the first cells tell."""
        if path is not None:
            self.index.add(read_names(path))

    @property
    def listed(self) -> bool:
        """Whether the user gave a list of all of them."""
        return self.path is not None

    @property
    def count(self) -> int:
        """How many there are."""
        return self.index.count

    @property
    def plural(self) -> str:
        """What they are, for messages; also the option that lists them."""
        return {"entity": "entities", "relation": "relations"}[self.what]

    def codes(self, batch: TableBatch, column: str) -> Array:
        """Return the numbers of a column's cells, int64 (n,); 0 in the place of what is wrong, which is gathered."""
        values, none = checked_ids(batch, column)
        if is_text(values.type):
            nameless = compute.or_(compute.utf8_is_space(values), compute.match_substring(values, "\0"))
            words = lambda row: f"the {self.what} {values[row].as_py()!r} is blank or has a NUL character"  # noqa: E731
            wrong = batch.wrong(compute.fill_null(nameless, False), column, f"the {self.what} is no name", words)
            none = none if wrong is None else wrong if none is None else none | wrong
        codes = np.zeros(len(values), np.int64)
        good = slice(None) if none is None else ~none
        there = values if none is None else values.filter(pa.array(~none))
        if not len(there):
            return codes
        if self.listed:
            codes[good] = self.find(there)
        else:
            if is_text(there.type):
                self._keep_texts()
            codes[good] = self.index.add(there.cast(pa.string()) if self.index.is_text else there)
        unknown = codes == UNKNOWN
        if unknown.any():
            batch.wrong(unknown, column, f"unknown {self.what}", lambda row: self._not_listed(values[row].as_py()))
            codes[unknown] = 0
        return codes

    def find(self, cells: pa.Array) -> Array:
        """Return the numbers of cells without empty ones, int64 (n,); `UNKNOWN` for what is no name.

        Numbers are lines, from 0, where the list does not have them as names.
        """
        self._keep_texts()
        numbers = whole_numbers(cells) if is_text(cells.type) else cells
        are_numbers = not is_text(numbers.type)
        if self._by_line is None:
            has_numbers = not is_text(self.keys().type) or not (self.index.find(cells.cast(pa.string())) < 0).any()
            self._by_line = are_numbers and not has_numbers
        if not self._by_line:
            return self.index.find(cells.cast(pa.string()))
        if not are_numbers:
            return np.full(len(cells), UNKNOWN)
        lines = np.asarray(numbers)
        return np.where((lines >= 0) & (lines < self.count), lines, UNKNOWN)

    def keys(self) -> pa.Array:
        """Return all names by number: int64 or texts."""
        keys = self.index.keys()
        if self._texts:
            return keys.cast(pa.string())
        return whole_numbers(keys) if self.index.is_text else keys

    def _keep_texts(self) -> None:
        """Go on with texts where all names were numbers so far; each has the number that it had."""
        if self.index.is_text is False:
            keys, self.index = self.index.keys(), IdIndex()
            self.index.add(keys.cast(pa.string()))

    def _not_listed(self, value: object) -> str:
        if self._by_line:
            return (
                f"{self.what} {value} is not in {self.path}: a number is a line there, and its lines are 0 to "
                f"{self.count - 1} (dataset.text_ids=true takes numbers as names)"
            )
        unknown = f"unknown {self.what} {value!r}: it is not in {self.path}"
        if str(value).startswith("_:") and "@" in str(value):
            return (
                f"{unknown}; a blank node is of its file, and where files are parts of one: dataset.blank_nodes=shared"
            )
        first = str(self.index.keys()[0])
        if "\t" in first:
            return f"{unknown}, whose lines are names as a whole, such as {first!r}; leave its other columns out"
        return f"{unknown}; add it there, or leave the list out"


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
    """Return the type of each entity by the number it was met in, the types' names, and how many rows name no entity.

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
        if two.any():
            first = batch.column(entity)[int(np.flatnonzero(two)[0])].as_py()
            batch.wrong(two, kind, "an entity of two types", f"{first!r} has another type too; keep one of them")
    problems.raise_any()
    missing = np.flatnonzero((kinds < 0) & ((uses > 0) | names.listed))
    if len(missing):
        first = names.keys()[int(missing[0])].as_py()
        raise DataError(f"gives no type for {len(missing):,} entities, {first!r} the first; add them", path=path)
    ranks = words.sort()
    return np.where(kinds >= 0, ranks[kinds], 0), [file_name(word) for word in words.keys().to_pylist()], unknown


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
        columns = text_table(path, kind).names()[:2]
        batches = text_table(path, kind).read(as_texts(columns)) if len(columns) == 2 else None
    if batches is None:
        raise DataError("has one column; entity and type are needed", path=path)
    for data in batches:
        filled = [with_nulls(values, ("",)) for values in data.columns]
        yield pa.RecordBatch.from_arrays(filled, names=data.schema.names)


def text_table(path: Path, kind: str, delimiter: str | None = None) -> TextTableFile:
    """Return a CSV or TSV without names; a TSV has no quotes."""
    return TextTableFile(path, delimiter or ("\t" if kind == "tsv" else ","), header=False, quotes=kind == "csv")
