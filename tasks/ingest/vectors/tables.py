"""Vectors in tables, with ids, labels and further columns beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import listed
from tasks.arrays import Array
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import float32, is_list, numbers
from tasks.ingest.tables.intake import Intake, not_a_number, table_files, with_header_found
from tasks.ingest.tables.table_configs import NodeTableConfig
from tasks.ingest.vectors.configs import VectorFilesConfig
from tasks.ingest.vectors.matrices import ID_COLUMNS
from tasks.readers.columns import check_columns, is_text
from tasks.readers.limits import MAX_ROW_BYTES

_LABEL = "label"
_ENDS = ({"src", "dst"}, {"source", "target"}, {"from", "to"}, {"head", "tail"}, {"sender", "receiver"}, {"u", "v"})
"""What the two columns of edges' ends are called."""
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_ODD_SHARE = 0.1
"""A column of which fewer cells than that are no numbers is one of numbers with mistakes."""

_A_SERIES = 8
"""So many columns whose names differ in their number alone are a vector, and a price beside them is none of it."""


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are."""

    id: str | None
    label: str | None
    vectors: tuple[str, ...]
    kept: tuple[str, ...]


class TableVectors:
    """Tables of one form, end to end."""

    def __init__(self, config: VectorFilesConfig, intake: Intake) -> None:
        """Look at the first rows. Raises DataError."""
        self.config, self.intake = config, intake
        table = NodeTableConfig(files=config.files, header=config.header)
        self.table = with_header_found(table, "dataset", intake)
        self.roles = self._find_roles()
        is_csv = table_files(self.table).head(1, 1) is not None
        self._texts = tuple(name for name in (self.roles.id, self.roles.label) if name is not None and is_csv)

    def _find_roles(self) -> Roles:
        files = table_files(self.table)
        names, config, path = files.column_names(), self.config, files.paths()[0]
        kept = tuple(config.keep or ())
        named = [name for name in (config.id, config.label, *config.columns, *kept) if name is not None]
        check_columns(path, named, names)
        others = [name for name in names if name not in named]
        id_column = config.id or next((name for name in ID_COLUMNS if name in others and not config.ids), None)
        label = config.label or (_LABEL if _LABEL in others and not config.labels else None)
        rest = [name for name in others if name not in (id_column, label)]
        first = next(files.batches([*rest, *config.columns]), None)
        if first is None:
            raise DataError("has no rows; vectors are rows", path=self.table.names)
        kinds = {name: first.column(name).type for name in (*rest, *config.columns)}
        vectors = config.columns or _vectors_among(kinds)
        if not config.columns and _are_edges(names, vectors, kinds):
            raise DataError(
                f"looks like a list of edges ({listed(names, 3)}): graphmill layout graph-layout dataset={path} shows "
                "their graph; if rows are vectors, dataset.columns names their numbers",
                path=path,
            )
        for name in () if config.columns else rest:
            _refuse_nearly_numbers(first, name)
        if not vectors:
            hint = ""
            if len(names) == 1 and ";" in names[0]:
                hint = ". Semicolons part no columns: write commas, and points in numbers"
            raise DataError(
                f"has no column of lists and none of numbers to be vectors; dataset.columns names some of "
                f"{listed(names)}{hint}",
                path=path,
            )
        if config.keep is None:
            kept = tuple(name for name in rest if name not in vectors and can_be_kept(kinds[name]))
        return Roles(id_column, label, tuple(vectors), kept)

    def rows(self) -> Iterator[tuple[TableBatch, dict[str, pa.Array]]]:
        """Yield the columns of ids, labels and those that are kept, by name. Raises DataError."""
        roles = self.roles
        names = [name for name in (roles.id, roles.label, *roles.kept) if name is not None]
        for batch in self.intake.batches(self.table, names or [roles.vectors[0]], self._texts):
            yield batch, {name: batch.column(name) for name in names}

    def chunks(self) -> Iterator[Array]:
        """Yield vectors, float32 (rows, dim). Raises DataError naming row and column."""
        width: dict[str, int] = {}
        columns = list(self.roles.vectors)
        for batch in self.intake.batches(self.table, columns, (), columns):
            with self.intake.problems.gathering():
                parts = [self._numbers(batch, name, width) for name in columns]
            self.intake.problems.raise_any()
            vectors = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            if vectors.shape[1] == 0 or vectors.shape[1] * 4 > MAX_ROW_BYTES:
                why = f"{vectors.shape[1]:,} numbers a row; a vector has one to {MAX_ROW_BYTES // 4:,}"
                raise DataError(why, path=self.table.names)
            yield vectors

    def _numbers(self, batch: TableBatch, name: str, width: dict[str, int]) -> Array:
        values = numbers(batch, name, width=width.get(name))
        if values.ndim == 1:
            values = values[:, None]
        if width.setdefault(name, values.shape[1]) != values.shape[1]:
            message = f"lists have {values.shape[1]} values here, and {width[name]} before"
            raise batch.error(message, 0, name)
        return float32(batch, name, values)


def _vectors_among(kinds: dict[str, pa.DataType]) -> tuple[str, ...]:
    """Return the only column of lists; else eight or more of numbers that are numbered, `e0`, `e1`, ...; else all.

    Raises DataError where several are lists.
    """
    lists = [name for name, kind in kinds.items() if is_list(kind)]
    if len(lists) > 1:
        raise DataError(f"which column holds the vectors? {listed(lists)} are lists; dataset.columns names one or more")
    if lists:
        return tuple(lists)
    numbers = tuple(name for name, kind in kinds.items() if pa.types.is_integer(kind) or pa.types.is_floating(kind))
    series: dict[str, list[str]] = {}
    for name in numbers:
        stem = name.rstrip("0123456789")
        if stem != name:
            series.setdefault(stem, []).append(name)
    numbered = [names for names in series.values() if len(names) >= _A_SERIES]
    return tuple(numbered[0]) if len(numbered) == 1 else numbers


def _are_edges(names: list[str], vectors: Sequence[str], kinds: dict[str, pa.DataType]) -> bool:
    """Whether columns are two ends: by their names, or as the two whole numbers that a table without names has."""
    if any(is_list(kinds[name]) for name in vectors) or len(vectors) >= _A_SERIES:
        return False
    lower = {name.strip().lower() for name in names}
    if any(lower >= ends for ends in _ENDS):
        return True
    return names == ["0", "1"] == list(vectors) and all(pa.types.is_integer(kinds[name]) for name in vectors)


def _refuse_nearly_numbers(first: TableBatch, name: str) -> None:
    values = first.column(name)
    if not is_text(values.type):
        return
    filled = compute.fill_null(values, "")
    odd = ~np.asarray(compute.match_substring_regex(filled, _NUMBER))
    rows = np.flatnonzero(odd & np.asarray(compute.not_equal(filled, "")))
    if 0 < len(rows) < _ODD_SHARE * len(values):
        row = int(rows[0])
        why = f"{not_a_number(values[row].as_py())}; if the column is no part of the vectors, name those in"
        raise first.error(f"{why} dataset.columns, or this one in dataset.keep", row, name)


def can_be_kept(kind: pa.DataType) -> bool:
    """Whether a further column of such a type is stored: no lists and the like."""
    return bool(is_text(kind) or pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def as_kept(values: pa.Array) -> pa.Array:
    """Return a further column as it is stored, without a null: texts, numbers, and truths and dates as texts."""
    kind = values.type
    if pa.types.is_null(kind):
        return pa.array([""] * len(values), pa.string())
    if pa.types.is_integer(kind) and not values.null_count:
        return values.cast(pa.uint64() if pa.types.is_uint64(kind) else pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return compute.fill_null(values.cast(pa.float64(), safe=False), float("nan"))
    return compute.fill_null(values.cast(pa.string()), "")
