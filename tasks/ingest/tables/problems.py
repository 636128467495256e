"""Mistakes in users' tables, gathered: of each cause in each column the first with its place, all of them counted.

One run names them all, where ending at the first would take a run for each. Memory: a line for each of `MAX_LISTED`
causes, a number for each kind of cause beyond.
"""

from __future__ import annotations

from collections import Counter
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

    def __init__(self, mistakes: tuple[Mistake, ...], others: dict[str, int]) -> None:
        """`others`: mistakes beyond the listed ones, by kind."""
        self.mistakes, self.others = mistakes, others
        lines = [str(mistake) for mistake in mistakes]
        if others:
            kinds = ", ".join(f"{kind} ({count:,})" for kind, count in list(others.items())[:MAX_LISTED])
            lines.append(f"and {sum(others.values()):,} more: {kinds}")
        if len(lines) == 1:
            super().__init__(lines[0])
        else:
            super().__init__("the tables have these mistakes:\n  " + "\n  ".join(lines))


class Problems:
    """Gathers mistakes while tables are read."""

    def __init__(self) -> None:
        self._listed: dict[tuple[str, str, str], Mistake] = {}
        self._others: Counter[str] = Counter()
        self.unread: list[str] = []
        """What was not looked at because of a mistake that ended the reading of a table."""

    def __bool__(self) -> bool:
        """Whether there is any mistake."""
        return bool(self._listed)

    def __len__(self) -> int:
        """How many causes are listed: it grows when another one is met."""
        return len(self._listed) + len(self._others)

    def known(self, path: object, column: object, kind: str, count: int) -> bool:
        """Count rows of a cause that needs no words any more; False where it wants a line of its own (`add`)."""
        mistake = self._listed.get((str(path), str(column), kind))
        if mistake is not None:
            mistake.count += count
            return True
        if len(self._listed) >= MAX_LISTED:
            self._others[kind] += max(1, count)
            return True
        return False

    def add(self, path: object, column: object, kind: str, error: DataError, count: int) -> None:
        """Add a cause: `error` names its first row, and `count` rows have it (0: it is not a matter of rows)."""
        if not self.known(path, column, kind, count):
            self._listed[str(path), str(column), kind] = Mistake(kind, str(error), count)

    def take(self, others: Problems, kind: str) -> None:
        """Take over the causes of one kind that another reading of the tables met."""
        for key, mistake in others._listed.items():
            if mistake.kind == kind:
                self._listed.setdefault(key, mistake)

    @contextmanager
    def gathering(self, unread: str = "") -> Iterator[list[DataError]]:
        """Go on behind the block where a DataError ends it, or `raise_any`; yields a list that gets that error.

        `unread`: what was not looked at where a DataError ends it, for a note.
        """
        ended: list[DataError] = []
        try:
            yield ended
        except TableError as error:  # gathered already
            ended.append(error)
        except DataError as error:
            ended.append(error)
            self.add(str(error), "", "could not be read", error, 0)
            if unread and unread not in self.unread:
                self.unread.append(unread)

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        """The causes in the order in which they were met."""
        return tuple(self._listed.values())

    def raise_any(self) -> None:
        """Raise TableError where there is a mistake."""
        if self._listed:
            raise TableError(self.mistakes, dict(self._others))
