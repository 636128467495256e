"""Fields of graphs that DGL or PyG saved: which are there, where, and of which shape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array, offsets
from tasks.ingest.edges import EdgeCheck
from tasks.readers.dgl_file import SavedGraph, SavedGraphs

_NAMES = {"_N": "node", "_E": "to"}  # what DGL calls the only type and the only relation


def plain_name(name: str) -> str:
    """Return a type's or a relation's name in graphmill."""
    return _NAMES.get(name, name)


def place_of(path: Path, owner: str, name: str) -> str:
    """Name an array for messages."""
    return f"{path}[{owner}[{name!r}]]"


def check_names(config: Any, graph: SavedGraph, labels: Mapping[str, Array], path: Path) -> None:
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
    for option in [name for name in places if f"edge_{name}" in type(config).model_fields]:
        places |= {option: nodes, f"edge_{option}": edges}
    for option, known in places.items():
        name = getattr(config, option)
        if name != type(config).model_fields[option].default and name not in known:
            raise DataError(
                f"has no field {name!r} (dataset.{option}){did_you_mean(name, known)}; where it is read there is "
                f"{listed(sorted(known)) or 'none'}",
                path=path,
            )


def check_types(graph: SavedGraph, path: Path) -> None:
    """Refuse types, or relations between the same types, that have one name in graphmill, as `_N` and `node` do."""
    for names in (list(graph.num_nodes), [" ".join(map(plain_name, triplet)) for triplet in graph.edges]):
        plain = [plain_name(name) for name in names]
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


def as_matrix(array: Array, place: str) -> Array:
    """Return an array as (rows, width)."""
    if array.ndim == 1:
        return array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"has the shape {array.shape}; (rows,) or (rows, columns) is needed", path=place)
    return array


def as_whole_numbers(array: Array, place: str) -> Array:
    """Return int64. Raises DataError naming the row of what is no whole number."""
    if array.dtype.kind == "f":
        array = array.astype(np.float64, copy=False)  # of float16 the bound below is no number
        wrong = np.argwhere(~(np.abs(array) < 2.0**63) | (array != np.floor(array)))
    else:
        wrong = np.argwhere(array > np.iinfo(np.int64).max)
    if len(wrong):
        raise DataError("is no whole number of 64 bits", path=place, row=int(wrong[0][0]))
    return array.astype(np.int64)
