"""Read `split/`: indices as CSV, or NumPy arrays and tensors in torch's format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import is_file, is_folder, names_in
from tasks.arrays import Array
from tasks.ingest.edges import WeightCheck
from tasks.ingest.ogb.meta import OgbMeta
from tasks.readers.arrays.torch_files import load_torch
from tasks.readers.numbers import checked_cast, read_numbers
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS


def split_folder(folder: Path, meta: OgbMeta) -> Path:
    """Return the folder of the split that counts. Raises DataError."""
    split = folder / "split"
    there = sorted(path.name for path in names_in(split) if is_folder(path)) if is_folder(split) else []
    name = meta.split or (there[0] if len(there) == 1 else "")
    if not name:
        what = f"several splits ({', '.join(there)}); choose one by dataset.split" if there else "no split/ folder"
        raise DataError(f"has {what}", path=folder)
    if name not in there:
        raise DataError(f"has no split/{name}; it has {', '.join(there) or 'none'}", path=folder)
    return split / name


def index_splits(folder: Path, num_items: int) -> Iterator[tuple[Array, object]]:
    """Yield ids (int64) of train, valid and test, and where they stand. Raises DataError where a file is missing."""
    packed = folder / "split_dict.pt"
    loaded = load_torch(packed) if is_file(packed) else None
    for split in SPLITS:
        if loaded is None:
            path = folder / f"{split}.csv.gz"
            yield read_numbers(path, np.int64, num_columns=1, most=2 * num_items)[:, 0], path
        else:
            name = f"{packed}[{split}]"
            yield checked_cast(as_array(loaded, split, packed).reshape(-1, 1), np.int64, name)[:, 0], name


def as_array(loaded: Any, key: str, path: Path) -> Array:
    """Return one entry of a loaded dictionary as NumPy. Raises DataError naming the keys that there are."""
    if not isinstance(loaded, dict) or key not in loaded:
        names = [name for name in loaded if isinstance(name, str)] if isinstance(loaded, dict) else []
        raise DataError(f"has no {key!r}; it has {listed(names) or 'no names'}", path=path)
    value = loaded[key]
    # A list of lists can stand for any number of values: each may be the same one.
    nested = isinstance(value, list | tuple) and any(not isinstance(item, int | float | np.generic) for item in value)
    array = np.empty(0, object) if nested or isinstance(value, dict) else np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise DataError(f"{key!r} holds {array.dtype}; numbers are needed", path=path)
    return array


def link_split(folder: Path, split: str, num_nodes: int) -> tuple[dict[str, Array], dict[str, Array] | None]:
    """Return positive and negative edges of one split as columns of the `split/...` tables.

    Positives: src, dst (m,), with weight and time where the file has them. Negatives: src, dst (n,), or src (m,) and
    dst (m, K) where each positive edge has its own candidates; None where the file has none.
    """
    path = folder / f"{split}.pt"
    loaded = load_torch(path)
    if isinstance(loaded, dict) and "source_node" in loaded:
        positive = {"src": as_array(loaded, "source_node", path), "dst": as_array(loaded, "target_node", path)}
        negative = None
        if "target_node_neg" in loaded:
            negative = {"src": positive["src"], "dst": as_array(loaded, "target_node_neg", path)}
            if len(negative["dst"]) != len(negative["src"]):
                raise DataError("'target_node_neg' and 'source_node' differ in length", path=path)
    else:
        positive = _pairs(loaded, "edge", path)
        negative = _pairs(loaded, "edge_neg", path) if "edge_neg" in loaded else None
    extras = {"weight": ("weight", np.float64), "year": ("time", np.int64)}
    for key, (column, dtype) in extras.items():
        if isinstance(loaded, dict) and key in loaded:
            positive[column] = checked_cast(as_array(loaded, key, path).reshape(-1, 1), dtype, path)[:, 0]
    if "weight" in positive:
        positive["weight"] = WeightCheck(path, "weight").add(positive["weight"])
    for column, values in positive.items():
        if values.ndim != 1:
            raise DataError(f"{column!r} has the shape {values.shape}; one value an edge is needed", path=path)
    sizes = {column: len(values) for column, values in positive.items()}
    if len(set(sizes.values())) != 1:
        raise DataError(f"columns differ in length: {sizes}", path=path)
    if not len(positive["src"]):
        raise DataError(f"the {split} split is empty", path=path)
    for columns in filter(None, (positive, negative)):
        for name in ("src", "dst"):
            ids = columns[name]
            wrong = np.argwhere((ids < 0) | (ids >= num_nodes) | (ids != np.floor(ids)))
            if len(wrong):
                why = f"node id {ids[tuple(wrong[0])]} is not in 0..{num_nodes - 1}"
                raise DataError(why, path=path, row=int(wrong[0][0]), column=name)
            columns[name] = np.ascontiguousarray(ids, dtype=id_dtype(num_nodes))
    return positive, negative


def _pairs(loaded: Any, key: str, path: Path) -> dict[str, Array]:
    edges = as_array(loaded, key, path)
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise DataError(f"{key!r} has the shape {edges.shape}; (number of edges, 2) is needed", path=path)
    return {"src": edges[:, 0], "dst": edges[:, 1]}
