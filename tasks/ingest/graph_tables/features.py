"""Feature columns of users' tables: numbers, categories and texts, batch by batch, and what becomes of empty cells."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import float32, numbers
from tasks.ingest.tables.intake import Intake, table_files, with_nulls
from tasks.ingest.tables.policies import Missing, mask_name, stored_name
from tasks.ingest.tables.table_configs import EdgeTableConfig, FilesConfig, NodeTableConfig
from tasks.ingest.writer import DatasetWriter
from tasks.readers.columns import is_text
from tasks.storage.manifests import FeatureColumn

MAX_TEXT_BYTES = 1 << 16
"""Of one text, 10,000 words: more would tell an encoder little, and a shard of them has to fit into memory."""
CategoricalTable: TypeAlias = NodeTableConfig | EdgeTableConfig


class FeatureReader:
    """Feature columns of one table.

    An empty cell of numbers is refused, or becomes 0 or NaN (for preprocess to put the training rows' mean there), and
    1 in a column of its own that says where cells were empty.
    """

    def __init__(
        self,
        features: tuple[str, ...],
        categorical: tuple[str, ...],
        missing: dict[str, Missing],
        texts: tuple[str, ...] = (),
    ) -> None:
        """`missing` says for each column of numbers or categories what becomes of its empty cells."""
        self.features, self.categorical, self.missing, self.texts = features, categorical, missing, texts
        self.num_long = dict.fromkeys(texts, 0)
        """Texts that were cut, by column."""
        self.codes = {column: IdIndex() for column in categorical}
        self.num_empty = dict.fromkeys(features, 0)
        """Cells that a policy filled, by column."""
        self._widths: dict[str, int] = {}
        self._first: dict[str, tuple[Path, int | None]] = {}

    def read(self, batch: TableBatch) -> dict[str, Array]:
        """Return the columns under their stored names: float32 (n,) or (n, width), and int32 codes (n,)."""
        out: dict[str, Array] = {}
        for column in self.features:
            out |= self._numbers(batch, column)
        for column in self.categorical:
            out[stored_name(column)] = self._code(batch, column)
        for column in self.texts:
            out[stored_name(column)] = self._text(batch, column)
        return out

    def look_ahead(self, table: FilesConfig, intake: Intake, others: Sequence[CategoricalTable] = ()) -> None:
        """Number the categories in ascending order, before any row is read.

        Numbers by first appearance would depend on the rows that are held out. A column of one name has one numbering
        in all tables of nodes, and in all of edges: `others` are the other ones.
        Reads the categorical columns of the whole table; what is wrong with them is reported when their rows are read.
        """
        same = ((one, [name for name in self.categorical if name in one.categorical]) for one in others)
        for one, columns in [(table, list(self.categorical)), *same]:
            for batch in table_files(one).batches(columns, columns) if columns else ():
                for column in columns:
                    texts = _category_texts(with_nulls(batch.column(column), one.missing_values))
                    if texts is not None:
                        self.codes[column].add(texts)
        for column, index in self.codes.items():
            if index.count:
                index.sort()
                intake.hint_at_similar_texts(table, column, "categories", index.keys())

    def absent(self, count: int) -> dict[str, Array]:
        """Return the columns of rows that no table has: empty cells all of them."""
        out: dict[str, Array] = {}
        for column in self.features:
            width = self._widths.get(column)
            shape = (count,) if width is None else (count, width)
            out |= self._filled(column, np.full(shape, np.nan, np.float32))
        for column in self.categorical:
            out[stored_name(column)] = self.codes[column].add(pa.array([""] * count, pa.string())).astype(np.int32)
        for column in self.texts:
            out[stored_name(column)] = pa.repeat(pa.scalar("", pa.large_string()), count)
        return out

    def _numbers(self, batch: TableBatch, column: str) -> dict[str, Array]:
        expected = self._widths.get(column)
        way_out = f"; missing: {{{column}: zero}} takes empty cells (on nodes mean does too), or leave such rows out"
        values = numbers(batch, column, missing=self.missing[column] != "error", width=expected, way_out=way_out)
        width = values.shape[1] if values.ndim == 2 else None
        path, before = self._first.setdefault(column, (batch.path, width))
        if width == 0:
            batch.wrong_column(column, "its lists hold no values; leave the column out of features")
        elif width != before:
            batch.wrong_column(
                column,
                f"holds {_width(width)} here and {_width(before)} in {path}; all files of a table need one width",
            )
            values = np.zeros(len(values) if before is None else (len(values), before))
        elif width is not None:
            self._widths[column] = width
        return self._filled(column, float32(batch, column, values))

    def _filled(self, column: str, values: Array) -> dict[str, Array]:
        name, policy = stored_name(column), self.missing[column]
        if policy == "error":
            return {name: values}
        empty = np.isnan(values)
        rows: Array = np.asarray(empty if empty.ndim == 1 else empty.any(axis=1), np.float32)
        self.num_empty[column] += int(np.count_nonzero(rows))
        if policy == "zero":
            values[empty] = 0
        return {name: values, mask_name(column): rows}

    def _code(self, batch: TableBatch, column: str) -> Array:
        """Return the numbers of categories; an empty cell is the category ``""``, or refused."""
        values = batch.column(column)
        texts = _category_texts(values)
        if texts is None:
            batch.wrong_column(column, f"holds {values.type}; categories are texts or whole numbers")
            return np.zeros(len(values), np.int32)
        if self.missing[column] == "error":
            words = f"the cell is empty; missing: {{{column}: category}} makes a category of its own of it"
            batch.wrong(compute.is_null(values), column, "the cell is empty", words)
        return self.codes[column].add(texts).astype(np.int32)

    def _text(self, batch: TableBatch, column: str) -> Any:
        """Return texts as they are, an empty cell as the empty text, cut behind `MAX_TEXT_BYTES`: large_string (n,)."""
        values = batch.column(column)
        if not is_text(values.type) and not pa.types.is_integer(values.type) and not pa.types.is_null(values.type):
            batch.wrong_column(column, f"holds {values.type}; texts are texts, or whole numbers such as codes")
            return pa.repeat(pa.scalar("", pa.large_string()), len(values))
        texts = compute.fill_null(values.cast(pa.large_string()), "")
        is_long = compute.greater(compute.binary_length(texts), MAX_TEXT_BYTES)
        if compute.any(is_long).as_py():
            self.num_long[column] += compute.sum(is_long).as_py()
            # No character has more than four bytes; most texts lose none.
            cut = compute.utf8_slice_codeunits(texts, 0, MAX_TEXT_BYTES // 4)
            texts = compute.if_else(is_long, cut, texts)
        return texts

    def hint_at_long_texts(self, table: FilesConfig, intake: Intake) -> None:
        """Count the texts that were cut."""
        for column, count in self.num_long.items():
            intake.adjust(table, f"texts of {column} cut behind {MAX_TEXT_BYTES // 4:,} characters", count)

    def describe(self) -> tuple[FeatureColumn, ...]:
        """Return the manifest's entries; call it when all batches have passed."""
        entries: list[FeatureColumn] = []
        for column in self.features:
            policy, width = self.missing[column], self._widths.get(column, 1)
            entries.append(FeatureColumn(column=stored_name(column), kind="numeric", dim=width, gaps=policy == "mean"))
            if policy != "error":
                entries.append(FeatureColumn(column=mask_name(column), kind="numeric", dim=1))
        for column, index in self.codes.items():  # the last code is for categories that other data may bring
            codes = (index.count + 1,)
            entries.append(FeatureColumn(column=stored_name(column), kind="categorical", dim=1, cardinalities=codes))
        entries += [FeatureColumn(column=stored_name(column), kind="text", dim=1) for column in self.texts]
        return tuple(entries)

    def write_names(self, writer: DatasetWriter, place: str) -> None:
        """Write what the codes of categorical columns mean below `place`, once a column."""
        for column, index in self.codes.items():
            name = f"{place}/{stored_name(column)}"
            if index.count and name not in writer.tables:
                codes = np.arange(index.count, dtype=np.int64)
                writer.write(name, {"code": codes, "name": index.keys()})


def _width(width: int | None) -> str:
    return "numbers" if width is None else f"lists of {width} values"


def _category_texts(values: pa.Array) -> pa.Array | None:
    """Return categories as texts, ``""`` for an empty cell; None where the column holds something else."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if not is_text(values.type) and not pa.types.is_integer(values.type) and not pa.types.is_null(values.type):
        return None
    return compute.fill_null(values.cast(pa.string()), "")
