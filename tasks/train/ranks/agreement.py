"""Whether two machines of a job are at the same work, and in words what differs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from configs.schema import STAGES, Recipe
from tasks.calls import load_stage
from tasks.processes.code_version import code_digest

STAGE = "stage"
"""Among a meeting's facts: the stage whose ranks meet."""
_MOST_SHOWN = 3
_PACE = ("checkpoint_every", "checkpoint_minutes", "share_gpu")
_OWN_PACE = ("exchange_batches",)
_WAY_OUT = "Give all machines the same code, recipe, options and data"


def may_evaluate_together(recipe: Recipe) -> bool:
    """Whether all ranks of the training evaluate, each its own parts of the graph, where there are several."""
    return bool(getattr(getattr(recipe.train, "strategy", None), "evaluates_together", False))


def evaluates_together(recipe: Recipe) -> bool:
    """Whether there are several ranks, and all of them evaluate."""
    return may_evaluate_together(recipe) and recipe.train.num_ranks * recipe.train.num_machines > 1


def facts_of(recipe: Recipe, last: str) -> dict[str, Any]:
    """Return what decides the outcome of the stages up to `last`, as plain values by option: `train.learning_rate`.

    Of several machines also the code that they run: ranks that sample or send otherwise would wait for each other.
    """
    facts: dict[str, Any] = {}
    for name in STAGES[: STAGES.index(last) + 1]:
        _flatten(load_stage(name).config(recipe), "", facts)
    if recipe.train.num_machines > 1:
        facts |= {"graphmill's code": code_digest(), "torch": version("torch").partition("+")[0]}
    as_json: dict[str, Any] = json.loads(json.dumps(facts, default=str))  # as they come from another machine
    return as_json


def _flatten(values: Mapping[str, Any], prefix: str, facts: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, Mapping):
            _flatten(value, f"{prefix}{name}.", facts)
        else:
            facts[prefix + name] = value


def pace_of(recipe: Recipe) -> dict[str, Any]:
    """Return options that change no outcome, by which ranks know what to send each other and when.

    Where all machines read one job they have them from there; with homes of their own theirs must be the same.
    """
    train = recipe.train
    pace = {f"train.{name}": getattr(train, name) for name in _PACE if hasattr(train, name)}
    strategy = getattr(train, "strategy", None)
    pace |= {f"train.strategy.{name}": getattr(strategy, name) for name in _OWN_PACE if hasattr(strategy, name)}
    if may_evaluate_together(recipe):  # batches are made together too, by threads or without
        pace["train.prefetch above 0"] = getattr(train, "prefetch", None) != 0
    return pace


def difference(first: Mapping[str, Any], other: Mapping[str, Any], number: int) -> str | None:
    """Say what differs between machine 0's facts and those of machine `number`; None: nothing."""
    if (now := first.get(STAGE)) != (there := other.get(STAGE)):
        return (
            f"machine 0 has come to {now} and machine {number} to {there}: one of them has finished a stage alone; "
            "to do it again together give all machines --force train"
        )
    names = [name for name in sorted(first.keys() | other.keys()) if first.get(name) != other.get(name)]
    if not names:
        return None
    said = [
        f"{name} is {_shown(first, name)} on machine 0 and {_shown(other, name)} on machine {number}" for name in names
    ]
    more = f", and {len(said) - _MOST_SHOWN} more" if len(said) > _MOST_SHOWN else ""
    return f"machines 0 and {number} do not run the same job: {'; '.join(said[:_MOST_SHOWN])}{more}. {_WAY_OUT}"


def data_difference(stage: str, number: int) -> str:
    """Say that the options agree up to a stage, and what it reads does not."""
    return (
        f"machines 0 and {number} do not run the same job: {stage} reads other data on machine {number}, though the "
        f"options are the same. {_WAY_OUT}: files that a recipe names must be the same everywhere"
    )


def _shown(facts: Mapping[str, Any], name: str) -> str:
    return repr(facts[name])[:80] if name in facts else "not there"
