"""What no ranking goes on with."""

from __future__ import annotations

from configs.errors import RecipeError


def check_finite(bad: int, total: int) -> None:
    """Raise RecipeError if some of so many scores are NaN or infinite: no metric means anything then."""
    if bad:
        raise RecipeError(
            f"{bad:,} of {total:,} scores are NaN or infinite: training diverged; "
            "lower train.learning_rate, or set train.clip_norm=1.0"
        )
