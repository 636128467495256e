"""Options of the data set `relbench`."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from configs.base import ComponentConfig, StrTuple
from configs.metric_names import MetricName
from configs.registry import DATASETS
from tasks.ingest.database.configs import check_moments_are_kept


@DATASETS.options("relbench", "database.relbench.dataset")
class RelbenchConfig(ComponentConfig):
    """A database in RelBench's layout, and one of its tasks with its own moments and splits: db/, tasks/TASK/."""

    task: ClassVar[str] = "node"
    preprocess_defaults: ClassVar[dict[str, Any]] = {"deduplicate": False}  # edges of one pair at two times are two
    runtime_fields: ClassVar[frozenset[str]] = frozenset({"folder"})

    folder: str
    """Folder with `db/*.parquet`, whose metadata names keys and times, and `tasks/TASK/{train,val,test}.parquet`."""
    predict: str = Field(min_length=1)
    """Folder under tasks/, such as driver-dnf: rows of entities at moments, with labels."""
    task_type: Literal["binary", "multiclass", "regression"] | None = None
    """Kind of label; null: binary where all are 0 or 1, else regression."""
    metric: MetricName | None = None
    """accuracy, rocauc, ap, rmse, mae, r2 or f1; null: rocauc, mae or accuracy, by kind of label."""
    on_unknown_id: Literal["error", "drop"] = "error"
    """A label of an entity that is not in its table, or younger than the moment: refused, or left out."""
    leave_out: StrTuple = ()
    """Tables of db/ that are not read."""
    tables: dict[str, dict[str, Any]] = Field(default={})
    """Further options of tables, by name, as the data set database has them: `{results: {columns: {note: ignore}}}`."""

    def check_recipe(self, recipe: Any) -> None:
        """Refuse options that mix times, or count what is behind a moment. Raises ValueError."""
        check_moments_are_kept(self.name, recipe)
