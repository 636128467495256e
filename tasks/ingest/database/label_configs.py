"""Options of labels that stand in a column, of the predicted table itself or of one beside it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from configs.base import ConfigModel
from tasks.ingest.tables.policies import Column

LabelType = Literal["binary", "multiclass", "multilabel", "regression"]


def _as_columns(value: Any) -> Any:
    """A text is one column, commas and all; a list is of several."""
    if isinstance(value, list | tuple):
        if not value or any(not isinstance(one, str) or not one for one in value):
            raise ValueError(f"{value!r} are no names of columns")
        if len(set(value)) < len(value):
            raise ValueError(f"a column stands twice: {', '.join(value)}")
        return tuple(value)
    return value


_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
LabelColumns = Annotated[Column | tuple[str, ...], BeforeValidator(_as_columns), WithJsonSchema(_SCHEMA)]


class LabelConfig(ConfigModel):
    """A label: a column, or several of one kind."""

    label: LabelColumns
    """Column of the label; several, or a column of lists, of `multilabel` and `regression`: an empty cell is not
    known."""
    task_type: LabelType = "binary"
    """Kind of label: binary is 0 or 1, multilabel several of these; classes are whole numbers from 0."""
    num_classes: int | None = Field(default=None, ge=2, le=1_000_000)
    """How many classes a multiclass label has; null: as many as the largest says."""


def check_label(where: str, label: str | tuple[str, ...], task_type: str, num_classes: int | None) -> None:
    """Refuse options of a label that do not go together. Raises ValueError."""
    if num_classes is not None and task_type != "multiclass":
        raise ValueError(f"{where}: num_classes goes with multiclass labels, not {task_type}")
    if isinstance(label, tuple) and len(label) > 1 and task_type in ("binary", "multiclass"):
        way_out = "multilabel" if task_type == "binary" else "multilabel (a column of 0 and 1 for each class)"
        raise ValueError(f"{where}: {len(label)} columns are no {task_type} label; take task_type: {way_out}")


def columns_of(label: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the label's columns."""
    return (label,) if isinstance(label, str) else label
