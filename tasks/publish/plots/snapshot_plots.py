"""Pictures of two snapshots side by side: the earlier one and the present one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.publish.plots.figures import COLORS, Canvas, canvas_of_one, grouped_bars, legend, shorten, styled
from tasks.publish.plots.run_plots import bin_labels
from tasks.publish.snapshots import SnapshotSummary, label_counts

_TOP = 12
_COLORS = (COLORS[1], COLORS[0])


@styled
def degree_picture(before: SnapshotSummary, now: SnapshotSummary) -> Canvas | None:
    """In-degrees of both snapshots in bins of powers of two, as shares."""
    bins = [summary["degrees"].get("log2_bins") or [] for summary in (before, now)]
    if not all(map(sum, bins)):
        return None
    canvas, ax = canvas_of_one()
    labels = bin_labels(max(map(len, bins)))
    shares = [100 * np.pad(np.asarray(counts), (0, len(labels) - len(counts))) / sum(counts) for counts in bins]
    grouped_bars(ax, labels, _by_moment(before, now, shares), _COLORS)
    ax.tick_params(axis="x", rotation=60 if len(labels) > 8 else 0)
    ax.set(title="Degrees", xlabel="in-degree", ylabel="% of the nodes")
    return canvas


def _by_moment(before: SnapshotSummary, now: SnapshotSummary, values: Sequence[Any]) -> dict[str, Any]:
    return {f"as of {summary['as_of']}": one for summary, one in zip((before, now), values, strict=True)}


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
    shares = [100 * found / total for found, total in zip(counts, whole, strict=True)]
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")[:_TOP]
    order = order[np.argsort(-shares[1][order], kind="stable")]
    canvas, ax = canvas_of_one(height=max(2.4, 0.3 * len(order) + 1.1))
    chosen = _by_moment(before, now, [share[order] for share in shares])
    grouped_bars(ax, [shorten(names[c], 24) for c in order], chosen, _COLORS, lie=True)
    shown = f", the {len(order)} of {len(names)} that changed most" if len(names) > len(order) else ""
    ax.set(title="Labels", xlabel=f"% of the labelled nodes{shown}")
    return canvas


def _number_picture(before: SnapshotSummary, now: SnapshotSummary) -> Canvas | None:
    if not before["labels"]["rows"] or not now["labels"]["rows"]:
        return None
    canvas, ax = canvas_of_one()
    for number, summary in enumerate((before, now)):
        values = summary["labels"]["values"]
        share = np.linspace(0, 100, len(values))
        ax.plot(values, share, color=COLORS[1 - number], linewidth=1.6, label=f"as of {summary['as_of']}")
    ax.set(title="Labels", xlabel="label", ylabel="% of the nodes with less")
    legend(ax, 2)
    return canvas


def pictures(summary: SnapshotSummary) -> list[tuple[str, Canvas]]:
    """Return the report's figures with their captions; none without an earlier snapshot."""
    now, before = summary["snapshot"], summary["previous"]
    if before is None:
        return []
    drawn = [
        ("Degrees of both snapshots, in powers of two", degree_picture(before, now)),
        ("Labels of both snapshots", label_picture(before, now)),
    ]
    return [(caption, canvas) for caption, canvas in drawn if canvas is not None]
