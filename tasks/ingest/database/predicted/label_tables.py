"""What is predicted, as labels in columns say it: of a table of their own, or of the predicted table itself.

Memory: 8 bytes for each label, twice while they are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.moments import TimeUnit
from tasks.arrays import Array
from tasks.ingest.database.configs import DatabaseConfig
from tasks.ingest.database.moments import time_text
from tasks.ingest.database.predicted.configs import LabelTableConfig
from tasks.ingest.database.predicted.label_values import LabelReader
from tasks.ingest.database.predicted.targets import Tasks
from tasks.ingest.database.rows import RowTimes, TableRows
from tasks.ingest.ids.node_set import UNKNOWN
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import Intake
from tasks.ingest.writer import DatasetWriter, write_ids
from tasks.sizes import need_memory
from tasks.storage.graph_store import ALWAYS


def label_tasks(table: LabelTableConfig, entities: TableRows, intake: Intake) -> tuple[Tasks, TimeUnit]:
    """Read labels from a table of their own; also what its times count.

    An entity that is younger than the moment of its label is not known yet, as one that is not in its table: what its
    row holds came later.

    Raises DataError: there is none, an entity has two at one moment, or no entity is known.
    """
    assert table.time is not None
    way_out = "every label needs the moment from which on it is true: fill it in, or leave the row out"
    clock = RowTimes(table.time, table.form_of(table.time), table.epoch, way_out=way_out)
    reader = LabelReader(table)
    texts = [*entities.nodes.texts(table.key), *clock.texts]
    ids, moments, labels, unknown, younger = [], [], [], 0, 0
    columns = [table.key, table.time, *reader.columns]
    for batch in intake.batches(table, columns, texts, reader.columns, clock.inferred):
        codes = entities.nodes.look_up(batch, table.key)
        if table.on_unknown_id == "error":
            way_out = "; labels.on_unknown_id: drop leaves such labels out"
            entities.nodes.refuse_unknown(batch, table.key, codes, way_out=way_out)
        unknown += int(np.count_nonzero(codes == UNKNOWN))
        values, wrong = reader.read(batch)
        times, _ = clock.read_rows(batch, gaps=False)
        early = _too_early(batch, table, entities, codes, times, clock.unit)
        younger += int(np.count_nonzero(early))
        good = (codes >= 0) & ~wrong & ~early
        ids.append(codes[good])
        moments.append(times[good])
        labels.append(reader.codes(values[good]))
    intake.problems.raise_any()
    if not sum(map(len, ids)):
        left = unknown + younger
        why = f"none of whose {left:,} entities is in {entities.name} by then" if left else "no rows"
        raise DataError(f"has {why}; are these its keys?", path=table.names, column=table.key)
    entity, moment, label = np.concatenate(ids), np.concatenate(moments), np.concatenate(labels)
    order = np.lexsort((entity, moment))
    entity, moment, label = entity[order], moment[order], label[order]
    unit = clock.unit or "number"
    twice = np.flatnonzero((entity[1:] == entity[:-1]) & (moment[1:] == moment[:-1]))
    if len(twice):
        row = int(twice[0])
        raise DataError(
            f"{entities.nodes.original(int(entity[row]))!r} has two labels at {time_text(int(moment[row]), unit)} "
            f"({len(twice):,} such pairs); keep one row of each entity and moment",
            path=table.names,
            column=table.key,
        )
    for count, whose, why in (
        (unknown, "unknown entities", f"{entities.name} has no such row"),
        (younger, "entities that are younger", f"the row of {entities.name} is younger than they are"),
    ):
        if count:
            intake.adjust(table, f"labels of {whose} dropped", count)
            intake.hints.append(f"{table.names}: {count:,} labels are left out, because {why}")
    return Tasks(entity, moment, label, reader.kind(label, table.names)), unit


def _too_early(
    batch: TableBatch, table: LabelTableConfig, entities: TableRows, codes: Array, times: Array, unit: TimeUnit | None
) -> Array:
    """Return which labels are of a moment before their entity's row, bool (n,); they are gathered unless dropped."""
    early = np.zeros(len(codes), np.bool_)
    if entities.time is None or entities.clock is None or entities.clock.unit != unit:
        return early  # times that do not compare are refused later
    there = (codes >= 0) & (times != ALWAYS)
    early[there] = entities.time[codes[there]] > times[there]
    if table.on_unknown_id == "error":
        words = (
            f"the row of {entities.name} is younger than the moment of this label, which would see what came later; "
            "leave such rows out (labels.on_unknown_id: drop does)"
        )
        batch.wrong(early, table.key, "an entity younger than its label's moment", words)
    return early


def own_tasks(config: DatabaseConfig, tables: Mapping[str, TableRows]) -> Tasks:
    """Read the labels of the predicted table's rows, in their order.

    Raises DataError: there is none, or a label cannot be.
    """
    predict, rows = config.predict, tables[config.predict.table]
    reader = LabelReader(predict)
    parts = []
    for chunk in rows.chunks(reader.columns, (), reader.columns):
        values, wrong = reader.read(chunk.batch)
        parts.append(reader.codes(np.where(wrong[:, None], np.nan, values)))
        need_memory(16 * sum(part.size for part in parts), "the labels", "take fewer rows")
    rows.intake.problems.raise_any()
    label = np.concatenate(parts)
    return Tasks(np.arange(rows.num_rows), rows.time, label, reader.kind(label, rows.config.names))


def write_own_ids(table: TableRows, writer: DatasetWriter) -> None:
    """Write the ids of rows whose keys need no index: they are 0, 1, 2, ..., or of a table without a key row numbers.

    Rows are counted over the files end to end, from 0, with those that were left out.
    """
    if table.nodes.index is None:
        kept = table.kept if table.config.key is None else None
        write_ids(writer, table.name, pa.array(np.arange(table.num_rows) if kept is None else np.flatnonzero(kept)))
