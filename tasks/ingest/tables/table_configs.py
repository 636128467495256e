"""Options of users' single tables: of nodes, of edges, of labels."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from configs.base import ConfigModel, StrTuple
from configs.values.versioned_tables import check_files
from tasks.ingest.tables.policies import (
    Column,
    Columns,
    Header,
    Missing,
    MissingOption,
    Texts,
    check_columns,
    check_time_format,
    missing_by_column,
    refuse_repeated,
)

_WORD = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


class FilesConfig(ConfigModel):
    """Where a table lies."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files"})  # what the files hold is the source's fingerprint

    files: StrTuple = ()
    """Paths, folders or patterns (`data/edges-*.csv.gz`); all have the same columns. Compressed: .gz, .zst. Keys in
    names of folders (`year=2024/`) are columns. In numbers, yes, true and t are 1, no, false and f are 0. Or a table
    that keeps its versions: `delta:PATH`, `delta:PATH@12`, `delta:PATH@2025-06-30`,
    `iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT`."""
    format: Literal["auto", "parquet", "csv", "tsv", "edgelist"] = "auto"
    """auto: by the name's ending. edgelist: numbers (or texts) separated by blanks, # or % comments, columns `0`, `1`,
    ..."""
    header: Header = True
    """Whether a CSV or TSV begins with the columns' names; without, columns are `0`, `1`, ... auto: by whether
    its first line looks like the lines below."""
    delimiter: str | None = Field(default=None, min_length=1, max_length=1)
    """Another separator than the format's own."""
    missing_values: Texts = ("",)
    """Texts that stand for an empty cell, in all formats: `["", NA]`, say. In columns of numbers NaN does too, and so
    does a number that such a text writes (`"-999"`)."""

    @field_validator("files")
    @classmethod
    def _versioned_tables(cls, files: tuple[str, ...]) -> tuple[str, ...]:
        check_files(files)
        return files

    @property
    def names(self) -> str:
        """The files as the recipe names them, for messages."""
        return ", ".join(self.files)


class NodeTableConfig(FilesConfig):
    """Nodes of one type, a row a node. Without files they are found in the edges."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files", "feature_file"})

    type: str = Field(default="node", pattern=_WORD)
    """Name of the node type."""
    id: Column | None = "id"
    """Column of the node's own id, a whole number or a text; null: the row's number from 0."""
    count: int | None = Field(default=None, ge=1, le=10**10)
    """Without files: ids are 0..count-1 already, isolated nodes included."""
    features: Columns = ()
    """Columns of numbers, or of lists of numbers of one length."""
    categorical: Columns = ()
    """Columns of categories: texts or whole numbers; an empty cell is a category of its own."""
    texts: Columns = ()
    """Columns of texts, of which preprocess.texts makes numbers; an empty cell is the empty text, all zeros."""
    feature_file: str | None = None
    """A `.npy` matrix with a row for each row of the table, in its order."""
    label: Columns = ()
    """Column of the label; several for multilabel and regression. Empty: not labelled; of classes that are numbers from
    0, -1 too."""
    graph: Column | None = None
    """Graph tasks: column of the id of the graph that the node is in."""
    time: Column | None = None
    """Column of a whole number, a date or a time stamp (kept as seconds)."""
    time_format: str | None = None
    """How the times are written, as of Python's strptime: `"%d.%m.%Y"`, say (in quotes); null: ISO 8601
    (2023-12-31, with a time and an offset if there is one; without an offset it is UTC)."""
    missing: MissingOption = "error"
    """Empty cells of features: error; mean (of the training rows) or zero, with a column NAME_missing of 0 and 1 as a
    further feature. One word for all columns of numbers, or a word for a column: `{age: mean, country: error}`;
    category is what columns of categories have."""
    on_duplicate_id: Literal["error", "first", "last"] = "error"
    """A row whose id another row has: refused, or the first or last row of an id is taken."""

    @property
    def missing_by_column(self) -> dict[str, Missing]:
        """What becomes of each feature's empty cells."""
        return missing_by_column(self.missing, self.features, self.categorical)

    @model_validator(mode="after")
    def _columns_have_one_meaning(self) -> NodeTableConfig:
        where = f"nodes of type {self.type}"
        refuse_repeated(where, (*self.features, *self.categorical, *self.texts))
        check_columns(
            where,
            {"id": self.id if self.files else None, "time": self.time, "graph": self.graph},
            self.label,
            self.missing_by_column | dict.fromkeys(self.texts, "error"),
        )
        if self.on_duplicate_id != "error" and (self.feature_file or self.id is None):
            raise ValueError(f"{where}: on_duplicate_id needs a column `id`, and does not go with feature_file")
        check_time_format(where, self.time, self.time_format)
        if not self.files and (self.features or self.categorical or self.texts or self.label or self.time):
            raise ValueError(f"{where}: columns are named, but no files")
        if not self.files and self.feature_file and self.count is None:
            raise ValueError(f"{where}: feature_file without files needs count")
        if self.files and self.count is not None:
            raise ValueError(f"{where}: count is for nodes without files; the files' rows count")
        return self


class EdgeTableConfig(FilesConfig):
    """Edges, a row an edge."""

    files: StrTuple = Field(min_length=1)
    """Paths, folders or patterns (`data/edges-*.csv.gz`); all have the same columns. Compressed: .gz, .zst."""
    source: Column = "src"
    """Column of the source's id, by name, or by its place from 0 (an edge list's have no other names)."""
    target: Column = "dst"
    """Column of the target's id, likewise."""
    source_type: str = Field(default="node", pattern=_WORD)
    """Node type of the sources."""
    target_type: str = Field(default="node", pattern=_WORD)
    """Node type of the targets."""
    relation: str = Field(default="to", pattern=_WORD)
    """Name of the relation."""
    relation_column: Column | None = None
    """Column that names each edge's relation, instead of one for all."""
    graph: Column | None = None
    """Graph tasks: column of the graph's id, where ids of nodes begin anew in each graph; null: an id is one node's."""
    weight: Column | None = None
    """Column of weights."""
    time: Column | None = None
    """Column of a whole number, a date or a time stamp (kept as seconds)."""
    features: Columns = ()
    """Columns of numbers, or of lists of numbers of one length."""
    categorical: Columns = ()
    """Columns of categories."""
    texts: Columns = ()
    """Columns of texts; see nodes."""
    label: Columns = ()
    """Edge tasks: column of the label; several for multilabel and regression. Edges whose cell is empty have none."""
    id: Column | None = None
    """Edge tasks: column of the edge's own id, which predictions name it by; null: its ends and its row from 0."""
    time_format: str | None = None
    """How the times are written; see nodes."""
    missing: MissingOption = "error"
    """Empty cells of features: error or zero, with a column NAME_missing; see nodes."""
    on_unknown_id: Literal["error", "drop", "add"] = "error"
    """An end that is not in its table of nodes: refused, or the edge is left out, or the node added to those of the
    table, without a label and with empty cells."""

    @property
    def missing_by_column(self) -> dict[str, Missing]:
        """What becomes of each feature's empty cells."""
        return missing_by_column(self.missing, self.features, self.categorical)

    @model_validator(mode="after")
    def _columns_have_one_meaning(self) -> EdgeTableConfig:
        where = f"edges {self.relation}"
        refuse_repeated(where, (*self.features, *self.categorical, *self.texts))
        if "mean" in self.missing_by_column.values():
            raise ValueError(f"{where}: missing: mean is for features of nodes; zero is for both")
        roles = {
            name: getattr(self, name)
            for name in ("source", "target", "relation_column", "graph", "weight", "time", "id")
        }
        policies = self.missing_by_column | dict.fromkeys(self.texts, "error")
        check_columns(where, roles, self.label, policies)
        check_time_format(where, self.time, self.time_format)
        return self


class LabelFilesConfig(FilesConfig):
    """Labels in a table of their own."""

    files: StrTuple = Field(min_length=1)
    """Paths, folders or patterns. Compressed: .gz, .zst."""
    form: Literal["nodes", "pairs", "groups"] = "nodes"
    """What a row is. nodes: a node and its label. pairs: a node and one of the labels that it has. groups: a label, a
    line of text with the ids of the nodes that have it, between blanks or `delimiter`; its name is the line's number
    from 0. Of pairs and groups (multilabel) a node that has some labels has not the others, and one without any row is
    not labelled."""
    id: Column = "id"
    """Column of the node's id (nodes, pairs)."""
    label: Columns = ("label",)
    """Column of the label (nodes, pairs); of nodes several for multilabel and regression."""
    on_unknown_id: Literal["error", "drop"] = "error"
    """A node that is not in the graph: refused, or what is said of it is left out."""
    min_members: int = Field(default=1, ge=1)
    """Keep only labels that so many nodes have (pairs, groups)."""
    most: int | None = Field(default=None, ge=1)
    """Keep only so many labels, those that the most nodes have (pairs, groups); null: all."""

    @model_validator(mode="after")
    def _columns_have_one_meaning(self) -> LabelFilesConfig:
        check_columns("labels", {"id": self.id}, self.label, {})
        names = {"nodes": ("min_members", "most"), "pairs": (), "groups": ("id", "label", "header")}[self.form]
        for name in names:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"labels: form: {self.form} does not read {name}; leave it out")
        if self.form == "pairs" and len(self.label) != 1:
            raise ValueError(f"labels: form: pairs has one column of labels, not {len(self.label)}")
        if self.form == "groups" and self.format not in ("auto", "edgelist"):
            raise ValueError(f"labels: form: groups is lines of text, not format: {self.format}; leave format out")
        return self
