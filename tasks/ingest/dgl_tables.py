"""The arrays of graphs that DGL saved, checked and written as tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array, offsets
from tasks.ingest.configs import DglFileConfig
from tasks.ingest.edges import EdgeCheck, total_duplicates
from tasks.ingest.features import FeatureKind, finite_float32
from tasks.ingest.labels import LabelKind, check_labelled, has_label, to_labels, usual_metric
from tasks.ingest.writer import DatasetWriter
from tasks.readers.dgl_file import SavedGraph, SavedGraphs
from tasks.stage import StageContext
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, NodeType

_NAMES = {"_N": "node", "_E": "to"}  # what DGL calls the only type and the only relation
_MAX_CLASSES = 1 << 20

Typed = TypeVar("Typed", NodeType, EdgeType)


def check_names(config: DglFileConfig, graph: SavedGraph, labels: Mapping[str, Array], path: Path) -> None:
    """Refuse a field that the recipe names, other than by default, and that is not where it is read."""
    nodes, edges = ({name for each in data.values() for name in each} for data in (graph.ndata, graph.edata))
    ids = set(labels) if config.task == "graph" else nodes
    places = {
        "features": nodes | edges,
        "categories": nodes | edges,
        "weight": edges,
        "time": nodes | edges,
        "ids": ids,
    }
    for option, known in places.items():
        name = getattr(config, option)
        if name != DglFileConfig.model_fields[option].default and name not in known:
            raise DataError(
                f"has no field {name!r} (dataset.{option}){did_you_mean(name, known)}; where it is read there is "
                f"{listed(sorted(known)) or 'none'}",
                path=path,
            )


def _check_types(graph: SavedGraph, path: Path) -> None:
    """Refuse types, or relations between the same types, that have one name in graphmill, as `_N` and `node` do."""
    for names in (list(graph.num_nodes), [" ".join(map(_plain, triplet)) for triplet in graph.edges]):
        plain = [_plain(name) for name in names]
        if len(set(plain)) != len(plain):
            twice = next(name for name in plain if plain.count(name) > 1)
            raise DataError(f"has two types or relations that are {twice!r} here; rename one of them", path=path)


def end_to_end(saved: SavedGraphs, path: Path) -> SavedGraph:
    """Return graphs of one type and one relation as a single one. Raises DataError where their fields differ."""
    first = saved.graphs[0]
    if len(first.num_nodes) != 1 or len(first.edges) != 1:
        raise DataError("has several types of nodes or edges; graph tasks read graphs with one of each", path=path)
    kind, triplet = next(iter(first.num_nodes)), next(iter(first.edges))
    for number, graph in enumerate(saved.graphs):
        for data, own in ((graph.ndata.get(kind), first.ndata[kind]), (graph.edata.get(triplet), first.edata[triplet])):
            shapes = None if data is None else {name: array.shape[1:] for name, array in data.items()}
            if shapes != {name: array.shape[1:] for name, array in own.items()}:
                raise DataError(f"graph {number} has not the types, fields and widths of graph 0", path=path)
        EdgeCheck(graph.num_nodes[kind], graph.num_nodes[kind]).add(*graph.edges[triplet], f"{path}[graph {number}]")
    starts = offsets([graph.num_nodes[kind] for graph in saved.graphs])
    src, dst = (
        np.concatenate([graph.edges[triplet][side] + start for graph, start in zip(saved.graphs, starts, strict=False)])
        for side in (0, 1)
    )
    ndata = {name: np.concatenate([graph.ndata[kind][name] for graph in saved.graphs]) for name in first.ndata[kind]}
    edata = {name: np.concatenate([g.edata[triplet][name] for g in saved.graphs]) for name in first.edata[triplet]}
    return SavedGraph({kind: int(starts[-1])}, {triplet: (src, dst)}, {kind: ndata}, {triplet: edata})


class DglTables:
    """Writes the tables of one file."""

    def __init__(
        self, config: DglFileConfig, path: Path, graph: SavedGraph, labels: Mapping[str, Array], context: StageContext
    ) -> None:
        self.config, self.path, self.graph, self.labels = config, path, graph, labels
        self.writer = DatasetWriter(context.work)

    def place(self, owner: str, name: str) -> str:
        """Name an array for messages."""
        return f"{self.path}[{owner}[{name!r}]]"

    def one(self) -> dict[str, Any]:
        """Write a graph of which nodes or edges are predicted."""
        with self.writer:
            if self.config.task == "link":
                fields = self.tables(None, None) | {"task_type": "link", "splits": self.link_splits()}
                [kind] = self.graph.num_nodes
            else:
                kind = self.target()
                place = f"ndata of {kind}"
                fields, label = self.label(self.graph.ndata[kind], self.graph.num_nodes[kind], place)
                fields |= self.tables(kind, label)
                fields["splits"] = self.splits(self.graph.ndata[kind], place, "node", label)
            return self.manifest({**fields, "target_type": _plain(kind)})

    def many(self, saved: SavedGraphs) -> dict[str, Any]:
        """Write graphs that are predicted themselves."""
        count = len(saved.graphs)
        described, label = self.label(self.labels, count, "labels")
        with self.writer:
            fields = self.tables(None, None)
            self.writer.write(
                "graphs",
                {
                    "graph_id": np.arange(count, dtype=np.int64),
                    "num_nodes": np.array([sum(graph.num_nodes.values()) for graph in saved.graphs]),
                    "num_edges": np.array([sum(len(src) for src, _ in g.edges.values()) for g in saved.graphs]),
                    "label": label,
                },
            )
            if self.config.ids in self.labels:
                ids = self.ids(self.labels[self.config.ids], count, "labels")
                self.writer.write("ids/graphs", {"graph_id": np.arange(count, dtype=np.int64), "original_id": ids})
            splits = self.splits(self.labels, "labels", "graph", label)
            fields |= described | {"splits": splits, "num_graphs": count}
            return self.manifest({**fields, "target_type": fields["node_types"][0].name})

    def manifest(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the manifest's fields; the writer is done with all tables."""
        return {
            "dataset": self.path.stem,
            "task": self.config.task,
            "num_tasks": 1,
            "metric": self.config.metric or usual_metric(fields["task_type"]),
            "directed": self.config.directed,
            **fields,
            "tables": self.writer.tables,
        }

    def tables(self, target: str | None, label: Array | None) -> dict[str, Any]:
        """Write nodes and edges; `label` goes to the nodes of type `target`."""
        _check_types(self.graph, self.path)
        node_types, edge_types, checks = [], [], []
        for kind, count in self.graph.num_nodes.items():
            columns, features = self.columns(self.graph.ndata[kind], f"ndata of {kind}", ("time",))
            node_id = np.arange(count, dtype=np.int64)
            columns |= {"label": label} if kind == target and label is not None else {}
            self.writer.write(f"nodes/{_plain(kind)}", {"node_id": node_id, **columns})
            if self.config.ids in self.graph.ndata[kind] and self.config.task != "graph":
                ids = self.ids(self.graph.ndata[kind][self.config.ids], count, f"ndata of {kind}")
                self.writer.write(f"ids/{_plain(kind)}", {"node_id": node_id, "original_id": ids})
            node_types.append(NodeType(name=_plain(kind), num_nodes=count, features=features))
        for triplet, (src, dst) in self.graph.edges.items():
            source, relation, target_kind = triplet
            sizes = self.graph.num_nodes[source], self.graph.num_nodes[target_kind]
            check = EdgeCheck(*sizes, same_type=source == target_kind)
            check.add(src, dst, f"{self.path}[edges of {' '.join(triplet)}]")
            checks.append(check)
            columns, features = self.columns(self.graph.edata[triplet], f"edata of {relation}", ("weight", "time"))
            names = [_plain(word) for word in triplet]
            made = EdgeType(source=names[0], relation=names[1], target=names[2], num_edges=len(src), features=features)
            ids_type = id_dtype(max(sizes))
            self.writer.write(
                f"edges/{made.name}", {"src": src.astype(ids_type), "dst": dst.astype(ids_type), **columns}
            )
            edge_types.append(made)
        return {
            "node_types": _with_shared_codes(node_types),
            "edge_types": _with_shared_codes(edge_types),
            "num_self_loops": sum(check.num_self_loops for check in checks),
            "num_duplicate_edges": total_duplicates(checks),
        }

    def columns(
        self, data: Mapping[str, Array], owner: str, extra: tuple[str, ...]
    ) -> tuple[dict[str, Array], tuple[FeatureColumn, ...]]:
        """Return features, and further columns, of nodes or edges, checked."""
        columns: dict[str, Array] = {}
        features: list[FeatureColumn] = []
        if self.config.features in data and data[self.config.features].size:
            place = self.place(owner, self.config.features)
            columns["feat"] = finite_float32(_matrix(data[self.config.features], place), place)
            features.append(FeatureColumn(column="feat", kind="numeric", dim=columns["feat"].shape[1]))
        if self.config.categories in data and data[self.config.categories].size:
            place = self.place(owner, self.config.categories)
            kind = FeatureKind("feat_cat", True, (), place)
            [codes] = kind.checked([_whole(_matrix(data[self.config.categories], place), place)])
            columns["feat_cat"] = codes.astype(np.int32)
            features.append(kind.describe())
        for option in extra:
            name = getattr(self.config, option)
            if name in data:
                place = self.place(owner, name)
                column = _matrix(data[name], place)
                if column.shape[1] != 1:
                    raise DataError(f"has {column.shape[1]} columns; one is needed", path=place)
                checked = finite_float32 if option == "weight" else _whole
                columns[option] = checked(column[:, 0], place)
        return columns, tuple(features)

    def target(self) -> str:
        """Return the type of nodes that carries labels."""
        having = [kind for kind, data in self.graph.ndata.items() if self.config.labels in data]
        wanted = self.config.target
        found = [kind for kind in having if wanted in (None, kind, _plain(kind))]
        if len(found) == 1:
            return found[0]
        name, path = self.config.labels, self.path
        if wanted is not None:
            types = ", ".join(map(_plain, having)) or "no type has some"
            raise DataError(f"nodes of type {wanted!r} have no {name!r} in ndata; with labels: {types}", path=path)
        if found:
            raise DataError(f"{', '.join(found)} have labels; say whose are predicted: dataset.target", path=path)
        fields = sorted({field for data in self.graph.ndata.values() for field in data})
        raise DataError(
            f"no nodes have {name!r} in ndata{did_you_mean(name, fields)}; name the field of the labels "
            f"(dataset.labels), which has: {listed(fields) or 'none'}",
            path=path,
        )

    def label(self, data: Mapping[str, Array], count: int, owner: str) -> tuple[dict[str, Any], Array]:
        """Return what the labels are, as fields of the manifest, and the column `label` of `count` rows."""
        name = self.config.labels
        if name not in data:
            known = listed(sorted(data)) or "none"
            raise DataError(f"there is no {name!r} among {owner}; dataset.labels names it: {known}", path=self.path)
        place = self.place(owner, name)
        values = _matrix(data[name], place).astype(np.float64)
        if len(values) != count:
            raise DataError(f"has {len(values):,} rows for {count:,} graphs", path=place)
        kind = self.config.task_type or _kind_of_label(values)
        if kind != "regression":
            values = np.where(values == -1, np.nan, values)
        if kind in ("multiclass", "binary") and values.shape[1] != 1:
            raise DataError(f"has {values.shape[1]} columns; a {kind} label has one", path=place)
        largest = -1 if np.isnan(values).all() else float(np.nanmax(values))
        if kind == "multiclass" and not 1 <= largest < _MAX_CLASSES:
            raise DataError(f"the largest class is {largest:g}; 1 to {_MAX_CLASSES:,} classes are possible", path=place)
        classes = int(largest) + 1 if kind == "multiclass" else 0 if kind == "regression" else 2
        described = {"task_type": kind, "num_classes": classes, "num_tasks": values.shape[1]}
        return described, to_labels(values, LabelKind(kind, classes, values.shape[1]), place)

    def splits(self, data: Mapping[str, Array], owner: str, what: str, label: Array) -> dict[str, int]:
        """Write the splits of nodes or graphs; returns their sizes."""
        labelled = has_label(label)
        taken = np.zeros(len(label), bool)
        sizes = {}
        for split in SPLITS:
            name = getattr(self.config, split)
            place = self.place(owner, name)
            mask = self.mask(data, name, place, split, len(label))
            ids = np.flatnonzero(mask)
            both = np.flatnonzero(mask & taken)
            if len(both):
                raise DataError(f"{what} {both[0]} is in an earlier split too; splits overlap", path=place)
            if not len(ids):
                raise DataError(f"the {split} split is empty", path=place)
            taken |= mask
            check_labelled(labelled, ids, split, what, place)
            self.writer.write(f"split/{split}", {f"{what}_id": ids})
            sizes[split] = len(ids)
        return sizes

    def mask(self, data: Mapping[str, Array], name: str, place: str, split: str, count: int) -> Array:
        """Return a mask, bool (count,)."""
        if name not in data:
            raise DataError(
                f"there is no such mask; save one, boolean with {count:,} rows, or name it: dataset.{split}", path=place
            )
        mask = _matrix(data[name], place)
        if mask.shape != (count, 1) or not np.isin(mask, (0, 1)).all():
            raise DataError(f"is no mask of {count:,} rows: its shape is {data[name].shape}", path=place)
        return mask[:, 0].astype(bool)

    def link_splits(self) -> dict[str, int]:
        """Write the pairs of a link task's splits, and given negatives; returns the numbers of pairs."""
        if len(self.graph.num_nodes) != 1 or len(self.graph.edges) != 1:
            raise DataError(
                "has several types of nodes or edges; link tasks read graphs with one of each", path=self.path
            )
        pairs = {split: self.pairs(split) for split in SPLITS}
        for split, ends in pairs.items():
            self.writer.write(f"split/{split}", {"src": ends[:, 0], "dst": ends[:, 1]})
        for split in SPLITS[1:]:
            if f"{split}_negative" in self.labels:
                self.writer.write(f"split/{split}_negative", self.negatives(split, len(pairs[split])))
        return {split: len(ends) for split, ends in pairs.items()}

    def pairs(self, split: str) -> Array:
        """Return the positive pairs of a link task's split, (n, 2)."""
        [count], [(src, dst)] = self.graph.num_nodes.values(), self.graph.edges.values()
        [edata] = self.graph.edata.values()
        name = getattr(self.config, split)
        stored = f"{split}_edges" if name not in edata and name not in self.labels else name
        if stored in self.labels:
            found = self.ends(stored, count)
        else:
            rows = self.mask(edata, name, self.place("edata", name), split, len(src))
            found = np.stack([src[rows], dst[rows]], 1)
        if not len(found):
            raise DataError(f"the {split} split is empty", path=self.place("labels or edata", name))
        return found

    def negatives(self, split: str, positives: int) -> dict[str, Any]:
        """Return given negatives: one pool, or candidates for each positive edge."""
        [count] = self.graph.num_nodes.values()
        found = self.ends(f"{split}_negative", count)
        if not found.size:
            raise DataError(
                "holds no pairs; leave it out, and pairs are drawn", path=self.place("labels", f"{split}_negative")
            )
        if found.ndim == 2:
            return {"src": found[:, 0], "dst": found[:, 1]}
        if len(found) != positives or (found[..., 0] != found[:, :1, 0]).any():
            raise DataError(
                f"has the shape {found.shape}; a row of candidates with one source is needed for each of the "
                f"{positives:,} positive pairs",
                path=self.place("labels", f"{split}_negative"),
            )
        return {"src": found[:, 0, 0], "dst": np.ascontiguousarray(found[..., 1])}

    def ends(self, name: str, count: int) -> Array:
        """Return pairs of nodes from the labels, (n, 2) or (n, K, 2)."""
        array, place = self.labels[name], self.place("labels", name)
        if array.ndim not in (2, 3) or array.shape[-1] != 2:
            raise DataError(f"has the shape {array.shape}; pairs are needed, (n, 2)", path=place)
        array = _whole(array, place)
        wrong = np.argwhere((array < 0) | (array >= count))
        if len(wrong):
            value = array[tuple(wrong[0])]
            raise DataError(f"node id {value} is not in 0..{count - 1}", path=place, row=int(wrong[0][0]))
        return array.astype(id_dtype(count))

    def ids(self, array: Array, count: int, owner: str) -> Any:
        """Return users' ids, int64 or strings, one a row."""
        place = self.place(owner, self.config.ids)
        is_text = array.dtype == np.uint8 and array.ndim == 2 and array.shape[1] > 0
        if array.shape[:1] != (count,) or not (is_text or array.shape[1:] in ((), (1,))):
            shapes = f"({count},), or bytes of texts as ({count}, width)"
            raise DataError(f"has the shape {array.shape}; {shapes} is needed", path=place)
        if not is_text:
            return _whole(_matrix(array, place), place)[:, 0]
        texts = np.ascontiguousarray(array).view(f"S{array.shape[1]}")[:, 0]
        try:
            return pa.array(texts, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise DataError(f"holds bytes that are no UTF-8 ({error})", path=place) from None


def _plain(name: str) -> str:
    return _NAMES.get(name, name)


def _kind_of_label(values: Array) -> Any:
    """Return the kind of label that numbers look like."""
    known = values[~np.isnan(values)]
    whole = (known == np.floor(known)).all()
    if values.shape[1] > 1:
        return "multilabel" if np.isin(known, (-1, 0, 1)).all() else "regression"
    if not whole or (known < -1).any():
        return "regression"
    return "binary" if known.size and known.max() == 1 else "multiclass"


def _with_shared_codes(types: list[Typed]) -> tuple[Typed, ...]:
    """Return the types, categories with as many codes as any of them has: a field of one name is one column."""
    most: dict[int, tuple[int, ...]] = {}  # by width: other widths are refused when types are put together
    for feature in (each for one in types for each in one.features if each.cardinalities):
        counts = zip(feature.cardinalities, most.get(feature.dim, feature.cardinalities), strict=True)
        most[feature.dim] = tuple(max(pair) for pair in counts)

    def shared(feature: FeatureColumn) -> FeatureColumn:
        return feature.model_copy(update={"cardinalities": most[feature.dim]}) if feature.cardinalities else feature

    return tuple(one.model_copy(update={"features": tuple(map(shared, one.features))}) for one in types)


def _matrix(array: Array, place: str) -> Array:
    """Return an array as (rows, width)."""
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"has the shape {array.shape}; (rows,) or (rows, columns) is needed", path=place)
    return array


def _whole(array: Array, place: str) -> Array:
    """Return int64. Raises DataError naming the row of what is no whole number."""
    if array.dtype.kind == "f":
        wrong = np.argwhere(~(np.abs(array) < 2.0**63) | (array != np.floor(array)))
    else:
        wrong = np.argwhere(array > np.iinfo(np.int64).max)
    if len(wrong):
        raise DataError("is no whole number of 64 bits", path=place, row=int(wrong[0][0]))
    return array.astype(np.int64)
