"""Where this process stands in a training over several machines, as `key=value` changes of the recipe.

Most to least: options of the command line, the recipe, the scheduler's environment. All three come to the same options
of `train`: hosts, num_machines, machine_rank, rendezvous.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from configs.errors import RecipeError
from configs.load import find_recipe, load_own_recipe
from configs.reading.yaml_reader import parse_yaml, read_yaml
from configs.schema import Recipe
from configs.training import TrainBase
from flows.machines.own_rank import hosts_changes, own_rank
from flows.machines.schedulers import Placement, scheduled_placement

_SECTION = "train"
_PLACES = frozenset({"hosts", "rendezvous", "machine_rank"})
"""Options by which somebody has said where the machines are: the scheduler is not asked any more."""


@dataclass(frozen=True)
class PlacedRun:
    """A command's recipe, in which it is said which machine this is."""

    recipe: Recipe
    overrides: list[str]
    """All that the command changes in the recipe's file."""
    text: str
    """What was taken, in a line for people; empty on a single machine, and where options say it all themselves."""


def place_run(recipe: str, overrides: Sequence[str], hosts: str | None, *, ssh: bool) -> PlacedRun:
    """Read a command's recipe, and find out which of its machines this one is.

    Args:
        recipe: a shipped recipe's name, or a path.
        overrides: `key=value` texts of the command line.
        hosts: what `--hosts` says.
        ssh: whether machine 0 is to start the others.

    Raises RecipeError: the recipe or an option is wrong, this machine is not in the list, or the scheduler's variables
    contradict each other.
    """
    options, written = _changed(overrides), _written(recipe)
    changes: list[str] = ["train.ssh=true"] if ssh else []
    source = "train.hosts"
    if hosts is not None:
        if "hosts" in options:
            raise RecipeError("--hosts and train.hosts= are one option; give one of them")
        changes += hosts_changes(hosts)
    elif not _says_where(options, written) and (scheduled := scheduled_placement(os.environ)) is not None:
        changes += _changes(scheduled, {**written, **options}.get("num_machines", 1))
        source = scheduled.source
    changes += overrides
    read = load_own_recipe(recipe, changes)
    if more := rank_changes(read.train, changes):
        changes += more
        read = load_own_recipe(recipe, changes)
    return PlacedRun(read, changes, _text(read.train, source))


def _text(train: TrainBase, source: str) -> str:
    if train.num_machines == 1 or (source == "train.hosts" and not train.hosts):
        return ""
    names = f" ({', '.join(train.hosts)})" if train.hosts else ""
    return f"machine {train.machine_rank} of {train.num_machines}{names} by {source}; all meet at {train.rendezvous}"


def rank_changes(train: TrainBase, overrides: Sequence[str]) -> list[str]:
    """Return the change that says which of `train.hosts` this machine is, unless that is said. Raises RecipeError."""
    if len(train.hosts) < 2 or train.machine_rank > 0 or "machine_rank" in _changed(overrides):
        return []
    return [f"train.machine_rank={own_rank(train.hosts)}"]


def take_part(recipe: Recipe, stages: Collection[str]) -> bool:
    """Whether all machines, where there are several, have something to do in these stages."""
    from tasks.train.ranks.agreement import may_evaluate_together

    return "train" in stages or ("evaluate" in stages and may_evaluate_together(recipe))


def check_begins_here(train: TrainBase) -> None:
    """Raise RecipeError unless the pipeline may run on this machine: machine 0 runs it where all see one home."""
    if not train.machine_rank or not (train.shared_home or train.ssh):
        return
    first = train.hosts[0] if train.hosts else "machine 0"
    raise RecipeError(
        f"a run over several machines begins on {first}, and this is machine {train.machine_rank} of "
        f"{train.num_machines}; begin it there (a deployment: on a work pool whose worker is there), or name this "
        "machine first"
    )


def _changes(placement: Placement, num_machines: Any) -> list[str]:
    """Return what a scheduler says, as changes; `num_machines` is what the recipe or an option says."""
    changes = [f"train.machine_rank={placement.machine_rank}", f"train.rendezvous={json.dumps(placement.rendezvous)}"]
    if placement.hosts:
        changes.append(f"train.hosts={json.dumps(placement.hosts)}")
    if num_machines in (1, placement.num_machines):
        return [*changes, f"train.num_machines={placement.num_machines}"]
    raise RecipeError(
        f"train.num_machines={num_machines}, but {placement.source} gives {placement.num_machines}; leave "
        "train.num_machines out, or ask the scheduler for as many"
    )


def _says_where(options: dict[str, Any], written: dict[str, Any]) -> bool:
    """Whether options or the recipe's file say where the machines are, or an option that there is one."""
    there = any(written.get(name) not in (None, [], 0) for name in _PLACES)  # `graphmill show` writes all options
    return there or bool(options.keys() & _PLACES) or options.get("num_machines") == 1


def _changed(overrides: Sequence[str]) -> dict[str, Any]:
    """Return what overrides say of the section `train`, as plain values."""
    said: dict[str, Any] = {}
    for text in overrides:
        key, _, raw = text.partition("=")
        section, _, option = key.strip().partition(".")
        if section == _SECTION and option:
            said[option] = parse_yaml(raw, text)
        elif section == _SECTION and isinstance(whole := parse_yaml(raw, text), dict):
            said |= whole
    return said


def _written(recipe: str) -> dict[str, Any]:
    """Return what a recipe's file says of the section `train`, as plain values."""
    content = read_yaml(find_recipe(recipe))
    section = content.get(_SECTION) if isinstance(content, dict) else None
    return dict(section) if isinstance(section, dict) else {}
