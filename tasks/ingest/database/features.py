"""Feature columns of a database's table: what each is taken as, and its values row by row, as `TABLE.COLUMN`.

Of nodes, numbers keep NaN where a cell is empty (preprocess puts the mean of older rows there) and categories are
hashes of their texts, which preprocess numbers by the older rows. Of edges, empty numbers are 0 and categories are
numbered here, by the older rows as well. Texts stay texts, for preprocess to encode.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array
from tasks.ingest.database.moments import DAY
from tasks.ingest.database.rows import Chunk, RowTimes, TableRows
from tasks.ingest.database.survey import EXPLICIT, Profile, Verdict, category_texts, judge
from tasks.ingest.graph_tables.features import FeatureReader
from tasks.ingest.ids.id_index import IdIndex, hash_ids
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import Intake
from tasks.ingest.tables.policies import Missing, mask_name
from tasks.ingest.writer import DatasetWriter
from tasks.storage.graph_store import ALWAYS
from tasks.storage.manifests import EDGE_CATEGORIES, FeatureColumn


@dataclass
class ChosenColumns:
    """What a table's columns are taken as."""

    numbers: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    """Those that are read as texts."""
    gaps: frozenset[str] = frozenset()
    """Those with empty cells."""
    ignored: dict[str, str] = field(default_factory=dict)
    """Column that the recipe does not name to why it is not read."""
    constant: tuple[str, ...] = ()
    """Those of one value that are read, for the recipe names them."""

    @property
    def all(self) -> tuple[str, ...]:
        """All that are read."""
        return (*self.numbers, *self.categories, *self.times, *self.texts)


def feature_candidates(table: TableRows) -> list[str]:
    """Return the columns that may be features. Raises DataError for a column that is named and not there."""
    config, names = table.config, table.column_names()
    if config.values_of is not None:  # whose rows are no more than a key
        return []
    place = f"dataset.tables.{table.name}"
    roles: dict[str, Iterable[str | None]] = {"key": [config.key], "time": [config.time]}
    roles |= {"foreign": config.foreign, "columns": config.columns, "time_format": config.dated_columns}
    for role, named in roles.items():
        for column in named:
            if column is not None and column not in names:
                raise DataError(
                    f"has no column {column!r}{did_you_mean(column, names)} ({place}.{role}); it has {listed(names)}",
                    path=config.names,
                )
    taken = {config.key, config.time, *config.foreign} - set(config.columns) | set(table.labels)
    return [name for name in names if name not in taken and config.columns.get(name) != "ignore"]


def choose_columns(
    table: TableRows, profiles: dict[str, Profile], max_categories: int, intake: Intake
) -> ChosenColumns:
    """Return what the columns are taken as; mistakes of those that the recipe names are gathered."""
    config = table.config
    chosen = ChosenColumns()
    kinds: dict[str, list[str]] = {"number": [], "category": [], "time": [], "text": []}
    for column, profile in profiles.items():
        named, timed = config.columns.get(column, "time" if column in config.dated_columns else None), bool(config.time)
        verdict = Verdict(named or "ignore")
        if named is None:
            verdict = judge(column, profile, is_csv=config.is_csv, max_categories=max_categories, has_own_time=timed)
        if named == "category":
            _refuse_many(table, column, profile, EXPLICIT * max_categories, intake)
        if named == "text" and profile.forms & {"list", "other"}:
            error = DataError("holds no texts, but lists or the like", path=config.names, column=column)
            intake.problems.add(config.names, column, "no text", error, 0)
        if verdict.kind == "ignore":
            form = profile.date_form if profile.forms == {"text"} else None
            way_out = f'; time_format: {{{column}: "{form}"}} reads them' if form else ""
            chosen.ignored[column] = verdict.why + way_out
        else:
            kinds["number" if verdict.kind == "list" else verdict.kind].append(column)
    chosen.numbers, chosen.categories, chosen.times, chosen.texts = (tuple(columns) for columns in kinds.values())
    chosen.constant = tuple(column for column in chosen.all if profiles[column].is_constant)
    chosen.gaps = frozenset(column for column in chosen.numbers if profiles[column].gaps)
    for column in (*chosen.gaps, *chosen.times):
        if mask_name(column) in chosen.all:
            error = DataError(
                f"the column {mask_name(column)!r} has the name of the one that says where {column!r} is empty; "
                f"rename it, or leave one of them out: dataset.tables.{table.name}.columns: {{{column}: ignore}}",
                path=config.names,
            )
            intake.problems.add(config.names, column, "two columns of one name", error, 0)
    return chosen


def _refuse_many(table: TableRows, column: str, profile: Profile, most: int, intake: Intake) -> None:
    count, place = profile.num_values, f"dataset.tables.{table.name}.columns"
    if "decimal" in profile.forms:
        words = f"holds decimal numbers; categories are texts or whole numbers: store them so, or take {place} = number"
    elif count is None or count > most:
        said = f"{count:,}" if count is not None else f"more than {profile.most:,}"
        words = (
            f"has {said} different values, and a column of categories may have {most:,} ({EXPLICIT} times "
            "dataset.max_categories); raise that, cut them down to fewer, or make a table of them, with a foreign key: "
            f"its rows are nodes; {place}: {{{column}: ignore}} leaves the column out"
        )
    else:
        return
    error = DataError(words, path=table.config.names, column=column)
    intake.problems.add(table.config.names, column, "no category", error, 0)


class TableFeatures:
    """Reads the feature columns of one table."""

    def __init__(self, table: TableRows, columns: ChosenColumns, *, fit_before: int, per_day: bool) -> None:
        """`fit_before`: what is fitted here is fitted on rows older than this; `per_day`: times are seconds."""
        self.table, self.columns, self.fit_before = table, columns, fit_before
        self._unit = DAY if per_day else 1
        missing: Missing = "zero" if table.config.is_link else "mean"
        policies: dict[str, Missing] = {name: missing if name in columns.gaps else "error" for name in columns.numbers}
        self.reader = FeatureReader(columns.numbers, (), policies, columns.texts)
        self._times = {name: RowTimes(name, table.config.form_of(name)) for name in columns.times}
        self._codes = {name: IdIndex() for name in columns.categories}
        self.num_later = dict.fromkeys(columns.times, 0)
        """Cells of times that are later than their row."""

    def chunks(self, tables: Mapping[str, TableRows], keys: Sequence[str]) -> Iterator[Chunk]:
        """Yield the table's rows with these columns and foreign keys."""
        columns, table = self.columns, self.table
        self.reader.look_ahead(table.config, table.intake)  # lists whose first cells are empty
        texts = (*columns.categories, *columns.texts, *table.texts_of_keys(tables, keys))
        return table.chunks((*columns.all, *keys), texts, columns.numbers, columns.times)

    def learn_categories(self, batch: TableBatch, times: Array | None) -> None:
        """Of edges: add the categories of rows older than `fit_before` to those that have a number."""
        old = np.ones(batch.num_rows, np.bool_) if times is None else times < self.fit_before
        for column, index in self._codes.items():
            index.add(category_texts(batch.column(column).filter(pa.array(old))))

    def settle_categories(self, writer: DatasetWriter) -> None:
        """Of edges: number the categories in ascending order, and write what their codes mean."""
        for column, index in self._codes.items():
            if index.count:
                index.sort()
                codes = np.arange(index.count, dtype=np.int64)
                writer.write(f"{EDGE_CATEGORIES}/{self._stored(column)}", {"code": codes, "name": index.keys()})

    def read(self, chunk: Chunk) -> dict[str, Array]:
        """Return the columns by their stored names: float32 (n,) or (n, width), of categories int, of texts Arrow's."""
        way_out = f"; dataset.tables.{self.table.name}.columns: " + "{{column}: ignore} leaves the column out"
        batch = replace(chunk.batch, way_out=way_out)
        out = {self._stored(name): values for name, values in self.reader.read(batch).items()}
        for column, clock in self._times.items():
            out |= self._days(batch, column, clock, chunk.time)
        for column, index in self._codes.items():
            if self.table.config.is_link:
                codes = index.find(category_texts(batch.column(column))) if index.count else np.full(batch.num_rows, -1)
                out[self._stored(column)] = np.where(codes < 0, index.count, codes).astype(np.int32)
            else:
                # The same text has the same number in any data, whatever other texts there are.
                out[self._stored(column)] = hash_ids(category_texts(batch.column(column))).view(np.int64)
        return out

    def _stored(self, column: str) -> str:
        return f"{self.table.name}.{column}"

    def _days(self, batch: TableBatch, column: str, clock: RowTimes, own_time: Array | None) -> dict[str, Array]:
        """Return by how much a time was before the row's own, in days or the times' unit.

        NaN (of edges 0) where it is empty, or later: then nobody knew it when the row came. Of rows without a time of
        their own, by how much it was before `fit_before`.
        """
        times, missing = clock.read_rows(batch, gaps=True)
        row_time = np.full(len(times), self.fit_before) if own_time is None else own_time
        later = ~missing & (times > row_time) & (own_time is not None)
        self.num_later[column] += int(np.count_nonzero(later))
        empty = missing | later | (row_time == ALWAYS)
        values = np.where(empty, 0, (row_time - times) / self._unit).astype(np.float32)
        if not self.table.config.is_link:
            values[empty] = np.nan
        return {self._stored(column): values, self._stored(mask_name(column)): empty.astype(np.float32)}

    def describe(self) -> tuple[FeatureColumn, ...]:
        """Return the manifest's entries; call it when all rows have passed."""
        is_link, described = self.table.config.is_link, [*self.reader.describe()]
        for column in self.columns.times:
            described.append(FeatureColumn(column=column, kind="numeric", dim=1, gaps=not is_link))
            described.append(FeatureColumn(column=mask_name(column), kind="numeric", dim=1))
        for column, index in self._codes.items():
            codes = (index.count + 1,) if is_link else ()
            described.append(FeatureColumn(column=column, kind="categorical", dim=1, cardinalities=codes))
        return tuple(one.model_copy(update={"column": self._stored(one.column)}) for one in described)
