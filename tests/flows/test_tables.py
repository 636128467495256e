"""Tables: whole and plain in pipes, drawn to fit on terminals; what is said of the time that is left."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from flows.terminal.console import table
from flows.terminal.progress import Reporter

LONG = "words that say at length why a stage runs again, " * 4


def shown(*, width: int, terminal: bool) -> list[str]:
    made = table("stage", "why", "size", right=("size",))
    made.add_row("preprocess", LONG, "4.3 MB")
    made.add_row("train", "[bold]\nand a second line", "730 kB")
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, color_system=None, soft_wrap=not terminal)
    console.print(made)
    return file.getvalue().splitlines()


def test_a_pipe_gets_whole_lines_without_art() -> None:
    head, first, second = shown(width=40, terminal=False)
    assert head == f"stage       {'why':<{len(LONG)}}    size"
    assert first == f"preprocess  {LONG}  4.3 MB"
    assert second.split() == ["train", "[bold];", "and", "a", "second", "line", "730", "kB"]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_terminal_gets_no_line_that_is_too_wide(width: int) -> None:
    lines = shown(width=width, terminal=True)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "preprocess" in text, "names stay whole"
    assert "4.3 MB" in text, "figures stay whole"
    assert "─" in text


def test_the_names_of_figures_stay_whole_at_80_columns() -> None:
    names = ("mrr", "ap", "rocauc", "hits@1", "hits@3", "hits@10")
    made = table("a recipe", *names, right=names)
    made.add_row("valid · common neighbours", *["0.0000"] * len(names))
    file = io.StringIO()
    Console(file=file, width=80, force_terminal=True, color_system=None).print(made)
    head = next(line for line in file.getvalue().splitlines() if "rocauc" in line)
    assert head.split() == ["a", "recipe", *names]


@pytest.mark.parametrize(
    ("elapsed", "remaining", "detail", "said"),
    [
        (3.0, 2000.0, "1 of 120 steps", ""),  # of a first step that compiled
        (30.0, None, "1 of 120 steps", ""),
        (30.0, 60.0, "1 of 120 steps", "60.0 s left"),
        (30.0, 60.0, "1 of 120 steps  epoch 1/10, 0:55 left", ""),  # the training's own estimate stands there
    ],
)
def test_what_is_left_is_said_after_the_first_seconds(
    elapsed: float, remaining: float | None, detail: str, said: str
) -> None:
    task: Any = SimpleNamespace(elapsed=elapsed, time_remaining=remaining, fields={"detail": detail})
    column: Any = Reporter()._live().columns[-1]
    assert column.render(task).plain == said
