"""Completions of a triple as a table for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flows.terminal.console import out, table

_ENDS = ("head", "relation", "tail")
_FIGURES = ("rank", "score", "probability")


def show_completions(asked: str, completions: Sequence[dict[str, Any]]) -> None:
    """Print the completions of one triple, best first; known ones are marked, where there are any.

    `asked`: which of head, relation and tail they are.
    """
    if not completions:
        return
    question = " ".join("?" if end == asked else str(completions[0][end]) for end in _ENDS)
    marks = any(row["known"] for row in completions)
    shown = table("rank", question, "score", "probability", *(["known"] if marks else []), right=_FIGURES)
    for row in completions:
        cells = str(row["rank"]), str(row[asked]), f"{row['score']:.4f}", f"{row['probability']:.4f}"
        shown.add_row(*cells, *([row["known"] or ""] if marks else []))
    out().print(shown, markup=False)
