"""Completions of a triple as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.terminal.console import out, table

_ENDS = ("head", "relation", "tail")
_FIGURES = ("rank", "score", "probability")


def show_completions(asked: str, completions: Sequence[dict[str, Any]]) -> None:
    """Print the completions of one triple's end `asked`, best first; known ones are marked, where there are any."""
    if not completions:
        return
    question = " ".join("?" if end == asked else str(completions[0][end]) for end in _ENDS)
    marks = any(row["known"] for row in completions)
    figures = [name for name in _FIGURES if completions[0][name] is not None]
    shown = table("rank", question, *figures[1:], *(["known"] if marks else []), right=tuple(figures))
    for row in completions:
        cells = str(row["rank"]), str(row[asked]), *(f"{row[name]:.4f}" for name in figures[1:])
        shown.add_row(*cells, *([row["known"] or ""] if marks else []))
    out().print(shown, markup=False)
