"""Read `split/`: indices as CSV, or arrays in torch's format; and `mapping/`: original ids and names of classes.

A mapping is an aid for people, and nothing else depends on it: a file that does not name everything once is left out
with a warning. A file is in memory for a moment (a name a node).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import is_file, is_folder, names_in
from tasks.arrays import Array
from tasks.ingest.edges import WeightCheck
from tasks.ingest.ogb.meta import OgbMeta
from tasks.ingest.ogb.raw import NODE, Raw
from tasks.ingest.writer import DatasetWriter
from tasks.readers.arrays.torch_files import load_torch
from tasks.readers.columns import whole_numbers
from tasks.readers.csv_tables import as_texts, open_table, read_rows
from tasks.readers.numbers import checked_cast, read_numbers
from tasks.stage import StageContext
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


def write_mappings(folder: Path, raw: Raw, meta: OgbMeta, writer: DatasetWriter, context: StageContext) -> None:
    """Keep the original ids of nodes or graphs, and the classes' names, where mapping/ has them."""
    mapping = folder / "mapping"
    for kind, counts in raw.num_nodes.items() if meta.task != "graph" else ():
        for path in sorted(mapping.glob(raw.mapping_names.format(kind)))[:1]:
            names = names_in_order(path, int(counts.sum()), context)
            if names is not None:
                columns = {"node_id": np.arange(len(names), dtype=np.int64), "original_id": whole_numbers(names)}
                writer.write(f"ids/{kind}", columns)
    for path in sorted(mapping.glob("labelidx2*.csv.gz"))[:1] if meta.task_type == "multiclass" else ():
        names = names_in_order(path, meta.num_classes, context)
        if names is not None:
            writer.write("classes", {"label": np.arange(len(names), dtype=np.int64), "name": names})
    path = mapping / "mol.csv.gz"
    if meta.task == "graph" and is_file(path):
        graphs = len(raw.num_nodes[NODE])
        molecules = read_text_table(path, graphs, ("mol_id", "smiles"))
        if molecules.num_columns and molecules.num_rows == graphs:  # known by mol_id where there is one, else by SMILES
            original = molecules.column(0).combine_chunks()
            writer.write("ids/graphs", {"graph_id": np.arange(graphs, dtype=np.int64), "original_id": original})
        else:
            context.warn(f"{path} does not name each of the {graphs:,} graphs and is left out")


def names_in_order(path: Path, count: int, context: StageContext, most: int | None = None) -> pa.Array | None:
    """Return the names in an `index,name` file by their index; None (a warning is given) where some are missing.

    `count` are named, each once; `most`: or more, up to so many.
    """
    read = read_text_table(path, most or count)
    try:
        index = np.asarray(read.column(0).cast(pa.int64()))
    except (pa.ArrowInvalid, IndexError):
        index = np.empty(0, np.int64)
    order = np.argsort(index, kind="stable")
    enough = len(index) == count if most is None else count <= len(index) <= most
    if read.num_columns < 2 or not enough or not np.array_equal(index[order], np.arange(len(index))):
        context.warn(f"{path} does not name each of 0..{count - 1} exactly once, index and name; it is left out")
        return None
    return read.column(1).take(pa.array(order)).combine_chunks()


def read_text_table(path: Path, num_rows: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Read columns of a CSV with a header (the first two) as texts, up to some more rows than `num_rows`.

    Raises DataError.
    """
    with open_table(path, ",", True) as (names, stream):
        named = list(names[:2]) if columns is None else [name for name in columns if name in names]
        batches, rows = [], 0
        for data in read_rows(path, names, stream, ",", as_texts(named)) if named else ():
            batches.append(data)
            rows += data.num_rows
            if rows > num_rows:
                break
        return pa.Table.from_batches(batches, pa.schema([(name, pa.string()) for name in named]))
