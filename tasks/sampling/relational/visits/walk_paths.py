"""By which relations walks lead from a row of a type to others of the type that counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from configs.errors import RecipeError
from configs.matching import did_you_mean
from tasks.sampling.relational.edges import RelationalEdges
from tasks.storage.graph_store import GraphStore

Path = tuple[int, ...]
"""Places in `RelationalEdges.relations`; each relation is walked from its target to its source."""


def paths_back(edges: RelationalEdges, kind: int, named: Sequence[Sequence[str]] = ()) -> list[Path]:
    """Return the paths from a type's rows to others of it: those that are named, else the shortest there are.

    These are its relations to itself, and all ways there and back by another row that have more than one end; of rows
    that belong to one of the type alone (an order of a customer), by what they have in common with others of their kind
    (a product).
    Raises RecipeError.
    """
    name = edges.node_types[kind]
    if named:
        return [_named(edges, path, kind) for path in named]
    found: list[Path] = []
    for out in edges.into[kind]:
        there = edges.relations[out].source
        if there == kind:  # a row that it names itself
            found.append((out,))
            continue
        for back in edges.into[there]:
            if edges.relations[back].source != kind:
                continue
            if _is_many(edges, back):
                found.append((out, back))
            else:
                found += [(out, *middle, back) for middle in _around(edges, there, kind)]
    if not found:
        raise RecipeError(
            f"no keys lead from one row of {name} to another: walks (model.walks) have nowhere to go. Take "
            "model.name=heterosage, or name the way: model.walks.paths=[[RELATION, RELATION]]"
        )
    return sorted(found)


def _around(edges: RelationalEdges, kind: int, besides: int) -> list[Path]:
    """Return the ways from rows to others of their kind by rows of a third type."""
    found: list[Path] = []
    for out in edges.into[kind]:
        there = edges.relations[out].source
        if there in (kind, besides):
            continue
        ways = [back for back in edges.into[there] if edges.relations[back].source == kind and _is_many(edges, back)]
        found += [(out, back) for back in ways]
    return found


def _is_many(edges: RelationalEdges, place: int) -> bool:
    """Whether some row has several edges of a relation."""
    relation = edges.relations[place]
    nodes = np.flatnonzero(edges.node_type == relation.target)
    slots = edges.slot_start[nodes] + edges.into[relation.target].index(place)
    return bool((edges.indptr[slots + 1] - edges.indptr[slots] > 1).any())


def _named(edges: RelationalEdges, path: Sequence[str], kind: int) -> Path:
    """Return the places of a path's relations. Raises RecipeError: there is none, or they do not fit together."""
    where, names = "model.walks.paths", [relation.name for relation in edges.relations]
    at, found = kind, []
    for name in path:
        if name not in names:
            raise RecipeError(
                f"{where}: there is no relation {name!r}{did_you_mean(name, names)}; there are {', '.join(names)}"
            )
        place = names.index(name)
        if edges.relations[place].target != at:
            fitting = [names[i] for i in edges.into[at]]
            raise RecipeError(
                f"{where}: {name} does not lead on from a row of {edges.node_types[at]}: walks follow relations from "
                f"their targets to their sources; those that do are {', '.join(fitting) or 'none'}"
            )
        found.append(place)
        at = edges.relations[place].source
    if at != kind:
        raise RecipeError(
            f"{where}: {' - '.join(path)} ends at a row of {edges.node_types[at]}; it has to end at one of "
            f"{edges.node_types[kind]}"
        )
    return tuple(found)


def history_paths(store: GraphStore, edges: RelationalEdges) -> tuple[Path, Path]:
    """Return the relation from entities to what they were linked to, and the way from a candidate to another by it."""
    ranking = store.manifest.ranking
    assert ranking is not None
    source, relation, target = ranking.history.split("__", 2)
    reverse = f"{target}__rev_{relation}__{source}"
    names = [one.name for one in edges.relations]
    if reverse not in names:
        raise RecipeError(
            f"walks go along {ranking.history} and back, and the prepared graph has no {reverse}; set "
            "preprocess.symmetrize=true"
        )
    there, back = names.index(ranking.history), names.index(reverse)
    if ranking.history_is_reversed:  # from candidates to entities
        there, back = back, there
    # Walks go against messages: an entity's candidates are the sources of the relation that leads to it.
    return (back,), (there, back)


def as_columns(edges: RelationalEdges, paths: Sequence[Path]) -> np.ndarray:
    """Return paths as slots of the nodes that are passed, int64 (P, L), -1 behind a shorter one."""
    found = np.full((len(paths), max(map(len, paths))), -1, np.int64)
    for i, path in enumerate(paths):
        found[i, : len(path)] = [edges.into[edges.relations[place].target].index(place) for place in path]
    return found
