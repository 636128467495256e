"""The pictures of an evaluation, and of ranked triples, from `EvalReport.report` (see tasks/kinds/diagnosis)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tasks.publish.plots.figures import (
    COLORS,
    INK,
    Canvas,
    bars,
    canvas_of_one,
    compact,
    grouped_bars,
    heat,
    legend,
    shorten,
    styled,
    thousands,
)

_TOP = 30
_F1_BY_SHARE = "F1 by the share of labels that are known, as many classes as a node has"
_OTHER_F1 = (
    ". That number is told, as papers do when they compare vectors: not so in f1_micro and f1_macro of the table of "
    "metrics, which decide each label by itself"
)


def all_of(report: Mapping[str, Any]) -> list[tuple[str, str, Canvas | None]]:
    """Return (name, caption, canvas) of all pictures of a report."""
    split, vectors = report.get("split", ""), report.get("vectors", {})
    by_share = _F1_BY_SHARE + (_OTHER_F1 if "per_task" in report else "")
    of_confusion = "Confusion matrix ({}): where the predictions of a class's rows went"
    pictures = (
        ("confusion", report, "confusion", of_confusion, confusion),
        ("roc", report, "roc", "ROC curve ({})", roc),
        ("precision_recall", report, "precision_recall", "Precision and recall ({})", precision_recall),
        ("score_classes", report, "score_classes", "Probabilities by class ({})", score_classes),
        (
            "calibration",
            report,
            "calibration",
            "How often it is so against how likely the model finds it ({})",
            calibration,
        ),
        ("tasks", report, "per_task", "ROC-AUC over the label columns ({})", tasks),
        ("scores", report, "ranking", "Scores of true edges and of negatives ({})", link_scores),
        ("ranks", report, "ranking", "Rank of each true edge among its negatives ({})", link_ranks),
        ("scatter", report, "scatter", "Prediction against target ({})", scatter),
        ("label_shares", vectors, "label_shares", by_share, label_shares),
        ("map", vectors, "map", "Nodes in the two directions in which their vectors differ most", vector_map),
        ("lengths", vectors, "lengths", "Length of a node's vector against its degree: median and quartiles", lengths),
    )
    return [
        (name, caption.format(split), draw(part[key]) if key in part else None)
        for name, part, key, caption, draw in pictures
    ]


@styled
def label_shares(facts: Mapping[str, Any]) -> Canvas:
    """Micro- and macro-F1 of logistic regression on the vectors."""
    canvas, ax = canvas_of_one(4.6, 3.4)
    shares = [100 * row["share"] for row in facts["shares"]]
    spread = [row["micro_spread"] for row in facts["shares"]]
    for color, name, bars_of in ((COLORS[0], "micro", spread), (COLORS[1], "macro", None)):
        values = [row[name] for row in facts["shares"]]
        ax.errorbar(shares, values, bars_of, marker="o", color=color, label=f"{name}-F1")
    xlabel = f"% of labels known (mean of {facts['splits']} draws)"
    ax.set(title=f"{compact(facts['rows'])} nodes", xlabel=xlabel, ylabel="F1")  # a longer title meets the legend
    legend(ax, 2)
    return canvas


@styled
def vector_map(facts: Mapping[str, Any]) -> Canvas:
    """Nodes as points, by class where there are classes."""
    canvas, ax = canvas_of_one(5.4, 4.6)
    x, y = np.asarray(facts["x"]), np.asarray(facts["y"])
    label = np.asarray(facts.get("class", np.full(len(x), -1)))
    names = facts.get("classes", [])
    ax.scatter(x[label < 0], y[label < 0], s=4, color=COLORS[5] if not names else INK, alpha=0.25, linewidths=0)
    for number, name in enumerate(names):
        here = label == number
        color = COLORS[number % len(COLORS)]
        marker = "o" if number < len(COLORS) else "^"
        ax.scatter(x[here], y[here], s=7, color=color, marker=marker, alpha=0.6, linewidths=0, label=shorten(name, 18))
    ax.set(title=f"{len(x):,} of {facts['nodes']:,} nodes", xticks=[], yticks=[])
    if names:
        legend(ax, 4)
    return canvas


@styled
def lengths(facts: Mapping[str, Any]) -> Canvas | None:
    """Median length by degree, with quartiles."""
    rows = facts["rows"]
    if len(rows) < 2:
        return None
    canvas, ax = canvas_of_one(4.6, 3.4)
    place = np.arange(len(rows))
    low, middle, high = np.array([row["quartiles"] for row in rows]).T
    ax.fill_between(place, low, high, color=COLORS[0], alpha=0.2, linewidth=0)
    ax.plot(place, middle, marker="o", color=COLORS[0])
    ax.set_xticks(place, [compact(row["degree"]) for row in rows])
    ax.set(title="Length of vectors", xlabel="degree from", ylabel="length")
    return canvas


@styled
def confusion(facts: Mapping[str, Any]) -> Canvas:
    """True classes down, predicted across; each row in % of its sum, and how many rows these are."""
    names = [str(name) for name in facts["classes"]]
    counts = np.asarray(facts["counts"], float)
    share = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    side = min(8.0, 3.0 + 0.16 * max(6, len(names)))
    canvas, ax = canvas_of_one(side + 1.1, side)
    texts = np.vectorize(lambda percent, rows: f"{percent:.0f} %\n{compact(rows)}")(share, counts)
    heat(canvas, share, names, "% of the true class", texts)
    ax.set(title="Confusion matrix", xlabel="predicted", ylabel="true")
    return canvas


@styled
def roc(facts: Mapping[str, Any]) -> Canvas:
    """False against true positives."""
    canvas, ax = canvas_of_one(4.6, 3.8)
    ax.plot(facts["false_positive"], facts["true_positive"], color=COLORS[0], linewidth=1.6)
    ax.plot([0, 1], [0, 1], color=COLORS[5], linestyle="--", linewidth=1, label="chance")
    ax.set(title="ROC curve", xlabel="false positives", ylabel="true positives")
    legend(ax, 1)
    return canvas


@styled
def precision_recall(facts: Mapping[str, Any]) -> Canvas:
    """Precision by recall."""
    canvas, ax = canvas_of_one(4.6, 3.8)
    ax.plot(facts["recall"], facts["precision"], color=COLORS[0], linewidth=1.6)
    chance = f"chance ({100 * facts['share']:.3g} %)"
    ax.axhline(facts["share"], color=COLORS[5], linestyle="--", linewidth=1, label=chance)
    ax.set(title="Precision and recall", xlabel="recall", ylabel="precision", xlim=(0, 1), ylim=(0, 1.02))
    legend(ax, 1)
    return canvas


@styled
def score_classes(facts: Mapping[str, Any]) -> Canvas:
    """How likely the model finds a class, of its rows and of the others; each in % of its rows."""
    name = shorten(str(facts["of"]), 18)
    return _two_distributions(facts, (f"of class {name}", "others"), f"probability of {name}", "% of the rows")


@styled
def calibration(facts: Mapping[str, Any]) -> Canvas | None:
    """How often a class, or the predicted one, is right by the probability that the model gives it."""
    rows = np.asarray(facts["rows"])
    used = rows > 0
    if used.sum() < 2:
        return None
    canvas, ax = canvas_of_one(4.6, 3.8)
    ax.plot([0, 1], [0, 1], color=COLORS[5], linestyle="--", linewidth=1, label="as often as likely")
    x, y = np.asarray(facts["confidence"])[used], np.asarray(facts["accuracy"])[used]
    ax.plot(x, y, color=COLORS[3], linewidth=1.2)
    ax.scatter(x, y, s=12 + 220 * rows[used] / rows.sum(), color=COLORS[3], alpha=0.8)
    of = f"class {shorten(str(facts['of']), 18)}" if "of" in facts else "the prediction"
    ylabel = "share of its rows" if "of" in facts else "accuracy"
    ax.set(title=f"Calibration (error {facts['ece']:.3f})", xlabel=f"probability of {of}", ylabel=ylabel)
    legend(ax, 1)
    return canvas


@styled
def tasks(facts: Sequence[Mapping[str, Any]]) -> Canvas | None:
    """How many label columns have which ROC-AUC."""
    areas = [row["rocauc"] for row in facts if row["rocauc"] is not None]
    if len(areas) < 2:
        return None
    canvas, ax = canvas_of_one()
    ax.hist(areas, bins=np.linspace(min(0.4, *areas), 1, 31), color=COLORS[0])
    ax.set(title=f"{len(areas)} label columns", xlabel="ROC-AUC", ylabel="columns")
    return canvas


@styled
def link_scores(facts: Mapping[str, Any]) -> Canvas:
    """Distributions of the scores of true and of false edges."""
    return _two_distributions(facts, ("true edges", "negatives"), "score", "% of the edges")


def _two_distributions(facts: Mapping[str, Any], names: tuple[str, str], xlabel: str, ylabel: str) -> Canvas:
    canvas, ax = canvas_of_one()
    edges = np.asarray(facts["edges"])
    for number, (key, name) in enumerate(zip(("positive", "negative"), names, strict=True)):
        counts = np.asarray(facts[key], float)
        share = 100 * counts / max(1, counts.sum())
        ax.stairs(share, edges, color=COLORS[number], fill=True, alpha=0.45)
        ax.stairs(share, edges, color=COLORS[number], linewidth=1.4, label=name)
    ax.set(title="Scores", xlabel=xlabel, ylabel=ylabel)
    legend(ax, 2)
    return canvas


@styled
def link_ranks(facts: Mapping[str, Any]) -> Canvas:
    """Histogram of ranks in powers of two."""
    pairs = pairwise(int(edge) for edge in facts["rank_edges"])
    labels = [str(low) if high == low + 1 else f"{compact(low)}-{compact(high - 1)}" for low, high in pairs]
    counts = np.asarray(facts["rank_counts"], float)
    canvas, ax = canvas_of_one()
    bars(ax, labels, 100 * counts / max(1, counts.sum()), color=COLORS[2])
    title = f"Ranks among {compact(facts['num_negatives'])} negatives (median {facts['median_rank']:,.0f})"
    ax.set(title=title, xlabel="rank", ylabel="% of the true edges")
    return canvas


@styled
def scatter(facts: Mapping[str, Any]) -> Canvas:
    """Predictions against targets as a density, and the residuals."""
    edges, counts = np.asarray(facts["edges"]), np.asarray(facts["counts"], float)
    canvas = Canvas(9.4, 3.8, 2)
    left, right = canvas.axes
    shown = np.ma.masked_equal(counts.T, 0)
    left.pcolormesh(edges, edges, np.ma.log10(shown), cmap="viridis", rasterized=True)
    left.plot(edges[[0, -1]], edges[[0, -1]], color=COLORS[5], linestyle="--", linewidth=1)
    left.set(title="Prediction against target", xlabel="target", ylabel="prediction")
    right.stairs(facts["residuals"]["counts"], facts["residuals"]["edges"], color=COLORS[0], fill=True)
    right.set(title="Residuals", xlabel="prediction - target", ylabel="rows")
    thousands(right.yaxis)
    return canvas


_OF_ENDS = (COLORS[1], COLORS[0])


def of_triples(ranked: Mapping[str, Any], split: str) -> list[tuple[str, Canvas | None]]:
    """Return (caption, canvas) of all pictures."""
    most = f"Filtered MRR of the relations with the most triples, and how many these are ({split})"
    met = f"Filtered MRR by how often training met what is ranked ({split})"
    return [
        (met, frequency(ranked["frequency"])),
        (most, relations(ranked["relations"])),
    ]


def _ends(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
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
def frequency(rows: Sequence[Mapping[str, Any]]) -> Canvas:
    """Ranks against how often an entity was met."""
    canvas, ax = canvas_of_one(4.6, 3.2)
    ax.plot(np.arange(len(rows)), [row["mrr"] for row in rows], marker="o", color=COLORS[0])
    ax.set_xticks(np.arange(len(rows)), [compact(row["from"]) for row in rows])
    ax.set(title="By frequency", xlabel="training triples of the true entity, from", ylabel="MRR", ylim=(0, 1))
    return canvas
