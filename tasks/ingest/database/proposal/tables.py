"""Which tables some files and folders hold, and what stands in their columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError, RecipeError
from configs.source_files import is_folder, names_in, user_path
from tasks.ingest.database.rows import TableRows, without_decimals
from tasks.ingest.database.survey import Profile
from tasks.ingest.database.table_configs import DatabaseTableConfig
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.ids.node_set import occurred_earlier
from tasks.ingest.tables.intake import Intake, with_header_found
from tasks.ingest.tables.paths import has_keys
from tasks.readers.columns import is_text
from tasks.readers.duckdb_tables import duckdb_tables

_FORMATS = (".parquet", ".pq", ".csv", ".tsv")
_PACKED = (".gz", ".zst")
_DUCKDB = ".duckdb"
_NUMBERED = re.compile(r"[-_.](part[-_.]?)?\d[\d_-]*$")
_FEW, _SHARE = 10, 0.05
"""So many of a column's values, or such a share, may stand twice: called like a key, it is one with mistakes."""
_MOST_KEYS = 50_000_000
"""Rows of which a key is looked for: an index of them takes some 2 GB."""


@dataclass
class ColumnFacts:
    """What was seen in a column."""

    profile: Profile = field(default_factory=Profile)
    index: IdIndex | None = field(default_factory=IdIndex)
    """All values, as long as hardly any stands twice; None: many do, or some is none that a key could be."""
    repeated: list[Any] = field(default_factory=list)
    """Values that stood there before, as often as they did."""

    @property
    def is_unique(self) -> bool:
        """Whether all rows have a value, each another one."""
        return self.index is not None and not self.repeated and self.profile.empty == 0 and self.index.count > 0

    @property
    def may_name_rows(self) -> bool:
        """Whether a key or foreign key could look so: whole numbers or texts."""
        forms = self.profile.forms
        with_gaps = forms == {"decimal"} and self.profile.empty > 0 and self.all_whole  # 3.0 for 3
        return bool(forms) and (forms <= {"whole", "text", "numeric text", "date text"} or with_gaps)

    @property
    def has_dates_of_another_form(self) -> bool:
        """Whether its texts are dates, and no ISO 8601."""
        return self.profile.forms == {"text"} and self.profile.date_form is not None

    all_whole: bool = True


@dataclass
class TableFacts:
    """A table, and what was seen in it."""

    name: str
    config: DatabaseTableConfig
    columns: dict[str, ColumnFacts]
    num_rows: int


def find_tables(places: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the tables of files and folders: name to the files, folder or pattern that a recipe would name.

    Files of a folder that differ in a number at the end of their names (`orders-2023.csv`) are one table; so are the
    files of a folder within it. A DuckDB file has a table for each of its own.

    Raises RecipeError: there is no table. Raises DataError: a file that is not there.
    """
    tables: dict[str, tuple[str, ...]] = {}
    for place in places:
        path = user_path(place)
        if is_folder(path) and has_keys(path):
            _add(tables, {path.resolve().name: (place,)})
        elif is_folder(path):
            _add(tables, _tables_of_folder(path, place))
        elif path.suffix == _DUCKDB:
            _add(tables, dict.fromkeys(duckdb_tables(path), (place,)))
        else:
            _add(tables, {table_name(path.name): (place,)})
    if not tables:
        raise RecipeError(f"{', '.join(places)}: there is no table; known are {', '.join((*_FORMATS, _DUCKDB))}")
    return tables


def _add(tables: dict[str, tuple[str, ...]], more: dict[str, tuple[str, ...]]) -> None:
    for name, files in more.items():
        plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-") or "table"
        while plain in tables:
            plain += "_2"
        tables[plain] = files


def is_table(name: str) -> bool:
    """Whether a file's name says that it is a table."""
    suffixes = [suffix.lower() for suffix in Path(name).suffixes if suffix.lower() not in _PACKED]
    return bool(suffixes) and suffixes[-1] in (*_FORMATS, _DUCKDB)


def table_name(name: str) -> str:
    """Return a file's name without its endings."""
    stem = Path(name)
    while stem.suffix.lower() in (*_FORMATS, *_PACKED, _DUCKDB):
        stem = stem.with_suffix("")
    return stem.name


def _tables_of_folder(folder: Path, given: str) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    tables: dict[str, tuple[str, ...]] = {}
    for path in sorted(names_in(folder)):
        place = str(Path(given) / path.name)
        if path.name.startswith((".", "_")):
            continue
        if is_folder(path):
            if has_keys(path) or any(is_table(entry.name) for entry in names_in(path)):
                tables[path.name] = (place,)
        elif path.suffix == _DUCKDB:
            tables |= dict.fromkeys(duckdb_tables(path), (place,))
        elif is_table(path.name):
            groups.setdefault(_NUMBERED.sub("", table_name(path.name)) or table_name(path.name), []).append(place)
    alone = {table_name(Path(places[0]).name): tuple(places) for places in groups.values() if len(places) == 1}
    return tables | alone | {name: tuple(places) for name, places in groups.items() if len(places) > 1}


def read_tables(places: dict[str, tuple[str, ...]], intake: Intake) -> dict[str, TableFacts]:
    """Read all columns of all tables once. Raises DataError for a file that cannot be read."""
    tables: dict[str, TableFacts] = {}
    for name, files in places.items():
        config = DatabaseTableConfig(files=files, header="auto")
        config = with_header_found(config, name, intake).model_copy(update={"table": name})
        rows = TableRows(name, config, intake, text_ids=False)
        names = rows.column_names()
        columns = {column: ColumnFacts() for column in names}
        count = 0
        for whole in intake.batches(config, names, (), (), names):
            batch = without_decimals(whole)
            for column, facts in columns.items():
                facts.profile.add(batch, column)
                _look_for_key(facts, batch.column(column))
            count += batch.num_rows
        if count == 0:
            raise DataError("has no rows; give the other files without it", path=config.names)
        tables[name] = TableFacts(name, config, columns, count)
    return tables


def _look_for_key(facts: ColumnFacts, values: pa.Array) -> None:
    """Add values to the index of a column, until more than a few stand twice."""
    if pa.types.is_floating(values.type):
        there = values.filter(compute.invert(compute.is_null(values, nan_is_null=True)))
        facts.all_whole &= bool(compute.all(compute.equal(there, compute.floor(there))).as_py() in (True, None))
    if facts.index is None or pa.types.is_null(values.type):
        return
    index, facts.index = facts.index, None
    whole = pa.types.is_integer(values.type)
    is_key = (whole or is_text(values.type)) and index.is_text in (None, not whole) and not values.null_count
    if not is_key or len(_in_int64(values)) < len(values):
        return
    before = index.count
    codes = index.add(values.cast(pa.int64()) if whole else values)
    again = np.flatnonzero(occurred_earlier(codes, before)) if index.count - before < len(codes) else np.empty(0, int)
    few = len(facts.repeated) + len(again) <= min(index.count / 2, max(_FEW, _SHARE * index.count))
    if index.count <= _MOST_KEYS and (few or not len(again)):
        facts.index = index
        facts.repeated += values.take(pa.array(again)).to_pylist()


def _in_int64(values: pa.Array) -> pa.Array:
    """Return values without unsigned ones that no id can be."""
    is_wide = pa.types.is_uint64(values.type)
    return values.filter(compute.less_equal(values, np.uint64(np.iinfo(np.int64).max))) if is_wide else values


def share_of_known(
    table: TableFacts, columns: Iterable[str], keys: dict[str, IdIndex], intake: Intake
) -> dict[tuple[str, str], tuple[int, int]]:
    """Return, by column and key's table, how many cells have a value and how many of those are in the key."""
    names = list(columns)
    shares: dict[tuple[str, str], tuple[int, int]] = {}
    for batch in intake.batches(table.config, names, (), (), names) if names else ():
        for column in names:
            values = batch.column(column)
            values = values.filter(compute.invert(compute.is_null(values, nan_is_null=True)))
            if pa.types.is_floating(values.type):
                values = values.cast(pa.int64(), safe=False)
            whole = pa.types.is_integer(values.type)
            values = _in_int64(values)
            for target, index in keys.items():
                there, hits = shares.get((column, target), (0, 0))
                fits = index.is_text is not None and index.is_text != whole and len(values)
                if fits:
                    hits += int(np.count_nonzero(index.find(values.cast(pa.int64()) if whole else values) >= 0))
                shares[column, target] = (there + len(values), hits)
    return shares
