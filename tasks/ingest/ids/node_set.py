"""Nodes of one type: how users' ids become dense ones, and what becomes of ids that repeat or that nobody knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import checked_ids
from tasks.ingest.tables.table_configs import NodeTableConfig
from tasks.ingest.writer import DatasetWriter, write_ids
from tasks.readers.columns import is_text

UNKNOWN, WRONG = -1, -2
"""In the place of a dense id: no node has it; the cell holds no id (said already)."""
TWO_KINDS = "ids of two kinds"
_PLAIN = r"^(0|[1-9][0-9]{0,17})$"
"""Texts that are whole numbers of 64 bits, whoever reads them."""


class NodeSet:
    """Nodes of one type."""

    def __init__(
        self,
        kind: str,
        config: NodeTableConfig | None,
        *,
        text_ids: bool,
        section: str = "nodes",
        key: str = "nodes.id",
    ) -> None:
        """`text_ids`: whole numbers are texts too. `section`, `key`: names of options."""
        self.kind, self.config, self.text_ids = kind, config or NodeTableConfig(type=kind), text_ids
        self._key = key
        self.way_out_of_repeats = f"{section}.on_duplicate_id can take the first or the last row"
        """What one may do about an id that stands twice, for messages."""
        self.index: IdIndex | None = IdIndex()
        """None once ids turn out to be 0..n-1 already."""
        self.num_nodes = 0
        self.num_added = 0
        """Nodes that only edges name, behind those of the table."""
        self.num_repeated = 0
        """Rows left out since another one has their id."""
        self.time: Array | None = None
        self.kept: Array | None = None
        """Rows of the table that are nodes, bool; None: all."""
        self.broken = False
        """Whether its table could not be read: then nobody can tell which ids are unknown."""
        self._source: object = "the edges"
        self._rows: list[Array] = []
        """Of each batch of the table, `on_duplicate_id: first`: which rows are nodes, bool; `last`: dense ids."""
        self._repeats = False

    @property
    def has_files(self) -> bool:
        """Whether the nodes have a table of their own."""
        return bool(self.config.files)

    def settle(self) -> None:
        """All ids are known: drop the index where it would say nothing."""
        assert self.index is not None
        self.num_nodes = self.index.count
        if self.num_nodes and not self.index.is_text:
            keys = np.asarray(self.index.keys())
            if np.array_equal(keys, np.arange(len(keys))):
                self.index = None

    def settle_dense(self, count: int) -> None:
        """Ids are the numbers 0..count-1."""
        self.num_nodes, self.index = count, None
        self._source = f"0..{count - 1}"

    def texts(self, *columns: str) -> tuple[str, ...]:
        """Return those columns of a CSV that must be read as texts to be looked up here."""
        return columns if self.index is not None and (self.text_ids or self.index.is_text) else ()

    def add_rows(self, batch: TableBatch) -> tuple[TableBatch, Array]:
        """Take the rows of the nodes' own table; return those that are nodes, and their dense ids.

        With `on_duplicate_id: last` all rows stay until `drop_repeated`.
        """
        assert self.index is not None
        policy, first = self.config.on_duplicate_id, self.index.count
        codes, values = self._codes(batch, str(self.config.id), add=True)
        self._source = batch.path
        repeated = codes != np.arange(first, first + len(codes))
        if repeated.any():  # one moves all that come after it: look again, which ids came before
            repeated = occurred_earlier(codes, first)
        if policy == "error":
            kind = "the id stands in the table twice"
            words = f"stands in the table twice; {self.way_out_of_repeats}"
            batch.wrong(repeated, self.config.id, kind, lambda row: f"the id {values[row].as_py()!r} {words}")
            return batch, np.maximum(codes, 0)
        self._repeats |= bool(repeated.any())
        self.num_repeated += int(np.count_nonzero(repeated))
        if policy == "last":
            self._rows.append(codes)
            return batch, np.maximum(codes, 0)
        self._rows.append(~repeated)
        return batch.keep(~repeated), np.maximum(codes[~repeated], 0)

    def drop_repeated(self) -> tuple[Array | None, Array | None]:
        """All rows of the table have passed: settle which are nodes.

        Returns:
            Which rows of what `add_rows` returned are nodes, bool (None: all), and the new dense id of each old one
            (None: as they are).
        """
        rows, self._rows = self._rows, []
        if not self._repeats:
            return None, None
        if self.config.on_duplicate_id == "first":
            self.kept = np.concatenate(rows)
            return None, None
        assert self.index is not None
        codes = np.maximum(np.concatenate(rows), 0)
        last = np.zeros(self.index.count, np.int64)
        last[codes] = np.arange(len(codes))
        self.kept = np.zeros(len(codes), np.bool_)
        self.kept[last] = True
        order = np.argsort(last, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        keys, self.index = self.index.keys(), IdIndex()
        self.index.add(keys.take(pa.array(order)))
        return self.kept, rank

    def discover(self, batch: TableBatch, column: str) -> None:
        """Add the ids of an edge column that are new."""
        self._codes(batch, column, add=True)
        if not self.has_files:
            self._source = batch.path

    def look_up(self, batch: TableBatch, column: str) -> Array:
        """Return dense ids, int64; `UNKNOWN` and `WRONG` for what is none."""
        return self._codes(batch, column, add=False)[0]

    def find(self, batch: TableBatch, column: str) -> Array:
        """Return dense ids, int64; unknown ones are gathered, and 0 stands in the place of what is none."""
        codes, values = self._codes(batch, column, add=False)
        self.refuse_unknown(batch, column, codes, values)
        return np.maximum(codes, 0)

    def refuse_unknown(
        self, batch: TableBatch, column: str, codes: Array, values: pa.Array | None = None, *, way_out: str = ""
    ) -> None:
        """Gather ids that no node has; `way_out` says what one may do about them."""
        unknown = codes == UNKNOWN
        if self.broken or not unknown.any():
            return
        cells = batch.column(column) if values is None else values

        def message(row: int) -> str:
            value = cells[row].as_py()
            if self.index is None:
                return f"node id {value} is not in 0..{self.num_nodes - 1}{way_out}"
            return f"unknown {self.kind} id {value!r}: it is not in {self._source}{way_out}"

        batch.wrong(unknown, column, f"unknown {self.kind} id", message)

    def _codes(self, batch: TableBatch, column: str, *, add: bool) -> tuple[Array, pa.Array]:
        values, none = checked_ids(batch, column, texts=self.text_ids and self.index is not None)
        codes = np.full(len(values), WRONG, np.int64)
        good = slice(None) if none is None else ~none
        there = values if none is None else values.filter(pa.array(~none))
        if self.broken:  # whether a node has an id, nobody knows
            codes[good] = UNKNOWN
            return codes, values
        if len(there) == 0 or self._of_other_kind(batch, column, values, good):
            self.broken |= add and len(codes) > 0
            return codes, values
        if self.index is None:
            numbers = np.asarray(there)
            codes[good] = np.where(numbers < self.num_nodes, numbers, UNKNOWN)
        else:
            codes[good] = self.index.add(there) if add else self.index.find(there)
        return codes, values

    def _of_other_kind(self, batch: TableBatch, column: str, values: pa.Array, good: Any) -> bool:
        """Gather ids that are texts where the others are numbers, or numbers among texts."""
        text, expected = is_text(values.type), bool(self.index is not None and self.index.is_text)
        if text == expected or (self.index is not None and self.index.is_text is None):
            return False
        wrong = np.zeros(len(values), np.bool_)
        wrong[good] = True
        such = ""
        if text:  # a column is read as texts where one of its cells is: name that one
            plain = np.asarray(compute.fill_null(compute.match_substring_regex(values, _PLAIN), False))
            wrong = wrong & ~plain if (wrong & ~plain).any() else wrong
        elif self.index is not None:  # of numbers and a few texts, a text is the odd one
            keys = self.index.keys()
            odd = keys.filter(compute.invert(compute.match_substring_regex(keys, _PLAIN)))
            such = f", such as {odd[0].as_py()[:40]!r}" if len(odd) else ""
        kinds = ("a text", "whole numbers") if text else ("a whole number", "texts")
        way_out = "dataset.text_ids=true reads all as texts"
        if self.index is None:
            way_out = f"if their table has ids of its own, name the column ({self._key})"
        rest = f"{kinds[0]}, those in {self._source} are {kinds[1]}{such}; {way_out}"
        batch.wrong(wrong, column, TWO_KINDS, lambda row: f"the id {values[row].as_py()!r} is {rest}")
        return True

    def original(self, node: int) -> Any:
        """Return the id that users know a node by."""
        return node if self.index is None else self.index.keys()[node].as_py()

    def write_ids(self, writer: DatasetWriter) -> None:
        """Write the id map, where ids changed."""
        if self.index is not None and self.num_nodes:
            write_ids(writer, self.kind, self.index.keys())


def occurred_earlier(codes: Array, first: int) -> Array:
    """Return which rows have an id that an earlier row has, bool (n,); those below `first` stood in earlier batches."""
    repeated = codes >= 0
    fresh = np.flatnonzero(codes >= first)
    _, places = np.unique(codes[fresh], return_index=True)
    repeated[fresh[places]] = False
    return repeated
