"""Names of entities and relations as numbers: by a list that the user gives, or as they are met.

Ids are whole numbers where all of them are, else texts: `00260881` is not 260881.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import checked_ids
from tasks.readers.columns import is_text, whole_numbers
from tasks.readers.lines import read_names

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
