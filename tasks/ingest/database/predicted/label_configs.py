"""Options of labels that stand in a column, of the predicted table itself or of one beside it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, PlainValidator, ValidationError, WithJsonSchema, model_validator

from configs.base import ConfigModel
from configs.metric_names import MetricName
from tasks.ingest.database.table_configs import PLAIN_NAME

MOST_CLASSES = 1_000_000
LabelType = Literal["binary", "multiclass", "multilabel", "regression"]


def _as_columns(value: Any) -> Any:
    """A text is one column, commas and all; a list is of several."""
    if isinstance(value, list | tuple):
        if not value or any(not isinstance(one, str) or not one for one in value):
            raise ValueError(f"{value!r} are no names of columns")
        if len(set(value)) < len(value):
            raise ValueError(f"a column stands twice: {', '.join(value)}")
        return tuple(value)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name of a column")
    return value


_SCHEMA = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
if TYPE_CHECKING:
    LabelColumns: TypeAlias = str | tuple[str, ...]
else:  # pydantic would name all the forms that a mistake is none of
    LabelColumns = Annotated[Any, PlainValidator(_as_columns), WithJsonSchema(_SCHEMA)]


class TaskOptions(ConfigModel):
    """What one of several tasks has."""

    metric: MetricName | None = None
    """What it is judged by: rocauc, rmse, ...; null: the usual one of its kind. The first task judges the model."""
    weight: float = Field(default=1.0, gt=0, le=1e6)
    """Of its mean loss in the sum of all tasks'."""


class LabelConfig(ConfigModel):
    """A label: a column, or several of one kind, or several labels by name."""

    label: LabelColumns
    """Column of the label; several, or a column of lists, of `multilabel` and `regression`: an empty cell is not
    known."""
    task_type: LabelType = "binary"
    """Kind of label: binary is 0 or 1, or no and yes; multilabel several of these; classes are whole numbers from 0."""
    num_classes: int | None = Field(default=None, ge=2, le=MOST_CLASSES)
    """How many classes a multiclass label has; null: as many as the largest says."""


class NamedLabelConfig(TaskOptions, LabelConfig):
    """The label of one of several tasks."""

    @model_validator(mode="after")
    def _fits(self) -> NamedLabelConfig:
        check_label("label", self.label, self.task_type, self.num_classes)
        return self


LabelsGiven: TypeAlias = "str | tuple[str, ...] | Mapping[str, NamedLabelConfig]"


def _as_labels(value: Any) -> Any:
    if not isinstance(value, dict):
        return _as_columns(value)
    check_names("label", value)
    try:
        return {name: NamedLabelConfig.model_validate(one) for name, one in value.items()}
    except ValidationError as error:
        said = error.errors(include_url=False, include_input=False)
        words = [f"{'.'.join(map(str, one['loc']))}: {one['msg'].removeprefix('Value error, ')}" for one in said]
        raise ValueError("; ".join(word.removeprefix(": ") for word in words)) from None


_LABELS_SCHEMA = {"anyOf": [*_SCHEMA["anyOf"], {"type": "object"}]}
if TYPE_CHECKING:
    Labels: TypeAlias = str | tuple[str, ...] | dict[str, NamedLabelConfig]
else:
    Labels = Annotated[Any, PlainValidator(_as_labels), WithJsonSchema(_LABELS_SCHEMA)]


def check_names(where: str, tasks: Mapping[str, Any]) -> None:
    """Refuse names of tasks that are none. Raises ValueError."""
    if not tasks:
        raise ValueError(f"{where}: name at least one task: {{NAME: ...}}")
    for name in tasks:
        if not isinstance(name, str) or not re.fullmatch(PLAIN_NAME, name):
            raise ValueError(f"{where}: {name!r} is no plain name of a task; use letters, digits, _ and -")


def check_label(where: str, label: LabelsGiven, task_type: str, num_classes: int | None) -> None:
    """Refuse options of a label that do not go together. Raises ValueError."""
    if isinstance(label, Mapping):
        if task_type != "binary" or num_classes is not None:
            raise ValueError(
                f"{where}: each label has a task_type and num_classes of its own: {{NAME: {{label: ...}}}}"
            )
        return
    if num_classes is not None and task_type != "multiclass":
        raise ValueError(f"{where}: num_classes goes with multiclass labels, not {task_type}")
    if isinstance(label, tuple) and len(label) > 1 and task_type in ("binary", "multiclass"):
        way_out = "multilabel" if task_type == "binary" else "multilabel (a column of 0 and 1 for each class)"
        raise ValueError(f"{where}: {len(label)} columns are no {task_type} label; take task_type: {way_out}")


def columns_of(label: LabelsGiven) -> tuple[str, ...]:
    """Return the label's columns, or those of all labels."""
    if isinstance(label, Mapping):
        return tuple(dict.fromkeys(column for one in label.values() for column in columns_of(one.label)))
    return (label,) if isinstance(label, str) else label
