"""What is held out, by what a task splits: rows (nodes, edges, graphs), pairs, triples, or nothing."""

from __future__ import annotations

import numpy as np

from configs.errors import RecipeError
from configs.layout_options import LAYOUT
from configs.schema import Recipe
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits import pairs, rows
from tasks.preprocess.splits.by_time import WrittenSplits
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS

_WRITERS = {
    "node": rows.write_nodes,
    "edge": rows.write_edges,
    "graph": rows.write_graphs,
    "link": pairs.write,
    "triple": pairs.write,
}


def write_splits(
    recipe: Recipe, store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None
) -> WrittenSplits:
    """Write `train_idx`, ... or `train_edges`, ... and negatives; `label` is written before.

    Raises:
        DataError: an id is out of range or repeated.
        RecipeError: a snapshot's split is empty.
    """
    task = store.manifest.task
    if task == LAYOUT:
        for split in SPLITS:
            writer.write(f"{split}_idx", np.empty(0, ids.id_type))
        return WrittenSplits(dict.fromkeys(SPLITS, 0))
    written = _WRITERS[task](store, ids, writer, snapshot, recipe.snapshot)
    empty = [name for name in SPLITS if not written.sizes[name]]
    if snapshot is not None and empty:
        by_time = recipe.snapshot.split == "time"
        raise RecipeError(
            f"snapshot.as_of={recipe.snapshot.as_of}: the {' and '.join(empty)} split is empty (sizes: "
            f"{written.sizes}); take a later moment or {'other shares' if by_time else 'snapshot.split=time'}"
        )
    return written
