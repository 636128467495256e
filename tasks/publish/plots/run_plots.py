"""The pictures of a run, and of two snapshots: each function draws one from plain values, or returns None.

`for_manifest` writes all that belong to one artifact as PNG files: `graphmill inspect` calls it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.publish.plots import eval_plots
from tasks.publish.plots.figures import (
    COLORS,
    Canvas,
    bars,
    canvas_of_one,
    compact,
    grouped_bars,
    heat,
    legend,
    shorten,
    styled,
)
from tasks.publish.snapshots import SnapshotSummary, label_counts
from tasks.publish.tracking.records import Record, read_records, unique_by_step
from tasks.storage.file_names import file_name
from tasks.storage.manifests import GraphManifest, Manifest, PartitionManifest
from tasks.storage.outcomes import EvalReport, RunResult

_TOP = 30


@styled
def degrees(report: Mapping[str, Any]) -> Canvas | None:
    """In-degrees in bins of powers of two (`report["degrees"]["log2_bins"]`)."""
    bins = report.get("degrees", {}).get("log2_bins") or []
    labels = ["0" if k == 0 else _range(2 ** (k - 1), 2**k - 1) for k in range(len(bins))]
    return _histogram(bins, labels, "Degrees", "in-degree", "nodes")


@styled
def component_sizes(report: Mapping[str, Any]) -> Canvas | None:
    """Connected components by size, in bins of powers of two (`report["components"]["log2_sizes"]`)."""
    bins = report.get("components", {}).get("log2_sizes") or []
    labels = [_range(2**k, 2 ** (k + 1) - 1) for k in range(len(bins))]
    return _histogram(bins, labels, "Connected components", "nodes in the component", "components")


def _histogram(bins: Sequence[int], labels: Sequence[str], title: str, x: str, y: str) -> Canvas | None:
    if sum(count > 0 for count in bins) < 2:
        return None
    canvas, ax = canvas_of_one()
    log = max(bins) > 50 * min(count for count in bins if count)
    bars(ax, labels, bins, log=log)
    ax.set(title=title, xlabel=x, ylabel=y + (" (log scale)" if log else ""))
    return canvas


@styled
def class_balance(counts: Mapping[str, Sequence[int]], names: Sequence[str]) -> Canvas | None:
    """Share of each class in each split; the largest 30 classes of the first split."""
    counts = {split: values for split, values in counts.items() if sum(values)}
    if all(sum(count > 0 for count in values) < 2 for values in counts.values()):
        return None
    first = np.asarray(next(iter(counts.values())))
    order = np.argsort(-first, kind="stable")[:_TOP] if len(first) > _TOP else np.arange(len(first))
    canvas, ax = canvas_of_one(height=max(2.4, 0.26 * len(order) + 1.1))
    shares = {split: 100 * np.asarray(values, float)[order] / sum(values) for split, values in counts.items()}
    grouped_bars(ax, [shorten(names[c], 28) for c in order], shares, lie=True)
    of_all = f", the largest {len(order)} of {len(first)} classes" if len(first) > len(order) else ""
    ax.set(title="Class balance", xlabel=f"% of the split's labelled rows{of_all}")
    return canvas


@styled
def label_histogram(values: Mapping[str, Any]) -> Canvas | None:
    """Distribution of a regression's label in each split."""
    values = {split: np.asarray(v, float)[np.isfinite(v)] for split, v in values.items()}
    values = {split: v for split, v in values.items() if len(v)}
    if not any(len(v) and v.min() < v.max() for v in values.values()):
        return None
    canvas, ax = canvas_of_one()
    edges = np.histogram_bin_edges(np.concatenate(list(values.values())), bins=40)
    for number, (split, v) in enumerate(values.items()):
        ax.hist(v, bins=edges, density=True, histtype="step", linewidth=1.6, color=COLORS[number], label=split)
    ax.set(title="Label", xlabel="value", ylabel="density")
    ax.locator_params(axis="x", nbins=5)  # large numbers would run into each other
    legend(ax, len(values))
    return canvas


@styled
def positive_shares(labels: Mapping[str, Any]) -> Canvas | None:
    """How many label columns have which share of positives; labels (n, T) of 0, 1 and NaN by split."""
    shares = {}
    for split, values in labels.items():
        labelled = ~np.isnan(values)
        rows = labelled.sum(axis=0)
        shares[split] = 100 * np.nansum(values, axis=0)[rows > 0] / rows[rows > 0]
    drawn = max(map(len, shares.values()), default=0)
    if drawn < 2:
        return None
    canvas, ax = canvas_of_one()
    # As wide as the shares are: of many labels all are rare, and would be one bar of a scale up to 100 %.
    bins = np.linspace(0, max(share.max(initial=0.0) for share in shares.values()) or 100, 26)
    for number, (split, share) in enumerate(shares.items()):
        ax.hist(share, bins=bins, histtype="step", linewidth=1.6, color=COLORS[number], label=split)
    ax.set(title=f"{drawn} label columns", xlabel="% positive", ylabel="columns")  # a longer title meets the legend
    legend(ax, len(labels))
    return canvas


@styled
def cut_matrix(report: Mapping[str, Any]) -> Canvas | None:
    """Edges between parts (log10), from `report["partition"]["part_edges"]`."""
    matrix = report.get("partition", {}).get("part_edges")
    if not matrix or len(matrix) < 2:
        return None
    counts = np.asarray(matrix, float)
    names = [str(p) for p in range(len(counts))]
    canvas, ax = canvas_of_one(5.2, 4.2)
    heat(canvas, np.log10(np.maximum(counts, 0.5)), names, "log10 of edges", np.vectorize(compact)(counts))
    ax.set(title="Edges between parts", xlabel="part of the target", ylabel="part of the source")
    return canvas


@styled
def part_sizes(report: Mapping[str, Any]) -> Canvas | None:
    """Nodes and training nodes of each part against the mean part."""
    partition = report.get("partition", {})
    sizes = partition.get("part_sizes")
    if not sizes or len(sizes) < 2:
        return None
    canvas, ax = canvas_of_one()
    series = {"nodes": sizes, "training nodes": partition.get("part_train_sizes") or []}
    shares = {name: np.asarray(values, float) / np.mean(values) for name, values in series.items() if sum(values)}
    grouped_bars(ax, [str(part) for part in range(len(sizes))], shares)
    ax.axhline(1.0, color=COLORS[5], linewidth=1, linestyle="--")
    ax.set(title="Balance of the parts", xlabel="part", ylabel="size / mean size")
    ax.set_xticks(range(0, len(sizes), max(1, len(sizes) // 16)))
    return canvas


@styled
def loss_curves(records: Sequence[Record]) -> Canvas | None:
    """Loss by epoch."""
    by_key = unique_by_step(records)
    losses = {key: by_key[key] for key in by_key if key == "loss" or key.endswith("/loss")}
    return _curves("Loss", losses, records, None)


_OF_TIES = ("/mean_rank", "/mrr_optimistic", "/mrr_pessimistic")
"""Metrics of triples that lie on each other where no scores are equal, or far above 1."""


@styled
def metric_curves(records: Sequence[Record], best_epoch: int | None = None) -> Canvas | None:
    """Metrics of the evaluations by epoch."""
    by_key = unique_by_step(records)
    metrics = {key: by_key[key] for key in by_key if "/" in key and not key.endswith(("/loss", *_OF_TIES))}
    return _curves("Validation", metrics, records, best_epoch)


def _curves(
    title: str, group: Mapping[str, Mapping[int, tuple[float, float]]], records: Sequence[Record], best: int | None
) -> Canvas | None:
    """Draw curves of at least two points."""
    group = {key: points for key, points in group.items() if len(points) > 1}
    if not group:
        return None
    epochs = {int(r["step"]): float(r["epoch"]) for r in records if "step" in r and "epoch" in r}
    canvas, ax = canvas_of_one(4.6, 3.2)
    for number, (key, points) in enumerate(group.items()):
        steps = sorted(points)
        values = [points[step][0] for step in steps]
        by_epoch = len({epochs[step] for step in steps if step in epochs}) == len(steps)  # else they are not known
        x, x_name = ([epochs[step] for step in steps], "epoch") if by_epoch else (steps, "step")
        mark = "o" if len(steps) <= 30 else None
        color = COLORS[number % len(COLORS)]
        ax.plot(x, values, color=color, linewidth=1.4, marker=mark, markersize=3, label=key)
    if best is not None and x_name == "epoch":
        ax.axvline(best, color=COLORS[5], linestyle="--", linewidth=1, label=f"best (epoch {best})")
    entries = len(ax.get_legend_handles_labels()[0])
    columns = min(3, entries)
    ax.set_title(title, pad=6 if entries < 3 else 6 + 13 * -(-entries // columns))  # above a legend that is as wide
    ax.set_xlabel(x_name)
    legend(ax, columns)
    return canvas


def for_manifest(manifest: Manifest, folder: Path, out_dir: Path) -> list[Path]:
    """Write the pictures of an artifact (dataset, graph, partition, training, evaluation) as PNG files.

    Returns: Paths of the files, in the order they should be looked at; empty where there is nothing to draw.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    pictures: list[tuple[str, Canvas | None]] = []
    if isinstance(manifest, GraphManifest):
        pictures = [("degrees", degrees(manifest.report)), ("components", component_sizes(manifest.report))]
    if isinstance(manifest, PartitionManifest):
        pictures += [("cut", cut_matrix(manifest.report)), ("parts", part_sizes(manifest.report))]
    if isinstance(manifest, RunResult):
        records = read_records(folder / manifest.metrics_file)
        pictures = [("loss", loss_curves(records)), ("validation", metric_curves(records, manifest.best_epoch))]
    if isinstance(manifest, EvalReport):
        pictures = [(name, canvas) for name, _, canvas in eval_plots.all_of(manifest.report)]
    paths = ((out_dir / f"{file_name(f'{manifest.stage}-{name}')}.png", canvas) for name, canvas in pictures)
    return [canvas.png(path) for path, canvas in paths if canvas is not None]


def _range(low: int, high: int) -> str:
    return compact(low) if low == high else f"{compact(low)}-{compact(high)}"


_MOST_LABELS = 12
_OF_SNAPSHOTS = (COLORS[1], COLORS[0])


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
    shares = [100 * number / total for number, total in zip(counts, whole, strict=True)]
    order = np.argsort(-np.abs(shares[1] - shares[0]), kind="stable")[:_MOST_LABELS]
    order = order[np.argsort(-shares[1][order], kind="stable")]
    canvas, ax = canvas_of_one(height=max(2.4, 0.3 * len(order) + 1.1))
    chosen = _by_moment(before, now, [share[order] for share in shares])
    grouped_bars(ax, [shorten(names[c], 24) for c in order], chosen, _OF_SNAPSHOTS, lie=True)
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
