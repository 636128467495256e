"""A map as a picture for papers: PNG or SVG, six inches wide."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tasks.arrays import Array
from tasks.publish.map.colors import CATEGORIES, INK, OTHER, PAPER, of_numbers, rgb
from tasks.publish.map.columns import MapColumn, quantized
from tasks.publish.map.points import MapPoints, check_folder, check_points, coloring
from tasks.storage.artifacts import atomic_file

SUFFIXES = (".png", ".svg")
MAX_CIRCLES = 30_000
"""More points than this are counted by pixel: an SVG of so many circles takes 3 MB."""
LEAST_ALPHA = 0.45
"""Of a pixel with few points: one that stands alone must still be seen."""
WIDTH_INCHES, DPI = 6.0, 300
_FONT = 8.0
_LEGEND_SHARE = 0.24
_RIM = 0.01
_DIAMETERS = ((1_000, 3.6), (5_000, 2.0), (20_000, 1.4), (200_000, 0.9), (1_000_000, 0.6))
"""MapPoints of a seventy-second inch, by how many points there are; others lie in between."""
_TEXT = {"color": INK["light"], "parse_math": False}
_OTHER = OTHER["light"]

Extent = tuple[float, float, float, float]
"""x0, x1, y0, y1 of what is shown, in steps, as coordinates are quantized."""


def draw_map(points: MapPoints, path: Path) -> None:
    """Draw the points, with a legend or a colour bar, to `path`: its suffix, .png or .svg, decides of the format.

    Up to 30,000 points are circles; more are counted by pixel: a pixel has the mean colour of its points, the stronger
    the more there are. Text and frame of an SVG stay vectors. MapPoints in space are seen from where a page shows them
    first. Equal inputs give equal bytes. Nothing is left at `path` when it fails.

    Raises ValueError for what `write_map` refuses, and for another suffix.
    """
    import matplotlib as mpl

    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise ValueError(f"{path}: a map is drawn as {', '.join(SUFFIXES)}: the file's ending decides")
    check_folder(path)
    steps_ND, _, _ = quantized(points.coordinates)
    check_points(points, len(steps_ND))
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


def _extent(places_N2: Array) -> Extent:
    """Return what is shown: all points with a rim, at most twice as high or twice as wide as the other way."""
    low, high = places_N2.min(axis=0), places_N2.max(axis=0)
    middle, half = (low + high) / 2, (high - low) / 2
    half = np.maximum(half, max(half.max() / 2, 1.0)) * 1.04
    return middle[0] - half[0], middle[0] + half[0], middle[1] - half[1], middle[1] + half[1]


def _figure(title: str, places_N2: Array, order_N: Array, column: MapColumn | None) -> Any:
    from matplotlib.figure import Figure

    extent = _extent(places_N2)
    left, right, bottom, top = extent
    share = 1 - _LEGEND_SHARE if column else 1.0
    map_height = WIDTH_INCHES * share * (top - bottom) / (right - left)
    title_height = 2.4 * _FONT / 72 if title else 0.0
    height = map_height + title_height
    figure: Any = Figure(figsize=(WIDTH_INCHES, height), dpi=DPI, facecolor=PAPER["light"])
    ax = figure.add_axes((_RIM * share, _RIM, share * (1 - 2 * _RIM), map_height / height * (1 - 2 * _RIM)))
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], facecolor=PAPER["light"])
    for spine in ax.spines.values():
        spine.set(color=_OTHER, linewidth=0.5)
    diameter = diameter_of(len(places_N2))
    if len(places_N2) <= MAX_CIRCLES:
        shown = places_N2[order_N]
        look = {"s": diameter**2, "linewidths": 0, "alpha": 0.8}
        ax.scatter(shown[:, 0], shown[:, 1], color=_colors(column, len(places_N2))[order_N], **look)
    else:
        place = {"extent": extent, "origin": "lower", "interpolation": "nearest", "aspect": "auto"}
        ax.imshow(_pixels(places_N2, column, diameter, extent, ax), **place)
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
    """Return float32 (N, 3) colours."""
    if column is None:
        return np.tile(rgb(CATEGORIES[0]), (count, 1))
    if column.kind == "category":
        table = np.tile(rgb(_OTHER), (len(column.labels), 1))
        for code, color in enumerate(CATEGORIES[: len(column.labels) - 1], start=1):
            table[code] = rgb(color)
        colors: Array = table[column.values]
        return colors
    return np.where(np.isnan(column.values)[:, None], rgb(_OTHER), of_numbers(_shares(column))).astype(np.float32)


def _shares(column: MapColumn) -> Array:
    """Return where each number lies between the column's low and high, 0 to 1."""
    span = column.high / 2 - column.low / 2
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip((column.values / 2 - column.low / 2) / span, 0, 1) if span > 0 else column.values * 0 + 0.5


def _pixels(places_N2: Array, column: MapColumn | None, diameter: float, extent: Extent, ax: Any) -> Array:
    """Return uint8 (H, W, 4). Numbers are averaged before they become colours: two far ends are no third one's hue."""
    box, (left, right, bottom, top) = ax.get_position(), extent
    size = np.array(ax.figure.get_size_inches()) * [box.width, box.height] * DPI
    width, height = np.maximum(1, np.rint(size)).astype(int).tolist()
    x = ((places_N2[:, 0] - left) / (right - left) * width).astype(np.int64)
    y = ((places_N2[:, 1] - bottom) / (top - bottom) * height).astype(np.int64)
    by_number = column is not None and column.kind != "category"
    values, known = _colors(column, len(x)), np.ones(len(x), bool)
    if column is not None and by_number:
        values = _shares(column)[:, None].astype(np.float32)
        known = ~np.isnan(values[:, 0])
    radius = max(diameter / 72 * DPI / 2, 0.5)
    sums, counts = count_points(x[known], y[known], values[known], radius, (height, width))
    means = sums / np.maximum(counts, 1)[..., None]
    colors = of_numbers(means[..., 0]) if by_number else means
    alpha = np.where(counts > 0, LEAST_ALPHA + (1 - LEAST_ALPHA) * ranked(counts), 0)
    if not known.all():  # missing numbers show where no other point does
        _, missing = count_points(x[~known], y[~known], values[~known], radius, (height, width))
        colors[counts == 0] = rgb(_OTHER)
        alpha[(counts == 0) & (missing > 0)] = LEAST_ALPHA
    return np.rint(np.concatenate([colors, alpha[..., None]], axis=-1) * 255).astype(np.uint8)


def count_points(x_N: Array, y_N: Array, values_NC: Array, radius: float, size: tuple[int, int]) -> tuple[Array, Array]:
    """Return the sums (H, W, C) of the values of points that cover each pixel, as discs, and how many do (H, W).

    `x_N` and `y_N` are pixels. What lies outside the picture is left out.
    """
    height, width = size
    sums = np.zeros((height * width, values_NC.shape[1]))
    counts = np.zeros(height * width)
    reach = range(-int(radius), int(radius) + 1)
    for down, across in ((down, across) for down in reach for across in reach):
        if down**2 + across**2 > radius**2:
            continue
        y, x = y_N + down, x_N + across
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        pixel = y[inside] * width + x[inside]
        counts += np.bincount(pixel, minlength=len(counts))
        for number, values in enumerate(values_NC.T):
            sums[:, number] += np.bincount(pixel, values[inside], minlength=len(counts))
    return sums.reshape(height, width, -1), counts.reshape(height, width)


def ranked(counts_HW: Array) -> Array:
    """Return float32 (H, W): the share of non-empty pixels with at most this count, 0 where it is 0.

    Histogram equalisation: it shows differences at all densities alike, without a scale to choose.
    """
    different, place, sizes = np.unique(counts_HW, return_inverse=True, return_counts=True)
    if different[0] == 0:
        sizes[0] = 0
    shares: Array = (np.cumsum(sizes) / max(int(sizes.sum()), 1)).astype(np.float32)
    return shares[place].reshape(counts_HW.shape)


def _explain(figure: Any, column: MapColumn, corner: tuple[float, float]) -> None:
    """Draw the legend or the colour bar right of the map; `corner` is the map's upper right one, in shares."""
    inches = figure.get_size_inches()
    width = inches[0] * (1 - corner[0]) * 72 / _FONT
    characters = max(4, int(width / 0.62) - 3)
    ax = figure.add_axes((corner[0], 0, 1 - corner[0], corner[1]))
    ax.set(xlim=(0, width), ylim=(inches[1] * corner[1] * 72 / _FONT, 0))
    ax.set_axis_off()
    ax.text(0.8, 1.2, _plain(column.name, characters), va="center", fontsize=_FONT, fontweight="bold", **_TEXT)
    if column.kind == "category":
        _categories(ax, column, characters)
    else:
        _bar(ax, column)


def _entry(ax: Any, place: float, color: str, text: str) -> None:
    ax.plot(1.3, place, "o", color=color, markersize=_FONT * 0.8, markeredgewidth=0)
    ax.text(2.3, place, text, va="center", fontsize=_FONT, **_TEXT)


def _categories(ax: Any, column: MapColumn, characters: int) -> None:
    named = len(column.labels) - 1
    room = max(1, int((ax.get_ylim()[0] - 2.2) / 1.5))
    colored = min(named, len(CATEGORIES))
    listed = colored if colored + (named > colored) + (column.counts[0] > 0) <= room else max(0, room - 2)
    rows = [(CATEGORIES[k], column.labels[k + 1]) for k in range(listed)]
    # Where the paper is too low for all that have a colour, the grey stands for what has none.
    rows += [(_OTHER, f"{named - listed:,} others")] if named > listed else []
    rows += [(_OTHER, "missing")] if column.counts[0] else []
    for k, (color, label) in enumerate(rows):
        _entry(ax, 2.8 + 1.5 * k, color, _plain(label, characters))


def _bar(ax: Any, column: MapColumn) -> None:
    bottom = min(ax.get_ylim()[0] - 1, 22.0)
    ramp = of_numbers(np.linspace(1, 0, 256))[:, None]
    ax.imshow(ramp, extent=(0.8, 1.9, bottom, 2.6), aspect="auto", interpolation="nearest")
    for share, sign in ((0.0, "≤ "), (0.5, ""), (1.0, "≥ ")):
        value = column.low * (1 - share) + column.high * share
        place = bottom + (2.6 - bottom) * share
        ax.text(2.3, place, sign + _value(column, value), va="center", fontsize=_FONT, **_TEXT)
    if np.isnan(column.values).any() and bottom + 2 < ax.get_ylim()[0]:
        _entry(ax, bottom + 1.8, _OTHER, "missing")


def _value(column: MapColumn, value: float) -> str:
    if column.kind == "time":
        unit = "datetime64[D]" if column.high - column.low > 2 * 86_400 else "datetime64[m]"
        return str(np.datetime64(int(value * 1000), "ms").astype(unit)).replace("T", " ")
    return f"{value:,.4g}" if abs(value) < 1e4 or abs(value) >= 1e9 else f"{value:,.0f}"


def _plain(text: str, most: int) -> str:
    """Return text on one line that an SVG can hold, cut to at most so many characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
