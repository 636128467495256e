"""Who is champion: the rule by which a new model version takes the alias, as a pure function."""

from __future__ import annotations

import math
from dataclasses import dataclass

from configs.errors import RecipeError

CHAMPION = "champion"


@dataclass(frozen=True)
class Candidate:
    """What the gate knows of a model version."""

    version: str
    metric: str
    """`split/metric`."""
    value: float
    higher_is_better: bool
    dataset: str = ""
    """Digest of the data that it was measured on."""


@dataclass(frozen=True)
class Decision:
    """Whether the alias moves, and why, in words."""

    promote: bool
    reason: str


def gate_value(gate: str | None, primary: str, metrics: dict[str, dict[str, float]]) -> tuple[str, float]:
    """Return name and value of the gate metric.

    Args:
        gate: `split/metric` from the recipe; None: the evaluator's metric on `valid` (on the first split there is,
            where valid was not evaluated).
        primary: the evaluator's metric.
        metrics: split to metric to value.

    Raises:
        RecipeError: the metric was not measured; the message names those that were.
    """
    if gate is None:
        split = "valid" if "valid" in metrics else next(iter(metrics), "")
        gate = f"{split}/{primary}"
    split, _, name = gate.partition("/")
    if name not in metrics.get(split, {}):
        known = ", ".join(f"{split}/{name}" for split, values in metrics.items() for name in values)
        raise RecipeError(f"tracking.gate_metric={gate} was not measured; there are {known or 'no metrics'}")
    return gate, metrics[split][name]


def higher_is_better(metric: str, primary: str, primary_higher: bool) -> bool:
    """Whether more of `split/metric` is better: the evaluator's word for its own metric, else by name."""
    name = metric.rpartition("/")[2]
    return primary_higher if name == primary else name not in {"rmse", "mae", "mse", "loss"}


def decide(new: Candidate, old: Candidate | None) -> Decision:
    """Compare a new version with the present champion. A tie keeps the old one; unlike metrics are not compared."""
    shown = f"{new.metric} {new.value:.4f}"
    if math.isnan(new.value):
        return Decision(False, f"{new.metric} is not a number")
    if old is None:
        return Decision(True, f"the first version with {shown}")
    if old.version == new.version:
        return Decision(True, f"stays champion with {shown}")
    if old.metric != new.metric or old.higher_is_better != new.higher_is_better:
        return Decision(
            False,
            f"the champion (version {old.version}) was chosen by {old.metric or 'hand'}, this one has {new.metric}: "
            "not comparable; set tracking.gate_metric to the champion's, or move the alias by hand",
        )
    better = new.value > old.value if new.higher_is_better else new.value < old.value
    other_data = "" if old.dataset == new.dataset else " (on other data)"
    against = f"version {old.version}'s {old.value:.4f}{other_data}"
    if better:
        return Decision(True, f"{shown} beats {against}")
    word = "equals" if new.value == old.value else "does not beat"
    return Decision(False, f"{shown} {word} {against}")
