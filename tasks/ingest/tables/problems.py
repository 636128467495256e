"""Mistakes in users' tables, gathered: of each cause in each column the first with its place, all of them counted.

One run names them all, where ending at the first would take a run for each. Memory: a line for each of `MAX_LISTED`
causes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from configs.errors import DataError

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
        """Return it as one line."""
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
        """Whether there is any mistake."""
        return bool(self._listed)

    def __len__(self) -> int:
        """It grows when another cause is met."""
        return len(self._listed) + self._num_others

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
