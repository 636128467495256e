"""What an evaluation says of a run, typed, for all who show it: the report, MLflow's description, terminal and pages.

What the gate says is `tasks.storage.outcomes.GateRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from configs.metric_names import telling
from tasks.storage.controls import CONTROLS

Metrics = Mapping[str, Mapping[str, float]]
"""Split to metric to value."""


@dataclass(frozen=True)
class ScoreRow:
    """What a model, or a control on the same rows, scored on a split."""

    split: str
    control: str
    """Name of the control; empty: the model."""
    values: Mapping[str, float]

    @property
    def label(self) -> str:
        """The split, and the control in a few words."""
        return f"{self.split} · {CONTROLS[self.control].row}" if self.control else self.split

    def texts(self, names: Iterable[str]) -> list[str]:
        """Return the values of metrics as texts; empty where one was not measured."""
        return [f"{self.values[name]:.4f}" if name in self.values else "" for name in names]


def score_rows(metrics: Metrics, controls: Mapping[str, Metrics]) -> list[ScoreRow]:
    """Return a row for each split, and below it those of the controls that were measured there."""
    rows = []
    for split, values in metrics.items():
        rows.append(ScoreRow(split, "", values))
        rows += [ScoreRow(split, name, splits[split]) for name, splits in controls.items() if split in splits]
    return rows


def predicted_from(report: Mapping[str, Any]) -> str:
    """Say which class is predicted from which probability on, by an evaluation's report in which a rule chose one."""
    chosen = report["threshold"]
    return f"{report['confusion']['classes'][chosen['code']]} from probability {chosen['probability']:.4f}"


def metric_names(rows: Iterable[ScoreRow]) -> list[str]:
    """Return the metrics of some rows that say something, in order."""
    return telling(name for row in rows for name in row.values)
