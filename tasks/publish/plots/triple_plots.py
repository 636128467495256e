"""The pictures of ranked triples, from `EvalReport.report["triples"]` (see tasks/evaluate/triples.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tasks.publish.plots.figures import COLORS, Canvas, canvas_of_one, compact, grouped_bars, shorten, styled

_TOP = 30
_OF_ENDS = (COLORS[1], COLORS[0])


def all_of(ranked: Mapping[str, Any], split: str) -> list[tuple[str, Canvas | None]]:
    """Return (caption, canvas) of all pictures."""
    most = f"Filtered MRR of the relations with the most triples, and how many these are ({split})"
    met = f"Filtered MRR by how often training met what is ranked ({split})"
    return [
        (f"Filtered MRR by kind of relation, and triples ({split})", categories(ranked["categories"])),
        (met, frequency(ranked["frequency"])),
        (most, relations(ranked["relations"])),
    ]


def _ends(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return the MRR of heads and of tails."""
    return {f"which {end}": [row[f"mrr_{end}"] for row in rows] for end in ("head", "tail")}


@styled
def relations(rows: Sequence[Mapping[str, Any]]) -> Canvas | None:
    """Heads and tails of each relation."""
    some = rows[:_TOP]
    if len(some) < 2:
        return None
    canvas, ax = canvas_of_one(height=max(2.4, 0.3 * len(some) + 1.2))
    names = [f"{shorten(row['relation'], 34)} ({compact(row['triples'])})" for row in some]
    grouped_bars(ax, names, _ends(some), _OF_ENDS, lie=True)
    ax.set(title="By relation", xlabel="MRR", xlim=(0, 1))
    return canvas


@styled
def categories(rows: Sequence[Mapping[str, Any]]) -> Canvas | None:
    """Heads and tails of relations by how many ends they join."""
    if len(rows) < 2:
        return None
    canvas, ax = canvas_of_one(4.6, 3.2)
    grouped_bars(ax, [f"{row['category']}\n{compact(row['triples'])}" for row in rows], _ends(rows), _OF_ENDS)
    ax.set(title="By kind", ylabel="MRR", ylim=(0, 1))
    return canvas


@styled
def frequency(rows: Sequence[Mapping[str, Any]]) -> Canvas:
    """Ranks against how often an entity was met."""
    canvas, ax = canvas_of_one(4.6, 3.2)
    ax.plot(np.arange(len(rows)), [row["mrr"] for row in rows], marker="o", color=COLORS[0])
    ax.set_xticks(np.arange(len(rows)), [compact(row["from"]) for row in rows])
    ax.set(title="By frequency", xlabel="training triples of the true entity, from", ylabel="MRR", ylim=(0, 1))
    return canvas
