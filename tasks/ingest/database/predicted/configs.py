"""Options of what is predicted of a database: of which rows, at which moments, and from where labels come."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema, model_validator

from configs.base import ConfigModel
from configs.metric_names import MetricName, ranking_metric
from configs.moments import normalise_as_of
from tasks.ingest.database.moments import normalise_length
from tasks.ingest.database.table_configs import PLAIN_NAME, DatabaseFilesConfig
from tasks.ingest.tables.policies import Column

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


# All is checked before: pydantic would name all the forms that a mistake is none of.
LabelColumns = Annotated[str | tuple[str, ...], BeforeValidator(_as_columns)]


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


Labels = Annotated[str | tuple[str, ...] | dict[str, NamedLabelConfig], BeforeValidator(_as_labels)]


def check_names(where: str, tasks: Mapping[str, Any]) -> None:
    """Refuse names of tasks that are none. Raises ValueError."""
    if not tasks:
        raise ValueError(f"{where}: name at least one task: {{NAME: ...}}")
    for name in tasks:
        if not isinstance(name, str) or not re.fullmatch(PLAIN_NAME, name):
            raise ValueError(f"{where}: {name!r} is no plain name of a task; use letters, digits, _ and -")


def check_label(where: str, label: Labels, task_type: str, num_classes: int | None) -> None:
    """Refuse options of a label that do not go together. Raises ValueError."""
    if isinstance(label, dict):
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


def columns_of(label: Labels) -> tuple[str, ...]:
    """Return the label's columns, or those of all labels."""
    if isinstance(label, dict):
        return tuple(dict.fromkeys(column for one in label.values() for column in columns_of(one.label)))
    return (label,) if isinstance(label, str) else label


_TEXT_OR_NUMBER = {"type": ["string", "integer"]}
Moment = Annotated[str, BeforeValidator(normalise_as_of), WithJsonSchema(_TEXT_OR_NUMBER)]
Length = Annotated[str, BeforeValidator(normalise_length), WithJsonSchema(_TEXT_OR_NUMBER)]


_FIGURES = ("none", "any", "count", "sum", "mean", "links", "together")


class TargetConfig(ConfigModel):
    """What is predicted of an entity: a figure of the rows that name it, from the moment on, within the horizon."""

    none: str | None = None
    """TABLE: whether no row of it names the entity (churn)."""
    any: str | None = None
    """TABLE: whether some row does."""
    count: str | None = None
    """TABLE: how many rows do."""
    sum: str | None = None
    """TABLE.COLUMN: the sum of a column of numbers over them, 0 of none."""
    mean: str | None = None
    """TABLE.COLUMN: its mean; entities without such rows are not predicted."""
    links: str | None = None
    """TABLE.COLUMN: which rows of another table its rows link the entity to, by this foreign key: they are recommended.
    An entity without any is not predicted."""
    together: str | None = None
    """TABLE.COLUMN: which rows of the predicted table go with one another: its rows name them by this foreign key, and
    have `by` in common."""
    by: str | None = None
    """With `together`: what its rows have in common then, a foreign key of theirs (order_id), or a path of them
    (order_id.customer_id)."""

    @property
    def _given(self) -> list[str]:
        return [name for name in _FIGURES if getattr(self, name) is not None]

    @property
    def figure(self) -> str:
        """Which of them it is."""
        return self._given[0]

    @property
    def is_ranked(self) -> bool:
        """Whether rows are recommended."""
        return self.links is not None or self.together is not None

    @property
    def table(self) -> str:
        """The table whose rows count."""
        return str(getattr(self, self.figure)).partition(".")[0]

    @property
    def column(self) -> str | None:
        """Its column of numbers."""
        return str(getattr(self, self.figure)).partition(".")[2] or None

    @model_validator(mode="after")
    def _one(self) -> TargetConfig:
        if len(self._given) != 1:
            raise ValueError(f"one of {', '.join(_FIGURES)} says what is predicted, not {len(self._given)} of them")
        if (self.by is None) != (self.together is None):
            raise ValueError(
                "together and by go together: {together: items.product_id, by: order_id} recommends products of one "
                "order"
            )
        counts_rows = self.figure in ("none", "any", "count")
        if counts_rows != (self.column is None):
            why = "rows are counted, of a table" if counts_rows else f"{self.table} names no column"
            form = self.table if counts_rows else f"{self.table}.COLUMN"
            raise ValueError(f"{self.figure}: {why}; write {self.figure}: {form}")
        return self


class NamedTargetConfig(TaskOptions, TargetConfig):
    """What one of several tasks predicts."""

    via: str | None = None
    """Foreign key by which its rows name the entity, where they have several to its table."""

    @model_validator(mode="after")
    def _is_a_figure(self) -> NamedTargetConfig:
        if self.is_ranked:
            raise ValueError(f"{self.figure} is a target by itself; several tasks are of none, any, count, sum, mean")
        return self


class ActiveConfig(ConfigModel):
    """Which entities are predicted at a moment."""

    any: str
    """TABLE: those that a row of it names, by any of its foreign keys (by `via`, where the target is of it too) ..."""
    within: Length
    """... so long before the moment: 180d, say."""


class LabelTableConfig(DatabaseFilesConfig, LabelConfig):
    """Labels in a table of their own: a row says of an entity what is true from a moment on."""

    key: Column
    """Column of the entity's key."""
    label: Labels  # type: ignore[assignment] # also several tasks
    """Column of the label, several of one kind (a list), or several tasks by name: `{churned: {label: churned}, spent:
    {label: spent, task_type: regression}}`."""
    on_unknown_id: Literal["error", "drop"] = "error"
    """An entity that is not in its table, or younger than its label's moment: refused, or the label left out."""
    on_missing_label: Literal["error", "predict"] = "error"
    """An empty label: refused; predict: nothing is known yet, and the row is in no split, for `graphmill predict`."""

    @model_validator(mode="after")
    def _has_a_time(self) -> LabelTableConfig:
        self._check_time("labels")
        if self.time is None:
            raise ValueError("labels: `time` names the column of the moment from which on a label is true")
        if self.dated_columns:
            raise ValueError(f"labels: time_format names {self.dated_columns[0]!r}, and the time is {self.time!r}")
        check_label("labels", self.label, self.task_type, self.num_classes)
        return self


NEWEST = "newest"
MomentOrNewest = Annotated[
    str,
    BeforeValidator(lambda value: NEWEST if value == NEWEST else normalise_as_of(value)),
    WithJsonSchema(_TEXT_OR_NUMBER),
]


class MomentsConfig(ConfigModel):
    """Moments at which entities are predicted; rows from the moment on are never read."""

    moments: tuple[Moment, ...] = ()
    """Each by itself; or first, last and every."""
    first: Moment | None = None
    """The first one."""
    last: MomentOrNewest | None = None
    """The last one, or where `every` does not meet it the one before; newest: the last one whose horizon is over by the
    end of the data, so that moments come as the data grows."""
    every: Length | None = None
    """From one to the next: 90d, say."""

    @model_validator(mode="after")
    def _one_form(self) -> MomentsConfig:
        spaced = (self.first, self.last, self.every)
        if bool(self.moments) == any(value is not None for value in spaced) or (not self.moments and None in spaced):
            raise ValueError("give a list of moments, or first, last and every: {first: 2023-01-01, last: ...}")
        if len(set(self.moments)) < len(self.moments):
            raise ValueError("a moment stands twice")
        return self


def _as_moments(value: Any) -> Any:
    if value is None or isinstance(value, dict | ConfigModel):
        return value
    return {"moments": list(value) if isinstance(value, list | tuple) else [value]}


def _share_or_moment(value: Any) -> Any:
    if not isinstance(value, float):
        return normalise_as_of(value)
    if not 0 < value < 1:
        raise ValueError(f"{value:g} is neither a share between 0 and 1 nor a moment")
    return value


_SHARE_OR_MOMENT = {"type": ["number", "string"]}
ShareOrMoment = Annotated[float | str, BeforeValidator(_share_or_moment), WithJsonSchema(_SHARE_OR_MOMENT)]


class TaskSplitConfig(ConfigModel):
    """Which rows validate and test: moments where that begins, or shares of the rows, the newest ones."""

    valid: ShareOrMoment
    """Moments from here on validate; or the share of the rows that does, 0.1 say ..."""
    test: ShareOrMoment
    """... and from here on test, or the share that does; earlier ones train."""

    @model_validator(mode="after")
    def _alike(self) -> TaskSplitConfig:
        shares = [value for value in (self.valid, self.test) if isinstance(value, float)]
        if len(shares) == 1:
            raise ValueError("give two moments where validation and test begin, or two shares, not one of each")
        if sum(shares) >= 1:
            raise ValueError(f"the shares {self.valid:g} and {self.test:g} leave no row to train on")
        return self


class PredictConfig(ConfigModel):
    """What is predicted, of which rows, and when."""

    table: str
    """Table of the entities."""
    target: TargetConfig | None = None
    """What is predicted, computed from the tables: `{none: orders}`, `{sum: orders.amount}`, ..."""
    targets: dict[str, NamedTargetConfig] | None = None
    """Or several by name, which share a model: `{churn: {none: orders}, spend: {sum: orders.amount}}`; the first one
    judges it."""
    labels: LabelTableConfig | None = None
    """Or a table of labels."""
    label: Labels | None = None
    """Or a column of the table itself (several: a list; several tasks by name, as in `labels`): each row is predicted,
    as of its own time. The column is no feature."""
    task_type: LabelType = "binary"
    """Of `label`: its kind; binary is 0 or 1, multilabel several of these, classes are whole numbers from 0."""
    num_classes: int | None = Field(default=None, ge=2, le=1_000_000)
    """Of `label`: how many classes a multiclass one has; null: as many as the largest says."""
    on_missing_label: Literal["error", "predict"] = "error"
    """Of `label`: an empty one is refused; predict: such rows are in no split, for `graphmill predict`."""
    via: str | None = None
    """Foreign key by which the target's rows name the entity, where they have several to its table; of links a path of
    them, where there are several: order_id.customer_id."""
    new_only: bool = False
    """Of links: recommend only what the entity was not linked to before."""
    at: Annotated[MomentsConfig | None, BeforeValidator(_as_moments)] = None
    """Moments: a list of dates, or `{first: 2023-01-01, last: 2024-03-31, every: 90d}`; days begin at midnight UTC."""
    horizon: Length | None = None
    """How far from a moment the target looks: 90d, say. It ends before moment + horizon. Of labels: how long it takes
    until one is known."""
    unlabelled: tuple[MomentOrNewest, ...] = ()
    """Moments of which nothing is known yet: their rows are in no split, and `graphmill predict` predicts them. newest:
    the end of the data (see `data_end`)."""
    active: ActiveConfig | None = None
    """Which entities count at a moment: `{any: orders, within: 180d}`; null: all that are there."""
    split: TaskSplitConfig | None = None
    """Where validation and test begin, or shares of the rows; null: the last moment tests, the last one before it
    whose horizon ends by then validates, and those train whose horizon ends by then; of `label` a tenth each."""
    data_end: Moment | None = None
    """Moment until which the target's table is complete; null: the day of its newest row, to its end."""
    name: str = Field(default="task", pattern=PLAIN_NAME)
    """Name of the node type of what is predicted, an entity at a moment each."""
    metric: MetricName | None = None
    """accuracy, rocauc, ap, rmse, mae, r2 or f1; null: rocauc, rmse or accuracy, by kind of label. Of links map@K,
    ndcg@K, recall@K, precision@K, hits@K or mrr; null: map@10."""

    @property
    def has_several(self) -> bool:
        """Whether there are several tasks by name."""
        label = self.label if self.labels is None else self.labels.label
        return self.targets is not None or isinstance(label, dict)

    @property
    def computed(self) -> dict[str, TargetConfig]:
        """The targets that are computed from the tables, by name; of one the name is empty."""
        return dict(self.targets or {}) if self.target is None else {"": self.target}

    @property
    def own_rows(self) -> bool:
        """Whether what is predicted is the table's rows, by a column of theirs."""
        return self.label is not None

    @model_validator(mode="after")
    def _one_source(self) -> PredictConfig:
        if self.targets is not None:
            check_names("targets", self.targets)
        if sum(source is not None for source in (self.target, self.targets, self.labels, self.label)) != 1:
            raise ValueError(
                "predict needs one of `target` (or several: `targets`), computed from the tables, `labels`, a table of "
                "labels, and `label`, a column of the table itself"
            )
        if self.metric is not None and self.has_several:
            raise ValueError("metric: each of several tasks has its own, and the first one judges; give it there")
        if self.via is not None and self.targets is not None:
            raise ValueError("via: each of several targets has its own; give it there")
        if self.label is None:
            for name in ("task_type", "num_classes", "on_missing_label"):
                if name in self.model_fields_set and getattr(self, name) != type(self).model_fields[name].default:
                    raise ValueError(f"{name} is for `label`{'; labels has its own' if self.labels else ''}")
        else:
            check_label("predict", self.label, self.task_type, self.num_classes)
            if self.name != "task":
                raise ValueError("name is for entities at moments; rows predicted by a column of theirs need none")
        if self.target is None and self.targets is None:
            for name in ("via", "at", "unlabelled", "active", "data_end"):
                if getattr(self, name):
                    raise ValueError(f"{name} is for a target computed from the tables; labels have rows of their own")
        elif self.at is None or self.horizon is None:
            raise ValueError(
                "a target needs `at`, its moments, and `horizon`, how far it looks: at: [...], horizon: 90d"
            )
        is_ranked = self.target is not None and self.target.is_ranked
        if self.target is not None and self.target.together is not None and self.via is not None:
            raise ValueError("via is for links; what rows are together by is predict.target.by")
        if self.new_only and (self.target is None or self.target.links is None):
            raise ValueError("new_only is for target: {links: TABLE.COLUMN}; leave it out")
        if self.metric is not None and is_ranked != (ranking_metric(self.metric) is not None) and self.metric != "mrr":
            fitting = "map@K, ndcg@K, recall@K, precision@K, hits@K or mrr" if is_ranked else "rocauc, rmse or such"
            raise ValueError(f"metric: {self.metric} does not measure this target; take {fitting}")
        return self
