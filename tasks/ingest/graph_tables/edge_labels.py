"""Labels of edges: read while the edges stream by, and dealt out to train, valid and test at the end."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from configs.errors import RecipeError
from tasks.arrays import Array
from tasks.ingest.graph_tables.configs import TablesConfig
from tasks.ingest.graph_tables.edges import EdgeReader
from tasks.ingest.graph_tables.labels import LabelStore, label_columns, label_fields
from tasks.ingest.graph_tables.nodes import SplitColumn
from tasks.ingest.graph_tables.splits import deal_labelled, rows_of_splits
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.ids.node_set import occurred_earlier
from tasks.ingest.labels import has_label, say_unlabelled
from tasks.ingest.splits import write_edge_labels
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import checked_ids
from tasks.stage import StageContext
from tasks.storage.file_names import file_name, joined_name
from tasks.storage.manifests import EDGE_IDS


class LabelledEdges:
    """All edges of one table pass by and stay; what is said of them is written at the end.

    Memory: 16 bytes an edge for its label and its row, 8 more for a time and 1 for a split column; of an id its
    bytes and 16 to 32 more.
    """

    def __init__(self, config: TablesConfig, reader: EdgeReader) -> None:
        """`reader`: of the edge table that has the labels. Raises RecipeError: there are no times to split by."""
        self.config, self.edges, self.writer, self._reader = config, reader.edges, reader.writer, reader
        self.intake, self.labels = reader.intake, LabelStore(config)
        self._split = SplitColumn(config.split.column) if config.split.column else None
        if config.split.by == "time" and not self.edges.time:
            raise RecipeError("dataset.split.by: time needs a time column in the edges (edges.time)")
        label = label_columns(config, self.edges)
        label_texts, self.numbers = self.labels.csv_kinds(label)
        others = [column for column in (config.split.column, self.edges.id) if column is not None]
        self.columns, self.texts = (*label, *others), (*label_texts, *others)
        """What is read of the edge table, and which of that a CSV's must be texts."""
        self._count = 0
        self._rows, self._codes, self._times = ([np.empty(0, kind)] for kind in (np.int64, np.int8, np.int64))
        self._stack = ExitStack()
        triplet = self.edges.source_type, file_name(self.edges.relation), self.edges.target_type
        table = f"{EDGE_IDS}/{joined_name(triplet)}"
        self._known_ids = IdIndex()
        self._ids = self._stack.enter_context(self.writer.table(table)) if self.edges.id else None

    def deal(self, batch: TableBatch, parts: dict[str, Array], first: int) -> dict[str, Array]:
        """Remember what is said of some edges, whose rows begin with `first`, and return all of them."""
        rows = np.arange(self._count, self._count + batch.num_rows)
        self._count += batch.num_rows
        place = np.arange(batch.num_read) if batch.kept is None else np.flatnonzero(batch.kept)
        self._rows.append(first + place)
        if set(self.edges.label) <= set(self.columns):
            self.labels.put(batch, self.edges.label, rows)
        if self._split is not None:
            self._codes.append(self._split.codes(batch))
        if self.config.split.by == "time":
            self._times.append(parts["time"])
        if self._ids is not None:
            ids, wrong = checked_ids(batch, str(self.edges.id), texts=True)
            if wrong is None:
                num_earlier = self._known_ids.count
                repeated = occurred_earlier(self._known_ids.add(ids), num_earlier)
                words = "stands in the table twice; without edges.id predictions name edges by their rows"
                kind = "the edge's id stands in the table twice"
                batch.wrong(repeated, self.edges.id, kind, lambda row: f"the id {ids[row].as_py()!r} {words}")
                self._ids.write({"original_id": ids})
        return parts

    def finish(self, context: StageContext) -> dict[str, Any]:
        """Write labels, rows and splits; return the manifest's fields that they decide.

        Raises DataError: an empty split, or an edge of one without a label.
        """
        self._stack.close()
        column, names = self.labels.finish(self._count, self.intake)
        if names is not None:
            codes = np.arange(len(names), dtype=np.int64)
            self.writer.write(self.labels.names_table, {"label": codes, "name": names})
        rows = np.concatenate(self._rows)
        [kind] = self._reader.describe()
        ordered = self.config.directed or self.edges.source_type != self.edges.target_type
        keep = self.config.scored_edges == "keep"
        fields = write_edge_labels(self.writer, kind.name, column, rows, keep=keep, ordered=ordered)
        labelled, split = has_label(column), self.config.split
        say_unlabelled(labelled, "edge", context)
        owner = np.full(self._count, -1, np.int8)
        if self._split is not None:
            owner = np.concatenate(self._codes)
        elif split.by != "none":
            times = np.concatenate(self._times) if split.by == "time" else None
            owner = deal_labelled(split, column, times, self.edges)
        for name, edges in rows_of_splits(split, owner, labelled, "edge", lambda edge: f"row {rows[edge]}").items():
            self.writer.write(f"split/{name}", {"edge_id": edges})
        return fields | label_fields(self.config, column, names)
