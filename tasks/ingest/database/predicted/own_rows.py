"""What is predicted, where it is a column of a table itself: each of its rows, as of the row's own time.

Memory: 8 bytes for each label, twice while they are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.predicted.label_values import label_reader
from tasks.ingest.database.predicted.targets import Tasks
from tasks.ingest.database.rows import TableRows
from tasks.ingest.writer import DatasetWriter
from tasks.sizes import need_memory

_ROWS = 1 << 18


def own_tasks(config: DatabaseConfig, tables: Mapping[str, TableRows]) -> Tasks:
    """Read the labels of the predicted table's rows, in their order.

    Raises:
        DataError: there is none, or a label cannot be.
    """
    predict = config.predict
    assert predict.label is not None
    rows = tables[predict.table]
    reader = label_reader(
        predict.label, predict.task_type, predict.num_classes, keeps_missing=predict.on_missing_label == "predict"
    )
    found = []
    for chunk in rows.chunks(reader.columns, reader.texts, reader.numbers):
        values, wrong = reader.read(chunk.batch)
        found.append(reader.codes(np.where(wrong[:, None], np.nan, values)))
        need_memory(16 * sum(part.size for part in found), "the labels", "take fewer rows")
    rows.intake.problems.raise_any()
    label = np.concatenate(found)
    return Tasks.of_kind(np.arange(rows.num_rows), rows.time, label, reader.kind(label, rows.config.names))


def write_own_ids(table: TableRows, writer: DatasetWriter) -> None:
    """Write the ids of rows whose keys need no index: they are 0, 1, 2, ..., or of a table without a key row numbers.

    Rows are counted over the files end to end, from 0, with those that were left out.
    """
    if table.nodes.index is not None:
        return
    numbers = np.arange(table.num_rows, dtype=np.int64)
    if table.config.key is None and table.kept is not None:
        numbers = np.flatnonzero(table.kept)
    with writer.table(f"ids/{table.name}") as ids:
        for first in range(0, table.num_rows, _ROWS):
            part = numbers[first : first + _ROWS]
            ids.write({"node_id": np.arange(first, first + len(part), dtype=np.int64), "original_id": part})
