"""The pictures of an evaluation, from `EvalReport.report` (see tasks/evaluate/diagnostics.py)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from tasks.publish.plots.figures import COLORS, Canvas, bars, compact, heat, legend, shorten, styled, thousands

_TEXT_CELLS = 12
_TOP = 30


def all_of(report: Mapping[str, Any]) -> list[tuple[str, str, Canvas | None]]:
    """Return (name, caption, canvas) of all pictures of a report."""
    split = report.get("split", "")
    return [
        (
            "confusion",
            f"Confusion matrix ({split}): of the rows of a class, where the predictions went",
            confusion(report),
        ),
        ("classes", f"F1 of each class ({split})", class_scores(report)),
        ("roc", f"ROC curve ({split})", roc(report)),
        ("calibration", f"How far the model's confidence can be believed ({split})", calibration(report)),
        ("tasks", f"ROC-AUC over the label columns ({split})", tasks(report)),
        ("scores", f"Scores of true edges and of negatives ({split})", link_scores(report)),
        ("ranks", f"Rank of each true edge among its negatives ({split})", link_ranks(report)),
        ("scatter", f"Prediction against target ({split})", scatter(report)),
    ]


@styled
def confusion(report: Mapping[str, Any]) -> Canvas | None:
    """True classes down, predicted across; each row in % of its sum."""
    if "confusion" not in report:
        return None
    names = [str(name) for name in report["confusion"]["classes"]]
    counts = np.asarray(report["confusion"]["counts"], float)
    share = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    side = min(8.0, 3.0 + 0.16 * max(6, len(names)))
    canvas = Canvas(side + 1.1, side)
    (ax,) = canvas.axes
    texts = [[f"{value:.0f}" for value in row] for row in share] if len(names) <= _TEXT_CELLS else None
    image = heat(ax, share, names, names, texts)
    bar = canvas.figure.colorbar(image, ax=ax, shrink=0.8)
    bar.set_label("% of the true class")
    bar.outline.set_visible(False)
    ax.set(title="Confusion matrix", xlabel="predicted", ylabel="true")
    return canvas


@styled
def class_scores(report: Mapping[str, Any]) -> Canvas | None:
    """F1 of the 30 most frequent classes."""
    classes = report.get("per_class", [])[:_TOP]
    if len(classes) < 3:
        return None
    canvas = Canvas(height=max(2.4, 0.24 * len(classes) + 1.0))
    (ax,) = canvas.axes
    place = np.arange(len(classes))
    ax.barh(place, [row["f1"] for row in classes], color=COLORS[2], height=0.7)
    ax.set_yticks(place, [f"{shorten(row['name'], 24)} ({compact(row['rows'])})" for row in classes])
    ax.margins(y=0.01)
    ax.invert_yaxis()
    more = len(report["per_class"]) - len(classes)
    ax.set(title=f"F1 by class (rows){f', the {len(classes)} most frequent' if more else ''}", xlabel="F1", xlim=(0, 1))
    return canvas


@styled
def roc(report: Mapping[str, Any]) -> Canvas | None:
    """False against true positives."""
    if "roc" not in report:
        return None
    canvas = Canvas(4.6, 3.8)
    (ax,) = canvas.axes
    ax.plot(report["roc"]["false_positive"], report["roc"]["true_positive"], color=COLORS[0], linewidth=1.6)
    ax.plot([0, 1], [0, 1], color=COLORS[5], linestyle="--", linewidth=1, label="chance")
    ax.set(title="ROC curve", xlabel="false positives", ylabel="true positives")
    legend(ax, 1)
    return canvas


@styled
def calibration(report: Mapping[str, Any]) -> Canvas | None:
    """Accuracy of predictions by the probability that the model gave them."""
    if "calibration" not in report:
        return None
    told = report["calibration"]
    rows = np.asarray(told["rows"])
    used = rows > 0
    if used.sum() < 2:
        return None
    canvas = Canvas(4.6, 3.8)
    (ax,) = canvas.axes
    ax.plot([0, 1], [0, 1], color=COLORS[5], linestyle="--", linewidth=1, label="as confident as right")
    x, y = np.asarray(told["confidence"])[used], np.asarray(told["accuracy"])[used]
    ax.plot(x, y, color=COLORS[3], linewidth=1.2)
    ax.scatter(x, y, s=12 + 220 * rows[used] / rows.sum(), color=COLORS[3], alpha=0.8)
    ax.set(title=f"Calibration (error {told['ece']:.3f})", xlabel="probability of the prediction", ylabel="accuracy")
    legend(ax, 1)
    return canvas


@styled
def tasks(report: Mapping[str, Any]) -> Canvas | None:
    """How many label columns have which ROC-AUC."""
    areas = [row["rocauc"] for row in report.get("per_task", []) if row["rocauc"] is not None]
    if len(areas) < 2:
        return None
    canvas = Canvas()
    (ax,) = canvas.axes
    ax.hist(areas, bins=np.linspace(min(0.4, *areas), 1, 31), color=COLORS[0])
    ax.set(title=f"{len(areas)} label columns", xlabel="ROC-AUC", ylabel="columns")
    return canvas


@styled
def link_scores(report: Mapping[str, Any]) -> Canvas | None:
    """Distributions of the scores of true and of false edges."""
    if "ranking" not in report:
        return None
    told = report["ranking"]
    canvas = Canvas()
    (ax,) = canvas.axes
    edges = np.asarray(told["edges"])
    for number, (key, name) in enumerate((("positive", "true edges"), ("negative", "negatives"))):
        counts = np.asarray(told[key], float)
        ax.stairs(100 * counts / max(1, counts.sum()), edges, color=COLORS[number], fill=True, alpha=0.45)
        ax.stairs(100 * counts / max(1, counts.sum()), edges, color=COLORS[number], linewidth=1.4, label=name)
    ax.set(title="Scores", xlabel="score", ylabel="% of the edges")
    legend(ax, 2)
    return canvas


@styled
def link_ranks(report: Mapping[str, Any]) -> Canvas | None:
    """Histogram of ranks in powers of two."""
    if "ranking" not in report:
        return None
    told = report["ranking"]
    edges = [int(edge) for edge in told["rank_edges"]]
    pairs = pairwise(edges)
    labels = [str(low) if high == low + 1 else f"{compact(low)}-{compact(high - 1)}" for low, high in pairs]
    counts = np.asarray(told["rank_counts"], float)
    canvas = Canvas()
    (ax,) = canvas.axes
    bars(ax, labels, 100 * counts / max(1, counts.sum()), color=COLORS[2])
    median = told["median_rank"]
    title = f"Ranks among {compact(told['num_negatives'])} negatives (median {median:,.0f})"
    ax.set(title=title, xlabel="rank", ylabel="% of the true edges")
    return canvas


@styled
def scatter(report: Mapping[str, Any]) -> Canvas | None:
    """Predictions against targets as a density, and the residuals."""
    if "scatter" not in report:
        return None
    told = report["scatter"]
    edges, counts = np.asarray(told["edges"]), np.asarray(told["counts"], float)
    canvas = Canvas(9.4, 3.8, 2)
    left, right = canvas.axes
    shown = np.ma.masked_equal(counts.T, 0)
    left.pcolormesh(edges, edges, np.ma.log10(shown), cmap="viridis", rasterized=True)
    left.plot(edges[[0, -1]], edges[[0, -1]], color=COLORS[5], linestyle="--", linewidth=1)
    left.set(title="Prediction against target", xlabel="target", ylabel="prediction")
    right.stairs(told["residuals"]["counts"], told["residuals"]["edges"], color=COLORS[0], fill=True)
    right.set(title="Residuals", xlabel="prediction - target", ylabel="rows")
    thousands(right.yaxis)
    return canvas
