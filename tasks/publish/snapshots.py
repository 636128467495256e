"""A snapshot against the one before it: growth, metrics, drift of degrees and labels.

Each publication of a snapshot leaves `snapshot.json`: what it holds (`describe`), that of the newest earlier snapshot
that the home knew then (`previous`) and how they differ (`compare`), for the next snapshot's report and a backfill's.

Drift is told by two numbers. Total variation distance, half of sum |q - p|, is the share that would have to move to
turn one distribution into the other. Population stability index, sum (q - p) ln(q / p), is the credit industry's: below
0.1 is called stable, above 0.25 another population (Siddiqi, Credit Risk Scorecards, Wiley 2006, chapter 9).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.schema import Recipe
from tasks.stage import Parent
from tasks.storage.artifacts import ArtifactStore, write_atomic
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import Array
from tasks.storage.home import Home
from tasks.storage.ids import class_names
from tasks.storage.manifests import PartitionManifest
from tasks.storage.outcomes import EvalReport
from tasks.storage.snapshots import earlier_snapshots

FILE_NAME = "snapshot.json"
_LEAST_SHARE = 1e-4  # an empty bin counts as this much: ln 0 would be infinite
STABLE, _OTHER = 0.1, 0.25

SnapshotSummary = dict[str, Any]


def describe(recipe: Recipe, parents: Mapping[str, Parent]) -> SnapshotSummary:
    """Return what a snapshot holds as plain values: sizes, splits and their times, degrees, labels, metrics."""
    evaluation: EvalReport = parents["evaluate"].manifest
    snapshot = parents["partition"].manifest.report.get("snapshot", {})
    return {
        "recipe": recipe.name,
        "as_of": recipe.snapshot.as_of,
        **sizes(parents),
        "unit": snapshot.get("unit", "number"),
        "times": snapshot.get("times", {}),
        "metric": evaluation.metric,
        "higher_is_better": bool(evaluation.report.get("higher_is_better", True)),
        "metrics": evaluation.metrics,
        "warm_start": parents["train"].manifest.warm_start,
    }


def sizes(parents: Mapping[str, Parent]) -> SnapshotSummary:
    """Return sizes, splits, degrees, labels and classes of a prepared graph; `parents` has `ingest` and `partition`."""
    graph: PartitionManifest = parents["partition"].manifest
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "splits": graph.splits,
        "degrees": graph.report.get("degrees", {}),
        "labels": graph.report.get("snapshot", {}).get("labels"),
        "classes": class_names(DatasetStore(parents["ingest"].folder, parents["ingest"].manifest)),
    }


def previous(home: Home, recipe: Recipe) -> SnapshotSummary | None:
    """Return what the newest earlier snapshot of the recipe held, as its publication told it; None without one."""
    store = ArtifactStore(home)
    for run in earlier_snapshots(home, recipe, "publish"):
        path = store.folder("publish", run.keys["publish"]) / FILE_NAME
        if path.is_file():
            summary: SnapshotSummary = json.loads(path.read_text(encoding="utf-8"))["snapshot"]
            return summary
    return None


def compare(before: SnapshotSummary, now: SnapshotSummary) -> SnapshotSummary:
    """Return how two snapshots differ.

    Returns: `growth`: sizes to [before, now]; `metrics`: split to metric to [before, now]; `drift`: `degrees` and
    `labels` to their `psi` and `tvd`, None where there is nothing to compare.
    """
    sizes = {"nodes": [before["nodes"], now["nodes"]], "edges": [before["edges"], now["edges"]]}
    splits = {split: [before["splits"].get(split, 0), count] for split, count in now["splits"].items()}
    sizes |= {f"{split} split": counts for split, counts in splits.items() if any(counts)}  # a layout holds none out
    metrics = {
        split: {name: [before["metrics"][split][name], value] for name, value in values.items()}
        for split, values in now["metrics"].items()
        if values.keys() <= before["metrics"].get(split, {}).keys()
    }
    degrees = [summary["degrees"].get("log2_bins") or [] for summary in (before, now)]
    return {
        "growth": sizes,
        "metrics": metrics,
        "drift": {"degrees": drift(*degrees), "labels": _label_drift(before, now)},
    }


def drift(before: Sequence[float] | Array, now: Sequence[float] | Array) -> SnapshotSummary | None:
    """Return `psi` and `tvd` of two histograms over the same bins; missing bins are empty. None without any count."""
    if not sum(before) or not sum(now):
        return None
    size = max(len(before), len(now))
    p, q = (np.pad(np.asarray(counts, float), (0, size - len(counts))) for counts in (before, now))
    return _distances(p / p.sum(), q / q.sum())


def _distances(p: Array, q: Array) -> SnapshotSummary:
    tvd = float(np.abs(q - p).sum() / 2)
    p, q = np.maximum(p, _LEAST_SHARE), np.maximum(q, _LEAST_SHARE)
    return {"psi": round(float(((q - p) * np.log(q / p)).sum()), 6), "tvd": round(tvd, 6)}


def _label_drift(before: SnapshotSummary, now: SnapshotSummary) -> SnapshotSummary | None:
    old, new = before["labels"], now["labels"]
    if not old or not new or old["kind"] != new["kind"] or not old["rows"] or not new["rows"]:
        return None
    if new["kind"] == "percentiles":
        return drift(*decile_shares(old["values"], new["values"]))
    aligned = label_counts(before, now)
    if aligned is None:
        return None
    _, *counts = aligned
    if new["kind"] == "classes":
        return drift(*counts)
    if len(old["counts"]) != len(new["counts"]):
        return None
    shares = [number / summary["rows"] for summary, number in zip((old, new), counts, strict=True)]
    columns = [_distances(np.array([1 - p, p]), np.array([1 - q, q])) for p, q in zip(*shares, strict=True)]
    return {name: round(float(np.mean([column[name] for column in columns])), 6) for name in ("psi", "tvd")}


def label_counts(before: SnapshotSummary, now: SnapshotSummary) -> tuple[list[str], Array, Array] | None:
    """Return names of classes and how often both snapshots have them: data ingested anew may number them otherwise.

    Returns: names, and counts float64 (C,) of each snapshot; None where nothing tells which class is which. Classes
    that only the first one knew stand last.
    """
    counts = [summary["labels"]["counts"] for summary in (before, now)]
    names = []
    for summary, values in zip((before, now), counts, strict=True):  # classes without a name are called by number
        named = (summary["classes"] or [])[: len(values)]
        names.append([*named, *map(str, range(len(named), len(values)))])
    if before["classes"] == now["classes"] and len(counts[0]) == len(counts[1]):
        return names[1], np.asarray(counts[0], float), np.asarray(counts[1], float)
    if not (before["classes"] and now["classes"]) or any(len(set(some)) < len(some) for some in names):
        return None
    union = list(dict.fromkeys([*names[1], *names[0]]))
    by_name = [dict(zip(some, values, strict=True)) for some, values in zip(names, counts, strict=True)]
    first, second = (np.array([one.get(name, 0) for name in union], float) for one in by_name)
    return union, first, second


def decile_shares(before: Sequence[float], now: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return the shares of both in the bins that hold a tenth of the first each, by their percentiles."""
    edges = np.unique(np.interp(np.arange(0.1, 0.95, 0.1), np.linspace(0, 1, len(before)), before))
    below = [np.interp(edges, values, np.linspace(0, 1, len(values)), left=0, right=1) for values in (before, now)]
    first, second = (np.diff(np.concatenate([[0.0], share, [1.0]])).tolist() for share in below)
    return first, second


def write_snapshot(path: Path, now: SnapshotSummary, before: SnapshotSummary | None) -> SnapshotSummary:
    """Write `snapshot.json` and return what it says."""
    content = {"snapshot": now, "previous": before, "comparison": compare(before, now) if before else None}
    write_atomic(path, json.dumps(content, indent=1).encode())
    return content


# ---- for people


def facts(summary: SnapshotSummary) -> list[tuple[str, str]]:
    """Return the report's rows of (name, text)."""
    now, before, difference = summary["snapshot"], summary["previous"], summary["comparison"]
    rows = []
    spans = [f"{split} {_span(span, now['unit'])}" for split, span in now["times"].items() if span]
    if spans:
        rows.append(("times", ", ".join(spans)))
    if warm := now["warm_start"]:
        cold = f"fresh weights: those as of {warm['as_of']} do not fit ({warm['why_not']})"
        rows.append(("began with", f"the weights of the snapshot as of {warm['as_of']}" if warm["used"] else cold))
    if before is None:
        return [*rows, ("earlier snapshot", "none of this recipe in this home yet")]
    rows += [(name, growth_text(*pair)) for name, pair in difference["growth"].items()]
    for split, values in difference["metrics"].items():
        for name, (old, new) in values.items():
            rows.append((f"{name}, {split}", f"{new:.4f}, {new - old:+.4f} (was {old:.4f})"))
    return [*rows, *((f"drift of {name}", drift_text(drift)) for name, drift in difference["drift"].items() if drift)]


def _span(span: Sequence[int], unit: str) -> str:
    """Return times of the data as people read them; numbers of no date as they are."""
    scale = {"seconds": 1, "milliseconds": 1000}.get(unit)
    first, last = (str(time) if scale is None else date_text(time / scale) or str(time) for time in span)
    return first if first == last else f"{first} to {last}"


def date_text(seconds: float) -> str:
    """Return a time, seconds since 1970, as a date, with its hour where it is not midnight; "": there is none."""
    try:
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return ""
    return f"{moment:%Y-%m-%d}" if moment.time() == datetime.time() else f"{moment:%Y-%m-%d %H:%M}"


def growth_text(before: int, now: int) -> str:
    """Say in words how a number has changed."""
    if now == before:
        return f"{now:,}, as before"
    share = f", {100 * (now - before) / before:+.1f} %" if before else ""
    return f"{now:,}{share} (was {before:,})"


def drift_text(summary: SnapshotSummary) -> str:
    """Say in words how far a distribution has moved."""
    word = "stable" if summary["psi"] < STABLE else "shifted" if summary["psi"] < _OTHER else "another population"
    return f"stability index {summary['psi']:.3f} ({word}), {100 * summary['tvd']:.1f} % would have to move"
