"""Tables of reference results: their rows, which of them are asked for, and the runs that they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, model_validator

from configs.base import ConfigModel, StrTuple
from configs.errors import RecipeError
from configs.load import flatten_errors, load_recipe
from configs.matching import did_you_mean
from configs.reading.yaml_reader import read_yaml
from flows.commands.recipes.baseline import PlannedRun, identity
from tasks.storage.home import Home

RECIPES = Path(__file__).parent / "recipes"


class Row(ConfigModel):
    """One line of a table: a model on a data set."""

    recipe: str
    """File in `benchmarks/recipes/`, without `.yaml`."""
    dataset: str
    """The data set as papers call it."""
    model: str
    """The model as papers call it."""
    keywords: StrTuple = ()
    """Words that select the row besides those of its name, data set and model."""
    overrides: tuple[str, ...] = ()
    """Of the recipe, for all runs."""
    metric: str = ""
    """Of the test split."""
    metrics: dict[str, float | None] = Field(default={})
    """Instead, where one training has several of them: metric to the mean that was published, null for none."""
    published: float | None = None
    """Mean that was published."""
    spread: float | None = None
    """Its standard deviation, where that was published."""
    source: str = ""
    """Where it was published."""
    data: str = ""
    """Where to get the data, for who has not got it."""
    tolerance: float | None = Field(default=None, gt=0)
    """How far from it counts as the same; null: the published spread."""
    runs: int = Field(default=3, ge=1)
    """Seeds or splits."""
    vary: tuple[str, ...] = ("seed={run}",)
    """Overrides of run 0, 1, ...: `{run}` is its number."""

    @model_validator(mode="after")
    def _one_metric_or_several(self) -> Row:
        if bool(self.metric) == bool(self.metrics):
            raise ValueError("a row has either metric or metrics")
        if self.metrics and self.published is not None:
            raise ValueError("published goes with metric; of metrics each has its own figure")
        return self

    def by_metric(self) -> list[Row]:
        """Return the row once for each of its metrics."""
        alone: list[dict[str, Any]] = [
            {"metric": name, "metrics": {}, "published": mean} for name, mean in self.metrics.items()
        ]
        return [self.model_copy(update=update) for update in alone] or [self]

    def run_overrides(self, run: int) -> list[str]:
        """Return the overrides of a run."""
        return [*self.overrides, *(text.format(run=run) for text in self.vary)]

    def words(self, name: str) -> set[str]:
        """Return what keywords are compared with."""
        return {word.lower() for word in (name, *name.split("-"), self.dataset, self.model, *self.keywords)}


class TableGoal(ConfigModel):
    """What the best row of a data set should reach."""

    dataset: str
    """As in the rows."""
    at_least: float
    """Mean of the best row."""


class ResultTable(ConfigModel):
    """A table of reference results."""

    title: str
    """Head of the Markdown file."""
    rows: dict[str, Row]
    """Name to row."""
    goals: tuple[TableGoal, ...] = ()
    """What data sets without published figures should reach."""


def read_table(name: str, folder: Path) -> ResultTable:
    """Read a table by its name. Raises RecipeError, also for a recipe that is not there."""
    known = [path.stem for path in (folder / "tables").glob("*.yaml")]
    path = folder / "tables" / f"{name}.yaml"
    if name not in known:
        raise RecipeError(f"no table {name!r}{did_you_mean(name, known)}; tables: {', '.join(sorted(known)) or 'none'}")
    try:
        found = ResultTable.model_validate(read_yaml(path))
    except ValidationError as error:
        raise RecipeError(f"{path}: " + "; ".join(f"{loc}: {text}" for loc, text in flatten_errors(error))) from error
    for row_name, row in found.rows.items():
        if not (folder / f"{row.recipe}.yaml").is_file():
            raise RecipeError(
                f"{path}: row {row_name} names the recipe {row.recipe}, and there is no {row.recipe}.yaml"
            )
    return found


def select_rows(found: ResultTable, keywords: list[str]) -> dict[str, Row]:
    """Return the rows that have all keywords. Raises RecipeError where there is none."""
    wanted = {word.lower() for word in keywords}
    rows = {name: row for name, row in found.rows.items() if wanted <= row.words(name)}
    if not rows:
        known = sorted(set().union(*(row.words(name) for name, row in found.rows.items())))
        unknown = [word for word in keywords if word.lower() not in known]
        hint = did_you_mean(unknown[0], known) if unknown else ""
        raise RecipeError(f"no row has the keywords {' '.join(keywords)}{hint}; words: {', '.join(known)}")
    return rows


def plan_runs(rows: dict[str, Row], runs: int | None, folder: Path, home: Home) -> list[PlannedRun]:
    """Return all runs: first seed 0 of each row, then seed 1, so that an early end leaves a whole table."""
    planned = []
    for number in range(max(runs or row.runs for row in rows.values())):
        for name, row in rows.items():
            if number < (runs or row.runs):
                path, overrides = folder / f"{row.recipe}.yaml", row.run_overrides(number)
                digest = identity(load_recipe(str(path), overrides), home)
                planned.append(PlannedRun(name, number, path, overrides, digest, row.data))
    return planned
