"""Whose learnt rows a model has: ids of the rows of its tables, so that it finds them in other data.

A model of typed graphs may learn a vector for each row of some tables (`model.id_embedding`). In other data the same
rows stand at other places, some are gone, and there are new ones, which have none.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

from configs.errors import IntegrityError, OtherGraphError
from models.base import GraphModel
from models.facts import GraphFacts
from models.relational.base import RelationalModel
from models.relational.configs import RelationalModelConfig
from tasks.arrays import Array
from tasks.storage.artifacts import atomic_file
from tasks.storage.dataset_store import DatasetStore

FILE = "row_ids.parquet"


def write_row_ids(folder: Path, config: Any, facts: GraphFacts, dataset: DatasetStore) -> None:
    """Write the ids of all rows that a model learnt a vector of, in the order of its table: columns `type` and `id`.

    config: the model's; nothing is written where it learns none.
    """
    embedded = config.embedded(facts) if isinstance(config, RelationalModelConfig) else ()
    if not embedded:
        return
    types, ids = [], []
    for number in embedded:
        texts = _ids(dataset, facts.node_types[number])
        types.append(pa.array(np.full(len(texts), number, np.int16)))
        ids.append(texts)
    with atomic_file(folder / FILE) as file:
        pq.write_table(pa.table({"type": pa.chunked_array(types), "id": pa.chunked_array(ids)}), file)


def find_rows(model: GraphModel, folder: Path, dataset: DatasetStore) -> list[str]:
    """Let a model find its learnt rows, whose ids lie in `folder`, in other data; return what there is to say of it.

    Raises OtherGraphError: the model was stored without ids; IntegrityError: the ids are not those of its table.
    """
    if not isinstance(model, RelationalModel) or not model.embedded:
        return []
    if not (folder / FILE).exists():
        raise OtherGraphError(
            f"the model was stored without the ids of the rows that it learnt ({FILE}), so it knows no other data; "
            "publish it again"
        )
    table = pq.read_table(folder / FILE)
    notes = []
    for number in model.embedded:
        learnt = table.filter(compute.equal(table["type"], number))["id"].combine_chunks()
        if len(learnt) != model.facts.type_sizes[number]:
            raise IntegrityError(f"{FILE} of {folder} is not that of the model's table")
        name = model.facts.node_types[number]
        place = compute.index_in(_ids(dataset, name), value_set=learnt)
        rows: Array = np.asarray(compute.fill_null(place, -1), np.int64)
        model.row_numbers[number] = rows
        new = int(np.count_nonzero(rows < 0))
        if new:
            notes.append(
                f"{new:,} of {len(rows):,} rows of {name} were not in the training's data: they are scored by their "
                "columns and neighbours alone"
            )
    return notes


def _ids(dataset: DatasetStore, kind: str) -> pa.Array:
    """Return the ids of a node type's rows as texts; their numbers where there are no others."""
    if f"ids/{kind}" in dataset:
        return dataset.read(f"ids/{kind}", ["original_id"]).column(0).cast(pa.string()).combine_chunks()
    count = next(one.num_nodes for one in dataset.manifest.node_types if one.name == kind)
    return pa.array(np.arange(count)).cast(pa.string())
