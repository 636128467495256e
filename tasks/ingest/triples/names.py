"""Names of entities and relations as numbers: by a list that the user gives, or as they are met.

Ids are whole numbers where all cells are, else texts: `00260881` is not 260881. What a cell is can show late, so one
text after numbers ends the reading (`TextFoundError`) and it begins anew with texts.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.columns import checked_ids
from tasks.ingest.triples.reader import TripleBatch
from tasks.readers.columns import is_text, whole_numbers
from tasks.readers.lines import read_names

UNKNOWN = -1
_TYPE_END = "\x1f"  # sorts before all letters, so that the ids of a type lie together


class TextFoundError(Exception):
    """A text stands where all cells before were whole numbers."""

    def __init__(self, names: Names) -> None:
        """`names`: those that have to be texts."""
        self.names = names


class Names:
    """Entities, or relations: cells to numbers from 0."""

    def __init__(self, what: str, path: Path | None, *, texts: bool) -> None:
        """`what` says what they are, for messages; `path` is a list of all of them; `texts`: none is a number.

        Raises DataError where the list cannot be read.
        """
        self.what, self.path, self.texts = what, path, texts
        self.listed = path is not None
        self.index = IdIndex()
        self._by_line = False
        if path is not None:
            lines = read_names(path)
            names = lines if texts else whole_numbers(lines)
            self._by_line = not texts and is_text(names.type)
            self.index.add(names)

    @property
    def count(self) -> int:
        """How many there are."""
        return self.index.count

    @property
    def plural(self) -> str:
        """What they are, for messages; also the option that lists them."""
        return {"entity": "entities", "relation": "relations"}[self.what]

    def forget(self) -> None:
        """Begin anew, with texts."""
        self.__init__(self.what, self.path, texts=self.texts)  # type: ignore[misc]

    def codes(self, batch: TripleBatch, column: str, kind: str | None = None) -> Array:
        """Return the numbers of a column's cells, int64 (n,); 0 in the place of what is wrong, which is gathered.

        `kind` is the column of their types, where ids are counted within types.

        Raises TextFoundError: see there.
        """
        cells = self._cells(batch.cells.column(column))
        table = batch.with_cells(column, cells)
        values, none = checked_ids(table, column)
        if kind is not None:
            values, none = self._within_types(batch, values, none, kind)
        codes = np.zeros(len(values), np.int64)
        good = slice(None) if none is None else ~none
        there = values if none is None else values.filter(pa.array(~none))
        if not len(there):
            return codes
        numbers = self._find(there) if self.listed else self.index.add(there)
        codes[good] = numbers
        unknown = codes == UNKNOWN
        if unknown.any():
            table.wrong(unknown, column, f"unknown {self.what}", lambda row: self._not_listed(values[row].as_py()))
            codes[unknown] = 0
        return codes

    def find(self, cells: pa.Array) -> Array:
        """Return the numbers of cells of another table, int64 (n,); `UNKNOWN` for what is no name."""
        values = compute.fill_null(cells.cast(pa.string()), "")
        if not self.texts:
            numbers = whole_numbers(values)
            if is_text(numbers.type) and not self.index.is_text:
                return self._some_numbers(values)
            values = numbers
        return self._find(values)

    def keys(self) -> pa.Array:
        """Return all names by number: int64 or texts."""
        return self.index.keys()

    def _cells(self, cells: pa.Array) -> pa.Array:
        if self.texts:
            return cells.cast(pa.string()) if pa.types.is_integer(cells.type) else cells
        if not is_text(cells.type):
            return cells
        numbers = whole_numbers(cells)
        if is_text(numbers.type) and numbers.null_count < len(numbers):
            raise TextFoundError(self)
        return numbers

    def _find(self, values: pa.Array) -> Array:
        """Return numbers of names, or of lines where the list holds names and the cells are numbers."""
        if self._by_line and not is_text(values.type):
            lines = np.asarray(values)
            return np.where(lines < self.index.count, lines, UNKNOWN)
        if is_text(values.type) != bool(self.index.is_text):  # texts, and numbers in the list
            return self._some_numbers(values)
        return self.index.find(values)

    def _some_numbers(self, texts: pa.Array) -> Array:
        """Look up those of some texts that are whole numbers."""
        numbers = np.full(len(texts), UNKNOWN, np.int64)
        plain = compute.match_substring_regex(texts, r"^(0|[1-9][0-9]{0,17})$")
        numbers[np.asarray(plain)] = self.index.find(texts.filter(plain).cast(pa.int64()))
        return numbers

    def _not_listed(self, value: object) -> str:
        if self._by_line and not isinstance(value, str):
            return (
                f"{self.what} {value} is not in {self.path}: a number is a line there, and its lines are 0 to "
                f"{self.count - 1} (dataset.text_ids=true takes numbers as names)"
            )
        unknown = f"unknown {self.what} {value!r}: it is not in {self.path}"
        if str(value).startswith("_:") and "@" in str(value):
            return (
                f"{unknown}; a blank node is of its file, and where files are parts of one: dataset.blank_nodes=shared"
            )
        first = str(self.index.keys()[0]) if self.index.count else ""
        if "\t" in first:
            return f"{unknown}, whose lines are names as a whole, such as {first!r}; leave its other columns out"
        return f"{unknown}; add it there, or leave the list out"

    def _within_types(self, batch: TripleBatch, ids: pa.Array, none: Array | None, kind: str) -> tuple[pa.Array, Array]:
        """Return `type<mark>id` for each cell, and which have none."""
        kinds = batch.cells.column(kind)
        kinds = kinds.cast(pa.string())
        missing = np.asarray(compute.fill_null(compute.equal(kinds, ""), True))
        batch.cells.wrong(missing, kind, "the type is missing")
        marked = np.asarray(compute.fill_null(compute.match_substring(kinds, _TYPE_END), False))
        batch.cells.wrong(marked, kind, "the type holds a control character (0x1F)")
        whole = compute.binary_join_element_wise(kinds, ids.cast(pa.string()), _TYPE_END)
        return whole, missing | marked | (False if none is None else none)


def split_types(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the types and the ids of keys that have both."""
    parts = compute.extract_regex(keys, rf"(?s)^(?P<kind>[^{_TYPE_END}]*){_TYPE_END}(?P<id>.*)$")
    return parts.field(0), parts.field(1)
