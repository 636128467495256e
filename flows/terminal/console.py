"""What the terminal shows: results on stdout; progress, warnings and mistakes on stderr."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from tasks.markdown import plain_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from rich.console import Console, ConsoleOptions, RenderResult

_NO_TERMINAL_WIDTH = 1000
"""Columns of a pipe or file, whatever COLUMNS says: nothing is cut or folded, who reads it can do that."""
_WHOLE_NAME = 40
"""Names of at most so many characters are not folded in a table's first column."""


def out() -> Console:
    """Return the console for results."""
    return _console(sys.stdout.isatty(), stderr=False)


def err() -> Console:
    """Return the console for everything else."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(terminal: bool, *, stderr: bool) -> Console:
    from rich.console import Console

    width = None if terminal else _NO_TERMINAL_WIDTH
    return Console(stderr=stderr, emoji=False, highlight=False, soft_wrap=not terminal, width=width)


def print_facts(console: Console, facts: Iterable[tuple[str, str]], width: int = 9) -> None:
    """Print names and texts, a line each."""
    for name, text in facts:
        console.print(f"{name:<{width}} {text}", markup=False, soft_wrap=True)


def print_result(as_json: bool, values: Any, show: Callable[[], object]) -> None:
    """Print what `--json` asks for, or show the same for people."""
    if as_json:
        print(json.dumps(values), flush=True)
    else:
        show()


def format_bytes(count: float) -> str:
    """Return bytes in the unit that reads best (1 kB is 1000 bytes)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(count) < 1000 or unit == "TB":
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def format_seconds(seconds: float) -> str:
    """Return a duration as people say it: 0.42 s, 12.3 s, 4 min 05 s, 2 h 03 min."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 120:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class TextTable:
    """A table that fits a terminal, and is plain where it goes to a pipe or a file: whole lines, aligned columns."""

    def __init__(self, columns: Sequence[str], right: Sequence[str] = ()) -> None:
        """`right` names the columns that are flushed right: figures."""
        self.columns = tuple(columns)
        self._right = frozenset(right)
        self.rows: list[tuple[str, ...]] = []

    def add_row(self, *cells: str) -> None:
        """Add a row, a text for each column."""
        assert len(cells) == len(self.columns)
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.is_terminal:
            yield self._drawn()
        else:
            from rich.segment import Segment

            yield Segment("".join(f"{line}\n" for line in self.plain_lines()))

    def _drawn(self) -> Any:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as Drawn
        from rich.text import Text

        # Two spaces between columns, as in plain lines: six metrics beside a control's name fit 80 columns so.
        drawn = Drawn(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for number, name in enumerate(self.columns):
            figures = name in self._right
            # Names and figures stay whole as long as a column of words can give way.
            drawn.add_column(
                Text(name),
                justify="right" if figures else "left",
                overflow="fold",
                no_wrap=number == 0 and all(len(row[0]) <= _WHOLE_NAME for row in self.rows),
                min_width=max(map(len, [*name.split(), *(row[number] for row in self.rows)])) if figures else None,
            )
        for row in self.rows:
            drawn.add_row(*map(Text, row))
        return drawn

    def markdown(self) -> str:
        """Return it as Markdown, its texts shown as they are."""
        head, *rows = [tuple(map(plain_markdown, row)) for row in (self.columns, *self.rows)]
        marks = tuple("--:" if name in self._right else "---" for name in self.columns)
        return "\n".join(f"| {' | '.join(line)} |" for line in (head, marks, *rows))

    def plain_lines(self) -> Iterator[str]:
        """Yield the head and the rows, columns two spaces apart; nothing is cut, and each row is one line."""
        flat = [["; ".join(cell.split("\n")) for cell in row] for row in (self.columns, *self.rows)]
        widths = [max(len(row[column]) for row in flat) for column in range(len(self.columns))]
        for row in flat:
            cells = (
                cell.rjust(width) if name in self._right else cell.ljust(width)
                for cell, width, name in zip(row, widths, self.columns, strict=True)
            )
            yield "  ".join(cells).rstrip()


def table(*columns: str, right: Sequence[str] = ()) -> TextTable:
    """Return an empty table; columns named in `right` are flushed right."""
    return TextTable(columns, right)
