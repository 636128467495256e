"""One self-contained page of explanations: no request leaves it, nothing in it is trusted as markup.

A neighbourhood is drawn as points on rings around what is explained, with the edges that moved the score most.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import nlargest
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.explain.answers import Answer, figure, moved, signed
from tasks.explain.neighborhood import Neighborhood

MOST_ON_PAGE = 100
_ROWS = 25
_MOST_EDGES, _MOST_NODES, _LETTERS = 30, 12, 14
_RING, _ROOM, _BEND = 110.0, np.array([110.0, 60.0]), 9.0
_LETTER, _LINE = 8.6, 15.0
"""Pixels that a letter is wide, about, and a line high."""

Point = tuple[float, float]


def render_page(answers: Sequence[Answer], title: str, method: str, left_out: int) -> str:
    """Return the page; `left_out`: explanations that stand in the file only."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["figure"] = lambda value: "" if value is None else figure(value)
    shown = [
        (answer, draw(answer), nlargest(_ROWS, answer.table.to_pylist(), lambda row: abs(moved(row))))
        for answer in answers
    ]
    return environment.get_template("page.jinja").render(shown=shown, title=title, method=method, left_out=left_out)


def draw(answer: Answer) -> dict[str, Any]:
    """Return `lines`, `points` and `labels` of an SVG, in pixels, its view `box` and `width`, and how many edges are
    `left_out`.

    Shown are the strongest edges and neighbours, what joins these to what is explained, and an asked pair itself.
    """
    hood, names = answer.hood, [str(name) for name in answer.words.nodes.to_pylist()]
    units, effect, of_node, of_what = hood.units, np.zeros(len(hood.units)), np.zeros(len(hood.nodes)), ""
    for part in answer.explanation.effects:
        if part.part in ("edge", "node"):
            (effect if part.part == "edge" else of_node)[part.place] = part.moved
            of_what = "" if part.odds is None else " log odds"
    shown, parent = _joined(hood, effect, of_node)
    place = _places(hood, parent)
    share = np.abs(effect) / max(np.abs(effect).max(initial=0), 1e-30)
    strength = np.abs(of_node) / max(np.abs(of_node).max(initial=0), 1e-30)
    for unit in shown:
        strength[[units.source[unit], units.target[unit]]] += share[unit]
    radius = {node: 11.0 if hood.hop[node] == 0 else 4 + 3 * min(float(strength[node]), 2.0) for node in place}
    drawn = list[tuple[int, int, dict[str, Any]]]()
    for unit in sorted(shown, key=lambda one: share[one]):
        source, target = int(units.source[unit]), int(units.target[unit])
        relation = answer.words.relations[units.relation[unit]] if answer.words.relations else ""
        way = "and" if relation in answer.words.either_way else "to"
        title = f"{names[source]} {way} {names[target]}: {signed(effect[unit])}{of_what}"
        look = {"width": round(1 + 5 * share[unit], 1), "kind": _sign(effect[unit]), "arrow": way == "to"}
        drawn.append((source, target, {**look, "title": title}))
    if len(answer.ends) == 2:
        source, target = answer.ends.tolist()
        title = f"asked about: {names[source]} {'to' if answer.directed else 'and'} {names[target]}"
        drawn.append((source, target, {"width": 3, "kind": "asked", "arrow": answer.directed, "title": title}))
    beside = Counter(tuple(sorted(ends)) for *ends, _ in drawn)
    lines, nth = [], Counter[tuple[int, ...]]()
    for source, target, look in drawn:
        pair = tuple(sorted((source, target)))
        bend = _BEND * (nth[pair] - (beside[pair] - 1) / 2) * (1 if source <= target else -1)
        if source == target:
            bend = _BEND * (1 + nth[pair])
        nth[pair] += 1
        head = 8 + 1.5 * look["width"] if look["arrow"] else 0.0
        lines.append(look | _shape(place[source], place[target], bend, radius[target] + 2, head))
    points = [
        {
            "x": x,
            "y": y,
            "radius": round(radius[node], 1),
            "kind": "seed" if hood.hop[node] == 0 else _sign(of_node[node]),
        }
        | {"title": f"{names[node]}: {signed(of_node[node])}{of_what}" if of_node[node] else names[node]}
        for node, (x, y) in place.items()
    ]
    order = sorted(place, key=lambda node: (hood.hop[node] > 0, -strength[node]))
    corners = np.array([*place.values()])
    middle, half = (corners.max(0) + corners.min(0)) / 2, np.ptp(corners, axis=0) / 2 + _ROOM
    box = " ".join(f"{number:.0f}" for number in (*(middle - half), *(2 * half)))
    labels = _labels([(*place[node], radius[node], names[node]) for node in order])
    drawn_of = {"lines": lines, "points": points, "labels": labels}
    return {**drawn_of, "box": box, "width": round(2 * half[0]), "left_out": len(units) - len(shown)}


def _shape(start: Point, end: Point, bend: float, short: float, head: float) -> dict[str, str]:
    """Return an edge's SVG `path`, and its `head` of that length, empty: none; both stay `short` of the end's middle.

    Edges beside each other bend apart, and loops lie outwards.
    """
    a, b = np.array(start), np.array(end)
    if start == end:
        far = float(np.linalg.norm(a))
        out = (3 * bend + 2 * short) * (a / far if far else np.array([0.0, -1.0]))
        aside = np.array([-out[1], out[0]])
        first, last = a + out - aside, a + out + aside
    else:
        normal = np.array([a[1] - b[1], b[0] - a[0]]) / np.linalg.norm(b - a)
        first = last = (a + b) / 2 + 2 * bend * normal
    along = (b - last) / np.linalg.norm(b - last)
    tip, foot = b - short * along, b - (short + head) * along
    wide = 0.45 * head * np.array([-along[1], along[0]])
    path, arrow = (
        [f"{x:.1f} {y:.1f}" for x, y in some] for some in ((a, first, last, foot), (tip, foot + wide, foot - wide))
    )
    return {"path": "M{}C{} {} {}".format(*path), "head": "M{}L{}L{}z".format(*arrow) if head else ""}


def _labels(points: Sequence[tuple[float, float, float, str]]) -> list[dict[str, Any]]:
    """Return labels of points (x, y, radius, name), those first that come first; none lies on another or on a point."""
    taken = [(x - radius, y - radius, x + radius, y + radius) for x, y, radius, _ in points]
    labels = []
    for x, y, radius, name in points:
        text = name if len(name) <= _LETTERS else f"{name[: _LETTERS // 2 - 1]}…{name[-_LETTERS // 2 :]}"
        width = _LETTER * len(text)
        across, down = radius + 3 + width / 2, radius + 3 + _LINE / 2
        for at_x, at_y in ((x, y - down), (x, y + down), (x + across, y), (x - across, y)):
            box = at_x - width / 2, at_y - _LINE / 2, at_x + width / 2, at_y + _LINE / 2
            if not any(box[0] < c and a < box[2] and box[1] < d and b < box[3] for a, b, c, d in taken):
                taken.append(box)
                labels.append({"x": round(at_x, 1), "y": round(at_y + 4, 1), "text": text, "title": name})
                break
    return labels


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


def _places(hood: Neighborhood, parent: dict[int, int]) -> dict[int, Point]:
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
            2 * np.pi * angle[node] / width,
        )
        place[node] = round(radius * float(np.cos(at)), 1), round(0.8 * radius * float(np.sin(at)), 1)
    return place


def _sign(value: float) -> str:
    return "up" if value > 0 else "down" if value < 0 else "none"
