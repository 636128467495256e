"""How the ranks of a training are started again, to evaluate it."""

from __future__ import annotations

from pathlib import Path

from configs.schema import Recipe
from tasks.storage.home import Home
from tasks.supervise import ALONE, Launcher


def evaluates_together(recipe: Recipe) -> bool:
    """Whether there are several ranks, and all of them evaluate, each its own parts of the graph."""
    strategy = getattr(recipe.train, "strategy", None)
    return recipe.train.num_ranks > 1 and bool(getattr(strategy, "evaluates_together", False))


def launcher(recipe: Recipe, home: Home, work: Path) -> Launcher:
    """Return what starts the processes of an evaluation that writes into `work`."""
    if not evaluates_together(recipe):
        return ALONE
    from tasks.train.ranks.launch import launcher_of

    return launcher_of(recipe, home, work)
