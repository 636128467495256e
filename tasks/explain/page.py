"""One self-contained page of explanations: no request leaves it, nothing in it is trusted as markup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.explain.answers import Answer, figure
from tasks.explain.drawing import draw

MOST_ON_PAGE = 100
_ROWS = 25


def render_page(answers: Sequence[Answer], title: str, method: str, left_out: int) -> str:
    """Return the page; `left_out`: explanations that stand in the file only."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["figure"] = lambda value: "" if value is None else figure(value)
    shown = [(answer, _drawing(answer), _strongest(answer)) for answer in answers]
    return environment.get_template("page.jinja").render(shown=shown, title=title, method=method, left_out=left_out)


def _drawing(answer: Answer) -> dict[str, Any]:
    return draw(answer.hood, answer.explanation, lambda node: str(answer.words.nodes[node]))


def _strongest(answer: Answer) -> list[dict[str, Any]]:
    rows = answer.table.to_pylist()
    return sorted(rows, key=lambda row: -abs(row["effect"]))[:_ROWS]
