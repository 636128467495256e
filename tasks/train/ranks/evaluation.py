"""How the ranks of a training are started again, to evaluate it."""

from __future__ import annotations

from pathlib import Path

from configs.schema import Recipe
from tasks.supervise import ALONE, ERROR_FILE, RESULT_FILE, Launcher
from tasks.train.ranks.agreement import STAGE, evaluates_together, facts_of
from tasks.train.ranks.launch import FIRST_SECONDS, Place, rank_launcher


def launcher(recipe: Recipe, work: Path, training: str, waiting: int = FIRST_SECONDS) -> Launcher:
    """Return what starts this machine's processes of an evaluation.

    Args:
        recipe: as the machine reads it.
        work: folder of the evaluation.
        training: key of what is evaluated; machines with homes of their own have it in common, but not its files'
            digests, and so not the evaluation's key.
        waiting: seconds for all machines to be there.
    """
    if not evaluates_together(recipe):
        return ALONE
    place = Place(
        f"evaluate-{training}",
        {**facts_of(recipe, "evaluate"), STAGE: "evaluate"},
        work / RESULT_FILE,
        work / ERROR_FILE,
    )
    return rank_launcher(recipe.train, place, waiting)
