"""How all figures look, and how they become SVG inside a page or a PNG file.

Figures are drawn in one near-black; inside a page that becomes `currentColor`, so that a dark page has light axes.
"""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

INK = "#0a0b0c"
COLORS = ("#3b7dd8", "#e07b39", "#2f9e72", "#9a6dd7", "#c9a227", "#d4526e")

_STYLE: dict[Any, Any] = {
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's font
}
_PIXELS_AN_INCH = 90
_MOST_TEXT_ROWS = 12
"""Of a heat map with texts in its cells."""
_CHARS_A_LINE = 45
"""Of names side by side below a figure of the usual width."""


P = ParamSpec("P")
T = TypeVar("T")


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Decorator of functions that draw: matplotlib reads its style when something is drawn, not when it is saved."""

    @functools.wraps(draw)
    def inside(*args: P.args, **kwargs: P.kwargs) -> T:
        import matplotlib as mpl

        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return inside


class Canvas:
    """A figure in our style. Not pyplot: that keeps figures alive and is not safe in threads."""

    def __init__(self, width: float = 5.1, height: float = 3.0, columns: int = 1) -> None:
        """`width`, `height` in inches; `columns` axes side by side."""
        from matplotlib.figure import Figure

        self.width = width
        self.figure: Any = Figure(figsize=(width, height), layout="constrained")
        grid = self.figure.subplots(1, columns, squeeze=False)
        self.axes: list[Any] = list(grid[0])

    def svg(self, label: str) -> str:
        """Return an `<svg>` element that fits its column; `label` is read to those who do not see it."""
        import matplotlib as mpl

        buffer = io.StringIO()
        with mpl.rc_context({**_STYLE, "svg.hashsalt": label}):  # ids must differ between figures of a page
            self.figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
        text = buffer.getvalue()
        text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
        text = re.sub(r'\s(?:width|height)="[\d.]+pt"', "", text, count=2)
        text = re.sub(r'<style type="text/css">.*?</style>', "", text, flags=re.DOTALL)
        # One scale for all figures of a page, so that their texts have one size.
        size = f"width:min({self.width * _PIXELS_AN_INCH:.0f}px, calc(100vw - 2.5rem))"
        opening = f'<svg role="img" aria-label="{escape(label, quote=True)}" style="{size}" '
        return text.replace(INK, "currentColor").replace("<svg ", opening, 1)

    def png(self, path: Path) -> Path:
        """Write a PNG on white."""
        import matplotlib as mpl

        with mpl.rc_context(_STYLE):
            self.figure.savefig(path, format="png", dpi=130, facecolor="white")
        return path


def canvas_of_one(width: float = 5.1, height: float = 3.0) -> tuple[Canvas, Any]:
    """Return a canvas, and its one pair of axes."""
    canvas = Canvas(width, height)
    return canvas, canvas.axes[0]


def bars(ax: Any, labels: Sequence[str], values: Sequence[float], color: str = COLORS[0], log: bool = False) -> None:
    """Vertical bars over text labels; slanted where they are many."""
    x = np.arange(len(labels))
    ax.bar(x, values, color=color, width=0.8)
    step = max(1, len(labels) // 24)
    shown = labels[::step]
    crowded = len(shown) * (max(map(len, shown), default=0) + 1) > _CHARS_A_LINE
    ax.set_xticks(x[::step], shown, rotation=60 if crowded else 0, ha="right" if crowded else "center")
    if log and any(value > 0 for value in values):
        ax.set_yscale("log")
        ax.set_ylim(bottom=0.7)  # a bar of 1 must be seen
    thousands(ax.yaxis, log)


def grouped_bars(
    ax: Any, labels: Sequence[str], series: Mapping[str, Any], colors: Sequence[str] = COLORS, *, lie: bool = False
) -> None:
    """A group of bars for each label, one of each series; `lie`: from left to right, the first label on top."""
    places, width = np.arange(len(labels)), 0.8 / max(1, len(series))
    for number, (name, values) in enumerate(series.items()):
        shifted = places + (number - (len(series) - 1) / 2) * width
        (ax.barh if lie else ax.bar)(shifted, values, width, color=colors[number], label=name)
    if lie:
        ax.set_yticks(places, labels)
        ax.margins(y=0.01)
        ax.invert_yaxis()
    else:
        ax.set_xticks(places, labels)
    legend(ax, len(series))


def heat(canvas: Canvas, matrix: Any, names: Sequence[str], unit: str, texts: Any) -> None:
    """A heat map with the same names down and across; where cells are few, they have `texts`, an array of them."""
    (ax,) = canvas.axes
    image = ax.imshow(matrix, cmap="viridis", aspect="auto", interpolation="nearest")
    step = max(1, -(-len(names) // 32))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_ticks(np.arange(len(names))[::step], [shorten(name) for name in names[::step]])
    if sum(len(shorten(name)) for name in names) > 40:
        ax.tick_params(axis="x", rotation=90)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    bar = canvas.figure.colorbar(image, ax=ax, shrink=0.8)
    bar.set_label(unit)
    bar.outline.set_visible(False)
    if len(names) <= _MOST_TEXT_ROWS:
        low, high = float(np.min(matrix)), float(np.max(matrix))
        for (i, j), text in np.ndenumerate(texts):
            color = "#111111" if (matrix[i][j] - low) > 0.6 * (high - low) else "#f5f5f5"
            ax.text(j, i, text, ha="center", va="center", fontsize=8, color=color)


def legend(ax: Any, entries: int) -> None:
    """Put the legend above the axes, where it hides nothing."""
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=entries, fontsize=9, borderaxespad=0.1)


def thousands(axis: Any, log: bool = False) -> None:
    """Write 12.5k and 3M on an axis."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    if log:
        axis.set_minor_formatter(NullFormatter())


def compact(value: float) -> str:
    """Return a count in at most five characters: 950, 12.5k, 3M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def shorten(text: str, limit: int = 16) -> str:
    """Cut a long name; `$` is taken literally (matplotlib would read formulas)."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text.replace("$", r"\$")
