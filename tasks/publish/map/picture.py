"""A map as a picture for papers: PNG, SVG or PDF of any size."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from tasks.arrays import Array
from tasks.publish.map.colors import CATEGORIES, INK, OTHER, PAPER, of_numbers, rgb
from tasks.publish.map.columns import Column, quantized
from tasks.publish.map.points import Points, check_folder, check_points, coloring
from tasks.storage.artifacts import atomic_file

SUFFIXES = (".png", ".svg", ".pdf")
MAX_CIRCLES = 30_000
"""More points than this are counted by pixel: an SVG of so many circles takes 3 MB."""
MAX_LINES = 20_000
LEAST_ALPHA = 0.45
"""Of a pixel with few points: one that stands alone must still be seen."""
MOST_EDGE_ALPHA = 0.3
_LEGEND_SHARE = 0.24
_DIAMETERS = ((1_000, 3.6), (5_000, 2.0), (20_000, 1.4), (200_000, 0.9), (1_000_000, 0.6))
"""Points of a seventy-second inch at a width of 6 inches, by how many points there are; others lie in between."""


@dataclass(frozen=True)
class _Sheet:
    """Inches, pixels and colours of a picture; `extent` x0, x1, y0, y1 in steps, as coordinates are quantized."""

    width: float
    dpi: int
    theme: str
    extent: tuple[float, float, float, float]

    @property
    def scale(self) -> float:
        return self.width / 6

    @property
    def font(self) -> float:
        return max(6.0, 8 * self.scale)


def draw_map(
    points: Points, path: Path, width_inches: float = 6.0, dpi: int = 300, color: str = "", dark: bool = False
) -> None:
    """Draw the points, with a legend or a colour bar, to `path`: its suffix, .png, .svg or .pdf, decides of the format.

    Up to 30,000 points are circles; more are counted by pixel at `dpi` dots an inch: a pixel has the mean colour of its
    points, the stronger the more there are. Text and frame of an SVG or PDF stay vectors. Points in space are seen from
    where a page shows them first. Edges, if the points have any, lie below them, thin. `color` is a column (default:
    the points' own). Equal inputs give equal bytes. Nothing is left at `path` when it fails.

    Raises ValueError for what `write_map` refuses, another suffix, and a size that no picture can have.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path}: a map is drawn as {', '.join(SUFFIXES)}: the file's ending decides")
    if not 1 <= width_inches <= 100 or not 30 <= dpi <= 2400 or width_inches * dpi > 20_000:
        raise ValueError(
            f"a picture is 1 to 100 inches wide at 30 to 2400 dots an inch, and at most 20,000 dots wide; "
            f"these are {width_inches:g} inches at {dpi}"
        )
    check_folder(path)
    steps_ND, _, _ = quantized(points.coordinates)
    check_points(points, len(steps_ND))
    column = coloring(points.columns, color or points.color)
    places_N2, order_N = _seen(steps_ND.astype(np.float64))
    sheet = _Sheet(width_inches, dpi, "dark" if dark else "light", _extent(places_N2))
    figure = _figure(points, places_N2, order_N, column, sheet)
    with atomic_file(path) as file:
        _save(figure, file, path.suffix.lower()[1:], sheet, points.title)


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


def _extent(places_N2: Array) -> tuple[float, float, float, float]:
    """Return what is shown: all points with a rim, at most twice as high or twice as wide as the other way."""
    low, high = places_N2.min(axis=0), places_N2.max(axis=0)
    middle, half = (low + high) / 2, (high - low) / 2
    half = np.maximum(half, max(half.max() / 2, 1.0)) * 1.04
    return middle[0] - half[0], middle[0] + half[0], middle[1] - half[1], middle[1] + half[1]


def _figure(points: Points, places_N2: Array, order_N: Array, column: Column | None, sheet: _Sheet) -> Any:
    from matplotlib.figure import Figure

    left, right, bottom, top = sheet.extent
    share = 1 - _LEGEND_SHARE if column else 1.0
    map_width = sheet.width * share
    map_height = map_width * (top - bottom) / (right - left)
    title_height = 2.4 * sheet.font / 72 if points.title else 0.0
    height = map_height + title_height
    figure: Any = Figure(figsize=(sheet.width, height), dpi=sheet.dpi, facecolor=PAPER[sheet.theme])
    rim = 0.01
    ax = figure.add_axes((rim * share, rim, share * (1 - 2 * rim), map_height / height * (1 - 2 * rim)))
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], facecolor=PAPER[sheet.theme])
    for spine in ax.spines.values():
        spine.set(color=OTHER[sheet.theme], linewidth=0.5 * sheet.scale)
    _draw(ax, points, places_N2, order_N, column, sheet)
    ink = {"color": INK[sheet.theme], "parse_math": False}
    if points.title:
        place = {"va": "center", "ha": "left", "fontsize": sheet.font * 1.2, "fontweight": "bold"}
        figure.text(rim, 1 - title_height / height / 2, _plain(points.title, 70), **place, **ink)
    if column:
        _explain(figure, column, sheet, (share, map_height / height), ink)
    return figure


def _draw(ax: Any, points: Points, places_N2: Array, order_N: Array, column: Column | None, sheet: _Sheet) -> None:
    few = len(places_N2) <= MAX_CIRCLES
    if points.edges is not None and len(points.edges):
        if few and len(points.edges) <= MAX_LINES:
            from matplotlib.collections import LineCollection

            alpha = 0.5 if len(points.edges) < 2_000 else 0.2
            look = {"colors": INK[sheet.theme], "linewidths": 0.25 * sheet.scale, "alpha": alpha}
            ax.add_collection(LineCollection(places_N2[np.asarray(points.edges)], zorder=1, **look), autolim=False)
        else:
            ax.imshow(_edge_pixels(places_N2, np.asarray(points.edges), sheet, ax), **_image(sheet), zorder=1)
    diameter = diameter_of(len(places_N2)) * sheet.scale
    if few:
        shown = places_N2[order_N]
        look = {"s": diameter**2, "linewidths": 0, "alpha": 0.8, "zorder": 2}
        ax.scatter(shown[:, 0], shown[:, 1], color=_colors(column, len(places_N2), sheet)[order_N], **look)
    else:
        ax.imshow(_point_pixels(places_N2, column, diameter, sheet, ax), **_image(sheet), zorder=2)


def diameter_of(count: int) -> float:
    """Return a point's diameter: one more tonight than there were last night changes it by nothing that is seen."""
    counts, diameters = np.array(_DIAMETERS).T
    return float(np.interp(np.log(max(count, 1)), np.log(counts), diameters))


def _image(sheet: _Sheet) -> dict[str, Any]:
    return {"extent": sheet.extent, "origin": "lower", "interpolation": "nearest", "aspect": "auto"}


def _colors(column: Column | None, count: int, sheet: _Sheet) -> Array:
    """Return float32 (N, 3) colours."""
    other = rgb(OTHER[sheet.theme])
    if column is None:
        return np.tile(rgb(CATEGORIES[0]), (count, 1))
    if column.kind == "category":
        table = np.tile(other, (len(column.labels), 1))
        for code, color in enumerate(CATEGORIES[: len(column.labels) - 1], start=1):
            table[code] = rgb(color)
        colors: Array = table[column.values]
        return colors
    return np.where(np.isnan(column.values)[:, None], other, of_numbers(_shares(column))).astype(np.float32)


def _shares(column: Column) -> Array:
    """Return where each number lies between the column's low and high, 0 to 1."""
    span = column.high / 2 - column.low / 2
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip((column.values / 2 - column.low / 2) / span, 0, 1) if span > 0 else column.values * 0 + 0.5


def _pixels(places_N2: Array, sheet: _Sheet, ax: Any) -> tuple[Array, Array, tuple[int, int]]:
    """Return int32 x and y of each point, and (height, width) of the picture in pixels."""
    box, (left, right, bottom, top) = ax.get_position(), sheet.extent
    size = np.array(ax.figure.get_size_inches()) * [box.width, box.height] * sheet.dpi
    width, height = np.maximum(1, np.rint(size)).astype(int).tolist()
    x = ((places_N2[:, 0] - left) / (right - left) * width).astype(np.int32)
    y = ((places_N2[:, 1] - bottom) / (top - bottom) * height).astype(np.int32)
    return x, y, (height, width)


def _point_pixels(places_N2: Array, column: Column | None, diameter: float, sheet: _Sheet, ax: Any) -> Array:
    """Return uint8 (H, W, 4). Numbers are averaged before they become colours: two far ends are no third one's hue."""
    from tasks.publish.map.histogram import add_points, ranked

    x, y, (height, width) = _pixels(places_N2, sheet, ax)
    by_number = column is not None and column.kind != "category"
    if column is not None and by_number:
        values = _shares(column)[:, None].astype(np.float32)
        known = ~np.isnan(values[:, 0])
    else:
        values, known = _colors(column, len(x), sheet), np.ones(len(x), bool)
    radius = max(diameter / 72 * sheet.dpi / 2, 0.5)
    reach = np.arange(-int(radius), int(radius) + 1, dtype=np.int32)
    down, across = np.meshgrid(reach, reach, indexing="ij")
    stamp = np.stack([down, across], axis=-1)[down**2 + across**2 <= radius**2]
    counts, sums = np.zeros((height, width), np.float32), np.zeros((height, width, values.shape[1]), np.float32)
    add_points(x[known], y[known], values[known], stamp, sums, counts)
    means = sums / np.maximum(counts, 1)[..., None]
    colors = of_numbers(means[..., 0]) if by_number else means
    # Missing numbers show where no other point does.
    missing = np.zeros_like(counts)
    if not known.all():
        add_points(x[~known], y[~known], values[~known], stamp, np.zeros_like(sums), missing)
        colors[counts == 0] = rgb(OTHER[sheet.theme])
    alpha = np.where(counts > 0, LEAST_ALPHA + (1 - LEAST_ALPHA) * ranked(counts), LEAST_ALPHA * (missing > 0))
    return np.rint(np.concatenate([colors, alpha[..., None]], axis=-1) * 255).astype(np.uint8)


def _edge_pixels(places_N2: Array, edges_M2: Array, sheet: _Sheet, ax: Any) -> Array:
    from tasks.publish.map.histogram import add_edges, ranked

    x, y, (height, width) = _pixels(places_N2, sheet, ax)
    counts = np.zeros((height, width), np.float32)
    add_edges(x.astype(np.int64), y.astype(np.int64), edges_M2.astype(np.int64), counts)
    pixels = np.empty((height, width, 4), np.uint8)
    pixels[..., :3] = np.rint(rgb(INK[sheet.theme]) * 255)
    pixels[..., 3] = np.rint(ranked(counts) * MOST_EDGE_ALPHA * 255)
    return pixels


def _explain(figure: Any, column: Column, sheet: _Sheet, corner: tuple[float, float], ink: dict[str, Any]) -> None:
    """Draw the legend or the colour bar right of the map; `corner` is the map's upper right one, in shares."""
    inches = figure.get_size_inches()
    characters = max(4, int(inches[0] * (1 - corner[0]) * 72 / sheet.font / 0.62) - 3)
    ax = figure.add_axes((corner[0], 0, 1 - corner[0], corner[1]))
    ax.set(xlim=(0, inches[0] * (1 - corner[0]) * 72 / sheet.font), ylim=(inches[1] * corner[1] * 72 / sheet.font, 0))
    ax.set_axis_off()
    ax.text(0.8, 1.2, _plain(column.name, characters), va="center", fontsize=sheet.font, fontweight="bold", **ink)
    if column.kind == "category":
        _categories(ax, column, sheet, characters, ink)
    else:
        _bar(ax, column, sheet, ink)


def _categories(ax: Any, column: Column, sheet: _Sheet, characters: int, ink: dict[str, Any]) -> None:
    high = ax.get_ylim()[0]
    named = len(column.labels) - 1
    room = max(1, int((high - 2.2) / 1.5))
    own = min(named, len(CATEGORIES))
    listed = own if own + (named > own) + (column.counts[0] > 0) <= room else max(0, room - 2)
    rows = [(CATEGORIES[k], column.labels[k + 1]) for k in range(listed)]
    if named > listed:
        # Where the paper is too low for all that have a colour, the grey stands for what has none.
        rows.append((OTHER[sheet.theme], f"{named - listed:,} others"))
    if column.counts[0]:
        rows.append((OTHER[sheet.theme], "missing"))
    for k, (color, label) in enumerate(rows):
        ax.plot(1.3, 2.8 + 1.5 * k, "o", color=color, markersize=sheet.font * 0.8, markeredgewidth=0)
        ax.text(2.3, 2.8 + 1.5 * k, _plain(label, characters), va="center", fontsize=sheet.font, **ink)


def _bar(ax: Any, column: Column, sheet: _Sheet, ink: dict[str, Any]) -> None:
    bottom = min(ax.get_ylim()[0] - 1, 22.0)
    ramp = of_numbers(np.linspace(1, 0, 256))[:, None]
    ax.imshow(ramp, extent=(0.8, 1.9, bottom, 2.6), aspect="auto", interpolation="nearest")
    for share in (0.0, 0.5, 1.0):
        value = column.low * (1 - share) + column.high * share
        sign = {0.0: "≤ ", 1.0: "≥ "}.get(share, "")
        ax.text(
            2.3, bottom + (2.6 - bottom) * share, sign + _value(column, value), va="center", fontsize=sheet.font, **ink
        )
    if np.isnan(column.values).any() and bottom + 2 < ax.get_ylim()[0]:
        ax.plot(1.3, bottom + 1.8, "o", color=OTHER[sheet.theme], markersize=sheet.font * 0.8, markeredgewidth=0)
        ax.text(2.3, bottom + 1.8, "missing", va="center", fontsize=sheet.font, **ink)


def _value(column: Column, value: float) -> str:
    if column.kind == "time":
        return str(
            np.datetime64(int(value * 1000), "ms").astype(
                "datetime64[D]" if column.high - column.low > 2 * 86_400 else "datetime64[m]"
            )
        ).replace("T", " ")
    return f"{value:,.4g}" if abs(value) < 1e4 or abs(value) >= 1e9 else f"{value:,.0f}"


def _plain(text: str, most: int) -> str:
    """Return text on one line that an SVG can hold, cut to at most so many characters."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def _save(figure: Any, file: IO[bytes], kind: str, sheet: _Sheet, title: str) -> None:
    import warnings

    import matplotlib as mpl

    metadata = {"png": {"Software": None}, "svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}[kind]
    with (
        mpl.rc_context(
            {"svg.hashsalt": title, "svg.fonttype": "none", "pdf.fonttype": 42, "font.family": "DejaVu Sans"}
        ),
        warnings.catch_warnings(),
    ):
        # A letter that the font lacks becomes a box in a PNG; an SVG's reader has fonts of its own.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(file, format=kind, dpi=sheet.dpi, facecolor=PAPER[sheet.theme], metadata=metadata)
