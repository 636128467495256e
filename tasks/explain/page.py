"""One self-contained page of explanations: no request leaves it, nothing in it is trusted as markup.

A neighbourhood is drawn as points on rings around what is explained, with the edges that moved the score most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.explain.answers import Answer, figure
from tasks.explain.neighborhood import Neighborhood

MOST_ON_PAGE = 100
_ROWS = 25
_MOST_EDGES, _MOST_NODES, _MOST_LABELS, _LETTERS = 30, 12, 14, 14
_RING, _ROOM = 90.0, np.array([70.0, 40.0])


def render_page(answers: Sequence[Answer], title: str, method: str, left_out: int) -> str:
    """Return the page; `left_out`: explanations that stand in the file only."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["figure"] = lambda value: "" if value is None else figure(value)
    shown = [(answer, draw(answer), _strongest(answer)) for answer in answers]
    return environment.get_template("page.jinja").render(shown=shown, title=title, method=method, left_out=left_out)


def _strongest(answer: Answer) -> list[dict[str, Any]]:
    rows = answer.table.to_pylist()
    return sorted(rows, key=lambda row: -abs(row["effect"]))[:_ROWS]


def draw(answer: Answer) -> dict[str, Any]:
    """Return `points` and `lines` of an SVG, in pixels, its view `box`, and how many edges are `left_out`.

    Shown are the strongest edges and neighbours, and what joins these to what is explained.
    """
    hood, names = answer.hood, answer.words.nodes
    units, effect, of_node = hood.units, np.zeros(len(hood.units)), np.zeros(len(hood.nodes))
    for part in answer.explanation.effects:
        if part.part in ("edge", "node"):
            (effect if part.part == "edge" else of_node)[part.place] = part.effect
    shown, parent = _joined(hood, effect, of_node)
    place = _places(hood, parent)
    corners = np.array([*place.values()])
    middle, half = (corners.max(0) + corners.min(0)) / 2, np.maximum(np.ptp(corners, axis=0) / 2, _RING) + _ROOM
    strength = np.abs(of_node) / max(np.abs(of_node).max(initial=0), 1e-30)
    share = np.abs(effect) / max(np.abs(effect).max(initial=0), 1e-30)
    for unit in shown:
        strength[[units.source[unit], units.target[unit]]] += share[unit]
    labelled = np.argsort(-np.where(hood.hop == 0, np.inf, strength), kind="stable")[:_MOST_LABELS].tolist()
    lines, points = [], []
    for unit in sorted(shown, key=lambda one: share[one]):
        source, target = int(units.source[unit]), int(units.target[unit])
        ends = dict(zip(("x1", "y1", "x2", "y2"), (*place[source], *place[target]), strict=True))
        title = f"{names[source]} to {names[target]}: {effect[unit]:+.4g}"
        lines.append({**ends, "width": round(1 + 5 * share[unit], 1), "kind": _sign(effect[unit]), "title": title})
    for node, (x, y) in place.items():
        is_seed, name = hood.hop[node] == 0, str(names[node])
        radius = 11 if is_seed else round(4 + 3 * min(strength[node], 2.0), 1)
        label = (name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…") if node in labelled else ""
        look = {"radius": radius, "kind": "seed" if is_seed else _sign(of_node[node]), "label": label}
        points.append({"x": x, "y": y, **look, "title": f"{name}: {of_node[node]:+.4g}"})
    box = " ".join(f"{number:.0f}" for number in (*(middle - half), *(2 * half)))
    return {"lines": lines, "points": points, "box": box, "left_out": len(units) - len(shown)}


def _joined(hood: Neighborhood, effect: Array, of_node: Array) -> tuple[set[int], dict[int, int]]:
    """Return the units that are shown, and of each node that is shown the one nearer to what is explained."""
    units = hood.units
    shown = {unit for unit in np.argsort(-np.abs(effect), kind="stable")[:_MOST_EDGES].tolist() if effect[unit]}
    waiting = [int(end[unit]) for unit in shown for end in (units.source, units.target)]
    waiting += [node for node in np.argsort(-np.abs(of_node), kind="stable")[:_MOST_NODES].tolist() if of_node[node]]
    parent: dict[int, int] = dict.fromkeys(np.flatnonzero(hood.hop == 0).tolist(), -1)
    while waiting:
        node = waiting.pop()
        if node in parent:
            continue
        at = np.flatnonzero((units.source == node) | (units.target == node))
        other = np.where(units.source[at] == node, units.target[at], units.source[at])
        nearer = np.flatnonzero(hood.hop[other] < hood.hop[node])
        best = nearer[np.argmax(np.abs(effect[at[nearer]]))]
        parent[node] = int(other[best])
        shown.add(int(at[best]))
        waiting.append(parent[node])
    return shown, parent


def _places(hood: Neighborhood, parent: dict[int, int]) -> dict[int, tuple[float, float]]:
    """Return where nodes stand: each on its hop's ring, amid the nodes that hang on it."""
    children: dict[int, list[int]] = defaultdict(list)
    for node in sorted(parent):
        children[parent[node]].append(node)
    angle, leaves = dict[int, float](), count()

    def turn(node: int) -> float:
        below = [turn(child) for child in children[node]] if children[node] else [float(next(leaves))]
        angle[node] = sum(below) / len(below)
        return angle[node]

    turn(-1)
    width = next(leaves)
    ring = _RING * max(1.0, width / 14)
    place = {}
    for node in parent:
        radius, at = (
            ring * (int(hood.hop[node]) + 0.5 * (len(children[-1]) > 1)),
            2 * np.pi * (angle[node] + 0.5) / width,
        )
        place[node] = round(radius * float(np.cos(at)), 1), round(0.8 * radius * float(np.sin(at)), 1)
    return place


def _sign(value: float) -> str:
    return "up" if value > 0 else "down" if value < 0 else "none"
