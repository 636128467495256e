"""Queries as their users write them, and which entities and relations their texts mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from configs.errors import DataError, RecipeError, UserError
from configs.matching import did_you_mean, listed
from tasks.apply.completion.asked import ENDS
from tasks.apply.given import ids_are_texts
from tasks.arrays import Array
from tasks.ingest.tables.files import TableFiles
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.ids import IdMap

Refusal = Callable[[int, str], UserError]
"""Makes an error of a text's row and what is wrong with it."""
RELATIONS, TYPES = "relation", "entity type"
_UNKNOWN, _LEFT_OUT = -1, -2
_MOST_NAMED = 5
_ALIKE = 3
"""Letters at a name's beginning or end that a near one shares, where there are many names to look through."""


def find_names(texts: pa.Array, names: pa.Array, what: str, refusal: Refusal) -> NDArray[np.int64]:
    """Return the numbers of relations or entity types, which `what` says, int64 (n,).

    Raises UserError naming one that is not there.
    """
    numbers = np.asarray(compute.fill_null(compute.index_in(texts, value_set=names), _UNKNOWN), np.int64)
    missing = np.flatnonzero(numbers < 0)
    if len(missing):
        row, every = int(missing[0]), names.to_pylist()
        near = did_you_mean(texts[row].as_py(), every)
        there = listed(every) if what == TYPES else f"{len(every):,}, such as {every[0]!r}"
        raise refusal(row, f"is no {what} of this graph{near}; there are {there}{_others(texts, missing)}")
    return numbers


def _others(texts: pa.Array, wrong: Array) -> str:
    """Return what to say of wrong names after the first."""
    names = compute.unique(texts.take(pa.array(wrong))).to_pylist()[1:]
    return f"; not there either: {listed(names, _MOST_NAMED)}" if names else ""


class EntityNames:
    """Looks entities up by their ids; in a graph of several types `TYPE:ID` says which is meant."""

    def __init__(self, ids: IdMap, dataset: DatasetStore, types: tuple[str, ...]) -> None:
        self._ids, self._dataset, self.types = ids, dataset, types

    @property
    def are_typed(self) -> bool:
        """Whether the type stands before each id."""
        return len(self.types) > 1

    def of(self, nodes: Array) -> pa.Array:
        """Return what entities (n,) are called."""
        return self._ids.lookup(nodes, typed=self.are_typed)

    def find(self, texts: pa.Array, refusal: Refusal) -> NDArray[np.int64]:
        """Return the nodes of texts (n,), int64 (n,). Raises UserError: there is none, or there are several."""
        distinct = compute.unique(texts)
        rows = np.asarray(compute.index_in(texts, value_set=distinct), np.int64)
        nodes, times = np.full(len(distinct), _UNKNOWN, np.int64), np.zeros(len(distinct), np.int64)
        for kind in self.types:
            of_type = self._of_type(distinct, kind)
            there = of_type != _UNKNOWN
            nodes[there], times = of_type[there], times + there
        for kind in self.types if self.are_typed else ():
            # What stands behind `KIND:`, null where that does not stand there.
            rest = compute.utf8_slice_codeunits(distinct, len(kind) + 1)
            rest = compute.if_else(compute.starts_with(distinct, f"{kind}:"), rest, pa.scalar(None, pa.string()))
            of_type = self._of_type(rest, kind)
            there = of_type != _UNKNOWN
            nodes[there], times[there] = of_type[there], 1  # who writes the type means it
        wrong = np.flatnonzero((nodes < 0)[rows])
        if len(wrong):
            row, unknown = int(wrong[0]), wrong[nodes[rows[wrong]] == _UNKNOWN]
            if nodes[rows[row]] == _LEFT_OUT:
                raise refusal(
                    row, "is left out of the graph (components.keep, snapshot.as_of); ask about another entity"
                )
            raise refusal(row, self._why_unknown(texts[row].as_py()) + _others(texts, unknown))
        several = np.flatnonzero((times > 1)[rows])
        if len(several):
            row = int(several[0])
            text = texts[row].as_py()
            kinds = [kind for kind in self.types if self._of_type(pa.array([text]), kind)[0] != _UNKNOWN]
            meant = " or ".join(f"{kind}:{text}" for kind in kinds)
            raise refusal(row, f"is an entity of several types; say which: {meant}")
        return nodes[rows]

    def _why_unknown(self, text: str) -> str:
        kinds = [kind for kind in self.types if ids_are_texts(self._dataset, f"ids/{kind}")]
        if not kinds:
            return "is no entity of this graph; its ids are whole numbers"
        named = [kind for kind in kinds if self.are_typed and text.startswith(f"{kind}:")]
        return f"is no entity of this graph{did_you_mean(text, self._alike(text, named or kinds, bool(named)))}"

    def _of_type(self, texts: pa.Array, kind: str) -> NDArray[np.int64]:
        """Return the nodes of one type that texts, which may be null, are the ids of."""
        fits = compute.is_valid(texts)
        if not ids_are_texts(self._dataset, f"ids/{kind}"):
            fits = compute.fill_null(compute.match_substring_regex(texts, r"^-?[0-9]{1,18}$"), False)
        at, rows = np.flatnonzero(np.asarray(fits)), np.full(len(texts), _UNKNOWN, np.int64)
        if len(at):
            rows[at] = self._ids.find(texts.take(pa.array(at)), kind)
        return rows

    def _alike(self, text: str, kinds: list[str], with_type: bool) -> Iterator[str]:
        """Yield names that begin or end alike: of millions the others are too many to compare."""
        for kind in kinds:
            before = f"{kind}:" if with_type else ""
            name = text[len(before) :]
            for _, group in self._dataset.row_groups(f"ids/{kind}", ["original_id"]):
                names = group.column(0)
                begins = compute.starts_with(names, name[:_ALIKE], ignore_case=True)
                ends = compute.ends_with(names, name[-_ALIKE:], ignore_case=True)
                yield from (f"{before}{one}" for one in names.filter(compute.or_(begins, ends)).to_pylist())


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
