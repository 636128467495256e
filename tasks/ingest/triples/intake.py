"""All triples of all files as arrays, and the names of what they hold.

Memory: 12 bytes a triple (20 beyond 2^31 entities), 4 and 8 more for weights and times, and the names.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.tables.batches import Problems, TableBatch
from tasks.ingest.tables.columns import weights
from tasks.ingest.tables.times import TimeReader
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.names import Names
from tasks.ingest.triples.reader import TripleReader
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
    """Read all files. Raises DataError with all mistakes."""
    entities = Names("entity", sources.entities, texts=config.text_ids)
    relations = Names("relation", sources.relations, texts=config.text_ids)
    problems, count = Problems(), 0
    parts: dict[str, list[Array]] = defaultdict(list)
    clock = TimeReader(config.time, config.time_format) if config.time is not None else None
    reader = TripleReader(config, problems, context.message, sources.triples)
    for split, paths in sources.triples.items():
        first = count
        for path in paths:
            with problems.gathering():
                for batch, columns in reader.read(path):
                    for name, values in _arrays(batch, columns, entities, relations, clock).items():
                        parts[name].append(values)
                    code = 0 if split == ALL else SPLITS.index(split)
                    parts["owner"].append(np.full(batch.num_rows, code, np.int8))
                    count += batch.num_rows
                    context.progress(count, 0, "triples")
        if count == first and not problems:
            left = f" ({reader.num_literals:,} have literals: dataset.literals=keep)" if reader.num_literals else ""
            raise DataError(f"has no triples{left}", path=shown(paths))
    problems.raise_any()
    arrays = {name: np.concatenate(parts.pop(name)) for name in list(parts)}
    src, relation, dst, owner = (arrays.pop(name) for name in ("src", "relation", "dst", "owner"))
    return TripleIntake(TripleArrays(src, relation, dst, owner, arrays), entities, relations, reader.num_literals)


def _arrays(
    batch: TableBatch, columns: Mapping[str, str], entities: Names, relations: Names, clock: TimeReader | None
) -> dict[str, Array]:
    """Return the arrays of some triples by their names in `TripleArrays`."""
    src, dst = (entities.codes(batch, columns[end]) for end in ("head", "tail"))
    kind = id_dtype(entities.count)
    arrays = {"src": src.astype(kind), "dst": dst.astype(kind)}
    arrays["relation"] = relations.codes(batch, columns["relation"]).astype(np.int32)
    if "weight" in columns:
        arrays["weight"] = _weights(batch, columns["weight"])
    if clock is not None:
        clock.column = columns["time"]
        arrays["time"] = clock.read(batch)
    return arrays


def _weights(batch: TableBatch, column: str) -> Array:
    cells = batch.column(column)
    if is_text(cells.type):
        texts = compute.utf8_trim_whitespace(cells)
        bad = compute.invert(compute.fill_null(compute.match_substring_regex(texts, _NUMBER), True))
        batch.wrong(bad, column, "is not a number", lambda row: f"{texts[row].as_py()[:40]!r} is not a number")
        parsed, place = compute.if_else(bad, "0", texts).cast("float64"), batch.data.schema.get_field_index(column)
        batch = replace(batch, data=batch.data.set_column(place, column, parsed))
    return weights(batch, column, "a triple")
