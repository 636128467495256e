"""Original ids and names of classes: what mapping/ of a folder in OGB's layout holds.

It is an aid for people, and nothing else depends on it: a file that does not name everything once is left out with a
warning. A file is in memory for a moment (a name a node).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from configs.source_files import is_file
from tasks.ingest.ogb.meta import OgbMeta
from tasks.ingest.ogb.raw import NODE, Raw
from tasks.ingest.writer import DatasetWriter
from tasks.readers.columns import whole_numbers
from tasks.readers.csv_tables import as_texts, open_table, read_rows
from tasks.stage import StageContext


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
