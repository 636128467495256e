"""A map as a picture for papers: PNG or SVG, six inches wide."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.publish.map.colors import CATEGORIES, INK, OTHER, PAPER, of_numbers, rgb
from tasks.publish.map.columns import MapColumn, MapPoints, coloring, quantized
from tasks.storage.artifacts import atomic_file

MAX_CIRCLES = 30_000
"""More points than this are one image, also in an SVG: of so many circles it takes 3 MB."""
WIDTH_INCHES, DPI = 6.0, 300
_FONT = 8.0
_LEGEND_SHARE = 0.24
_RIM = 0.01
_DIAMETERS = ((1_000, 3.6), (5_000, 2.0), (20_000, 1.4), (200_000, 0.9), (1_000_000, 0.6))
"""In points of a seventy-second inch, by how many points there are; others lie in between."""
_TEXT = {"color": INK["light"], "parse_math": False}
_OTHER = OTHER["light"]


def draw_map(points: MapPoints, path: Path) -> None:
    """Draw the points, with a legend or a colour bar, to `path`: its suffix, .png or .svg, decides of the format.

    More than 30,000 points are an image in an SVG too, whose text and frame stay vectors. Points in space are seen from
    where a page shows them first. Equal inputs give equal bytes. Nothing is left at `path` when it fails.
    """
    import matplotlib as mpl

    kind = path.suffix.lower()
    steps_ND, _, _ = quantized(points.coordinates)
    column = coloring(points.columns, points.color)
    places_N2, order_N = _seen(steps_ND.astype(np.float64))
    figure = _figure(points.title, places_N2, order_N, column)
    settings: Any = {"svg.hashsalt": points.title, "svg.fonttype": "none", "font.family": "DejaVu Sans"}
    metadata = {"Software": None} if kind == ".png" else {"Date": None, "Creator": None}
    with atomic_file(path) as file, mpl.rc_context(settings), warnings.catch_warnings():
        # A letter that the font lacks becomes a box in a PNG; an SVG's reader has fonts of its own.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(file, format=kind[1:], dpi=DPI, facecolor=PAPER["light"], metadata=metadata)


def _seen(steps_ND: Array) -> tuple[Array, Array]:
    """Return the places (N, 2) on the paper, and the order in which points are drawn: those behind first."""
    if steps_ND.shape[1] == 2:
        # In an order that spreads over all rows: else the last category would cover the others.
        return steps_ND, np.random.default_rng(0).permutation(len(steps_ND))
    toward = np.array([1.1, 0.9, 2.0])
    toward /= np.linalg.norm(toward)
    right = np.cross([0.0, 1.0, 0.0], toward)
    right /= np.linalg.norm(right)
    return steps_ND @ np.stack([right, np.cross(toward, right)], axis=1), np.argsort(steps_ND @ toward, kind="stable")


def _figure(title: str, places_N2: Array, order_N: Array, column: MapColumn | None) -> Any:
    from matplotlib.figure import Figure

    # All points with a rim, at most twice as high or twice as wide as the other way.
    low, high = places_N2.min(axis=0), places_N2.max(axis=0)
    middle, half = (low + high) / 2, (high - low) / 2
    half = np.maximum(half, max(half.max() / 2, 1.0)) * 1.04
    (left, bottom), (right, top) = middle - half, middle + half
    share = 1 - _LEGEND_SHARE if column else 1.0
    map_height = WIDTH_INCHES * share * (top - bottom) / (right - left)
    title_height = 2.4 * _FONT / 72 if title else 0.0
    height = map_height + title_height
    figure: Any = Figure(figsize=(WIDTH_INCHES, height), dpi=DPI, facecolor=PAPER["light"])
    ax = figure.add_axes((_RIM * share, _RIM, share * (1 - 2 * _RIM), map_height / height * (1 - 2 * _RIM)))
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], facecolor=PAPER["light"])
    for spine in ax.spines.values():
        spine.set(color=_OTHER, linewidth=0.5)
    shown, are_many = places_N2[order_N], len(places_N2) > MAX_CIRCLES
    colors = _colors(column, len(places_N2))[order_N]
    look = {"s": diameter_of(len(places_N2)) ** 2, "linewidths": 0, "alpha": 0.5 if are_many else 0.8}
    ax.scatter(shown[:, 0], shown[:, 1], color=colors, rasterized=are_many, **look)
    if title:
        place_title = 1 - title_height / height / 2
        font = {"fontsize": _FONT * 1.2, "fontweight": "bold"}
        figure.text(_RIM, place_title, _plain(title, 70), va="center", ha="left", **font, **_TEXT)
    if column:
        _explain(figure, column, (share, map_height / height))
    return figure


def diameter_of(count: int) -> float:
    """Return a point's diameter: one more tonight than there were last night changes it by nothing that is seen."""
    counts, diameters = np.array(_DIAMETERS).T
    return float(np.interp(np.log(max(count, 1)), np.log(counts), diameters))


def _colors(column: MapColumn | None, count: int) -> Array:
    if column is None:
        return np.tile(rgb(CATEGORIES[0]), (count, 1))
    if column.kind == "category":
        table = np.tile(rgb(_OTHER), (len(column.labels), 1))
        for code, color in enumerate(CATEGORIES[: len(column.labels) - 1], start=1):
            table[code] = rgb(color)
        colors: Array = table[column.values]
        return colors
    span = column.high / 2 - column.low / 2  # halves: the difference of two large numbers may be infinite
    with np.errstate(over="ignore", invalid="ignore"):
        shares = np.clip((column.values / 2 - column.low / 2) / span, 0, 1) if span > 0 else column.values * 0 + 0.5
    return np.where(np.isnan(column.values)[:, None], rgb(_OTHER), of_numbers(shares)).astype(np.float32)


def _explain(figure: Any, column: MapColumn, corner: tuple[float, float]) -> None:
    """Draw the legend or the colour bar right of the map; `corner` is the map's upper right one, in shares."""
    inches = figure.get_size_inches()
    width, bottom = inches[0] * (1 - corner[0]) * 72 / _FONT, inches[1] * corner[1] * 72 / _FONT
    characters = max(4, int(width / 0.62) - 3)
    ax = figure.add_axes((corner[0], 0, 1 - corner[0], corner[1]))
    ax.set(xlim=(0, width), ylim=(bottom, 0))
    ax.set_axis_off()
    ax.text(0.8, 1.2, _plain(column.name, characters), va="center", fontsize=_FONT, fontweight="bold", **_TEXT)

    def entry(place: float, color: str, text: str) -> None:
        ax.plot(1.3, place, "o", color=color, markersize=_FONT * 0.8, markeredgewidth=0)
        ax.text(2.3, place, text, va="center", fontsize=_FONT, **_TEXT)

    if column.kind == "category":
        for k, (color, label) in enumerate(_legend(column, room=max(1, int((bottom - 2.2) / 1.5)))):
            entry(2.8 + 1.5 * k, color, _plain(label, characters))
        return
    end = min(bottom - 1, 22.0)
    ramp = of_numbers(np.linspace(1, 0, 256))[:, None]
    ax.imshow(ramp, extent=(0.8, 1.9, end, 2.6), aspect="auto", interpolation="nearest")
    for share, sign in ((0.0, "≤ "), (0.5, ""), (1.0, "≥ ")):
        value = column.low * (1 - share) + column.high * share
        if column.kind == "time":
            unit = "datetime64[D]" if column.high - column.low > 2 * 86_400 else "datetime64[m]"
            text = str(np.datetime64(int(value * 1000), "ms").astype(unit)).replace("T", " ")
        else:
            text = f"{value:,.4g}" if abs(value) < 1e4 or abs(value) >= 1e9 else f"{value:,.0f}"
        ax.text(2.3, end + (2.6 - end) * share, sign + text, va="center", fontsize=_FONT, **_TEXT)
    if np.isnan(column.values).any() and end + 2 < bottom:
        entry(end + 1.8, _OTHER, "missing")


def _legend(column: MapColumn, room: int) -> list[tuple[str, str]]:
    """Return colours and labels of categories, as many rows as there is room for."""
    named = len(column.labels) - 1
    colored = min(named, len(CATEGORIES))
    listed = colored if colored + (named > colored) + (column.counts[0] > 0) <= room else max(0, room - 2)
    rows = [(CATEGORIES[k], column.labels[k + 1]) for k in range(listed)]
    # Where the paper is too low for all that have a colour, the grey stands for what has none.
    rows += [(_OTHER, f"{named - listed:,} others")] if named > listed else []
    return rows + ([(_OTHER, "missing")] if column.counts[0] else [])


def _plain(text: str, most: int) -> str:
    """Return text on one line that an SVG can hold, cut to at most so many characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
