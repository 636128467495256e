"""Fields of graphs that DGL or PyG saved: which are there, where, and of which shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array, offsets
from tasks.ingest.dgl.configs import GraphFileConfig
from tasks.ingest.edges import EdgeCheck
from tasks.readers.arrays.dgl_file import SavedGraph, SavedGraphs
from tasks.readers.numbers import checked_cast

_NAMES = {"_N": "node", "_E": "to"}  # what DGL calls the only type and the only relation


def plain_name(name: str) -> str:
    """Return a type's or a relation's name in graphmill."""
    return _NAMES.get(name, name)


@dataclass(frozen=True)
class GraphSource:
    """A graph that is read, and what its file holds beside it."""

    config: GraphFileConfig
    path: Path
    graph: SavedGraph
    labels: Mapping[str, Array]

    def place(self, owner: str, name: str) -> str:
        """Name an array for messages."""
        return f"{self.path}[{owner}[{name!r}]]"

    def nodes_of(self, kind: str) -> str:
        """Name the nodes of a type for messages."""
        return f"{self.config.node_word} of {kind}"


def check_names(source: GraphSource) -> None:
    """Refuse a field that the recipe names, other than by default, and that is not where it is read."""
    config, options = source.config, type(source.config).model_fields
    nodes, edges = ({name for d in data.values() for name in d} for data in (source.graph.ndata, source.graph.edata))
    ids = set(source.labels) if config.task == "graph" else nodes
    places = dict.fromkeys(("features", "categories", "time"), nodes | edges) | {"weight": edges, "ids": ids}
    for option in [name for name in places if f"edge_{name}" in options]:
        places |= {option: nodes, f"edge_{option}": edges}
    for option, fields in places.items():
        name = getattr(config, option)
        if name != options[option].default and name not in fields:
            raise DataError(
                f"has no field {name!r} (dataset.{option}){did_you_mean(name, fields)}; where it is read there is "
                f"{listed(sorted(fields)) or 'none'}",
                path=source.path,
            )


def end_to_end(saved: SavedGraphs, path: Path) -> SavedGraph:
    """Return graphs of one type and one relation as a single one. Raises DataError where their fields differ."""
    first = saved.graphs[0]
    if len(first.num_nodes) != 1 or len(first.edges) != 1:
        raise DataError("has several types of nodes or edges; graph tasks read graphs with one of each", path=path)
    [kind], [triplet] = first.num_nodes, first.edges

    def widths(graph: SavedGraph) -> list[dict[str, tuple[int, ...]]]:
        of_both = (graph.ndata.get(kind, {}), graph.edata.get(triplet, {}))
        return [{name: array.shape[1:] for name, array in data.items()} for data in of_both]

    for number, graph in enumerate(saved.graphs):
        same_types = kind in graph.num_nodes and triplet in graph.edges
        if not same_types or widths(graph) != widths(first):
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


def as_matrix(array: Array, place: str) -> Array:
    """Return an array as (rows, width)."""
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"has the shape {array.shape}; (rows,) or (rows, columns) is needed", path=place)
    return array


def as_whole_numbers(array: Array, place: str) -> Array:
    """Return int64. Raises DataError naming the row of what is no whole number."""
    if not array.size:
        return array.astype(np.int64)
    return checked_cast(array.reshape(len(array), -1), np.int64, place).reshape(array.shape)
