"""`graphmill neighbors`: the nearest of exported vectors, for people, programs and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import RecipeError
from configs.source_files import user_path
from flows.terminal.console import out, table
from tasks.apply.given import read_ids
from tasks.apply.run import check_place
from tasks.apply.vector_files.neighbors import Metric, Neighbors, nearest
from tasks.apply.vector_files.reader import VectorFile
from tasks.readers.columns import is_text
from tasks.storage.artifacts import output_errors
from tasks.storage.outputs.tables import ParquetOutput


def find_neighbors(
    embeddings: Path, node: list[str], nodes: Path | None, k: int, metric: Metric
) -> Iterator[Neighbors]:
    """Yield the k nearest of each of `node`, or of those that the file `nodes` lists, in the order asked.

    Raises RecipeError: nobody's neighbours are asked for; DataError: a damaged file, or a node that is not in it.
    """
    if bool(node) == (nodes is not None):
        raise RecipeError("no node was named; give --node ID (once or several times) or --nodes FILE")
    ids: Any = node
    if nodes is not None:
        [ids] = read_ids(nodes, {"id": is_text(VectorFile(embeddings).id_type)})
    return nearest(embeddings, ids, k, metric)


def neighbor_json(batches: Iterable[Neighbors]) -> dict[str, Any]:
    """Return all as plain values."""
    return {"neighbors": [{"node": one.node, "nearest": [*_rows(one)]} for one in batches]}


def _rows(one: Neighbors) -> Iterator[dict[str, Any]]:
    for rank, (name, score) in enumerate(zip(one.ids, one.scores.tolist(), strict=True), start=1):
        yield {"rank": rank, "id": name, "score": round(score, 6)}


def show_neighbors(batches: Iterable[Neighbors]) -> None:
    """Print a table a node."""
    for one in batches:
        shown = table("rank", f"nearest to {one.node}", "score", right=("rank", "score"))
        for row in _rows(one):
            shown.add_row(str(row["rank"]), str(row["id"]), f"{row['score']:.4f}")
        out().print(shown, markup=False)


def write_neighbors(batches: Iterable[Neighbors], output: Path) -> int:
    """Write `node`, `rank`, `id` and `score` as Parquet, whole or not at all; returns the number of rows."""
    if output.suffix not in (".parquet", ".pq"):
        raise RecipeError(f"--output {output} must end with .parquet")
    output = user_path(output).absolute()
    check_place(str(output), output)
    with output_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with ParquetOutput(output) as writer:
            for one in batches:
                node = pa.array([one.node] * len(one.ids))
                rank = pa.array(np.arange(1, len(one.ids) + 1, dtype=np.int32))
                ids = pa.array(one.ids, node.type)
                writer.write(pa.table({"node": node, "rank": rank, "id": ids, "score": pa.array(one.scores)}))
    return writer.num_rows
