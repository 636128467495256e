"""All triples of all files as arrays, and the names of what they hold.

Memory: 12 bytes a triple (20 beyond 2^31 entities), 4 and 8 more for weights and times, and the names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.columns import float32, numbers
from tasks.ingest.tables.problems import Problems
from tasks.ingest.tables.times import TimeReader
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.names import Names, TextFoundError
from tasks.ingest.triples.reader import TripleBatch, TripleReader
from tasks.ingest.triples.sources import ALL, Sources, shown
from tasks.readers.columns import is_text
from tasks.stage import StageContext
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS

_NUMBER = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
"""Texts that Arrow takes for numbers."""


@dataclass
class TripleArrays:
    """Triples of all splits end to end, by the numbers that their names were met in."""

    src: Array
    """Heads, int32 or int64 (n,)."""
    relation: Array
    """int32 (n,)."""
    dst: Array
    """Tails, as `src`."""
    owner: Array
    """Split of each, int8 (n,): 0 for those that are still to be dealt out."""
    others: dict[str, Array]
    """weight, float32 (n,), and time, int64 (n,), where there are such columns."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.src)


@dataclass
class TripleIntake:
    """What was read."""

    triples: TripleArrays
    entities: Names
    relations: Names
    num_literals: int
    """Triples with a literal that were left out."""


def read_triples(config: TripleFilesConfig, sources: Sources, context: StageContext) -> TripleIntake:
    """Read all files, once more where a text stands among ids that were numbers. Raises DataError with all mistakes."""
    entities = Names("entity", sources.entities, texts=config.text_ids or config.head_type is not None)
    relations = Names("relation", sources.relations, texts=config.text_ids)
    while True:
        try:
            return _Reading(config, sources, context, entities, relations).read()
        except TextFoundError as found:
            found.names.texts = True
            entities.forget()
            relations.forget()


@dataclass
class _Reading:
    """One reading of all files."""

    config: TripleFilesConfig
    sources: Sources
    context: StageContext
    entities: Names
    relations: Names
    problems: Problems = field(default_factory=Problems)
    count: int = 0
    """Triples that were read."""
    parts: dict[str, list[Array]] = field(default_factory=dict)
    clock: TimeReader | None = None

    def read(self) -> TripleIntake:
        files = [path for paths in self.sources.triples.values() for path in paths]
        reader = TripleReader(self.config, self.problems, self.context.message, files)
        for split, paths in self.sources.triples.items():
            first = self.count
            for path in paths:
                with self.problems.gathering():
                    self._read_file(reader, path, 0 if split == ALL else SPLITS.index(split))
            if self.count == first and not self.problems:
                left = f" ({reader.num_literals:,} have literals: dataset.literals=keep)" if reader.num_literals else ""
                raise DataError(f"has no triples{left}", path=shown(paths))
        self.problems.raise_any()
        columns = {name: np.concatenate(self.parts.pop(name)) for name in list(self.parts)}
        src, relation, dst, owner = (columns.pop(name) for name in ("src", "relation", "dst", "owner"))
        triples = TripleArrays(src, relation, dst, owner, columns)
        return TripleIntake(triples, self.entities, self.relations, reader.num_literals)

    def _read_file(self, reader: TripleReader, path: Path, code: int) -> None:
        for batch in reader.read(path):
            columns = batch.columns
            arrays = {
                "src": self.entities.codes(batch, columns.head, columns.head_type),
                "relation": self.relations.codes(batch, columns.relation).astype(np.int32),
                "dst": self.entities.codes(batch, columns.tail, columns.tail_type),
                "owner": np.full(batch.cells.num_rows, code, np.int8),
            }
            if columns.weight is not None:
                arrays["weight"] = _weights(batch, columns.weight)
            if columns.time is not None:
                self.clock = self.clock or TimeReader(columns.time, self.config.time_format)
                self.clock.column = columns.time
                arrays["time"] = self.clock.read(batch.cells)
            self.count += batch.cells.num_rows
            kind = id_dtype(self.entities.count)
            for name, values in arrays.items():
                self.parts.setdefault(name, []).append(values.astype(kind) if name in ("src", "dst") else values)
            self.context.progress(self.count, self.count, "triples")


def _weights(batch: TripleBatch, column: str) -> Array:
    """Return weights, float32 (n,); negative ones are gathered, as are cells that are no number."""
    cells, way_out = batch.cells.column(column), "; a triple without a weight has to be left out, or given one"
    table = batch.with_cells(column, _parsed(batch, column, cells)) if is_text(cells.type) else batch.cells
    values = numbers(table, column, way_out=way_out)
    if values.ndim != 1:
        table.wrong_column(column, "is a column of lists; a weight is a number")
        return np.zeros(len(values), np.float32)
    table.wrong(values < 0, column, "the weight is negative", lambda row: f"the weight {values[row]:g} is negative")
    return float32(table, column, values)


def _parsed(batch: TripleBatch, column: str, cells: pa.Array) -> pa.Array:
    """Return texts as float64; those that are no number are gathered."""
    texts = compute.utf8_trim_whitespace(cells)
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        good = compute.fill_null(compute.match_substring_regex(texts, _NUMBER), True)
    bad = compute.invert(good)
    batch.cells.wrong(bad, column, "is not a number", lambda row: f"{texts[row].as_py()[:40]!r} is not a number")
    return compute.if_else(good, texts, "0").cast(pa.float64())
