"""Some rows of a user's table, which know their places in the file and gather mistakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.problems import Problems


@dataclass(frozen=True)
class TableBatch:
    """Some rows of a table, and where their mistakes go."""

    path: Path
    first_row: int
    """Row of the file that is the batch's first, counted from 0 without the header."""
    data: pa.RecordBatch
    problems: Problems = field(default_factory=Problems)
    kept: Array | None = None
    """Which of the rows that were read are left, bool; None: all."""
    way_out: str = ""
    """What one may do about a mistake in a column, with `{column}` in the place of its name."""

    def column(self, name: str) -> pa.Array:
        """Return a column as one array."""
        return self.data.column(self.data.schema.get_field_index(name))

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return int(self.data.num_rows)

    @property
    def num_read(self) -> int:
        """Rows that were read."""
        return self.num_rows if self.kept is None else len(self.kept)

    def keep(self, chosen: Array) -> TableBatch:
        """Return the batch with those rows (bool) only; rows keep their numbers in messages."""
        if chosen.all():
            return self
        kept = np.ones(self.num_rows, np.bool_) if self.kept is None else self.kept.copy()
        kept[kept] = chosen
        return replace(self, data=self.data.filter(pa.array(chosen)), kept=kept)

    def error(self, message: str, row: int | None, column: object) -> DataError:
        """Return an error at a row of this batch; None: it is the whole column."""
        if row is not None:
            row = self.first_row + (row if self.kept is None else int(np.flatnonzero(self.kept)[row]))
        way_out = self.way_out.replace("{column}", str(column))
        return DataError(message + way_out, path=self.path, row=row, column=column)

    def wrong(self, rows: Any, column: object, kind: str, message: Callable[[int], str] | str = "") -> Array | None:
        """Gather the rows (bool, or an Arrow array of it) that are wrong; return them, None where there is none.

        `kind` says what is wrong for all of them; `message` the first one's words, by its row, where they say more.
        """
        wrong_rows = np.asarray(rows)
        count = int(np.count_nonzero(wrong_rows))
        if count == 0:
            return None
        if not self.problems.is_listed(self.path, column, kind, count):
            row = int(np.flatnonzero(wrong_rows)[0])
            words = message(row) if callable(message) else message
            self.problems.add(self.path, column, kind, self.error(words or kind, row, column), count)
        return wrong_rows

    def wrong_column(self, column: object, message: str) -> None:
        """Gather a mistake of the column as a whole."""
        self.problems.add(self.path, column, message, self.error(message, None, column), 0)
