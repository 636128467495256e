"""One graph in a NumPy archive: what a notebook saves with `numpy.savez`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from configs.registry import DATASETS
from tasks.arrays import Array
from tasks.ingest.base import FileDataset
from tasks.ingest.configs import NpzConfig
from tasks.ingest.labels import has_label, number_labels, say_unlabelled
from tasks.readers.arrays.npy import NpyFile, check_row, member_names
from tasks.readers.limits import MAX_ROW_BYTES, check_memory
from tasks.readers.numbers import checked_cast
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, TaskType


@DATASETS.register("npz")
class Npz(FileDataset):
    """One graph in a NumPy .npz file: edges, features (dense or CSR), classes of nodes or edges, splits.

    For graphs that fit into memory: the whole file is read at once. Pickled arrays are refused.
    """

    config: NpzConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the arrays and write them as tables."""
        from tasks.ingest.dataset_fields import dataset_fields
        from tasks.ingest.edges import EdgeCheck
        from tasks.ingest.splits import write_edge_labels, write_row_splits
        from tasks.ingest.writer import DatasetWriter

        config, archive = self.config, _Archive(self.path, self.config)
        of_edges, num_rows = config.task == "edge", archive.num_rows()
        num_nodes = None if of_edges else num_rows
        if num_nodes is not None:
            archive.check_shapes(num_nodes, num_nodes)
        edges = archive.whole(config.edges)
        edges = np.ascontiguousarray(edges if edges.shape[0] == 2 else edges.T)
        task_type: TaskType = "multilabel"
        if num_rows is None:
            label, num_nodes = archive.label_pairs(edges)
            archive.check_shapes(num_nodes, num_nodes)
            num_classes = 2
        else:
            if num_nodes is None:
                num_nodes = archive.count_nodes(int(edges.max()))
                archive.check_shapes(num_nodes, num_rows)
            values = archive.whole(config.labels).reshape(-1, 1).astype(np.float64)
            of_amounts = "for amounts use tables and task_type: regression"
            place = archive.member(config.labels)
            task_type, num_classes, label = number_labels(values, None, place, of_amounts=of_amounts)
        labelled = has_label(label)
        say_unlabelled(labelled, config.task, context)
        check = EdgeCheck(num_nodes, num_nodes)
        check.add(edges[0], edges[1], archive.member(config.edges))
        nodes, joined = {"node_id": np.arange(num_nodes, dtype=np.int64)}, {"src": edges[0], "dst": edges[1]}
        features = archive.features(num_nodes, config.features, "x")
        nodes |= {} if features is None else {"feat": features}
        fields: dict[str, Any] = {}
        with DatasetWriter(context.work) as writer:
            if of_edges:
                keep = config.scored_edges == "keep"
                fields = write_edge_labels(writer, "node__to__node", label, keep=keep, ordered=config.directed)
                num_edges, columns = edges.shape[1], tuple[FeatureColumn, ...]()
                carried = archive.features(num_edges, config.edge_features, "edge_attr")
                if carried is not None:
                    joined["feat"] = carried
                    columns = (FeatureColumn(column="feat", kind="numeric", dim=carried.shape[1]),)
                kind = EdgeType(source="node", relation="to", target="node", num_edges=num_edges, features=columns)
                fields["edge_types"] = (kind,)
            else:
                nodes["label"] = label
            writer.write("nodes/node", nodes)
            writer.write("edges/node__to__node", joined)
            ids = [archive.split(getattr(config, split)) for split in SPLITS]
            write_row_splits(writer, ids, labelled, config.task)
        return dataset_fields(
            writer,
            archive.path.stem,
            task_type,
            num_classes=num_classes,
            metric=config.metric or ("f1" if task_type == "multilabel" else "accuracy"),
            directed=config.directed,
            checks=[check],
            **fields,
        )


class _Archive:
    def __init__(self, path: Path, config: NpzConfig) -> None:
        self.path, self.config = path, config
        self.names = set(member_names(path))
        parts = [f"{config.features}_{part}" for part in ("indptr", "indices", "data")]
        self.csr_parts = parts if config.features not in self.names and self.names.issuperset(parts) else []
        """Names of the parts of a CSR matrix of features; none where it is dense or not there."""

    def member(self, name: str) -> str:
        return f"{self.path}[{name}]"

    def shape(self, name: str) -> tuple[int, ...]:
        return NpyFile(self.path, name).header().shape

    def num_rows(self) -> int | None:
        """Return how many nodes (or edges) have labels; None of pairs. Raises DataError, also for edges' shape.

        Headers alone are read: a small file can unpack to gigabytes.
        """
        config = self.config
        if config.labels not in self.names:
            raise DataError(
                f"has no array {config.labels!r}{did_you_mean(config.labels, self.names)}: name that of the labels "
                f"(dataset.labels); it has {listed(sorted(self.names))}. Edges without labels are read from tables",
                path=self.path,
            )
        edges, labels = self.shape(config.edges), self.shape(config.labels)
        if len(edges) != 2 or 2 not in edges:
            raise DataError(f"has the shape {edges}; (2, m) or (m, 2) is needed", path=self.member(config.edges))
        is_pairs = len(labels) == 2 and labels[1] == 2 and labels[0] > 0
        if config.label_form == "pairs":
            if not is_pairs:
                raise DataError(f"has the shape {labels}; pairs are (k, 2)", path=self.member(config.labels))
            return None
        if len(labels) not in (1, 2) or labels[1:] not in ((), (1,)) or not labels[0]:
            hint = "; if these are pairs of a node and a label, dataset.label_form=pairs" if is_pairs else ""
            raise DataError(f"has the shape {labels}; (num_nodes,) is needed{hint}", path=self.member(config.labels))
        num_edges = edges[1] if edges[0] == 2 else edges[0]
        if config.task == "edge" and labels[0] != num_edges:
            raise DataError(f"has {labels[0]:,} rows for {num_edges:,} edges", path=self.member(config.labels))
        return labels[0]

    def count_nodes(self, largest: int) -> int:
        if self.csr_parts:
            return self.shape(self.csr_parts[0])[0] - 1
        return self.shape(self.config.features)[0] if self.config.features in self.names else largest + 1

    def check_shapes(self, num_nodes: int, num_rows: int) -> None:
        """Refuse features and splits, of `num_rows`, whose shapes do not fit, by their headers. Raises DataError."""
        if self.csr_parts:
            shapes = [self.shape(part) for part in self.csr_parts]
            too_many = shapes[1][:1] > (num_nodes * (MAX_ROW_BYTES // 4),)
            if shapes[0] != (num_nodes + 1,) or len(shapes[1]) != 1 or shapes[2] != shapes[1] or too_many:
                raise DataError(
                    f"is no CSR matrix of {num_nodes:,} rows: its parts have the shapes {shapes[0]}, {shapes[1]} and "
                    f"{shapes[2]}",
                    path=self.member(self.csr_parts[0]),
                )
        elif self.config.features in self.names:
            self._check_features(num_nodes, self.config.features)
        for name in (getattr(self.config, split) for split in SPLITS):
            header = NpyFile(self.path, name).header()
            wrong = (_no_mask if header.dtype.kind == "b" else _no_numbers)(
                header.shape, num_rows, f"{self.config.task}s"
            )
            if wrong:
                raise DataError(f"has the shape {header.shape}; {wrong}", path=self.member(name))

    def whole(self, name: str, kinds: str = "iu") -> Array:
        """Return an array of NumPy's `kinds`: numbers, or a mask; whole numbers as int64."""
        file = NpyFile(self.path, name)
        kind = file.header().dtype
        if kind.kind not in kinds:
            needed = "whole numbers" if "f" not in kinds else "numbers"
            raise DataError(f"holds {kind}; {needed} are needed", path=self.member(name))
        array = file.read()
        if kind.kind not in "iu":
            return array
        if kind.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{array.max()} does not fit int64", path=self.member(name))
        return array.astype(np.int64, copy=False)

    def label_pairs(self, edges: Array) -> tuple[Array, int]:
        """Return pairs as labels, float32 (num_nodes, labels) of 0 and 1, NaN where a node has none, and num_nodes."""
        pairs, place = self.whole(self.config.labels), self.member(self.config.labels)
        below = np.argwhere(pairs < 0)
        if len(below):
            row, column = below[0].tolist()
            raise DataError(f"{pairs[row, column]} is below 0: nodes and labels count from 0", path=place, row=row)
        num_nodes = self.count_nodes(max(int(pairs[:, 0].max()), int(edges.max(initial=-1))))
        if int(pairs[:, 0].max()) >= num_nodes:
            row = int(pairs[:, 0].argmax())
            raise DataError(f"node id {pairs[row, 0]} is not in 0..{num_nodes - 1}", path=place, row=row)
        width = int(pairs[:, 1].max()) + 1
        if width * 4 > MAX_ROW_BYTES:
            raise DataError(f"has {width:,} labels; {MAX_ROW_BYTES // 4:,} are possible", path=place)
        check_memory(num_nodes * width * 4, "the matrix of labels", place)
        label = np.full((num_nodes, width), np.nan, np.float32)
        label[pairs[:, 0]] = 0
        label[pairs[:, 0], pairs[:, 1]] = 1
        return label, num_nodes

    def features(self, count: int, name: str, usual: str) -> Array | None:
        """Return features, float32 (count, dim); None where the file has none under the default name."""
        if self.csr_parts and name == self.config.features:
            array = self._from_csr(count)
        elif (name not in self.names and name == usual) or not self._check_features(count, name):
            return None
        else:
            array = self.whole(name, "iufb")
        return checked_cast(array, np.float32, self.member(name))

    def _check_features(self, count: int, name: str) -> bool:
        """Return whether the matrix has columns; some libraries say so that there are none. Raises DataError."""
        header = NpyFile(self.path, name).header()
        if header.shape == (count, 0):
            return False
        if len(header.shape) != 2 or header.shape[0] != count:
            raise DataError(f"has the shape {header.shape}; ({count:,}, dim) is needed", path=self.member(name))
        check_row(header, self.member(name))
        return True

    def _from_csr(self, num_nodes: int) -> Array:
        """Return a dense matrix of the CSR parts `NAME_indptr`, `NAME_indices` and `NAME_data`."""
        import scipy.sparse as sp

        indptr, indices = (self.whole(part) for part in self.csr_parts[:2])
        data = self.whole(self.csr_parts[2], "iufb")
        path = self.member(self.csr_parts[0])
        width = int(indices.max()) + 1 if len(indices) else 0
        if "num_features" in self.names:
            given = self.whole("num_features").reshape(-1)
            if len(given) != 1 or int(given[0]) < width:
                raise DataError(f"is not a number of at least {width}", path=self.member("num_features"))
            width = int(given[0])
        if width == 0 or width * 4 > MAX_ROW_BYTES:
            raise DataError(f"has {width:,} columns; a row has between one and {MAX_ROW_BYTES // 4:,}", path=path)
        check_memory(num_nodes * width * 8, "the matrix of features", path)
        try:
            matrix = sp.csr_matrix((data, indices, indptr), shape=(num_nodes, width))
            matrix.check_format(full_check=True)
        except (ValueError, TypeError, IndexError) as error:
            raise DataError(f"is no CSR matrix ({error})", path=path) from error
        return np.asarray(matrix.toarray())

    def split(self, name: str) -> tuple[Array, str]:
        """Return the rows of a split, int64 (k,), and where they stand."""
        number, place = self.config.split_number, self.member(name)
        given = self.whole(name, "iub")
        if given.ndim == 2 and given.shape[1] == 1:
            given = given[:, 0]
        elif given.ndim == 2:
            if number >= len(given):
                raise DataError(f"has {len(given)} splits; dataset.split_number must be below that", path=place)
            given = given[number]
        return (np.flatnonzero(given) if given.dtype.kind == "b" else given), place


def _no_numbers(shape: tuple[int, ...], count: int, what: str) -> str | None:
    """Say why an array of this shape holds no numbers of n rows: (k,), a column (k, 1), or (splits, k)."""
    if len(shape) == 1 or (len(shape) == 2 and (shape[0] or shape[1] == 1)):
        given = shape[-1] if len(shape) == 2 and shape[1] != 1 else shape[0]
        return f"there are {count:,} {what}, and each stands once at most" if given > count else None
    return f"{what[:-1]} numbers or a mask are needed, (k,), or a row for each of several splits"


def _no_mask(shape: tuple[int, ...], count: int, what: str) -> str | None:
    """Say why an array of this shape masks no n nodes: (n,), a column (n, 1), or (splits, n)."""
    if shape == (count, count) and count > 1:
        return f"whether its splits are rows or columns cannot be told; save a mask of one split, ({count},)"
    if shape in ((count,), (count, 1)) or (len(shape) == 2 and shape[0] and shape[1] == count):
        return None
    if len(shape) == 2 and shape[0] == count:
        return f"of several splits a row each is needed, (splits, {count}): save it transposed"
    return f"a mask of {count} {what} is needed, ({count},), or a row of them for each of several splits"
