"""Users' triples to our tables: read, repeats taken out, dealt out, numbered, written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.ingest.tables.intake import similar_texts
from tasks.ingest.triple_tables import TripleTables, write_entities, write_relations
from tasks.ingest.triples.configs import TripleFilesConfig
from tasks.ingest.triples.names import FinalNumbers, Names, number_names, read_types
from tasks.ingest.triples.policies import (
    TripleJob,
    check_sizes,
    check_unseen,
    deal_out,
    drop_repeated,
    uses,
)
from tasks.ingest.triples.reader import read_triples
from tasks.ingest.triples.sources import Sources, shown
from tasks.ingest.writer import DatasetWriter, write_ids
from tasks.readers.arrays.npy import NpyFile, check_row
from tasks.readers.columns import is_text
from tasks.readers.numbers import checked_cast
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS, FeatureColumn

_CHUNK = 1 << 20


def ingest_triples(config: TripleFilesConfig, sources: Sources, context: StageContext) -> dict[str, Any]:
    """Write all tables; return the fields of DatasetManifest.

    Raises DataError: naming the file, and the row or line where there is one.
    """
    job = TripleJob(config, sources, context, read_triples(config, sources, context))
    if job.intake.num_literals:
        job.adjust(next(iter(sources.triples)), "triples with a literal dropped", job.intake.num_literals)
        context.warn(
            f"{job.intake.num_literals:,} triples are left out, because their object is a literal: a text, a number or "
            "a date (dataset.literals=keep makes an entity of each)"
        )
    _say_blank_nodes(job)
    drop_repeated(job)
    if job.dealt:
        deal_out(job)
    check_unseen(job)
    check_sizes(job)
    entities, relations = _numberings(job)
    with DatasetWriter(context.work) as writer:
        features = _write_entities(job, writer, entities)
        relation_features = _write_relations(job, writer, relations)
        with TripleTables(writer, entities.types, shown(job.paths("train"))) as tables:
            for split, columns in _portions(job, entities, relations):
                tables.add(split, **columns)
    return tables.fields(
        config.title,
        len(relations.order),
        features,
        relation_feature_dim=relation_features,
        adjusted=job.adjusted,
    )


def _numberings(job: TripleJob) -> tuple[FinalNumbers, FinalNumbers]:
    intake = job.intake
    entity_uses, relation_uses = uses(job)
    kinds, kind_names = None, [""]
    if job.sources.types is not None:
        kinds, kind_names, unknown = read_types(job.sources.types, intake.entities, entity_uses)
        if unknown:
            job.context.message(f"{job.sources.types}: {unknown:,} rows name entities that are in no triple")
    entities = number_names(intake.entities, entity_uses, kinds, kind_names)
    absent = int(np.count_nonzero(entity_uses[entities.order] == 0))
    if absent:
        job.context.message(f"{job.sources.entities}: {absent:,} entities are in no triple; they are kept as nodes")
    return entities, number_names(intake.relations, relation_uses)


def _write_entities(
    job: TripleJob, writer: DatasetWriter, numbering: FinalNumbers
) -> dict[str, tuple[FeatureColumn, ...]]:
    names, path = job.intake.entities, job.sources.features
    features = None if path is None else FeatureMatrix(path, names)
    all_keys = names.keys()
    bounds, columns = numbering.bounds, dict[str, tuple[FeatureColumn, ...]]()
    for number, (kind, count) in enumerate(numbering.types):
        entities = numbering.order[bounds[number] : bounds[number + 1]]
        write_entities(writer, kind, count, None if features is None else features.rows(entities))
        if features is not None:
            columns[kind] = (FeatureColumn(column="feat", kind="numeric", dim=features.width),)
        keys = all_keys.take(pa.array(entities))
        if is_text(keys.type) or not np.array_equal(np.asarray(keys), np.arange(len(keys))):
            _hint_at_similar(job, "entities", keys)
            write_ids(writer, kind, keys)
    return columns


def _write_relations(job: TripleJob, writer: DatasetWriter, numbering: FinalNumbers) -> int:
    names, path = job.intake.relations, job.sources.relation_features
    features = None if path is None else FeatureMatrix(path, names)
    keys = names.keys().take(pa.array(numbering.order)).cast(pa.string())
    _hint_at_similar(job, names.plural, keys)
    write_relations(writer, keys, None if features is None else features.rows(numbering.order))
    return 0 if features is None else features.width


def _hint_at_similar(job: TripleJob, what: str, keys: pa.Array) -> None:
    said = similar_texts(keys, what, letters=what == "relations") if pa.types.is_string(keys.type) else None
    if said is not None:
        job.context.warn(said)


def _say_blank_nodes(job: TripleJob) -> None:
    """Say how many labels of blank nodes stand in several files, where they are a node in each."""
    keys = job.intake.entities.keys()
    if not pa.types.is_string(keys.type):
        return
    blank = keys.filter(compute.match_substring_regex(keys, "^_:[^@]*@"))
    labels = compute.value_counts(compute.replace_substring_regex(blank, "@.*", "")).field("counts")
    count = compute.sum(compute.greater(labels, 1).cast(pa.int64())).as_py()
    if count:
        job.context.warn(
            f"{count:,} labels of blank nodes stand in several files, such as {blank[0].as_py()!r}: those of each file "
            "are nodes of their own; where the files are parts of one, dataset.blank_nodes=shared"
        )


def _portions(
    job: TripleJob, entities: FinalNumbers, relations: FinalNumbers
) -> Iterator[tuple[str, dict[str, Array]]]:
    """Yield the triples of each split by their final numbers, in the order of the files."""
    triples = job.triples
    for rows in blocks(len(triples), _CHUNK):
        owner = triples.owner[rows]
        for code, split in enumerate(SPLITS):
            chosen = owner == code
            if chosen.any():
                columns = {
                    "src": entities.new[triples.src[rows][chosen]],
                    "relation": relations.new[triples.relation[rows][chosen]],
                    "dst": entities.new[triples.dst[rows][chosen]],
                }
                yield split, columns | {name: values[rows][chosen] for name, values in triples.others.items()}
        job.context.progress(rows.stop, len(triples), "triples")


_CHUNK_BYTES = 8 << 20


class FeatureMatrix:
    """Row i is that of entity i of the list or, without a list, of the id i. A chunk is in memory at a time."""

    def __init__(self, path: Path, names: Names) -> None:
        """Raises DataError: another shape than that of the names."""
        self.path, self.names = path, names
        if path.suffix.lower() != ".npy":
            raise DataError(f"is no .npy, which features of {names.plural} are read from", path=path)
        header = NpyFile(path).header()
        check_row(header, path)
        if len(header.shape) != 2:
            raise DataError(f"has the shape {header.shape}; ({names.plural}, columns) is needed", path=path)
        self.count, self.width = header.shape
        if names.listed and self.count != names.count:
            raise DataError(f"has {self.count:,} rows, {names.path} names {names.count:,} {names.plural}", path=path)
        self._ids = None if names.listed else names.keys()
        if self._ids is not None and is_text(self._ids.type):
            raise DataError(
                f"has rows without ids, and the {names.plural} are texts: give their list in the order of the rows "
                f"(dataset.{names.plural})",
                path=path,
            )

    def rows(self, owners: Array) -> Iterator[Array]:
        """Yield the rows of some, by the numbers that their names have: (n, width) float32, in portions.

        Raises DataError: a row is missing, or holds what is no finite number.
        """
        values = NpyFile(self.path).mapped()
        for part in blocks(len(owners), max(1, _CHUNK_BYTES // (4 * self.width))):
            rows = owners[part] if self._ids is None else np.asarray(self._ids)[owners[part]]
            beyond = np.flatnonzero((rows < 0) | (rows >= self.count))
            if len(beyond):
                raise DataError(
                    f"has {self.count:,} rows, and none for the {self.names.what} {rows[beyond[0]]}", path=self.path
                )
            yield checked_cast(values[rows], np.float32, self.path, rows)
