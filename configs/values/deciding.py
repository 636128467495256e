"""From when a row is called positive, and what mistakes cost."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from configs.base import ConfigModel

_WORDS = {"f1": "best F1", "cost": "least cost"}
_GOALS = {"precision": "precision at least {:g}", "recall": "recall at least {:g}", "share": "the highest {:.12g} %"}


class CostsConfig(ConfigModel):
    """What mistakes cost, in any unit."""

    false_positive: float = Field(default=1.0, gt=0, le=1e9)
    """A row that is called positive and is not."""
    false_negative: float = Field(default=1.0, gt=0, le=1e9)
    """A positive row that is not called so."""


def parse_rule(rule: str) -> tuple[str, float]:
    """Return what a rule goes by, and its goal, 0 where it has none. Raises ValueError."""
    name, equals, number = rule.partition("=")
    try:
        goal = float(number) if equals else 0.0
    except ValueError:
        goal = -1.0
    if (name in _WORDS and not equals) or (name in _GOALS and 0 < goal < 1):
        return name, goal
    raise ValueError(f"{rule!r} is none of f1, cost, precision=0.9, recall=0.8, share=0.01 (the highest 1 % of rows)")


def say_rule(rule: str) -> str:
    """Return a rule in words."""
    name, goal = parse_rule(rule)
    return _WORDS[name] if name in _WORDS else _GOALS[name].format(100 * goal if name == "share" else goal)


def _checked(rule: str) -> str:
    parse_rule(rule)
    return rule


ThresholdRule = Annotated[str, AfterValidator(_checked)]
