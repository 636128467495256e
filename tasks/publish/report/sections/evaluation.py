"""The evaluation: its pictures, how surely the metrics hold, probabilities, thresholds, each class in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.publish.facts import predicted_from
from tasks.publish.plots import eval_plots
from tasks.publish.report.parts import ReportedRun, ReportTable, Section
from tasks.storage.controls import CONTROLS
from tasks.storage.outcomes import EvalReport

ORDER = 60
_MOST_CLASSES = 100
_MOST_VALUES = 8
_WHOLE = 1000
"""From here on numbers have no decimals."""


def section(run: ReportedRun) -> Section | None:
    """Say what the evaluation found beside its metrics."""
    if "evaluate" not in run.parents:
        return None
    evaluation: EvalReport = run.parents["evaluate"].manifest
    report = evaluation.report
    made = Section("Evaluation in detail")
    made.facts = [(f"note {n + 1}", note) for n, note in enumerate(report.get("notes", []))]
    if chosen := report.get("threshold"):
        made.facts.append(("predicted is", f"{predicted_from(report)}: {chosen['rule']} on the validation split"))
    made.tables = [table for table in _tables(evaluation, str(report.get("split"))) if table is not None]
    for _, caption, canvas in eval_plots.all_of(report):
        made.draw(canvas, caption)
    return made


def _tables(evaluation: EvalReport, split: str) -> list[ReportTable | None]:
    report = evaluation.report
    made = [_intervals(evaluation), _temperature(report, split), _thresholds(report, split)]
    for column, groups in report.get("groups", {}).items():
        counts = ("rows",) if groups[0]["positives"] is None else ("rows", "positives")
        lines = [
            (
                row["name"],
                *(f"{row[count]:,}" for count in counts),
                "" if row["metric"] is None else f"{row['metric']:.4f}",
            )
            for row in groups
        ]
        caption, head = f"{evaluation.metric} on {split} by {column}", (column, *counts, evaluation.metric)
        made.append(ReportTable(caption, head, lines, figures=len(head) - 1))
    if wrong := report.get("most_wrong"):
        cells = [[_cell(value) for value in values] for values in wrong.values()]
        caption = f"Rows of {split} that the model is most wrong about, the worst first"
        made.append(ReportTable(caption, tuple(wrong), list(zip(*cells, strict=True))))
    if explained := report.get("explained"):
        whys = [
            (row["score"] if not number else "", *reason)
            for row in explained
            for number, reason in enumerate(row["why"] or [("nothing that can be left out moves it", "")])
        ]
        head = ("score", "what would move it", "to, or by")
        made.append(ReportTable("Why: what moved the scores of the first of these", head, whys))
    if columns := report.get("columns"):
        losses = [(row["column"], *(f"{row[name]:+.4f}" for name in ("lost", "low", "high"))) for row in columns]
        caption = (
            f"Columns by what {evaluation.metric} on {split} loses where their values are dealt out anew among nodes "
            "or edges, and the interval (95 %) of five draws"
        )
        made.append(ReportTable(caption, ("column", "lost", "from", "to"), losses, figures=3))
    for name, of_task in report.get("tasks", {}).items():
        made += [_temperature(of_task, split, f"{name}: "), _thresholds(of_task, split, f"{name}: ")]
    classes = [
        (row["name"], f"{row['rows']:,}", *(f"{row[name]:.3f}" for name in ("precision", "recall", "f1")))
        for row in report.get("per_class", [])[:_MOST_CLASSES]
    ]
    head = ("class", "rows", "precision", "recall", "F1")
    return [*made, ReportTable("Every class in numbers", head, classes, figures=4, folded=True) if classes else None]


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_cell, value[:_MOST_VALUES])) + (", ..." if len(value) > _MOST_VALUES else "")
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= _WHOLE else f"{value:.4g}"
    return "" if value is None else str(value)


def _intervals(evaluation: EvalReport) -> ReportTable | None:
    """The metric that judges the model, and how much it is above the controls', each with its 95 % interval."""
    rows = []
    for split, judged in evaluation.report.get("intervals", {}).items():
        for metric, intervals in {evaluation.metric: judged, **judged.get("further", {})}.items():
            value = evaluation.metrics[split][metric]
            if intervals["metric"] is not None:
                rows.append((f"{split}: {metric}", f"{value:.4f}", *(f"{end:.4f}" for end in intervals["metric"])))
            for name, ends in intervals["above"].items():
                difference = value - evaluation.controls[name][split][metric]
                signed = (f"{number:+.4f}" for number in (difference, *ends))
                rows.append((f"{split}: minus {CONTROLS[name].row}", *signed))
    caption = (
        "How surely the rows tell: between what at least 95 % of draws of the split's rows lie (bootstrap, percentiles)"
    )
    return ReportTable(caption, ("", "value", "from", "to"), rows, figures=3) if rows else None


def _temperature(report: Mapping[str, Any], split: str, task: str = "") -> ReportTable | None:
    temperature = report.get("temperature")
    if temperature is None:
        return None
    names = {"before": "the model's own", "after": f"scores divided by {temperature['value']:.3f}"}
    rows = [(text, *(f"{temperature[key][name]:.4f}" for name in ("nll", "ece"))) for key, text in names.items()]
    caption = (
        f"{task}Probabilities on {split}: the temperature that fits the validation split, and what it "
        "does to the likelihood of the labels and to the mean distance of confidence from accuracy (ECE)"
    )
    return ReportTable(caption, ("probabilities", "negative log-likelihood", "ECE"), rows, figures=2)


def _thresholds(report: Mapping[str, Any], split: str, task: str = "") -> ReportTable | None:
    thresholds = report.get("thresholds")
    if not thresholds:
        return None
    rows = []
    for row in thresholds:
        shares = f"{100 * row['flagged']:.2f} %", f"{row['precision']:.3f}", f"{row['recall']:.3f}"
        cost = (f"{row['cost']:.4g}",) if "cost" in row else ()
        rows.append((row["rule"], f"{row['probability']:.4f}", *shares, f"{row['lift']:.2f}", *cost))
    positive = "positive"
    if "positive" in report:
        positive = str(report.get("confusion", {}).get("classes", ["of the first class"])[report["positive"]])
    caption = (
        f"{task}Thresholds, chosen on the validation split, and what comes of them on {split}: "
        f"probability (the model's own: graphmill predict --threshold) from which a row is called {positive}, rows "
        "called so, and the lift of precision over the share of such rows"
    )
    head = ("rule", "from", "rows", "precision", "recall", "lift", "cost a row")[: len(rows[0])]
    return ReportTable(caption, head, rows, figures=len(head) - 1)
