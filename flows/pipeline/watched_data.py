"""A run's or a prediction's data, compared with what a published model was trained on, as far as it is prepared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from configs.errors import StageError
from configs.schema import Recipe
from tasks.calls import ParentGoneError, load_parents, load_stage
from tasks.stage import Parent
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.expectations import Reference

_READERS = {"ingest": ("preprocess",), "partition": ("preprocess", "components", "train")}
"""Stage that has just ended to stages that read what there is by then."""


class DataWatch:
    """Compares data after `ingest` and after `partition`."""

    def __init__(
        self, home: Home, recipe: Recipe, model: Reference | None = None, *, has_champion: bool = True
    ) -> None:
        """Data is compared with `model`, None: the recipe's champion; a backfill's run has none to be held against."""
        self.home, self.recipe, self._model, self._has_champion = home, recipe, model, has_champion

    @cached_property
    def reference(self) -> Reference | None:
        """What is compared with; None where there is no champion, or where nobody can be asked now."""
        from tasks.publish.expectations import champion_of

        if self._model is not None or not self._has_champion:
            return self._model
        try:
            return champion_of(self.recipe, self.home)
        except StageError:
            if self.recipe.expect.rows is not None or self.recipe.expect.drift is not None:
                raise
            return None  # publishing waits for it

    def look(
        self, stage: str, keys: Mapping[str, str], say: Callable[[str], None], warn: Callable[[str], None]
    ) -> None:
        """Look at what a stage made; `keys` of all so far. Raises UserError: the recipe expects other data."""
        from tasks.publish.expectations import check_arrival, check_drift

        try:
            parents: dict[str, Parent] = {}
            for reader in _READERS[stage]:
                parents |= load_parents(load_stage(reader), self.home, dict(keys))
        except ParentGoneError:
            return  # the next stage notices
        expect = self.recipe.expect
        if stage == "ingest":
            if self._has_champion and self.reference is None and (expect.rows is not None or expect.drift is not None):
                say("no version of this model is champion yet: what `expect` says beside one's data holds from then on")
            check_arrival(self.recipe, parents["ingest"], self.reference, say, warn)
        else:
            check_drift(self.recipe, parents, self.reference, say, warn)
