"""Files of triples, whatever their format, as arrays, and the names of what they hold.

Memory: 12 bytes a triple (20 beyond 2^31 entities), 4 and 8 more for weights and times, and the names.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array
from tasks.ingest.tables.batches import Problems, TableBatch
from tasks.ingest.tables.columns import weights
from tasks.ingest.tables.intake import with_nulls
from tasks.ingest.tables.times import TimeReader
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.names import Names, text_table
from tasks.ingest.triples.sources import ALL, Sources, format_of, shown
from tasks.readers.columns import is_text
from tasks.readers.csv_tables import TextTableFile, as_texts, check_delimiter
from tasks.readers.ntriples import TERMS, read_ntriples
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.stage import StageContext
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS

# What columns are usually called, in any order and case.
_USUAL = (
    ("head", "relation", "tail"),
    ("h", "r", "t"),
    ("subject", "predicate", "object"),
    ("s", "p", "o"),
    ("source", "relation", "target"),
    ("src", "relation", "dst"),
    ("from", "relation", "to"),
)
_ROLES = ("head", "relation", "tail")
_WIDTH = 3


class TripleReader:
    """Reads files of triples; mistakes in cells are gathered in `problems`."""

    def __init__(
        self,
        config: TripleFilesConfig,
        problems: Problems,
        say: Callable[[str], None],
        files: Mapping[str, Sequence[Path]],
    ) -> None:
        """`say` takes what a user may want to know of how a file was understood; `files`: all, by split."""
        self.config, self.problems, self._say = config, problems, say
        paths = dict.fromkeys(path for of_split in files.values() for path in of_split)
        ntriples = [path for path in paths if format_of(path, config.format) == "ntriples"]
        self._marks: dict[Path, str] = {}
        """What tells a file's blank nodes from those of others."""
        if len(ntriples) > 1 and config.blank_nodes == "by_file":
            alike = Counter(path.name for path in ntriples)
            for number, path in enumerate(ntriples):
                self._marks[path] = f"@{path.name}" if alike[path.name] == 1 else f"@{number}-{path.name}"
        self.num_literals = 0
        """Triples with a literal that were left out."""
        if config.delimiter is not None:
            check_delimiter(config.delimiter)

    def read(self, path: Path) -> Iterator[tuple[TableBatch, dict[str, str]]]:
        """Yield the triples of a file, and its columns by role. Raises DataError: it cannot be read to its end."""
        kind = format_of(path, self.config.format)
        if kind == "ntriples":
            yield from self._ntriples(path)
            return
        if kind == "parquet":
            with open_parquet(path) as file:
                columns = self._columns(path, list(file.schema_arrow.names), named=True)
            batches = read_parquet(path, list(columns.values()))
        else:
            plan = plan_table(path, kind, self.config, self._say)
            columns = self._columns(path, plan.names(), named=plan.header)
            batches = plan.read(as_texts(list(columns.values())))
        row = 0
        for data in batches:
            filled = [with_nulls(values, ("",)) for values in data.columns]
            cells = pa.RecordBatch.from_arrays(filled, names=data.schema.names)
            yield TableBatch(path, row, cells, self.problems), columns
            row += data.num_rows

    def _ntriples(self, path: Path) -> Iterator[tuple[TableBatch, dict[str, str]]]:
        for name in (*_ROLES, "weight", "time"):
            if getattr(self.config, name) is not None:
                raise DataError(f"is N-Triples, which have no columns to name; leave out dataset.{name}", path=path)
        columns = dict(zip(_ROLES, TERMS, strict=True))
        for part in read_ntriples(path, literals=self.config.literals == "keep"):
            self.num_literals += part.num_literals
            terms = part.terms
            if path in self._marks:
                marked = [
                    compute.if_else(
                        compute.starts_with(column, "_:"),
                        compute.binary_join_element_wise(column, self._marks[path], ""),
                        column,
                    )
                    for column in terms.columns
                ]
                terms = pa.RecordBatch.from_arrays(marked, names=list(TERMS))
            yield TableBatch(path, part.first_line, terms, self.problems), columns

    def _columns(self, path: Path, names: list[str], *, named: bool) -> dict[str, str]:
        given = {role: getattr(self.config, role) for role in (*_ROLES, "weight", "time")}
        columns = {role: _column(path, column, names, role) for role, column in given.items() if column is not None}
        if "head" in columns:
            return columns
        usual = _usual(names) if named else None
        if usual is None and len(names) != _WIDTH and (len(names) < _WIDTH or not (named or columns)):
            hint = "" if named or len(names) > 1 else "; is another character between its cells (dataset.delimiter)?"
            more = "; if some are to be left out, name the three: dataset.head=0 dataset.relation=1 dataset.tail=2"
            raise DataError(
                f"has {len(names)} column{'s' if len(names) > 1 else ''}; head, relation and tail are needed"
                f"{hint or (more if len(names) > _WIDTH else '')}",
                path=path,
            )
        return dict(zip(_ROLES, usual or names[:_WIDTH], strict=True)) | columns


def _usual(names: list[str]) -> list[str] | None:
    by_word = {name.strip().lower(): name for name in names}
    return next(([by_word[word] for word in words] for words in _USUAL if by_word.keys() >= set(words)), None)


def _column(path: Path, column: str, names: list[str], role: str) -> str:
    """Return a column's name, given by name or place. Raises DataError."""
    if column in names:
        return column
    if column.isdigit() and int(column) < len(names):
        return names[int(column)]
    hint = did_you_mean(column, names)
    raise DataError(f"has no column {column!r} (dataset.{role}){hint}; it has {listed(names)}", path=path)


def plan_table(path: Path, kind: str, config: TripleFilesConfig, say: Callable[[str], None]) -> TextTableFile:
    """Return how a CSV or TSV is to be read: its first line tells whether it has names."""
    table = text_table(path, kind, config.delimiter)
    first, header = table.first_row(), config.header
    if header is None:
        given = (config.head, config.relation, config.tail, config.weight, config.time)
        by_name = any(column is not None and not column.isdigit() for column in given)
        header = by_name or _usual(first) is not None or kind == "csv"
        if header and not by_name and _usual(first) is None:
            say(f"{path}: the first line is taken as names: {listed(first)} (if it is a triple: dataset.header=false)")
    return replace(table, header=header)


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
