"""Knowledge graphs in OGB's layout: triples in split/, candidates to rank each against beside them.

`raw/` has the training triples once more and says how many entities there are of each type. Memory: a split's file,
which is not made for reading in pieces, and 12 bytes a triple.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import is_folder
from tasks.arrays import Array, blocks, offsets
from tasks.ingest.ogb.meta import OgbMeta
from tasks.ingest.ogb.raw import open_raw
from tasks.ingest.ogb.splits import as_array, names_in_order, split_folder, write_mappings
from tasks.ingest.triple_tables import TripleTables, write_entities, write_relations
from tasks.ingest.triples.policies import find_repeated
from tasks.ingest.writer import DatasetWriter
from tasks.readers.arrays.torch_files import load_torch
from tasks.readers.numbers import checked_cast
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS

_CHUNK_BYTES = 16 << 20
_ROWS = 1 << 20
_MAX_RELATIONS = 1 << 24
_ENDS = {"src": "head", "dst": "tail"}
_CANDIDATES = {"src": "head_neg", "dst": "tail_neg"}


def ingest_triple_folder(folder: Path, meta: OgbMeta, context: StageContext) -> dict[str, Any]:
    """Read raw/'s counts, split/ and mapping/; return the fields of DatasetManifest. Raises DataError."""
    raw = open_raw(folder, meta)
    if any(len(counts) != 1 for counts in raw.num_nodes.values()):
        raise DataError("counts several graphs; a knowledge graph is one", path=raw.folder / "raw" / raw.count_file)
    types = [(kind, int(counts[0])) for kind, counts in raw.num_nodes.items()]
    place = split_folder(folder, meta)
    read: dict[str, list[Array]] = {"src": [], "relation": [], "dst": [], "owner": []}
    with DatasetWriter(context.work) as writer:
        for kind, count in types:
            write_entities(writer, kind, count)
        with TripleTables(writer, types, place) as tables:
            for code, split in enumerate(SPLITS):
                file = _SplitFile(place / f"{split}.pt", types)
                total = len(file.triples["src"])
                for rows in blocks(total, _ROWS):
                    tables.add(split, **{name: values[rows] for name, values in file.triples.items()})
                    context.progress(rows.stop, total, "triples", split)
                if split != SPLITS[0] and any(name in file.loaded for name in _CANDIDATES.values()):
                    with writer.table(f"split/{split}_negative") as table:
                        for part in file.candidates():
                            table.write({end: values.astype(tables.kind) for end, values in part.items()})
                for name, values in file.triples.items():
                    read[name].append(values.astype(tables.kind if name in _ENDS else np.int32))
                read["owner"].append(np.full(len(file.triples["src"]), code, np.int8))
        num_relations = _write_names(folder, writer, max(int(part.max()) for part in read["relation"]) + 1, context)
        write_mappings(folder, raw, meta, writer, context)
    whole = {name: np.concatenate(parts) for name, parts in read.items()}
    repeated = find_repeated(whole["src"], whole["relation"], whole["dst"], whole["owner"], None)
    if repeated.any():  # published results are measured with them
        num_repeated = np.count_nonzero(repeated)
        context.warn(f"{place}: {num_repeated:,} triples are repeated within a split or between two, and kept")
    ogb_name = meta.name if meta.listed else None
    fields = tables.fields(meta.name, num_relations, {}, metric=meta.metric, ogb_name=ogb_name)
    num_train, edges = fields["splits"]["train"], sum(int(counts.sum()) for counts in raw.num_edges.values())
    if edges != num_train:
        context.warn(f"{folder}: raw/ has {edges:,} triples, split/ {num_train:,} to train on; the latter count")
    return fields


class _SplitFile:
    def __init__(self, path: Path, types: list[tuple[str, int]]) -> None:
        """Raises DataError where ids are out of range or columns differ in length."""
        self.path, self.types = path, types
        self._first = offsets([count for _, count in types])
        self.loaded = load_torch(path)
        relation = self._whole("relation")
        self._kinds = {end: self._kinds_of(f"{word}_type", len(relation)) for end, word in _ENDS.items()}
        self.triples = {"src": self._ids("src"), "relation": relation, "dst": self._ids("dst")}
        sizes = {name: len(values) for name, values in self.triples.items()}
        if len(set(sizes.values())) != 1:
            raise DataError(f"columns differ in length: {sizes}", path=path)
        if not len(relation):
            raise DataError("the split is empty", path=path)
        wrong = np.flatnonzero((relation < 0) | (relation >= _MAX_RELATIONS))
        if len(wrong):
            row = int(wrong[0])
            raise DataError(f"relation {relation[row]} is not in 0..{_MAX_RELATIONS - 1}", path=path, row=row)

    def candidates(self) -> Iterator[dict[str, Array]]:
        """Yield candidates of heads and tails, int (n, K) each, in portions."""
        names = _CANDIDATES
        arrays = {end: as_array(self.loaded, name, self.path) for end, name in names.items()}
        for end, values in arrays.items():
            if values.ndim != 2 or len(values) != len(self.triples["src"]) or not values.shape[1]:
                why = f"{names[end]} has the shape {values.shape}; ({len(self.triples['src']):,}, candidates) is needed"
                raise DataError(why, path=self.path)
        width = max(values.shape[1] for values in arrays.values())
        for rows in blocks(len(self.triples["src"]), max(1, _CHUNK_BYTES // (8 * width))):
            yield {end: self._checked(values[rows], end, names[end], rows.start) for end, values in arrays.items()}

    def _ids(self, end: str) -> Array:
        values = self._whole(_ENDS[end])
        if len(values) != len(self._kinds[end]):
            raise DataError(f"{_ENDS[end]!r} and 'relation' differ in length", path=self.path)
        return self._checked(values[:, None], end, _ENDS[end], 0)[:, 0]

    def _checked(self, ids: Array, end: str, name: str, first_row: int) -> Array:
        """Return ids within types, (n, K), as ids over all types, int64. Raises DataError for one out of range."""
        ids = checked_cast(ids, np.int64, f"{self.path}[{name}]", first_row)
        kinds = self._kinds[end][first_row : first_row + len(ids)]
        sizes = np.diff(self._first)[kinds][:, None]
        wrong = np.argwhere((ids < 0) | (ids >= sizes))
        if len(wrong):
            row, column = wrong[0]
            kind, count = self.types[int(kinds[row])]
            why = f"{name} {ids[row, column]} is not in 0..{count - 1}; there are {count:,} {kind} entities"
            raise DataError(why, path=self.path, row=first_row + int(row))
        return ids + self._first[kinds][:, None]

    def _whole(self, key: str) -> Array:
        values = as_array(self.loaded, key, self.path)
        if values.ndim != 1:
            raise DataError(f"{key!r} has the shape {values.shape}; one value a triple is needed", path=self.path)
        return checked_cast(values[:, None], np.int64, f"{self.path}[{key}]")[:, 0]

    def _kinds_of(self, key: str, count: int) -> Array:
        """Return the number of each row's type; where there is one type the file need not name it."""
        words = self.loaded.get(key)
        if words is None and len(self.types) == 1:
            return np.zeros(count, np.int64)
        names = [name for name, _ in self.types]
        try:
            cells = pa.array(words, pa.string())
        except (pa.ArrowException, TypeError):
            raise DataError(f"{key!r} is no list of types: {listed(names)}", path=self.path) from None
        encoded = compute.dictionary_encode(cells, null_encoding="encode")
        numbers = np.array([names.index(word) if word in names else -1 for word in encoded.dictionary.to_pylist()])
        kinds = numbers[np.asarray(encoded.indices)] if len(cells) else np.zeros(0, np.int64)
        wrong = np.flatnonzero(kinds < 0)
        if len(wrong):
            row = int(wrong[0])
            why = f"unknown type {cells[row].as_py()!r}; known: {listed(names)}"
            raise DataError(why, path=self.path, row=row, column=key)
        return kinds


def _write_names(folder: Path, writer: DatasetWriter, count: int, context: StageContext) -> int:
    mapping = folder / "mapping"
    paths = sorted(mapping.glob("rel*2rel*.csv.gz")) if is_folder(mapping) else []
    for path in paths[:1]:
        names = names_in_order(path, count, context, _MAX_RELATIONS)
        if names is not None:
            write_relations(writer, names)
            return len(names)
    write_relations(writer, pa.array(np.arange(count)).cast(pa.string()))
    return count
