"""Queries as their users write them: a file's, or one on the command line."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError, RecipeError, UserError
from configs.matching import listed
from tasks.apply.completion.asked import ENDS
from tasks.arrays import Array
from tasks.ingest.tables.files import TableFiles

TYPE = "type"


@dataclass(frozen=True)
class QueryTexts:
    """Texts (n,) of heads, relations and tails; null is what is asked for, one of the three in each row."""

    columns: dict[str, pa.Array]
    types: pa.Array
    """Texts (n,): the type that each asks for, or null."""
    path: Path | None = None
    """The file that they stand in."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.columns["head"])

    def refusal(self, name: str, row: int, message: str) -> UserError:
        """Return an error about a query's head, relation, tail or type."""
        texts = self.types if name == TYPE else self.columns[name]
        text = f"{texts[row].as_py()!r} {message}"
        if self.path is None:
            return RecipeError(f"--{name} {text}")
        return DataError(text, path=self.path, row=row, column=name)

    def refusals(self, name: str, rows: Array) -> Callable[[int, str], UserError]:
        """Return what makes an error about one of some queries, `rows`, by its place among them."""
        return lambda place, message: self.refusal(name, int(rows[place]), message)


def read_queries(path: Path) -> QueryTexts:
    """Read queries from Parquet, CSV or TSV.

    Raises DataError: a row has not exactly one of head, relation and tail empty, or asks for a relation of some type.
    """
    files = TableFiles((str(path),))
    there = [name for name in ENDS if name in files.column_names()]
    if len(there) < 2:
        raise DataError(
            f"has the columns {listed(files.column_names())}; queries need head, relation and tail, of which the one "
            "that is asked for is empty, or one of them is missing",
            path=path,
        )
    read = [*there, *({TYPE} & set(files.column_names()))]
    parts: dict[str, list[pa.Array]] = {name: [] for name in read}
    for batch in files.batches(read, read):
        for name in read:
            parts[name].append(_texts(batch.column(name), path, name))
    columns = {name: pa.concat_arrays(part) if part else pa.nulls(0, pa.string()) for name, part in parts.items()}
    count = len(columns[there[0]])
    if not count:
        raise DataError("has no rows", path=path)
    columns = {name: columns.get(name, pa.nulls(count, pa.string())) for name in (*ENDS, TYPE)}
    types = columns.pop(TYPE)
    empty = sum(np.asarray(column.is_null()).astype(np.int64) for column in columns.values())
    wrong = np.flatnonzero(np.asarray(empty) != 1)
    if len(wrong):
        row = int(wrong[0])
        given = ", ".join(name for name in ENDS if columns[name][row].is_valid) or "nothing"
        raise DataError(f"gives {given}: one of head, relation and tail has to be empty", path=path, row=row)
    wrong = np.flatnonzero(np.asarray(compute.and_(types.is_valid(), columns["relation"].is_null())))
    if len(wrong):
        raise DataError("has a type, and a relation is asked for", path=path, row=int(wrong[0]), column=TYPE)
    return QueryTexts(columns, types, path)


def _texts(cells: pa.Array, path: Path, column: str) -> pa.Array:
    """Return cells as texts, empty ones as null. Raises DataError for lists and bytes."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_floating(cells.type):  # what pandas makes of whole numbers beside an empty cell
        with suppress(pa.ArrowInvalid):
            cells = cells.cast(pa.int64())  # as texts, large ones would be 1e+10
    try:
        texts = cells.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise DataError(f"is {cells.type}; names are texts or whole numbers", path=path, column=column) from None
    return compute.if_else(compute.equal(texts, ""), pa.scalar(None, pa.string()), texts)
