"""One graph in a NumPy archive: what a notebook saves with `numpy.savez`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.registry import DATASETS
from tasks.arrays import Array
from tasks.ingest.base import FileDataset
from tasks.ingest.configs import NpzConfig
from tasks.ingest.features import finite_float32
from tasks.ingest.labels import NO_LABEL, say_unlabelled
from tasks.readers.limits import MAX_ROW_BYTES, check_memory
from tasks.readers.npy import NpyFile, check_row, member_names
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS

_MAX_CLASSES = 1 << 20  # a model has a row of weights for each


@DATASETS.register("npz")
class Npz(FileDataset):
    """One node-classification graph in a NumPy .npz file: edges, features (dense or CSR), labels, splits.

    For graphs that fit into memory: the whole file is read at once. Pickled arrays are refused.
    """

    Config = NpzConfig

    config: NpzConfig

    def ingest(self, context: StageContext) -> dict[str, Any]:
        """Check the arrays and write them as tables."""
        from tasks.ingest.edges import EdgeCheck
        from tasks.ingest.writer import DatasetWriter
        from tasks.storage.manifests import EdgeType, FeatureColumn, NodeType

        archive = _Archive(self.path)
        labels = archive.labels(self.config.labels)
        num_nodes = len(labels)
        say_unlabelled(labels >= 0, "node", context)
        edges = archive.edges(self.config.edges)
        check = EdgeCheck(num_nodes, num_nodes)
        check.add(edges[0], edges[1], archive.member(self.config.edges))
        features = archive.features(self.config.features, num_nodes)
        number = self.config.split_number
        splits = {name: archive.split(getattr(self.config, name), number, labels) for name in SPLITS}
        _refuse_overlap(splits, archive.path)
        num_classes = int(labels.max()) + 1
        binary = num_classes == 2
        label = np.where(labels < 0, np.nan, labels).astype(np.float32)[:, None] if binary else labels
        with DatasetWriter(context.work) as writer:
            node_id = np.arange(num_nodes, dtype=np.int64)
            columns = {"node_id": node_id, "label": label}
            if features is not None:
                columns["feat"] = features
            writer.write("nodes/node", columns)
            writer.write("edges/node__to__node", {"src": edges[0], "dst": edges[1]})
            for name, index in splits.items():
                writer.write(f"split/{name}", {"node_id": index})
        feature = () if features is None else (FeatureColumn(column="feat", kind="numeric", dim=features.shape[1]),)
        return {
            "dataset": archive.path.stem,
            "task": "node",
            "task_type": "binary" if binary else "multiclass",
            "num_classes": num_classes,
            "num_tasks": 1,
            "metric": self.config.metric,
            "directed": self.config.directed,
            "node_types": (NodeType(name="node", num_nodes=num_nodes, features=feature),),
            "edge_types": (EdgeType(source="node", relation="to", target="node", num_edges=edges.shape[1]),),
            "target_type": "node",
            "splits": {name: len(index) for name, index in splits.items()},
            "num_self_loops": check.num_self_loops,
            "num_duplicate_edges": check.num_duplicates,
            "tables": writer.tables,
        }


class _Archive:
    """Arrays of the file by name, checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = set(member_names(path))

    def member(self, name: str) -> str:
        """Name an array for messages."""
        return f"{self.path}[{name}]"

    def get(self, name: str, kinds: str = "iufb") -> Array:
        """Return an array of numbers of one of NumPy's `kinds`."""
        array = NpyFile(self.path, name).read()
        if array.dtype.kind not in kinds:
            wanted = "whole numbers" if "f" not in kinds else "numbers"
            raise DataError(f"holds {array.dtype}; {wanted} are needed", path=self.member(name))
        return array

    def whole(self, name: str, kinds: str = "iu") -> Array:
        """Return whole numbers (or a mask), int64 where they are numbers."""
        array = self.get(name, kinds)
        if array.dtype.kind == "b":
            return array
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{array.max()} does not fit int64", path=self.member(name))
        return array.astype(np.int64)

    def labels(self, name: str) -> Array:
        """Return labels, int64 (num_nodes,)."""
        labels = self.whole(name)
        if labels.ndim == 2 and labels.shape[1] == 1:
            labels = labels[:, 0]
        if labels.ndim != 1 or not len(labels):
            raise DataError(f"has the shape {labels.shape}; (num_nodes,) is needed", path=self.member(name))
        labels = np.where(np.isin(labels, NO_LABEL), -1, labels)
        if labels.min() < -1:
            row = int(np.argmin(labels))
            raise DataError(
                f"label {labels[row]} is below 0 ({np.count_nonzero(labels < -1):,} such rows): classes count from 0, "
                "and -1 and -100 stand for no label",
                path=self.member(name),
                row=row,
            )
        if labels.max() < 1:
            raise DataError("has fewer than two classes", path=self.member(name))
        if labels.max() >= _MAX_CLASSES:
            row = int(np.argmax(labels))
            raise DataError(
                f"label {labels[row]}: classes are numbered from 0, and there are {_MAX_CLASSES:,} at most; for "
                "amounts use tables and task_type: regression",
                path=self.member(name),
                row=row,
            )
        return labels

    def edges(self, name: str) -> Array:
        """Return edges, int64 (2, m)."""
        edges = self.whole(name)
        if edges.ndim != 2 or 2 not in edges.shape:
            raise DataError(f"has the shape {edges.shape}; (2, m) or (m, 2) is needed", path=self.member(name))
        return np.ascontiguousarray(edges if edges.shape[0] == 2 else edges.T)

    def features(self, name: str, num_nodes: int) -> Array | None:
        """Return features, float32 (num_nodes, dim); None where the file has none under the default name."""
        if name not in self.names and {f"{name}_{part}" for part in ("indptr", "indices", "data")} <= self.names:
            array = self._from_csr(name, num_nodes)
        elif name not in self.names and name == "x":
            return None
        else:
            header = NpyFile(self.path, name).header()
            if header.shape == (num_nodes, 0):  # how some libraries say that there are none
                return None
            if len(header.shape) != 2 or header.shape[0] != num_nodes:
                shape = f"({num_nodes:,}, dim)"
                raise DataError(f"has the shape {header.shape}; {shape} is needed", path=self.member(name))
            check_row(header, self.member(name))
            array = self.get(name)
        return finite_float32(array, self.member(name))

    def _from_csr(self, name: str, num_nodes: int) -> Array:
        """Return a dense matrix of the CSR parts `NAME_indptr`, `NAME_indices` and `NAME_data`."""
        import scipy.sparse as sp

        indptr, indices = (self.whole(f"{name}_{part}") for part in ("indptr", "indices"))
        data = self.get(f"{name}_data")
        path = self.member(f"{name}_indptr")
        if indptr.shape != (num_nodes + 1,) or indices.ndim != 1 or data.shape != indices.shape:
            shapes = f"{indptr.shape}, {indices.shape} and {data.shape}"
            raise DataError(f"is no CSR matrix of {num_nodes:,} rows: its parts have the shapes {shapes}", path=path)
        width = int(indices.max()) + 1 if len(indices) else 0
        if "num_features" in self.names:
            given = self.get("num_features", "iu").reshape(-1)
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

    def split(self, name: str, number: int, labels: Array) -> Array:
        """Return the labelled nodes of a split, ascending int64."""
        given = self._one_split(name, number, len(labels))
        if given.dtype.kind == "b":
            given = np.flatnonzero(given)
        index = np.sort(given)
        wrong = np.flatnonzero((index < 0) | (index >= len(labels)))
        if len(wrong):
            raise DataError(f"node id {index[wrong[0]]} is not in 0..{len(labels) - 1}", path=self.member(name))
        repeated = index[1:][index[1:] == index[:-1]]
        if len(repeated):
            raise DataError(f"node {repeated[0]} stands twice", path=self.member(name))
        unlabelled = index[labels[index] < 0]
        if len(unlabelled):
            raise DataError(f"node {unlabelled[0]} has no label", path=self.member(name))
        return index

    def _one_split(self, name: str, number: int, num_nodes: int) -> Array:
        """Return a split as the file has it: node numbers (k,) or a mask (num_nodes,)."""
        given = self.whole(name, "iub")
        wrong = _no_mask(given.shape, num_nodes) if given.dtype.kind == "b" else _no_numbers(given.shape)
        if wrong:
            raise DataError(f"has the shape {given.shape}; {wrong}", path=self.member(name))
        if given.ndim == 2 and given.shape[1] == 1:
            return given[:, 0]
        if given.ndim == 1:
            return given
        if number >= len(given):
            raise DataError(f"has {len(given)} splits; dataset.split_number must be below that", path=self.member(name))
        return np.asarray(given[number])


def _no_numbers(shape: tuple[int, ...]) -> str | None:
    """Say why an array of this shape holds no node numbers: (k,), a column (k, 1), or (splits, k)."""
    if len(shape) == 1 or (len(shape) == 2 and (shape[0] or shape[1] == 1)):
        return None
    return "node numbers or a mask are needed, (k,), or a row for each of several splits"


def _no_mask(shape: tuple[int, ...], num_nodes: int) -> str | None:
    """Say why an array of this shape masks no n nodes: (n,), a column (n, 1), or (splits, n)."""
    if shape == (num_nodes, num_nodes) and num_nodes > 1:
        return f"whether its splits are rows or columns cannot be told; save a mask of one split, ({num_nodes},)"
    if shape in ((num_nodes,), (num_nodes, 1)) or (len(shape) == 2 and shape[0] and shape[1] == num_nodes):
        return None
    if len(shape) == 2 and shape[0] == num_nodes:
        return f"of several splits a row each is needed, (splits, {num_nodes}): save it transposed"
    return f"a mask of {num_nodes} nodes is needed, ({num_nodes},), or a row of them for each of several splits"


def _refuse_overlap(splits: dict[str, Array], path: Path) -> None:
    for first, second in itertools.combinations(splits, 2):
        both = np.intersect1d(splits[first], splits[second])
        if len(both):
            raise DataError(f"node {both[0]} is in {first} and in {second}", path=path)
