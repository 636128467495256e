"""Options of one table of a database: where it lies, its keys and times, what its columns are."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field

from configs.base import StrTuple
from configs.matching import did_you_mean
from tasks.ingest.tables.policies import Column, check_time_format
from tasks.ingest.tables.table_configs import FilesConfig

PLAIN_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Kind = Literal["number", "category", "time", "text", "ignore"]
_KINDS = get_args(Kind)


def filled_from(value: dict[str, Any], name: str, tables: dict[str, Any]) -> dict[str, Any]:
    """Return a table's options with those that `values_of` stands for. Raises ValueError."""
    given = value.get("values_of")
    if not isinstance(given, str):
        return value
    where = f"tables.{name}.values_of"
    table, _, column = given.partition(".")
    source = tables.get(table)
    if not column or not isinstance(source, dict) or "files" not in source:
        near = did_you_mean(table, [one for one in tables if one != name])
        raise ValueError(f"{where}: write TABLE.COLUMN of a table with files, not {given}{near}")
    foreign = source.get("foreign")
    if not isinstance(foreign, dict) or foreign.get(column) != name:
        way_out = f"tables.{table}.foreign: {{{column}: {name}}}"
        raise ValueError(f"{where}: say that {table}.{column} names these rows: {way_out}")
    if value.get("key") == column and value.get("files") == source["files"]:
        return value  # a recipe that was read before
    more = sorted(value.keys() - {"values_of"})
    if more:
        raise ValueError(f"{where}: rows that are a column's values have nothing else; leave out {', '.join(more)}")
    filled = {"values_of": given, "files": source["files"], "format": source.get("format", "auto")}
    filled |= {"table": source.get("table") or table, "key": column, "on_duplicate_id": "first"}
    return filled | {option: source[option] for option in _OF_FILES if option in source}


_OF_FILES = ("delimiter", "header", "missing_values")
"""What of a table's options says how its files are read."""


def _check_kinds(value: Any) -> Any:
    for column, kind in value.items() if isinstance(value, dict) else ():
        if kind not in _KINDS:
            near = did_you_mean(str(kind), _KINDS)
            raise ValueError(f"column {column!r} is {kind!r}{near}; known: {', '.join(_KINDS)}")
    return value


def _check_forms(value: Any) -> Any:
    """Check the forms here: the message of pydantic would list what is wrong with both kinds of the option."""
    for form in value.values() if isinstance(value, dict) else [value]:
        if form is not None and not isinstance(form, str):
            raise ValueError(
                f'{form!r} is not how times are written; quote it, such as "%d.%m.%Y" or {{born: "%Y%m%d"}}'
            )
    return value


class DatabaseFilesConfig(FilesConfig):
    """Where a table of a database lies."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"files"})

    files: StrTuple = Field(min_length=1)
    """Paths, folders or patterns (`data/orders-*.parquet`), or one DuckDB file; all have the same columns. Compressed:
    .gz, .zst. Or a table that keeps its versions: `delta:PATH`, `delta:PATH@12`, `delta:PATH@2025-06-30`,
    `iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT`."""
    format: Literal["auto", "parquet", "csv", "tsv", "duckdb"] = "auto"  # type: ignore[assignment] # no edge lists
    """auto: by the name's ending."""
    table: str | None = None
    """Of a DuckDB file: the table's name in it; null: as it is called here."""
    time: Column | None = None
    """Column of when a row came to be known: a date, a time stamp or a whole number. Without one a row was always
    there."""
    time_format: Annotated[str | dict[str, str] | None, BeforeValidator(_check_forms)] = None
    """How times are written, as of Python's strptime: `"%d.%m.%Y"`, say (in quotes); of other columns than `time` too:
    `{ordered: "%d.%m.%Y", born: "%d/%m/%y"}`; null: ISO 8601."""
    epoch: Literal["seconds", "milliseconds"] | None = None
    """What whole numbers in the time column count since 1970; null: they have a unit of their own."""

    @property
    def names(self) -> str:
        """The files as the recipe names them, for messages; of a DuckDB file with the table."""
        in_file = [f"{name}/{self.table}" if self.table and name.endswith(".duckdb") else name for name in self.files]
        return ", ".join(in_file)

    @property
    def is_csv(self) -> bool:
        """Whether numbers may be read as texts."""
        return any(word in name for name in self.files for word in (".csv", ".tsv")) or self.format in ("csv", "tsv")

    def form_of(self, column: str) -> str | None:
        """Return how a column of times is written; None: ISO 8601."""
        if isinstance(self.time_format, dict):
            return self.time_format.get(column)
        return self.time_format if column == self.time else None

    @property
    def dated_columns(self) -> tuple[str, ...]:
        """Columns besides `time` that `time_format` names, and so are times."""
        forms = self.time_format if isinstance(self.time_format, dict) else {}
        return tuple(column for column in forms if column != self.time)

    def _check_time(self, where: str) -> None:
        forms = self.time_format
        for column, form in forms.items() if isinstance(forms, dict) else [(self.time, forms)]:
            check_time_format(where, column, form)
        if self.epoch and not self.time:
            raise ValueError(f"{where}: epoch without a column `time`")
        if self.epoch and self.time and self.form_of(self.time):
            raise ValueError(f"{where}: epoch is for whole numbers, time_format for texts; leave one out")


class DatabaseTableConfig(DatabaseFilesConfig):
    """One table: its rows are nodes, its foreign keys edges."""

    values_of: str | None = None
    """TABLE.COLUMN: there is no table of these rows, and they are the different values of another one's foreign key;
    files and key are left out."""
    key: Column | None = None
    """Column of the row's own key, which other tables' foreign keys name; null: none does."""
    foreign: dict[str, str] = Field(default={})
    """Foreign keys: column to the table whose key it holds. An empty cell names nothing."""
    columns: Annotated[dict[str, Kind], BeforeValidator(_check_kinds)] = Field(default={})
    """What columns are: number, category, time, text (of which preprocess.texts makes numbers), or ignore. Of the
    others it is found from the data: numbers, lists of numbers, dates, and as categories texts and whole numbers of few
    different values."""
    link: bool | None = None
    """Whether a row is an edge between what its two foreign keys name, instead of a node with two edges; null: where
    the table has no key and exactly two foreign keys."""
    on_unknown_id: Literal["error", "drop", "count"] = "error"
    """A foreign key that names no row: refused; drop: the row is left out; count: the row stays without that edge.
    Both are counted and told."""
    on_duplicate_id: Literal["error", "first", "last"] = "error"
    """A row whose key another row has: refused, or the first or last row of a key is taken."""
    on_missing_time: Literal["error", "drop", "always"] = "error"
    """A row whose time is empty: refused, left out, or taken to have always been there."""

    @property
    def texts(self) -> tuple[str, ...]:
        """Columns of texts."""
        return tuple(column for column, kind in self.columns.items() if kind == "text")

    @property
    def is_link(self) -> bool:
        """Whether its rows are edges."""
        return self.key is None and len(self.foreign) == 2 if self.link is None else self.link

    def check(self, name: str) -> None:
        """Refuse columns that mean two things. Raises ValueError naming the table."""
        where = f"tables.{name}"
        self._check_time(where)
        named: dict[str, str] = {}
        roles = [("key", self.key), ("time", self.time), *(("foreign key", column) for column in self.foreign)]
        for role, column in roles:
            if column is None:
                continue
            if column in named:
                raise ValueError(f"{where}: column {column!r} is named as {named[column]} and as {role}")
            named[column] = role
        for column in self.dated_columns:
            kind = named.get(column) or self.columns.get(column, "time")
            if kind not in ("time", "ignore"):
                raise ValueError(f"{where}: time_format names column {column!r}, which is {kind} and no time")
        for column in self.columns:
            if column in named and named[column] != "time":
                raise ValueError(
                    f"{where}: column {column!r} is {named[column]}, and no feature too; leave it out of columns"
                )
        if self.link and (self.key is not None or len(self.foreign) != 2):
            raise ValueError(f"{where}: link: true is for a table without a key and with two foreign keys")
        if self.on_missing_time != "error" and self.time is None:
            raise ValueError(f"{where}: on_missing_time without a column `time`")
        if self.on_duplicate_id != "error" and self.key is None:
            raise ValueError(f"{where}: on_duplicate_id without a column `key`")
