"""Small typed graphs as stores, and a plain Python sampler that the fast one is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.relational.edges import Relation, RelationalEdges
from tasks.sampling.relational.sampler import TypedSample
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.storage.manifests import ArrayEntry


@dataclass
class TypedGraph:
    """Edges as lists of their ends; types and times as arrays. `edge_time`, `node_time`: None where there are none."""

    node_type: np.ndarray
    node_types: tuple[str, ...]
    relations: tuple[Relation, ...]
    src: np.ndarray
    dst: np.ndarray
    edge_type: np.ndarray
    edge_time: np.ndarray | None = None
    node_time: np.ndarray | None = None
    ids: type = np.int32
    order: np.ndarray = field(init=False)
    """CSC position to edge."""

    def __post_init__(self) -> None:
        self.order = np.lexsort((self.src, self.dst))

    def store(self) -> GraphStore:
        arrays = {
            "csc_indptr": np.searchsorted(self.dst[self.order], np.arange(len(self.node_type) + 1)).astype(np.int64),
            "csc_indices": self.src[self.order].astype(self.ids),
        }
        if len(self.relations) > 1:
            arrays["edge_type"] = self.edge_type[self.order].astype(np.int16)
        if len(self.node_types) > 1:
            arrays["node_type"] = self.node_type.astype(np.int16)
        if self.edge_time is not None:
            arrays["edge_time"] = self.edge_time[self.order]
        if self.node_time is not None:
            arrays["node_time"] = self.node_time
        entries = {
            name: ArrayEntry(path=f"{name}.npy", dtype=a.dtype.name, shape=a.shape) for name, a in arrays.items()
        }
        store = GraphStore(Path(), SimpleNamespace(symmetric=False, node_types=self.node_types, arrays=entries))
        store._open.update(arrays)
        return store

    def edges(self, left_out: int | None = None) -> RelationalEdges:
        return RelationalEdges(self.store(), self.relations, left_out)

    def time(self, edge: int) -> int:
        """From when on an edge is there: of a row's own key, as soon as the row is, where it is not later."""
        times, source = [ALWAYS], self.src[edge]
        times += [] if self.edge_time is None else [int(self.edge_time[edge])]
        times += [] if self.node_time is None else [int(self.node_time[source])]
        is_own_key = self.node_time is not None and self.relations[self.edge_type[edge]].is_own_key
        return ALWAYS if is_own_key and max(times) <= self.node_time[self.dst[edge]] else max(times)

    def seen(self, node: int, relation: int, cut: int | None) -> list[int]:
        """CSC positions of the edges of a relation into a node before a cut, by time, source and position."""
        found = []
        for position, edge in enumerate(self.order.tolist()):
            if self.dst[edge] == node and self.edge_type[edge] == relation and (cut is None or self.time(edge) < cut):
                found.append((self.time(edge), int(self.src[edge]), position))
        return [position for _, _, position in sorted(found)]


def random_graph(seed: int, *, times: str = "both", ids: type = np.int32) -> TypedGraph:
    """Five types (one of them empty), seven relations (one empty, two within a type, two of own keys), parallel edges.

    `times`: which of `edge`, `node`, `both`, `none` have times; they are of few values, and some are ALWAYS.
    """
    rng = np.random.default_rng(seed)
    names = ("a", "b", "empty", "c", "d")
    sizes = [23, 7, 0, 41, 1]
    node_type = rng.permutation(np.repeat(np.arange(5), sizes))
    of = [np.flatnonzero(node_type == t) for t in range(5)]
    ends = [(0, 1), (1, 0), (0, 0), (3, 0), (0, 3), (3, 3), (3, 1)]
    relations = tuple(Relation(f"{names[s]}__r{i}__{names[t]}", s, t, i in (1, 5)) for i, (s, t) in enumerate(ends))
    src, dst, kind = [], [], []
    for relation, (s, t) in enumerate(ends):
        count = 0 if relation == 4 else int(rng.integers(30, 300))
        targets = rng.choice(of[t], count)
        targets[: count // 3] = of[t][0]  # a hub
        src.append(rng.choice(of[s], count))
        dst.append(targets)
        kind.append(np.full(count, relation))
    src, dst, kind = np.concatenate(src), np.concatenate(dst), np.concatenate(kind)
    edge_time = rng.integers(-5, 20, len(src)) if times in ("edge", "both") else None
    node_time = rng.integers(-5, 12, len(node_type)) if times in ("node", "both") else None
    for array in (edge_time, node_time):
        if array is not None:
            array[rng.random(len(array)) < 0.3] = ALWAYS
    return TypedGraph(node_type, names, relations, src, dst, kind, edge_time, node_time, ids)


def taken_edges(
    sample: TypedSample, edges: RelationalEdges, layer: int
) -> dict[tuple[int, int | None, int], list[int]]:
    """By (node, cut, relation's number in `edge_type`): the CSC positions that a layer took, in its order."""
    found = {}
    one = sample.layers[layer]
    for number, relation, part in zip(edges.edge_types, edges.relations, one.relations, strict=True):
        assert len(part.indptr) == one.num_dst[relation.target] + 1
        assert part.indptr[0] == 0
        assert part.indptr[-1] == len(part.indices)
        for i in range(one.num_dst[relation.target]):
            cut = None if sample.cuts is None else int(sample.cuts[relation.target][i])
            node = int(sample.ids[relation.target][i])
            key = node, cut, number
            assert key not in found, "rows are distinct"
            found[key] = part.positions[part.indptr[i] : part.indptr[i + 1]].tolist()
    return found


def check_sample(
    graph: TypedGraph,
    edges: RelationalEdges,
    sample: TypedSample,
    seeds: tuple[np.ndarray, np.ndarray | None],
    fanouts: dict[str, tuple[int, ...]],
    recent: bool,
) -> None:
    """Compare a sample with what the definition allows, and where it leaves no choice, with the very edges."""
    nodes, cuts = seeds
    given = [None] * len(nodes) if cuts is None else cuts.tolist()
    rows: list[dict[tuple[int, int | None], int]] = [{} for _ in graph.node_types]
    for t in sorted(set(graph.node_type[nodes].tolist())):
        for node, cut in zip(nodes.tolist(), given, strict=True):
            if graph.node_type[node] == t:
                rows[t].setdefault((node, cut), len(rows[t]))
    for i, (node, cut) in enumerate(zip(nodes.tolist(), given, strict=True)):
        assert sample.seed_rows[i] == rows[graph.node_type[node]][node, cut]
    for hop, layer in enumerate(sample.layers[::-1]):
        assert layer.num_dst == tuple(map(len, rows))
        dst = [list(one) for one in rows]
        for t in range(len(graph.node_types)):
            for relation, part in zip(edges.relations, layer.relations, strict=True):
                if relation.target != t:
                    continue
                number = graph.relations.index(relation)
                assert len(part.indptr) == len(dst[t]) + 1
                limit = fanouts.get(relation.name, fanouts["default"])[hop]
                for i, (node, cut) in enumerate(dst[t]):
                    seen = graph.seen(node, number, cut)
                    taken = part.positions[part.indptr[i] : part.indptr[i + 1]].tolist()
                    wanted = len(seen) if limit < 0 else min(limit, len(seen))
                    assert len(taken) == len(set(taken)) == wanted
                    assert set(taken) <= set(seen)
                    if recent:
                        assert taken == seen[len(seen) - wanted :]
                    for position, local in zip(taken, part.indices[part.indptr[i] : part.indptr[i + 1]], strict=True):
                        source = int(graph.src[graph.order[position]])
                        assert local == rows[relation.source].setdefault((source, cut), len(rows[relation.source]))
        assert layer.num_src == tuple(map(len, rows))
    for t, one in enumerate(rows):
        assert sample.ids[t].tolist() == [node for node, _ in one]
        assert (sample.cuts is None) == (cuts is None)
        if sample.cuts is not None:
            assert sample.cuts[t].dtype == np.int64
            assert sample.cuts[t].tolist() == [cut for _, cut in one]


def reference_draw(seen: list[int], limit: int, slot: int, cut: int, hop: int, key: int) -> list[int]:
    """The draw of one slot, spelled out in Python: wyrand's numbers and Floyd's algorithm."""
    mask = (1 << 64) - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    def stream(key: int, number: int) -> int:
        return mix((key + (number + 1) * 0x9E3779B97F4A7C15) & mask)

    state = stream(stream(derive_key(key, hop), cut & mask), slot)
    taken: list[int] = []
    for j in range(len(seen) - limit, len(seen)):
        state = (state + 0xA0761D6478BD642F) & mask
        product = state * (state ^ 0xE7037ED1A0B428DB)
        number = (product >> 64) ^ (product & mask)
        t = (number * (j + 1)) >> 64
        taken.append(j if seen[t] in taken else t)
        taken[-1] = seen[taken[-1]]
    return taken
