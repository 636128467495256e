"""Pictures of two snapshots side by side: the earlier one and the present one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.publish.plots.figures import COLORS, Canvas, compact, legend, shorten, styled, thousands
from tasks.publish.plots.run_plots import bin_labels
from tasks.publish.snapshots import SnapshotSummary, compare, label_counts
from tasks.storage.graph_store import Array

_TOP = 12


@styled
def degree_picture(before: SnapshotSummary, now: SnapshotSummary) -> Canvas | None:
    """In-degrees of both snapshots in bins of powers of two, as shares."""
    bins = [summary["degrees"].get("log2_bins") or [] for summary in (before, now)]
    if not all(map(sum, bins)):
        return None
    canvas = Canvas()
    (ax,) = canvas.axes
    labels = bin_labels(max(map(len, bins)))
    _pairs(ax, before, now, [np.asarray(b) for b in bins], len(labels))
    ax.set_xticks(np.arange(len(labels)), labels, rotation=60 if len(labels) > 8 else 0)
    ax.set(title="Degrees", xlabel="in-degree", ylabel="% of the nodes")
    return canvas


@styled
def label_picture(before: SnapshotSummary, now: SnapshotSummary) -> Canvas | None:
    """Labels of both snapshots: the classes whose shares changed most, or the distribution of a number."""
    kinds = [summary["labels"]["kind"] for summary in (before, now) if summary["labels"]]
    if len(kinds) < 2 or kinds[0] != kinds[1]:
        return None
    if kinds[0] == "percentiles":
        return _number_picture(before, now)
    aligned = label_counts(before, now)
    whole = [sum(t["labels"]["counts"]) if kinds[0] == "classes" else t["labels"]["rows"] for t in (before, now)]
    if aligned is None or not all(whole):
        return None
    names, *counts = aligned
    size = len(names)
    shares = [100 * found / total for found, total in zip(counts, whole, strict=True)]
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")[:_TOP]
    order = order[np.argsort(-shares[1][order], kind="stable")]
    canvas = Canvas(height=max(2.4, 0.3 * len(order) + 1.1))
    (ax,) = canvas.axes
    for number, (summary, share) in enumerate(zip((before, now), shares, strict=True)):
        place = np.arange(len(order)) + (number - 0.5) * 0.4
        ax.barh(place, share[order], 0.4, color=COLORS[1 - number], label=f"as of {summary['as_of']}")
    ax.set_yticks(np.arange(len(order)), [shorten(names[c], 24) for c in order])
    ax.invert_yaxis()
    shown = f"the {len(order)} of {size} that changed most" if size > len(order) else ""
    ax.set(title="Labels", xlabel=f"% of the labelled nodes{', ' if shown else ''}{shown}")
    legend(ax, 2)
    return canvas


def _number_picture(before: SnapshotSummary, now: SnapshotSummary) -> Canvas | None:
    if not before["labels"]["rows"] or not now["labels"]["rows"]:
        return None
    canvas = Canvas()
    (ax,) = canvas.axes
    for number, summary in enumerate((before, now)):
        values = summary["labels"]["values"]
        share = np.linspace(0, 100, len(values))
        ax.plot(values, share, color=COLORS[1 - number], linewidth=1.6, label=f"as of {summary['as_of']}")
    ax.set(title="Labels", xlabel="label", ylabel="% of the nodes with less")
    legend(ax, 2)
    return canvas


def _pairs(ax: Any, before: SnapshotSummary, now: SnapshotSummary, bins: Sequence[Array], size: int) -> None:
    """Two bars a bin, as shares."""
    for number, (summary, counts) in enumerate(zip((before, now), bins, strict=True)):
        place = np.arange(size) + (number - 0.5) * 0.4
        share = 100 * np.pad(counts, (0, size - len(counts))) / counts.sum()
        ax.bar(place, share, 0.4, color=COLORS[1 - number], label=f"as of {summary['as_of']}")
    legend(ax, 2)


@styled
def size_picture(before: SnapshotSummary, now: SnapshotSummary) -> Canvas:
    """Nodes, edges and splits of both snapshots."""
    growth = compare(before, now)["growth"]
    canvas = Canvas(height=max(2.2, 0.4 * len(growth) + 1.0))
    (ax,) = canvas.axes
    for number, summary in enumerate((before, now)):
        values = [pair[number] for pair in growth.values()]
        place = np.arange(len(growth)) + (number - 0.5) * 0.4
        ax.barh(place, values, 0.4, color=COLORS[1 - number], label=f"as of {summary['as_of']}")
        for at, value in zip(place, values, strict=True):
            ax.text(max(value, 1), at, f" {compact(value)}", va="center", fontsize=8)
    ax.set_yticks(np.arange(len(growth)), list(growth))
    ax.set_xscale("log")
    thousands(ax.xaxis, log=True)
    ax.margins(x=0.12)
    ax.invert_yaxis()
    ax.set(title="Size", xlabel="count (log scale)")
    legend(ax, 2)
    return canvas


def pictures(summary: SnapshotSummary) -> list[tuple[str, Canvas]]:
    """Return the report's figures with their captions; none without an earlier snapshot."""
    now, before = summary["snapshot"], summary["previous"]
    if before is None:
        return []
    drawn = [
        ("Sizes of both snapshots", size_picture(before, now)),
        ("Degrees of both snapshots, in powers of two", degree_picture(before, now)),
        ("Labels of both snapshots", label_picture(before, now)),
    ]
    return [(caption, canvas) for caption, canvas in drawn if canvas is not None]
