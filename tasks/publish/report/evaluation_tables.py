"""Tables of a report's evaluation: how surely the metrics hold, probabilities, and thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.storage.controls import CONTROLS
from tasks.storage.manifests import EvalReport


@dataclass(frozen=True)
class Table:
    """Rows of texts."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    figures: int = 0
    """How many of the last columns are numbers, flushed right."""


def score_tables(evaluation: EvalReport) -> list[Table]:
    """Return the tables that the evaluation has what for."""
    split = str(evaluation.report.get("split"))
    made = [_intervals(evaluation), _temperature(evaluation.report, split), _thresholds(evaluation.report, split)]
    for name, found in evaluation.report.get("tasks", {}).items():
        made += [_temperature(found, split, f"{name}: "), _thresholds(found, split, f"{name}: ")]
    return [table for table in made if table is not None]


def _intervals(evaluation: EvalReport) -> Table | None:
    """The metric that judges the model, and how much it is above the controls', each with its 95 % interval."""
    rows = []
    for split, judged in evaluation.report.get("intervals", {}).items():
        for metric, found in {evaluation.metric: judged, **judged.get("further", {})}.items():
            own = evaluation.metrics[split][metric]
            if found["metric"] is not None:
                rows.append((f"{split}: {metric}", f"{own:.4f}", *_ends(found["metric"], sign=False)))
            for name, ends in found["above"].items():
                difference = own - evaluation.controls[name][split][metric]
                rows.append((f"{split}: minus {CONTROLS[name].row}", f"{difference:+.4f}", *_ends(ends, sign=True)))
    caption = (
        "How surely the rows tell: between what at least 95 % of draws of the split's rows lie (bootstrap, percentiles)"
    )
    return Table(caption, ("", "value", "from", "to"), rows, figures=3) if rows else None


def _ends(interval: Sequence[float], *, sign: bool) -> tuple[str, str]:
    low, high = interval
    return (f"{low:+.4f}", f"{high:+.4f}") if sign else (f"{low:.4f}", f"{high:.4f}")


def _temperature(report: Mapping[str, Any], split: str, task: str = "") -> Table | None:
    found = report.get("temperature")
    if found is None:
        return None
    names = {"before": "the model's own", "after": f"scores divided by {found['value']:.3f}"}
    rows = [(text, f"{found[key]['nll']:.4f}", f"{found[key]['ece']:.4f}") for key, text in names.items()]
    caption = (
        f"{task}Probabilities on {split}: the temperature that fits the validation split, and what it "
        "does to the likelihood of the labels and to the mean distance of confidence from accuracy (ECE)"
    )
    return Table(caption, ("probabilities", "negative log-likelihood", "ECE"), rows, figures=2)


def _thresholds(report: Mapping[str, Any], split: str, task: str = "") -> Table | None:
    found = report.get("thresholds")
    if not found:
        return None
    rows = [
        (
            row["rule"],
            f"{row['probability']:.4f}",
            f"{100 * row['flagged']:.2f} %",
            f"{row['precision']:.3f}",
            f"{row['recall']:.3f}",
            f"{row['lift']:.2f}",
        )
        for row in found
    ]
    positive = "positive"
    if "positive" in report:
        positive = str(report.get("confusion", {}).get("classes", ["of the first class"])[report["positive"]])
    caption = (
        f"{task}Thresholds, chosen on the validation split, and what comes of them on {split}: "
        f"probability (the model's own: graphmill predict --threshold) from which a row is called {positive}, rows "
        "called so, and the lift of precision over the share of such rows"
    )
    return Table(caption, ("rule", "from", "rows", "precision", "recall", "lift"), rows, figures=5)
