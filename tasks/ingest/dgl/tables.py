"""The arrays of graphs that DGL or PyG saved, checked and written as tables, and their splits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.dgl.fields import GraphSource, as_matrix, as_whole_numbers, plain_name
from tasks.ingest.edges import EdgeCheck, WeightCheck
from tasks.ingest.labels import has_label, number_labels, say_unlabelled
from tasks.ingest.raw_rows import FeatureKind
from tasks.ingest.splits import write_edge_labels, write_row_splits
from tasks.ingest.writer import DatasetWriter
from tasks.readers.arrays.dgl_file import SavedGraphs
from tasks.readers.numbers import checked_cast
from tasks.stage import StageContext
from tasks.storage.file_names import joined_name
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, NodeType, TaskType

Typed = TypeVar("Typed", NodeType, EdgeType)


class GraphTables:
    """Writes the tables of one file."""

    def __init__(self, source: GraphSource, context: StageContext) -> None:
        self.source, self.context = source, context
        self.config, self.path, self.graph, self.labels = source.config, source.path, source.graph, source.labels
        self.writer = DatasetWriter(context.work)
        self.splits = GraphSplits(source, self.writer)
        self.node_types: list[NodeType] = []
        self.edge_types: list[EdgeType] = []
        self.checks: list[EdgeCheck] = []

    def one(self) -> dict[str, Any]:
        """Write a graph of which nodes or edges are predicted."""
        with self.writer:
            if self.config.task == "link":
                [kind] = self.graph.num_nodes
                self.tables(None, None)
                self.splits.of_pairs()
                return self.fields("link", target_type=plain_name(kind))
            if self.config.task == "edge":
                return self.of_edges()
            kind = self.target()
            place = self.source.nodes_of(kind)
            described, label = self.label(self.graph.ndata[kind], self.graph.num_nodes[kind], place)
            self.tables(kind, label)
            self.splits.of_rows(self.graph.ndata[kind], place, "node", label)
            return self.fields(**described, target_type=plain_name(kind))

    def of_edges(self) -> dict[str, Any]:
        """Write a graph of which labels of edges are predicted."""
        config, triplet = self.config, self.target_edges()
        place, edata = f"{config.edge_word} of {triplet[1]}", self.graph.edata[triplet]
        described, label = self.label(edata, len(self.graph.edges[triplet][0]), place)
        self.tables(None, None)
        self.splits.of_rows(edata, place, "edge", label)
        names = [plain_name(word) for word in triplet]
        fields = write_edge_labels(
            self.writer,
            joined_name((names[0], names[1], names[2])),
            label,
            keep=config.scored_edges == "keep",
            ordered=config.directed or triplet[0] != triplet[2],
        )
        return self.fields(**described, **fields, target_type=names[0])

    def target_edges(self) -> tuple[str, str, str]:
        """Return the relation whose edges have labels."""
        name, word, target = self.config.labels, self.config.edge_word, self.config.target
        labelled = [triplet for triplet, data in self.graph.edata.items() if name in data]
        chosen = [triplet for triplet in labelled if target in (None, triplet[1], plain_name(triplet[1]))]
        if len(chosen) == 1:
            return chosen[0]
        found = listed([" ".join(triplet) for triplet in labelled]) or "none"
        raise DataError(
            f"edges that have labels, {name!r} in {word}: {found}; name their field (dataset.labels), and of several "
            "relations one (dataset.target)",
            path=self.path,
        )

    def many(self, saved: SavedGraphs) -> dict[str, Any]:
        """Write graphs that are predicted themselves."""
        count = len(saved.graphs)
        described, label = self.label(self.labels, count, "labels")
        graph_id = np.arange(count, dtype=np.int64)
        with self.writer:
            self.tables(None, None)
            self.writer.write(
                "graphs",
                {
                    "graph_id": graph_id,
                    "num_nodes": np.array([sum(graph.num_nodes.values()) for graph in saved.graphs]),
                    "num_edges": np.array([sum(len(src) for src, _ in g.edges.values()) for g in saved.graphs]),
                    "label": label,
                },
            )
            if self.config.ids in self.labels:
                ids = self.ids(self.labels[self.config.ids], count, "labels")
                self.writer.write("ids/graphs", {"graph_id": graph_id, "original_id": ids})
            self.splits.of_rows(self.labels, "labels", "graph", label)
            return self.fields(**described)

    def fields(self, task_type: TaskType, **others: Any) -> dict[str, Any]:
        """Return the manifest's fields; the writer is done with all tables."""
        return dataset_fields(
            self.writer,
            self.path.stem,
            task_type,
            metric=self.config.metric,
            directed=self.config.directed,
            node_types=_with_shared_codes(self.node_types),
            edge_types=_with_shared_codes(self.edge_types),
            checks=self.checks,
            **others,
        )

    def tables(self, target: str | None, label: Array | None) -> None:
        """Write nodes and edges; `label` goes to the nodes of type `target`."""
        apart, edges_apart = (self._have_own_columns(edges=edges) for edges in (False, True))
        for kind, count in self.graph.num_nodes.items():
            owner = self.source.nodes_of(kind)
            columns, features = self.columns(self.graph.ndata[kind], owner, f"{plain_name(kind)}." if apart else "")
            node_id = np.arange(count, dtype=np.int64)
            columns |= {"label": label} if kind == target and label is not None else {}
            self.writer.write(f"nodes/{plain_name(kind)}", {"node_id": node_id, **columns})
            if self.config.ids in self.graph.ndata[kind] and self.config.task != "graph":
                ids = self.ids(self.graph.ndata[kind][self.config.ids], count, owner)
                self.writer.write(f"ids/{plain_name(kind)}", {"node_id": node_id, "original_id": ids})
            self.node_types.append(NodeType(name=plain_name(kind), num_nodes=count, features=features))
        for triplet, (src, dst) in self.graph.edges.items():
            source, relation, target_kind = triplet
            sizes = self.graph.num_nodes[source], self.graph.num_nodes[target_kind]
            check = EdgeCheck(*sizes, same_type=source == target_kind)
            check.add(src, dst, f"{self.path}[edges of {' '.join(triplet)}]")
            self.checks.append(check)
            names = [plain_name(word) for word in triplet]
            made = EdgeType(source=names[0], relation=names[1], target=names[2], num_edges=len(src), features=())
            owner, prefix = f"{self.config.edge_word} of {relation}", f"{made.name}." if edges_apart else ""
            columns, features = self.columns(self.graph.edata[triplet], owner, prefix, edges=True)
            made = made.model_copy(update={"features": features})
            ids_type = id_dtype(max(sizes))
            self.writer.write(
                f"edges/{made.name}", {"src": src.astype(ids_type), "dst": dst.astype(ids_type), **columns}
            )
            self.edge_types.append(made)

    def _have_own_columns(self, *, edges: bool) -> bool:
        """Return whether each type has columns of its own, since widths differ; else those of one name are one."""
        of_types = (self.graph.edata if edges else self.graph.ndata).values()
        names = [self.config.field_of(option, edges=edges) for option in ("features", "categories")]
        widths = [{data[name].shape[1:] for data in of_types if name in data and data[name].size} for name in names]
        return any(len(shapes) > 1 for shapes in widths)

    def columns(
        self, data: Mapping[str, Array], owner: str, prefix: str, *, edges: bool = False
    ) -> tuple[dict[str, Array], tuple[FeatureColumn, ...]]:
        """Return features, weights and times of nodes or edges, checked; `prefix` begins the features' names."""
        columns: dict[str, Array] = {}
        features: list[FeatureColumn] = []
        numbers, codes = (self.config.field_of(option, edges=edges) for option in ("features", "categories"))
        if numbers in data and data[numbers].size:
            place, name = self.source.place(owner, numbers), f"{prefix}feat"
            columns[name] = checked_cast(as_matrix(data[numbers], place), np.float32, place)
            features.append(FeatureColumn(column=name, kind="numeric", dim=columns[name].shape[1]))
        if codes in data and data[codes].size:
            place, name = self.source.place(owner, codes), f"{prefix}feat_cat"
            kind = FeatureKind(name, True, (), place)
            [checked] = kind.checked([as_whole_numbers(as_matrix(data[codes], place), place)])
            columns[name] = checked.astype(np.int32)
            features.append(kind.describe())
        for option in ("weight", "time") if edges else ("time",):
            name = self.config.field_of(option, edges=edges)
            if name in data:
                place = self.source.place(owner, name)
                column = as_matrix(data[name], place)
                if column.shape[1] != 1:
                    raise DataError(f"has {column.shape[1]} columns; one is needed", path=place)
                if option == "weight":
                    checked_cast(column, np.float32, place)
                    check = WeightCheck(place, column=None)
                    columns[option] = check.add(column[:, 0].astype(np.float64))
                    check.finish()
                else:
                    columns[option] = as_whole_numbers(column[:, 0], place)
        return columns, tuple(features)

    def target(self) -> str:
        """Return the type of nodes that carries labels."""
        name, path, word, target = self.config.labels, self.path, self.config.node_word, self.config.target
        labelled = [kind for kind, data in self.graph.ndata.items() if name in data]
        chosen = [kind for kind in labelled if target in (None, kind, plain_name(kind))]
        if len(chosen) == 1:
            return chosen[0]
        if target is not None:
            types = ", ".join(map(plain_name, labelled)) or "no type has some"
            raise DataError(f"nodes of type {target!r} have no {name!r} in {word}; with labels: {types}", path=path)
        if chosen:
            raise DataError(f"{', '.join(chosen)} have labels; say whose are predicted: dataset.target", path=path)
        fields = sorted({field for data in self.graph.ndata.values() for field in data})
        raise DataError(
            f"no nodes have {name!r} in {word}{did_you_mean(name, fields)}; name the field of the labels "
            f"(dataset.labels), which has: {listed(fields) or 'none'}",
            path=path,
        )

    def label(self, data: Mapping[str, Array], count: int, owner: str) -> tuple[dict[str, Any], Array]:
        """Return what the labels are, as fields of the manifest, and the column `label` of `count` rows."""
        name = self.config.labels
        if name not in data:
            fields = listed(sorted(data)) or "none"
            raise DataError(f"there is no {name!r} among {owner}; dataset.labels names it: {fields}", path=self.path)
        place = self.source.place(owner, name)
        values = as_matrix(data[name], place).astype(np.float64)
        if len(values) != count:
            raise DataError(f"has {len(values):,} rows for {count:,} graphs", path=place)
        of_amounts = "of amounts say so: dataset.task_type=regression"
        kind, classes, label = number_labels(values, self.config.task_type, place, of_amounts=of_amounts)
        say_unlabelled(has_label(label), self.config.task, self.context)
        return {"task_type": kind, "num_classes": classes}, label

    def ids(self, array: Array, count: int, owner: str) -> Any:
        """Return users' ids, int64 or strings, one a row."""
        place = self.source.place(owner, self.config.ids)
        is_text = array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] > 0
        if array.shape[:1] != (count,) or not (is_text or array.shape[1:] in ((), (1,))):
            shapes = f"({count},), or bytes of texts as ({count}, width)"
            raise DataError(f"has the shape {array.shape}; {shapes} is needed", path=place)
        if not is_text:
            return as_whole_numbers(as_matrix(array, place), place)[:, 0]
        texts = np.ascontiguousarray(array).view(f"S{array.shape[1]}")[:, 0]
        try:
            return pa.array(texts, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DataError(f"holds bytes that are no UTF-8 ({error})", path=place) from None


def _with_shared_codes(types: list[Typed]) -> tuple[Typed, ...]:
    """Return the types, categories with as many codes as any of them has: a field of one name is one column."""
    most: dict[str, tuple[int, ...]] = {}
    for feature in (each for one in types for each in one.features if each.cardinalities):
        counts = zip(feature.cardinalities, most.get(feature.column, feature.cardinalities), strict=True)
        most[feature.column] = tuple(max(pair) for pair in counts)

    def shared(feature: FeatureColumn) -> FeatureColumn:
        codes = most.get(feature.column)
        return feature.model_copy(update={"cardinalities": codes}) if codes else feature

    return tuple(one.model_copy(update={"features": tuple(map(shared, one.features))}) for one in types)


class GraphSplits:
    """Writes the splits of one file."""

    def __init__(self, source: GraphSource, writer: DatasetWriter) -> None:
        self.source, self.writer = source, writer
        self.config, self.graph, self.labels = source.config, source.graph, source.labels

    def of_rows(self, data: Mapping[str, Array], owner: str, what: str, label: Array) -> None:
        """Write the splits of nodes, edges or graphs."""
        ids = []
        for split in SPLITS:
            name = getattr(self.config, split)
            place = self.source.place(owner, name)
            ids.append((np.flatnonzero(self.mask(data, name, place, split, len(label))), place))
        write_row_splits(self.writer, ids, has_label(label), what)

    def mask(self, data: Mapping[str, Array], name: str, place: str, split: str, count: int) -> Array:
        """Return a mask, bool (count,)."""
        if name not in data:
            why = f"there is no such mask; save one, boolean with {count:,} rows, or name it: dataset.{split}"
            raise DataError(why, path=place)
        mask = as_matrix(data[name], place)
        if mask.shape != (count, 1):
            raise DataError(f"is no mask of {count:,} rows: its shape is {data[name].shape}", path=place)
        wrong = np.flatnonzero(~np.isin(mask[:, 0], (0, 1)))
        if len(wrong):
            value = mask[wrong[0], 0]
            raise DataError(f"is no mask: it holds {value}; 0 and 1 are needed, or booleans", path=place, row=wrong[0])
        return mask[:, 0].astype(bool)

    def of_pairs(self) -> None:
        """Write the pairs of a link task's splits, and given negatives."""
        if len(self.graph.num_nodes) != 1 or len(self.graph.edges) != 1:
            why = "has several types of nodes or edges; link tasks read graphs with one of each"
            raise DataError(why, path=self.source.path)
        pairs = {split: self.pairs(split) for split in SPLITS}
        for split, ends in pairs.items():
            self.writer.write(f"split/{split}", {"src": ends[:, 0], "dst": ends[:, 1]})
        for split in SPLITS[1:]:
            if f"{split}_negative" in self.labels:
                self.writer.write(f"split/{split}_negative", self.negatives(split, len(pairs[split])))

    def pairs(self, split: str) -> Array:
        """Return the positive pairs of a link task's split, (n, 2)."""
        [count], [(src, dst)] = self.graph.num_nodes.values(), self.graph.edges.values()
        [edata] = self.graph.edata.values()
        name = getattr(self.config, split)
        stored = f"{split}_edges" if name not in edata and name not in self.labels else name
        if stored in self.labels:
            ends = self.ends(stored, count)
        else:
            rows = self.mask(edata, name, self.source.place(self.config.edge_word, name), split, len(src))
            ends = np.stack([src[rows], dst[rows]], 1)
        if not len(ends):
            why = f"the {split} split is empty"
            raise DataError(why, path=self.source.place(f"labels or {self.config.edge_word}", name))
        return ends

    def negatives(self, split: str, positives: int) -> dict[str, Any]:
        """Return given negatives: one pool, or candidates for each positive edge."""
        [count] = self.graph.num_nodes.values()
        pairs, place = self.ends(f"{split}_negative", count), self.source.place("labels", f"{split}_negative")
        if not pairs.size:
            raise DataError("holds no pairs; leave it out, and pairs are drawn", path=place)
        if pairs.ndim == 2:
            return {"src": pairs[:, 0], "dst": pairs[:, 1]}
        if len(pairs) != positives or (pairs[..., 0] != pairs[:, :1, 0]).any():
            raise DataError(
                f"has the shape {pairs.shape}; a row of candidates with one source is needed for each of the "
                f"{positives:,} positive pairs",
                path=place,
            )
        return {"src": pairs[:, 0, 0], "dst": np.ascontiguousarray(pairs[..., 1])}

    def ends(self, name: str, count: int) -> Array:
        """Return pairs of nodes from the labels, (n, 2) or (n, K, 2)."""
        array, place = self.labels[name], self.source.place("labels", name)
        if array.ndim not in (2, 3) or array.shape[-1] != 2:
            raise DataError(f"has the shape {array.shape}; pairs are needed, (n, 2)", path=place)
        array = as_whole_numbers(array, place)
        wrong = np.argwhere((array < 0) | (array >= count))
        if len(wrong):
            value = array[tuple(wrong[0])]
            raise DataError(f"node id {value} is not in 0..{count - 1}", path=place, row=int(wrong[0][0]))
        return array.astype(id_dtype(count))
