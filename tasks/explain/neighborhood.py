"""What a score is computed from: in-edges of what is scored, of their sources, and so on, as many hops as layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.arrays import Array
from tasks.sampling.neighborhoods.in_edges import Sample
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.storage.graph_store import GraphStore

_KEY = 20_261_129
"""What is drawn where a neighbourhood is too large: the same in every explanation."""


@dataclass(frozen=True)
class EdgeUnits:
    """What is left out or weighed as one edge: all parallel edges of one type, with their reverses where those are made
    or stored beside them (U of them)."""

    source: Array
    """int64 (U,): local numbers; edges go from here ..."""
    target: Array
    """int64 (U,): ... to here; which is which nobody knows where a relation and its reverse are one."""
    relation: Array
    """int64 (U,): number of the edges' type."""
    count: Array
    """int64 (U,): edges from source to target."""
    both_ways: bool
    """Whether the reverses are in it."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.source)


@dataclass(frozen=True)
class Neighborhood:
    """Nodes and edges around seeds."""

    nodes: Array
    """id (n,), the seeds first, then hop by hop."""
    hop: Array
    """int64 (n,): steps from the seeds."""
    layers: list[Sample]
    """From the outermost to the seeds; destinations of each are the first nodes."""
    unit_of: list[Array]
    """int64 (E,): the unit of each edge of a layer."""
    units: EdgeUnits
    is_whole: bool
    """Whether nothing was left out for its size."""


def neighborhood_of(store: GraphStore, seeds: Array, num_layers: int, most_edges: int) -> Neighborhood:
    """Return what lies around distinct seeds, id (k,), up to `num_layers` hops and about `most_edges` edges a hop."""
    indptr, indices = store["csc_indptr"], store["csc_indices"]
    fanouts: tuple[int, ...] = ()
    nodes, layers, hop = np.asarray(seeds), list[Sample](), np.zeros(len(seeds), np.int64)
    for number in range(num_layers):
        degrees = np.asarray(indptr[nodes + 1]) - np.asarray(indptr[nodes])
        fanouts = (*fanouts, -1 if degrees.sum() <= most_edges else max(1, most_edges // len(nodes)))
        nodes, layers = NeighborSampler(indptr, indices, fanouts).sample(seeds, _KEY)
        hop = np.concatenate([hop, np.full(len(nodes) - len(hop), number + 1)])
    types = store.get("edge_type")
    unit_of, units = _edge_units(store, layers, types)
    return Neighborhood(nodes, hop, layers, unit_of, units, all(fanout < 0 for fanout in fanouts))


def _edge_units(store: GraphStore, layers: list[Sample], types: Array | None) -> tuple[list[Array], EdgeUnits]:
    ends = [edge_ends(layer) for layer in layers]
    source, target = (np.concatenate([each[side] for each in ends][::-1]) for side in (0, 1))  # the innermost first
    place = np.concatenate([np.asarray(layer.positions) for layer in layers][::-1])
    relation = np.zeros(len(place), np.int64) if types is None else np.asarray(types[place], np.int64)
    joined = forward_relations(store.manifest.edge_types)[relation]
    both_ways, nodes = store.manifest.symmetric, len(layers[0].degree)
    low, high = (np.minimum(source, target), np.maximum(source, target)) if both_ways else (source, target)
    _, first, unit = np.unique((joined * nodes + low) * nodes + high, return_index=True, return_inverse=True)
    as_first = (source == source[first][unit]) & (target == target[first][unit])
    _, once = np.unique(place, return_index=True)
    count = np.bincount(unit[once][as_first[once]], minlength=len(first))
    # As the tables have it, where their relation and its reverse are two.
    ends_of = np.where(relation[first] == joined[first], (source[first], target[first]), (target[first], source[first]))
    units = EdgeUnits(ends_of[0], ends_of[1], joined[first], count, both_ways)
    cuts = np.cumsum([len(each[0]) for each in ends][::-1])[:-1]
    return np.split(unit, cuts)[::-1], units


def edge_ends(layer: Sample) -> tuple[Array, Array]:
    """Return the local numbers of sources and targets of a layer's edges, int64 (E,) each."""
    return layer.indices.astype(np.int64), np.repeat(np.arange(len(layer.indptr) - 1), np.diff(layer.indptr))


def forward_relations(names: tuple[str, ...]) -> Array:
    """Return the number of each type's forward type, int64 (R,): `b__rev_x__a` was made of `a__x__b`."""
    made_of = {}
    for number, name in enumerate(names):
        source, _, rest = name.partition("__")
        relation, _, target = rest.rpartition("__")
        made_of[f"{target}__rev_{relation}__{source}"] = number
    return np.array([made_of.get(name, number) for number, name in enumerate(names)])
