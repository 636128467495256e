"""One graph in a NumPy archive: what a notebook saves with `numpy.savez`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from configs.registry import DATASETS
from tasks.arrays import Array
from tasks.ingest.base import FileDataset
from tasks.ingest.configs import NpzConfig
from tasks.ingest.features import finite_float32
from tasks.ingest.labels import NO_LABEL, has_label, say_unlabelled
from tasks.readers.limits import MAX_ROW_BYTES, check_memory
from tasks.readers.npy import NpyFile, check_row, member_names
from tasks.stage import StageContext
from tasks.storage.manifests import SPLITS, TaskType

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
        from tasks.ingest.dataset_fields import dataset_fields
        from tasks.ingest.edges import EdgeCheck
        from tasks.ingest.writer import DatasetWriter

        config, archive = self.config, _Archive(self.path)
        task_type: TaskType
        num_nodes = archive.num_nodes(config)
        if num_nodes is not None:
            archive.check_shapes(config, num_nodes)
        edges = archive.edges(config.edges)
        if num_nodes is None:
            label, num_nodes = archive.label_pairs(config, edges)
            archive.check_shapes(config, num_nodes)
            num_classes, task_type = 2, "multilabel"
        else:
            label = archive.labels(config.labels)
            num_classes = int(label.max()) + 1
            task_type = "binary" if num_classes == 2 else "multiclass"
            if task_type == "binary":
                label = np.where(label < 0, np.nan, label).astype(np.float32)[:, None]
        labelled = has_label(label)
        say_unlabelled(labelled, "node", context)
        check = EdgeCheck(num_nodes, num_nodes)
        check.add(edges[0], edges[1], archive.member(config.edges))
        features = archive.features(config.features, num_nodes)
        splits = {name: archive.split(getattr(config, name), config.split_number, labelled) for name in SPLITS}
        _refuse_overlap(splits, archive.path)
        with DatasetWriter(context.work) as writer:
            node_id = np.arange(num_nodes, dtype=np.int64)
            columns = {"node_id": node_id, "label": label}
            if features is not None:
                columns["feat"] = features
            writer.write("nodes/node", columns)
            writer.write("edges/node__to__node", {"src": edges[0], "dst": edges[1]})
            for name, index in splits.items():
                writer.write(f"split/{name}", {"node_id": index})
        return dataset_fields(
            writer,
            archive.path.stem,
            task_type,
            num_classes=num_classes,
            metric=config.metric or ("f1" if task_type == "multilabel" else "accuracy"),
            directed=config.directed,
            checks=[check],
        )


class _Archive:
    """Arrays of the file by name, checked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names = set(member_names(path))

    def member(self, name: str) -> str:
        """Name an array for messages."""
        return f"{self.path}[{name}]"

    def shape(self, name: str) -> tuple[int, ...]:
        """Return an array's shape, by its header."""
        return NpyFile(self.path, name).header().shape

    def num_nodes(self, config: NpzConfig) -> int | None:
        """Return how many nodes the labels' shape says; None of pairs. Raises DataError, also for edges' shape.

        Headers alone are read: a small file can unpack to gigabytes.
        """
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
        return labels[0]

    def check_shapes(self, config: NpzConfig, num_nodes: int) -> None:
        """Refuse features and splits whose shapes do not fit, by their headers. Raises DataError."""
        parts = self._csr_parts(config.features)
        if parts:
            self._check_csr(parts, num_nodes)
        elif config.features in self.names:
            self._check_features(config.features, num_nodes)
        for split in SPLITS:
            header = NpyFile(self.path, getattr(config, split)).header()
            wrong = (
                _no_mask(header.shape, num_nodes) if header.dtype.kind == "b" else _no_numbers(header.shape, num_nodes)
            )
            if wrong:
                raise DataError(f"has the shape {header.shape}; {wrong}", path=self.member(getattr(config, split)))

    def get(self, name: str, kinds: str = "iufb") -> Array:
        """Return an array of numbers of one of NumPy's `kinds`."""
        file = NpyFile(self.path, name)
        kind = file.header().dtype
        if kind.kind not in kinds:
            wanted = "whole numbers" if "f" not in kinds else "numbers"
            raise DataError(f"holds {kind}; {wanted} are needed", path=self.member(name))
        return file.read()

    def whole(self, name: str, kinds: str = "iu") -> Array:
        """Return whole numbers (or a mask), int64 where they are numbers."""
        array = self.get(name, kinds)
        if array.dtype.kind == "b":
            return array
        if array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
            raise DataError(f"{array.max()} does not fit int64", path=self.member(name))
        return array.astype(np.int64, copy=False)

    def labels(self, name: str) -> Array:
        """Return labels, int64 (num_nodes,)."""
        labels = self.whole(name).reshape(-1)
        for value in NO_LABEL:
            labels[labels == value] = -1
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

    def label_pairs(self, config: NpzConfig, edges: Array) -> tuple[Array, int]:
        """Return pairs as labels, float32 (num_nodes, labels) of 0 and 1, NaN where a node has none, and num_nodes."""
        pairs, place = self.whole(config.labels), self.member(config.labels)
        below = np.argwhere(pairs < 0)
        if len(below):
            row, column = below[0].tolist()
            raise DataError(f"{pairs[row, column]} is below 0: nodes and labels count from 0", path=place, row=row)
        has_matrix = config.features in self.names
        largest = max(int(pairs[:, 0].max()), int(edges.max(initial=-1)))
        num_nodes = self.shape(config.features)[0] if has_matrix else largest + 1
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

    def edges(self, name: str) -> Array:
        """Return edges, int64 (2, m)."""
        edges = self.whole(name)
        return np.ascontiguousarray(edges if edges.shape[0] == 2 else edges.T)

    def features(self, name: str, num_nodes: int) -> Array | None:
        """Return features, float32 (num_nodes, dim); None where the file has none under the default name."""
        if self._csr_parts(name):
            array = self._from_csr(name, num_nodes)
        elif (name not in self.names and name == "x") or not self._check_features(name, num_nodes):
            return None
        else:
            array = self.get(name)
        return finite_float32(array, self.member(name))

    def _check_features(self, name: str, num_nodes: int) -> bool:
        """Return whether a matrix has columns; some libraries say so that there are none. Raises DataError."""
        header = NpyFile(self.path, name).header()
        if header.shape == (num_nodes, 0):
            return False
        if len(header.shape) != 2 or header.shape[0] != num_nodes:
            raise DataError(f"has the shape {header.shape}; ({num_nodes:,}, dim) is needed", path=self.member(name))
        check_row(header, self.member(name))
        return True

    def _csr_parts(self, name: str) -> list[str]:
        """Return the names of the parts of a CSR matrix; none where it is dense or not there."""
        parts = [f"{name}_{part}" for part in ("indptr", "indices", "data")]
        return parts if name not in self.names and self.names.issuperset(parts) else []

    def _check_csr(self, parts: list[str], num_nodes: int) -> None:
        shapes = [self.shape(part) for part in parts]
        too_many = shapes[1][:1] > (num_nodes * (MAX_ROW_BYTES // 4),)
        if shapes[0] != (num_nodes + 1,) or len(shapes[1]) != 1 or shapes[2] != shapes[1] or too_many:
            said = f"{shapes[0]}, {shapes[1]} and {shapes[2]}"
            raise DataError(
                f"is no CSR matrix of {num_nodes:,} rows: its parts have the shapes {said}", path=self.member(parts[0])
            )

    def _from_csr(self, name: str, num_nodes: int) -> Array:
        """Return a dense matrix of the CSR parts `NAME_indptr`, `NAME_indices` and `NAME_data`."""
        import scipy.sparse as sp

        indptr, indices = (self.whole(f"{name}_{part}") for part in ("indptr", "indices"))
        data = self.get(f"{name}_data")
        path = self.member(f"{name}_indptr")
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

    def split(self, name: str, number: int, labelled: Array) -> Array:
        """Return the nodes of a split, ascending int64, all of which are `labelled`, bool (num_nodes,)."""
        given = self._one_split(name, number)
        if given.dtype.kind == "b":
            given = np.flatnonzero(given)
        index = np.sort(given)
        wrong = np.flatnonzero((index < 0) | (index >= len(labelled)))
        if len(wrong):
            raise DataError(f"node id {index[wrong[0]]} is not in 0..{len(labelled) - 1}", path=self.member(name))
        repeated = index[1:][index[1:] == index[:-1]]
        if len(repeated):
            raise DataError(f"node {repeated[0]} stands twice", path=self.member(name))
        unlabelled = index[~labelled[index]]
        if len(unlabelled):
            raise DataError(f"node {unlabelled[0]} has no label", path=self.member(name))
        return index

    def _one_split(self, name: str, number: int) -> Array:
        """Return a split as the file has it: node numbers (k,) or a mask (num_nodes,)."""
        given = self.whole(name, "iub")
        if given.ndim == 2 and given.shape[1] == 1:
            return given[:, 0]
        if given.ndim == 1:
            return given
        if number >= len(given):
            raise DataError(f"has {len(given)} splits; dataset.split_number must be below that", path=self.member(name))
        return np.asarray(given[number])


def _no_numbers(shape: tuple[int, ...], num_nodes: int) -> str | None:
    """Say why an array of this shape holds no numbers of n nodes: (k,), a column (k, 1), or (splits, k)."""
    if len(shape) == 1 or (len(shape) == 2 and (shape[0] or shape[1] == 1)):
        count = shape[-1] if len(shape) == 2 and shape[1] != 1 else shape[0]
        return f"there are {num_nodes:,} nodes, and each stands once at most" if count > num_nodes else None
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
