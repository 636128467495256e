"""Some rows of a user's table, which know their places in the file, and the mistakes that are gathered of them.

Of each cause in each column the first with its place, all of them counted: one run names them all. Memory: a line for
each of `MAX_LISTED` causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from tasks.arrays import Array

MAX_LISTED = 20


@dataclass
class Mistake:
    """One cause in one column of one file."""

    kind: str
    """What is wrong, in the same words for all rows."""
    message: str
    """The first one in full, with its file, row and column."""
    count: int
    """Rows; 0 where it is not a matter of rows."""

    def __str__(self) -> str:
        return f"{self.message} ({self.count:,} such rows)" if self.count > 1 else self.message


class TableError(DataError):
    """What is wrong with a data set's tables. One mistake reads as a DataError of its own; several are listed."""

    def __init__(self, mistakes: tuple[Mistake, ...], num_others: int) -> None:
        """`num_others`: rows of mistakes beyond the listed ones."""
        self.mistakes, self.num_others = mistakes, num_others
        lines = [str(mistake) for mistake in mistakes]
        if num_others:
            lines.append(f"and {num_others:,} more of other kinds or columns")
        super().__init__(lines[0] if len(lines) == 1 else "the tables have these mistakes:\n  " + "\n  ".join(lines))


class Problems:
    """Gathers mistakes while tables are read."""

    def __init__(self) -> None:
        self._listed: dict[tuple[str, str, str], Mistake] = {}
        self._num_others = 0

    def __bool__(self) -> bool:
        return bool(self._listed)

    def is_listed(self, path: object, column: object, kind: str, count: int) -> bool:
        """Count rows of a cause that needs no words any more; False where it wants a line of its own (`add`)."""
        mistake = self._listed.get((str(path), str(column), kind))
        if mistake is not None:
            mistake.count += count
        elif len(self._listed) >= MAX_LISTED:
            self._num_others += max(1, count)
        else:
            return False
        return True

    def add(self, path: object, column: object, kind: str, error: DataError, count: int) -> None:
        """Add a cause: `error` names its first row, and `count` rows have it (0: it is not a matter of rows)."""
        if not self.is_listed(path, column, kind, count):
            self._listed[str(path), str(column), kind] = Mistake(kind, str(error), count)

    def take(self, others: Problems, kind: str) -> None:
        """Take over the causes of one kind that another reading of the tables met."""
        for key, mistake in others._listed.items():
            if mistake.kind == kind:
                self._listed.setdefault(key, mistake)

    @contextmanager
    def gathering(self) -> Iterator[list[DataError]]:
        """Go on behind the block where a DataError ends it, or `raise_any`; yields a list that gets that error."""
        ended: list[DataError] = []
        try:
            yield ended
        except DataError as error:
            ended.append(error)
            if not isinstance(error, TableError):  # that one was gathered already
                self.add(str(error), "", "could not be read", error, 0)

    def raise_any(self) -> None:
        """Raise TableError where there is a mistake."""
        if self._listed:
            raise TableError(tuple(self._listed.values()), self._num_others)


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
