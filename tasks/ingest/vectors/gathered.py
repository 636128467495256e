"""What files of vectors hold (ids, labels and further columns of all rows, the vectors as a stream), and writing it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.layout_options import LAYOUT
from configs.matching import listed
from configs.source_files import is_file, user_path
from tasks.arrays import Array
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.labels import usual_metric
from tasks.ingest.tables.intake import Intake
from tasks.ingest.tables.paths import files_of
from tasks.ingest.tables.policies import stored_name
from tasks.ingest.vectors.configs import VectorFilesConfig
from tasks.ingest.vectors.matrices import (
    NO_LABELS,
    Labels,
    checked_ids,
    is_matrix,
    label_column,
    open_matrix,
    read_column,
)
from tasks.ingest.vectors.tables import TableVectors, as_kept, can_be_kept
from tasks.ingest.writer import DatasetWriter
from tasks.readers.columns import is_text, whole_numbers
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, NodeType

_IDS_BESIDE = ".ids.parquet"
NODE, RELATION = "vector", "near"


@dataclass(frozen=True)
class Gathered:
    """What is known of all rows before the vectors are read."""

    num_rows: int
    chunks: Callable[[], Iterator[Array]]
    """The vectors, float32 (rows, dim)."""
    ids: pa.Array | None = None
    """None: rows are numbered."""
    labels: Labels = NO_LABELS
    kept: dict[str, pa.Array] = field(default_factory=dict)


def gather(config: VectorFilesConfig, context: StageContext) -> Gathered:
    """Read what lies beside the vectors. Raises DataError."""
    config = with_files_beside(config)
    matrices = [is_matrix(path) for path in files_of(config.files)]
    if all(matrices):
        return _of_matrices(config)
    if any(matrices):
        raise DataError("are tables and matrices; give files of one format", path=", ".join(config.files))
    return _of_table(config, context)


def with_files_beside(config: VectorFilesConfig) -> VectorFilesConfig:
    """Return the options with the ids that `graphmill export embeddings` wrote beside its only file."""
    if config.ids or config.id is not None or len(config.files) != 1 or not config.files[0].endswith(".npy"):
        return config
    beside = config.files[0].removesuffix(".npy") + _IDS_BESIDE
    return config.model_copy(update={"ids": (beside,)}) if is_file(user_path(beside)) else config


def _of_matrices(config: VectorFilesConfig) -> Gathered:
    for option in ("id", "label", "columns", "keep", "header"):
        if getattr(config, option) != VectorFilesConfig.model_fields[option].default:
            raise DataError(
                f"dataset.{option} is of tables, and this is a matrix; ids and labels are files of their own "
                "(dataset.ids, dataset.labels)",
                path=config.files[0],
            )
    matrices = [open_matrix(path, config.array) for path in files_of(config.files)]
    first = matrices[0]
    for matrix in matrices:
        if matrix.columns != first.columns:
            raise DataError(f"has {matrix.columns:,} columns, and {first.name} {first.columns:,}", path=matrix.name)
    num_rows = sum(matrix.rows for matrix in matrices)
    if num_rows == 0:
        raise DataError("has no rows; vectors are rows", path=", ".join(config.files))
    ids, labels = _beside(config, num_rows)
    return Gathered(num_rows, lambda: (chunk for matrix in matrices for chunk in matrix.chunks()), ids, labels)


def _beside(config: VectorFilesConfig, num_rows: int) -> tuple[pa.Array | None, Labels]:
    ids, labels = None, NO_LABELS
    if config.ids:
        ids = checked_ids(read_column(config.ids, num_rows, "ids"), ", ".join(config.ids))
    if config.labels:
        labels = label_column(read_column(config.labels, num_rows, "labels"), ", ".join(config.labels))
    return ids, labels


def _of_table(config: VectorFilesConfig, context: StageContext) -> Gathered:
    if config.array is not None:
        raise DataError("dataset.array is of .npz files, and this is a table", path=config.files[0])
    intake = Intake()
    table = TableVectors(config, intake)
    for note in intake.notes:
        context.message(note)
    parts: dict[str, list[pa.Array]] = {}
    num_rows = 0
    for batch, columns in table.rows():
        num_rows += batch.num_rows
        for name, values in columns.items():
            parts.setdefault(name, []).append(values)
    intake.problems.raise_any()
    if num_rows == 0:
        raise DataError("has no rows; vectors are rows", path=table.table.names)
    roles, files = table.roles, table.table.names
    whole = {name: _together(values) for name, values in parts.items()}
    ids, labels = _beside(config, num_rows)
    if roles.id is not None:
        given = whole[roles.id]  # of a CSV texts, also where all are whole numbers
        ids = checked_ids(
            whole_numbers(given) if is_text(given.type) and not given.null_count else given, files, roles.id
        )
    shown = list(roles.kept)
    if roles.label is not None:
        try:
            labels = label_column(_as_numbers(whole[roles.label]), files, roles.label)
        except DataError as error:
            if config.label is not None:
                raise
            # A column that only happens to be called so shall not keep vectors from being looked at.
            context.warn(f"{error}. So it is no label; dataset.label names another column")
            shown += [roles.label] if can_be_kept(whole[roles.label].type) else []
    for name in shown:
        if not can_be_kept(whole[name].type):
            why = f"is {whole[name].type}; texts, truths, numbers and dates are kept: leave it out of dataset.keep"
            raise DataError(why, path=files, column=name)
    for hint in intake.hints:
        context.warn(hint)
    count = "" if len(roles.vectors) == 1 else f"{len(roles.vectors):,} columns, "
    facts = [f"vectors: {count}{listed(roles.vectors, 5)}"]
    facts += [f"{what}: {name}" for what, name in (("ids", roles.id), ("labels", roles.label)) if name]
    facts += [f"kept: {listed(roles.kept, 10)}"] if roles.kept else []
    context.message("; ".join(facts))
    kept = {stored_name(name): as_kept(whole[name]) for name in shown}
    return Gathered(num_rows, table.chunks, ids, labels, kept)


def _together(parts: list[pa.Array]) -> pa.Array:
    """Return a column's parts as one; where a CSV's were of several types, as texts or decimals."""
    kinds = {part.type for part in parts}
    if len(kinds) > 1:
        numeric = all(pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_null(k) for k in kinds)
        parts = [part.cast(pa.float64() if numeric else pa.string()) for part in parts]
    return pa.concat_arrays(parts)


def _as_numbers(values: pa.Array) -> pa.Array:
    """Return a CSV's labels, read as texts, as numbers where all are or are empty."""
    if not is_text(values.type):
        return values
    filled = compute.if_else(compute.equal(values, ""), None, values)
    try:
        return filled.cast(pa.float64())
    except pa.ArrowInvalid:
        return values


def write_vectors(gathered: Gathered, title: str, folder: Path) -> dict[str, Any]:
    """Write the tables into a folder; return the fields of DatasetManifest. Raises DataError."""
    task_type, label, names = gathered.labels
    edges = EdgeType(source=NODE, relation=RELATION, target=NODE, num_edges=0)
    first = dim = 0
    with DatasetWriter(folder) as writer:
        with writer.table(f"nodes/{NODE}") as table:
            for chunk in gathered.chunks():
                end, dim = first + len(chunk), chunk.shape[1]
                columns = {"node_id": np.arange(first, end, dtype=np.int64), "feat": chunk}
                if task_type != LAYOUT:
                    columns["label"] = label[first:end]
                columns |= {name: values.slice(first, len(chunk)) for name, values in gathered.kept.items()}
                table.write(columns)
                first = end
        assert first == gathered.num_rows, (title, first, gathered.num_rows)
        if gathered.ids is not None:
            writer.write(f"ids/{NODE}", {"node_id": np.arange(first, dtype=np.int64), "original_id": gathered.ids})
        if names is not None:
            writer.write("classes", {"label": np.arange(len(names), dtype=np.int64), "name": names})
        none = np.empty(0, np.int32)
        writer.write(f"edges/{edges.name}", {"src": none, "dst": none, "weight": np.empty(0, np.float32)})
    feature = FeatureColumn(column="feat", kind="numeric", dim=dim)
    return dataset_fields(
        writer,
        title,
        task_type,
        task=LAYOUT,
        num_classes=0 if names is None else len(names),
        num_tasks=1,
        metric=usual_metric(LAYOUT),
        node_types=[NodeType(name=NODE, num_nodes=first, features=(feature,))],
        edge_types=[edges],
        checks=[],
        splits=dict.fromkeys(SPLITS, 0),
    )
