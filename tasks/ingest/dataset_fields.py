"""The fields of a data set's manifest, from the tables that were written; and these tables against the manifest.

What a data set's own code gets wrong ends here, not in a later stage. Values are compared by the statistics of the
Parquet files; rows are read of labels in lists alone. Rows of splits are checked by preprocess, which reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import DataError
from configs.layout_options import LAYOUT
from tasks.ingest.labels import usual_metric
from tasks.storage.manifests import EDGE_LABELS, SPLITS, EdgeType, FeatureColumn, NodeType, Table, TaskType

if TYPE_CHECKING:
    from tasks.ingest.edges import EdgeCheck
    from tasks.ingest.writer import DatasetWriter


def dataset_fields(
    writer: DatasetWriter,
    dataset: str,
    task_type: TaskType,
    *,
    node_types: Iterable[NodeType] = (),
    edge_types: Iterable[EdgeType] = (),
    checks: Collection[EdgeCheck] | None = None,
    metric: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the fields of `DatasetManifest`; what is not given follows from the tables of `writer`, all closed.

    Args:
        writer: wrote `nodes/...`, `edges/...`, `split/...` and, of many graphs, `graphs`.
        dataset: name, for people.
        task_type: kind of label; a link, triple or layout task is called so, all others are node or graph tasks.
        node_types: none: `node`, whose numeric feature is `feat` where its table has that column.
        edge_types: none: `to`, from `node` to `node`.
        checks: what was counted of the edges; None: nothing was.
        metric: None: the one that such labels are usually judged by.
        others: any other field, in the place of what follows from the tables.
    """
    tables = writer.tables
    nodes = tuple(node_types)
    if not nodes:
        schema = _written(writer, dataset, "nodes/node")
        feature = FeatureColumn(column="feat", kind="numeric", dim=_width(schema, "feat"))
        features = (feature,) if "feat" in schema.names else ()
        nodes = (NodeType(name="node", num_nodes=tables["nodes/node"].num_rows, features=features),)
    edges = tuple(edge_types)
    if not edges:
        _written(writer, dataset, "edges/node__to__node")
        edges = (
            EdgeType(source="node", relation="to", target="node", num_edges=tables["edges/node__to__node"].num_rows),
        )
    target = others.get("target_type", nodes[0].name)
    of_graphs = "graphs" in tables
    task = task_type if task_type in ("link", "triple", "layout") else "graph" if of_graphs else "node"
    fields: dict[str, Any] = {
        "dataset": dataset,
        "task": task,
        "task_type": task_type,
        "num_classes": 2 if task_type in ("binary", "multilabel") else 0,
        "num_tasks": _width(_written(writer, dataset, "graphs" if of_graphs else f"nodes/{target}"), "label"),
        "metric": metric or usual_metric(task_type),
        "directed": False,
        "node_types": nodes,
        "edge_types": edges,
        "target_type": target,
        "num_graphs": tables["graphs"].num_rows if of_graphs else 1,
        "splits": {split: tables[f"split/{split}"].num_rows for split in SPLITS if f"split/{split}" in tables},
        "tables": tables,
    }
    if checks is not None:
        duplicates = [check.num_duplicates for check in checks]
        fields["num_self_loops"] = sum(check.num_self_loops for check in checks)
        fields["num_duplicate_edges"] = -1 if -1 in duplicates else sum(duplicates)
    return fields | others


def _written(writer: DatasetWriter, dataset: str, table: str) -> pa.Schema:
    if table not in writer.schemas:
        raise DataError("was not written", path=f"data set {dataset}, table {table}")
    return writer.schemas[table]


def _width(schema: pa.Schema, column: str) -> int:
    """Return how many numbers a column has in a row; 1 where there is no such column."""
    kind = schema.field(column).type if column in schema.names else None
    return int(kind.list_size) if kind is not None and pa.types.is_fixed_size_list(kind) else 1


_LABELLED = ("multiclass", "binary", "multilabel", "regression")


class WrittenTables:
    """The tables that lie in a data set's folder."""

    def __init__(self, folder: Path, fields: Mapping[str, Any]) -> None:
        """`fields`: those of `DatasetManifest`."""
        self.folder, self.fields = folder, fields
        self.tables: Mapping[str, Table] = fields["tables"]

    def check(self) -> None:
        """Raise DataError naming data set, table and column where tables and manifest disagree."""
        sizes = {node_type.name: node_type.num_nodes for node_type in self.fields["node_types"]}
        for node_type in self.fields["node_types"]:
            table = f"nodes/{node_type.name}"
            self._check_count(table, node_type.num_nodes, "num_nodes")
            self._check_ids(table, "node_id", node_type.num_nodes)
            self._check_features(table, node_type.features)
        for edge_type in self.fields["edge_types"]:
            table = f"edges/{edge_type.name}"
            self._check_count(table, edge_type.num_edges, "num_edges")
            for end, column in ((edge_type.source, "src"), (edge_type.target, "dst")):
                if end not in sizes:
                    raise self._error(table, column, f"is of the node type {end!r}, which node_types do not name")
                self._check_ids(table, column, sizes[end])
            self._check_features(table, edge_type.features)
        for split, count in self.fields["splits"].items():
            if count or f"split/{split}" in self.tables:
                self._check_count(f"split/{split}", count, f"splits[{split!r}]")
        if self.fields["task_type"] in _LABELLED:
            table = "graphs" if self.fields["task"] == "graph" else f"nodes/{self.fields['target_type']}"
            if self.fields["task"] == "edge":
                table = self._edge_labels()
            if self.fields["task_type"] == "multiclass":
                self._check_classes(table)
            else:
                self._check_numbers(table)

    def _edge_labels(self) -> str:
        """Return the table of the edges' labels, which has a row for each."""
        sizes = {f"{EDGE_LABELS}/{one.name}": one.num_edges for one in self.fields["edge_types"]}
        table = next((name for name in sizes if name in self.tables), None)
        if table is None:
            raise self._error(EDGE_LABELS, None, "was not written, and the task says that edges have labels")
        self._check_count(table, sizes[table], "num_edges")
        return table

    def _check_count(self, table: str, count: int, field: str) -> None:
        if table not in self.tables:
            raise self._error(table, None, f"was not written, and {field} says {count:,}")
        if self.tables[table].num_rows != count:
            raise self._error(table, None, f"has {self.tables[table].num_rows:,} rows, and {field} says {count:,}")

    def _check_ids(self, table: str, column: str, count: int) -> None:
        kind = self._kind(table, column)
        kinds = (pa.int64(),) if column == "node_id" else (pa.int32(), pa.int64())
        if kind not in kinds:
            raise self._error(table, column, f"holds {kind}; ids are {' or '.join(map(str, kinds))}")
        smallest, largest = self._range(table, column)
        if smallest < 0 or largest >= count:
            wrong = smallest if smallest < 0 else largest
            raise self._error(table, column, f"holds the id {wrong}, which is not in 0..{count - 1}")

    def _check_features(self, table: str, features: tuple[FeatureColumn, ...]) -> None:
        for feature in features:
            kind = self._kind(table, feature.column)
            width = kind.list_size if pa.types.is_fixed_size_list(kind) else 1
            if width != feature.dim:
                raise self._error(table, feature.column, f"has {width} values a row, and its dim says {feature.dim}")

    def _check_classes(self, table: str) -> None:
        kind, count = self._kind(table, "label"), self.fields.get("num_classes", 0)
        if kind != pa.int64():
            raise self._error(table, "label", f"holds {kind}; a multiclass label is int64, -1 for none")
        smallest, largest = self._range(table, "label")
        if smallest < -1:
            raise self._error(table, "label", f"holds the class {smallest}; classes count from 0, and -1 is none")
        if largest >= count and self.fields["task"] != LAYOUT:
            raise self._error(table, "label", f"holds the class {largest}, and num_classes says {count}")

    def _check_numbers(self, table: str) -> None:
        task_type, width, kind = self.fields["task_type"], self.fields.get("num_tasks", 1), self._kind(table, "label")
        if not pa.types.is_fixed_size_list(kind) or kind.value_type != pa.float32() or kind.list_size != width:
            message = f"holds {kind}; a {task_type} label is an array (rows, {width}) of float32, NaN for none"
            raise self._error(table, "label", message)
        for shard in self.tables[table].shards:
            with pq.ParquetFile(self.folder / shard) as file:
                for batch in file.iter_batches(columns=["label"]):
                    values = np.asarray(batch.column(0).flatten())
                    wrong = np.isinf(values)
                    if task_type != "regression":
                        wrong |= ~np.isnan(values) & (values != 0) & (values != 1)
                    if wrong.any():
                        what = "finite number" if task_type == "regression" else "0 or 1"
                        raise self._error(table, "label", f"holds {values[wrong][0]:g}, which is no {what}")

    def _kind(self, table: str, column: str) -> pa.DataType:
        schema = pq.read_schema(self.folder / self.tables[table].shards[0])
        if column not in schema.names:
            raise self._error(table, column, f"there is no such column; there are {', '.join(schema.names)}")
        return schema.field(column).type

    def _range(self, table: str, column: str) -> tuple[int, int]:
        """Return the smallest and the largest value of a column of integers; 0 and -1 without any."""
        ranges = []
        for shard in self.tables[table].shards:
            about = pq.read_metadata(self.folder / shard)
            for group in map(about.row_group, range(about.num_row_groups)):
                columns = map(group.column, range(group.num_columns))
                numbers = next(one.statistics for one in columns if one.path_in_schema == column)
                if numbers is not None and numbers.has_min_max:
                    ranges += [(numbers.min, numbers.max)]
        return min((first for first, _ in ranges), default=0), max((last for _, last in ranges), default=-1)

    def _error(self, table: str, column: str | None, message: str) -> DataError:
        return DataError(message, path=f"data set {self.fields['dataset']}, table {table}", column=column)
