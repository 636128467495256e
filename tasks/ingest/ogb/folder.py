"""A folder in OGB's layout to tables.

Memory: one chunk of every file that is read in step, plus one byte a node for each of the split and the labels, plus
(link tasks) the split files, which are not made for reading in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.source_files import is_file
from tasks.arrays import Array, offsets
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.edges import EdgeCheck, WeightCheck
from tasks.ingest.labels import LabelKind, has_label, say_unlabelled, to_labels
from tasks.ingest.ogb.meta import OgbMeta, atom_cardinalities, bond_cardinalities
from tasks.ingest.ogb.raw import EDGE, NODE, Raw, Triplet, labelled_types, open_raw
from tasks.ingest.ogb.splits import index_splits, link_split, split_folder, write_mappings
from tasks.ingest.raw_rows import FeatureKind, RawRows, Taker
from tasks.ingest.splits import write_row_splits
from tasks.ingest.writer import DatasetWriter
from tasks.readers.limits import check_memory
from tasks.stage import StageContext
from tasks.storage.file_names import joined_name
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, NodeType

_Find = Callable[[str], RawRows | None]
_Files = dict[str, tuple[str, Any]]
_Counts = tuple[int, object]
"""Rows that a table has, and the file that says so."""

_CHUNK_ROWS, _CHUNK_BYTES = 1 << 18, 8 << 20
# Additional files that mean something to later stages: name to column and dtype.
_NODE_FILES: _Files = {"node_year": ("time", np.int64), "node_species": ("species", np.int64)}
_EDGE_FILES: _Files = {"edge_weight": ("weight", np.float64), "edge_year": ("time", np.int64)}


@dataclass
class _Job:
    raw: Raw
    meta: OgbMeta
    categorical: bool
    writer: DatasetWriter
    context: StageContext
    label_kind: LabelKind
    target: str
    labelled: Array | None = None
    node_features: dict[str, tuple[FeatureColumn, ...]] = field(default_factory=dict)
    edge_features: dict[Triplet, tuple[FeatureColumn, ...]] = field(default_factory=dict)
    checks: list[EdgeCheck] = field(default_factory=list)

    def total_nodes(self, kind: str) -> int:
        return int(self.raw.num_nodes[kind].sum())


def ingest_folder(folder: Path, meta: OgbMeta, categorical: bool, context: StageContext) -> dict[str, Any]:
    """Read raw/, split/ and mapping/; return the fields of DatasetManifest. Raises DataError."""
    raw = open_raw(folder, meta)
    splits = split_folder(folder, meta)
    target = _target_type(raw, meta)
    kind = LabelKind(meta.task_type, meta.num_classes, meta.num_tasks)
    with DatasetWriter(context.work) as writer:
        job = _Job(raw, meta, categorical, writer, context, kind, target)
        for node_type in raw.num_nodes:
            _write_nodes(job, node_type)
        for triplet in raw.num_edges:
            _write_edges(job, triplet)
        if meta.task == "graph":
            _write_graphs(job)
        if meta.task == "link":
            for split in SPLITS:
                positive, negative = link_split(splits, split, job.total_nodes(target))
                writer.write(f"split/{split}", positive)
                if negative is not None and split != "train":
                    writer.write(f"split/{split}_negative", negative)
        else:
            _write_index_splits(job, splits)
        write_mappings(folder, raw, meta, writer, context)
    return dataset_fields(
        writer,
        meta.name,
        meta.task_type,
        num_classes=meta.num_classes,
        num_tasks=meta.num_tasks,
        metric=meta.metric,
        ogb_name=meta.name if meta.listed else None,
        directed=meta.directed,
        node_types=[
            NodeType(name=kind, num_nodes=job.total_nodes(kind), features=job.node_features[kind])
            for kind in raw.num_nodes
        ],
        edge_types=[
            EdgeType(source=s, relation=r, target=t, num_edges=int(n.sum()), features=job.edge_features[s, r, t])
            for (s, r, t), n in raw.num_edges.items()
        ],
        target_type=target,
        checks=job.checks,
    )


def check_release(folder: Path, meta: OgbMeta, context: StageContext) -> None:
    """Warn of another version than OGB's present one."""
    releases = sorted(path.name for path in folder.glob("RELEASE_v*.txt"))
    if meta.listed and releases and f"RELEASE_v{meta.version}.txt" not in releases:
        context.warn(f"{folder} is {releases[-1]}, OGB's present version is {meta.version}; results may not compare")


def _target_type(raw: Raw, meta: OgbMeta) -> str:
    if meta.task != "graph" and any(len(counts) != 1 for counts in raw.num_nodes.values()):
        graphs = len(next(iter(raw.num_nodes.values())))
        why = f"counts {graphs:,} graphs; a {meta.task} task has one"
        raise DataError(why, path=raw.folder / "raw" / raw.count_file)
    if list(raw.num_nodes) == [NODE]:
        return NODE
    if meta.task != "node":
        why = f"has several node types; graphmill reads those for node tasks, not {meta.task}"
        raise DataError(why, path=raw.folder)
    marks = raw.folder / "raw" / "nodetype-has-label.csv.gz"
    kinds = labelled_types(marks)
    if len(kinds) != 1 or kinds[0] not in raw.num_nodes:
        raise DataError(f"marks {kinds or 'no node type'} as labelled; exactly one known type is needed", path=marks)
    return kinds[0]


class _Columns:
    """Features and additional columns of one table, read in step from a file each."""

    def __init__(self, find: _Find, files: _Files, categorical: bool, codes: tuple[int, ...], counts: _Counts) -> None:
        """`find` opens one of the `files` by its name in OGB's layout; `codes`: how many there are, of molecules."""
        self.features: FeatureKind | None = None
        self._takers: dict[str, Taker] = {}
        self._weights: WeightCheck | None = None
        if (rows := find("feat")) is not None:
            self.features = FeatureKind("feat", categorical, codes, rows.path)
            rows.check_count(*counts)
            chunks = self.features.checked(rows.chunks(self.features.dtype, len(codes) or None))
            self._takers["feat"] = Taker(rows.path, chunks, *counts)
        for name, (column, dtype) in files.items():
            if (rows := find(name)) is not None:
                rows.check_count(*counts)
                self._takers[column] = Taker(rows.path, rows.chunks(dtype, 1), *counts)
                self._weights = WeightCheck(rows.path) if column == "weight" else self._weights
        # Molecules' features have a known width; that of others is known when the first rows are read.
        width = self.features.width if self.features else 1
        self.step = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // (8 * max(1, width))))

    def take(self, count: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the next rows of features and of the additional columns."""
        taken = {column: taker.take(count) for column, taker in self._takers.items()}
        feat = {"feat": taken.pop("feat")} if "feat" in taken else {}
        others = {column: np.ascontiguousarray(values[:, 0]) for column, values in taken.items()}
        if self._weights is not None:
            others["weight"] = self._weights.add(others["weight"])
        return feat, others

    def finish(self) -> tuple[FeatureColumn, ...]:
        """Return the features; all rows were taken. Raises DataError where a file has more."""
        for taker in self._takers.values():
            taker.finish()
        if self._weights is not None:
            self._weights.finish()
        return (self.features.describe(),) if self.features else ()


def _write_nodes(job: _Job, kind: str) -> None:
    raw, total = job.raw, job.total_nodes(kind)
    find = partial(raw.node_rows, kind)
    codes = atom_cardinalities() if job.meta.molecules else ()
    columns = _Columns(find, _NODE_FILES, job.categorical, codes, (total, raw.count_file))
    label_taker = _label_taker(job, total) if kind == job.target and job.meta.task == "node" else None
    with job.writer.table(f"nodes/{kind}") as table:
        for first, n in _portions(total, columns.step):
            feat, others = columns.take(n)
            label = {"label": _take_labels(job, label_taker, first, n)} if label_taker else {}
            table.write({"node_id": np.arange(first, first + n, dtype=np.int64), **feat, **label, **others})
            job.context.progress(first + n, total, f"{kind} nodes" if kind != NODE else "nodes")
    if label_taker is not None:
        label_taker.finish()
    job.node_features[kind] = columns.finish()


def _portions(total: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield (first, count) portions; one empty portion where there is nothing."""
    for first in range(0, max(1, total), step):
        yield first, min(step, total - first)


def _label_taker(job: _Job, total: int) -> Taker:
    rows = job.raw.graph_labels() if job.meta.task == "graph" else job.raw.node_rows(job.target, "label")
    if rows is None:
        raise DataError(f"has no labels: raw/ lacks the {job.meta.task}-label file", path=job.raw.folder)
    rows.check_count(total, job.raw.count_file)
    check_memory(total, f"a mark for each of {total:,} labels", job.raw.count_file)
    job.labelled = np.zeros(total, np.bool_)
    chunks = rows.chunks(np.float64, job.label_kind.width, missing=True)
    return Taker(rows.path, chunks, total, job.raw.count_file)


def _take_labels(job: _Job, taker: Taker, first: int, count: int) -> Array:
    values = taker.take(count).reshape(count, job.label_kind.width)
    labels = to_labels(values, job.label_kind, taker.path, first)
    assert job.labelled is not None
    job.labelled[first : first + count] = has_label(labels)
    return labels


def _write_edges(job: _Job, triplet: Triplet) -> None:
    raw, total = job.raw, int(job.raw.num_edges[triplet].sum())
    source, _, target = triplet
    rows = raw.edge_rows(triplet, "edge")
    assert rows is not None, triplet
    num_src, num_dst = job.total_nodes(source), job.total_nodes(target)
    kind = id_dtype(max(num_src, num_dst))
    counts = (total, "num-edge-list")
    rows.check_count(*counts)
    edges = Taker(rows.path, rows.chunks(kind, 2), *counts)
    codes = bond_cardinalities() if job.meta.molecules else ()
    columns = _Columns(partial(raw.edge_rows, triplet), _EDGE_FILES, job.categorical, codes, counts)
    starts = (offsets(raw.num_nodes[NODE]), offsets(raw.num_edges[EDGE])) if job.meta.task == "graph" else None
    check = EdgeCheck(num_src, num_dst, same_type=source == target)
    job.checks.append(check)
    with job.writer.table(f"edges/{joined_name(triplet)}") as table:
        for first, n in _portions(total, columns.step):
            pair = edges.take(n) if n else np.empty((0, 2), kind)
            src, dst = np.ascontiguousarray(pair[:, 0]), np.ascontiguousarray(pair[:, 1])
            if starts is not None:
                src, dst = _over_all_graphs(src, dst, first, *starts, rows.path)
            check.add(src, dst, rows.path)
            feat, others = columns.take(n)
            table.write({"src": src, "dst": dst, **feat, **others})
            job.context.progress(first + n, total, "edges", "" if triplet == EDGE else " ".join(triplet))
    edges.finish()
    job.edge_features[triplet] = columns.finish()


def _over_all_graphs(
    src: Array, dst: Array, first: int, node_offsets: Array, edge_offsets: Array, path: object
) -> tuple[Array, Array]:
    """Return ids within graphs, of edges `first` and on, as ids over all. Raises DataError for one of no node."""
    graph = np.searchsorted(edge_offsets, np.arange(first, first + len(src)), side="right") - 1
    start, size = node_offsets[graph], np.diff(node_offsets)[graph]
    wrong = np.argwhere(np.stack([(ids < 0) | (ids >= size) for ids in (src, dst)], 1))
    if len(wrong):
        row, side = wrong[0].tolist()
        where = f"graph {graph[row]} has {size[row]} nodes"
        message = f"node id {(src, dst)[side][row]} is not in 0..{size[row] - 1}; {where}"
        raise DataError(message, path=path, row=first + row, column=side)
    return (src + start).astype(src.dtype), (dst + start).astype(dst.dtype)


def _write_graphs(job: _Job) -> None:
    nodes, edges = job.raw.num_nodes[NODE], job.raw.num_edges[EDGE]
    taker = _label_taker(job, len(nodes))
    with job.writer.table("graphs") as table:
        for first, n in _portions(len(nodes), max(1, _CHUNK_ROWS // job.label_kind.width)):
            table.write(
                {
                    "graph_id": np.arange(first, first + n, dtype=np.int64),
                    "num_nodes": nodes[first : first + n],
                    "num_edges": edges[first : first + n],
                    "label": _take_labels(job, taker, first, n),
                }
            )
    taker.finish()


def _write_index_splits(job: _Job, folder: Path) -> None:
    if is_file(folder / "nodetype-has-split.csv.gz"):
        kinds = labelled_types(folder / "nodetype-has-split.csv.gz")
        if kinds != [job.target]:
            raise DataError(f"marks {kinds}; labels are on {job.target}", path=folder / "nodetype-has-split.csv.gz")
        folder = folder / job.target
    what = "graph" if job.meta.task == "graph" else "node"
    assert job.labelled is not None
    say_unlabelled(job.labelled, what, job.context)
    write_row_splits(job.writer, index_splits(folder, len(job.labelled)), job.labelled, what, has_rows=True)
