"""What an evaluation says of its model in words: where it is no better than what learnt nothing.

A control that gates has to be beaten, by whatever little. Of the others (`Control.gates`), and of metrics beside the
one that a model is judged by, only what is beyond noise is worth a word: a difference whose 95 % interval lies below 0
(both score the same rows, drawn alike), or without an interval one of more than two standard errors of the metric.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from configs.metric_names import ONE_CLASS
from tasks.storage.controls import CONSTANT_CONTROLS, CONTROLS

ERRORS = frozenset({"rmse", "mae", "mean_rank"})
"""Metrics of which less is better."""
_BOUNDS = frozenset({"mrr_optimistic", "mrr_pessimistic"})
"""What ties are worth at most and at least: a model that scores all alike has the best of the one."""
_NOISE = 2.0


def _noise(metric: str, own: float, bar: float, split: str, report: Mapping[str, Any]) -> float:
    """Return about how far the metric strays on the split's rows, by two standard errors.

    A share's deviation for what lies in 0..1; of errors and of R², what normal errors would have.
    """
    rows, value = report.get("report", {}).get("telling_rows", {}).get(split), (own + bar) / 2
    if not rows:
        return 0.0
    name = metric.rpartition(".")[2]
    if name in ERRORS:
        return _NOISE * (abs(value) / math.sqrt(2 * rows))
    if name == "r2":
        return _NOISE * ((1 - value) * math.sqrt(2 / rows))
    share = min(1.0, max(0.0, value))
    return _NOISE * math.sqrt(share * (1 - share) / rows)


def lost_to_controls(metric: str, higher_is_better: bool, report: Mapping[str, Any]) -> dict[str, str]:
    """Say of each control where the model does not beat it, or is worse beyond noise where it does not gate.

    `report` has `metrics` and `controls` of EvalReport, and in its `report` the `telling_rows` of each split. Returns
    control to sentence.
    """
    lines = {}
    for name, splits in report["controls"].items():
        lost, gates = list[str](), CONTROLS[name].gates
        for split, values in splits.items():
            if metric not in values:
                continue
            own, bar = report["metrics"][split][metric], values[metric]
            sign = 1 if higher_is_better else -1
            intervals = report.get("report", {}).get("intervals", {}).get(split, {})
            paired = None if gates else intervals.get("above", {}).get(name)
            noise = 0.0 if gates else _noise(metric, own, bar, split, report)
            beaten = max(sign * end for end in paired) >= 0 if paired else sign * (own - bar) > -noise
            if not beaten:
                lost.append(f"{split} {metric} {own:.4f} against {bar:.4f}")
        if lost:
            lines[name] = f"the model does not beat {CONTROLS[name].what}: {', '.join(lost)}"
    return lines


def secondary_below_controls(metric: str, report: Mapping[str, Any]) -> list[str]:
    """Say which metrics beside the model's own are below the best control's, beyond noise; see `lost_to_controls`."""
    lost: dict[str, list[str]] = {}
    for split, values in report["metrics"].items():
        for other in sorted(values.keys() - {metric} - _BOUNDS):
            controls = report["controls"].items()
            bars = [(name, splits[split][other]) for name, splits in controls if other in splits.get(split, {})]
            if not bars:
                continue
            own, last = values[other], other.rpartition(".")[2]
            best, bar = (min if last in ERRORS else max)(bars, key=itemgetter(1))
            if last == "accuracy" and bar >= ONE_CLASS:
                continue  # who finds a rare class pays with it
            behind = own - bar if last in ERRORS else bar - own
            if behind > _noise(other, own, bar, split, report):
                lost.setdefault(best, []).append(f"{split} {other} {own:.4f} against {bar:.4f}")
    return [
        f"beside {metric}, by which the model is judged, it is below {CONTROLS[name].what}: " + ", ".join(texts)
        for name, texts in lost.items()
    ]


def hardly_above_controls(metric: str, report: Mapping[str, Any]) -> list[str]:
    """Say which gating controls the model beats by no more than other rows of the same kind might undo.

    `report` as in `lost_to_controls`, its `report` with `intervals` (`SureMetrics.intervals`).
    """
    lines = []
    for split, intervals in report["report"]["intervals"].items():
        for name, (low, high) in intervals["above"].items():
            if CONTROLS[name].gates and low <= 0 <= high:
                lines.append(
                    f"{split}: that {metric} is better than that of {CONTROLS[name].what} may be chance: in at least "
                    f"95 % of draws of its rows they differ by {low:.4f} to {high:.4f}"
                )
    return lines


def sureness(split: str, metric: str, intervals: Mapping[str, Any]) -> str:
    """Say how surely a split's rows tell a metric; `intervals` as of `SureMetrics.intervals`."""
    draws, defined, rows, size = (intervals[name] for name in ("draws", "defined", "rows", "drawn_rows"))
    if intervals["metric"] is None:
        lacking = f"{draws - defined:,} of {draws:,} draws of its {rows:,} rows have no {metric}"
        return f"{split}: {lacking}: there are too few rows, or of one kind, to say how sure it is"
    low, high = intervals["metric"]
    some = f"{defined:,} draws" if defined == draws else f"the {defined:,} draws that define it, of {draws:,},"
    if low == high:
        return f"{split}: {some} of its {rows:,} rows all have {metric} {low:.4f}: they cannot say how sure it is"
    if size < rows:
        some = f"draws of its {rows:,} rows (judged by {some} of {size:,})"
        return f"{split}: at least 95 % of {some} have {metric} {low:.4f} to {high:.4f}"
    return f"{split}: at least 95 % of {some} of its {rows:,} rows have {metric} {low:.4f} to {high:.4f}"


def one_class_predicted(fields: Mapping[str, Any], lost: Mapping[str, str]) -> str | None:
    """Say so where every row is predicted to be of one class, and whether scores tell the classes apart all the same.

    `fields` are those of EvalReport; `lost` is what `lost_to_controls` returned.
    """
    report = fields["report"]
    confusion = report.get("confusion")
    if confusion is None:
        return None
    predicted = [sum(column) for column in zip(*confusion["counts"], strict=True)]
    if len(predicted) < 2 or not sum(predicted) or max(predicted) < sum(predicted):
        return None
    only = confusion["classes"][predicted.index(max(predicted))]
    text = f"the model predicts class {only} for every row of {report['split']}: "
    ranks = _above_constants(fields, report["split"])
    if ranks is None:
        return (
            f"{text}it learnt nothing beyond the majority; weigh classes (train.loss.class_weight=balanced), train "
            "longer, or look at the labels and the learning rate"
        )
    names = [CONTROLS[name].what for name in lost if name not in CONSTANT_CONTROLS]
    below = f", though not better than {' and '.join(names)}" if names else ""
    return (
        f"{text}it ranks them ({ranks}){below}, but all scores lie on one side of the threshold, as they may where a "
        "class is rare; take another threshold (graphmill predict --threshold; the report has some, chosen on valid), "
        "or weigh classes (train.loss.class_weight=balanced)"
    )


def _above_constants(fields: Mapping[str, Any], split: str) -> str | None:
    """Return a metric of ranking by which the model is above what says the same of every row, beyond noise."""
    above = fields["report"].get("intervals", {}).get(split, {}).get("above", {})
    drawn = [above[name][0] for name in CONSTANT_CONTROLS if above.get(name)]
    for metric in ("rocauc", "ap"):
        own = fields["metrics"].get(split, {}).get(metric)
        bars = [fields["controls"].get(name, {}).get(split, {}).get(metric) for name in CONSTANT_CONTROLS]
        bar = max((value for value in bars if value is not None), default=None)
        if own is None or bar is None:
            continue
        sure = metric == fields["metric"] and min(drawn, default=0.0) > 0
        if sure or own - bar > _noise(metric, own, bar, split, fields):
            return f"{metric} {own:.4f}"
    return None
