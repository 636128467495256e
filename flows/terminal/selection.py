"""Which stages a run touches: `--only`, `--from`, `--force`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from configs.errors import RecipeError
from configs.matching import did_you_mean
from configs.schema import STAGES


@dataclass(frozen=True)
class Selection:
    """Stages of a run."""

    stages: tuple[str, ...] = STAGES
    """Stages to run, in order; a cached one is found, not built."""
    force: frozenset[str] = frozenset()
    """Stages to build even where there is an artifact."""

    @property
    def all(self) -> tuple[str, ...]:
        """The selected stages and those before them, which must be cached: the selected ones build on them."""
        return STAGES[: STAGES.index(self.stages[-1]) + 1]


def split_names(texts: Sequence[str] | None) -> list[str]:
    """Return the names in `a,b` or `a` `b`."""
    return [name.strip() for text in texts or () for name in text.split(",") if name.strip()]


def select_stages(
    only: Sequence[str] | None = None, from_stage: str | None = None, force: Sequence[str] | None = None
) -> Selection:
    """Check the options and return what they select. Raises RecipeError for unknown or contradicting ones."""
    named, forced = split_names(only), split_names(force)
    for name in (*named, *forced, *([from_stage] if from_stage else [])):
        if name not in STAGES:
            raise RecipeError(f"unknown stage {name!r}{did_you_mean(name, STAGES)}; stages: {', '.join(STAGES)}")
    if named and from_stage:
        raise RecipeError("--only and --from exclude each other; name all wanted stages with --only")
    if from_stage:
        named = list(STAGES[STAGES.index(from_stage) :])
    stages = tuple(stage for stage in STAGES if not named or stage in named)
    outside = [name for name in forced if name not in stages]
    if outside:
        raise RecipeError(f"--force {','.join(outside)}: they are not among the stages that run ({', '.join(stages)})")
    return Selection(stages, frozenset(forced))
