"""Importance neighbourhoods: walk by walk against plain Python, and against the visits that are to be expected."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError
from models.relational.configs import ImportanceWalksConfig
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.relational.importance import ImportanceSampler
from tasks.sampling.relational.walks import paths_back
from tests.sampling.relational.typed_graphs import TypedGraph, random_graph

MASK = (1 << 64) - 1
PATHS = [(1, 0), (3, 5, 4, 1, 0)]
"""From a row of type a: by b back, and a longer one that ends nowhere, for relation 4 has no edges."""


def mix(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def stream(key: int, number: int) -> int:
    return mix((key + (number + 1) * 0x9E3779B97F4A7C15) & MASK)


def drawn(state: int) -> tuple[int, int]:
    """The next state of a stream, and its 64 bits."""
    state = (state + 0xA0761D6478BD642F) & MASK
    product = state * (state ^ 0xE7037ED1A0B428DB)
    return state, (product >> 64) ^ (product & MASK)


def plain_visits(
    graph: TypedGraph, node: int, cut: int | None, key: int, options: ImportanceWalksConfig, ways: tuple[Any, Any]
) -> list[tuple[int, float]]:
    """Neighbours and shares of a node, spelled out."""
    key = stream(stream(key, (1 << 62 if cut is None else cut) & MASK), node)
    walks: list[list[int]] = []
    known = graph.__dict__.setdefault("known", {})
    for w in range(options.count):
        state, at, visited = stream(key, w), node, []
        for traversal in range(options.length):
            paths = ways[0] if traversal == 0 else ways[1]
            path = paths[0]
            if len(paths) > 1:
                state, bits = drawn(state)
                path = paths[(bits * len(paths)) >> 64]
            for relation in path:
                asked = at, relation, cut
                seen = known[asked] if asked in known else known.setdefault(asked, graph.seen(*asked))
                state, bits = drawn(state)
                if not seen:
                    break
                at = int(graph.src[graph.order[seen[(bits * len(seen)) >> 64]]])
            else:
                visited.append(at)
                state, bits = drawn(state)
                if bits < int(options.restart * 2.0**64):
                    break
                continue
            break
        walks.append(visited)
    order = [walk[k] for k in range(options.length) for walk in walks if k < len(walk)]
    counts = Counter(one for one in order if one != node)
    best = counts.most_common(options.neighbors)  # of equal ones those that were met first
    total = sum(count for _, count in best)
    return [(one, count / total) for one, count in best]


def neighbors(sample: Any, layer: int, relation: int, target: int) -> dict[tuple[int, int | None], list[Any]]:
    """By (node, cut): neighbours and their weights."""
    part, found = sample.layers[layer].relations[relation], {}
    for i in range(sample.layers[layer].num_dst[target]):
        cut = None if sample.cuts is None else int(sample.cuts[target][i])
        some = slice(part.indptr[i], part.indptr[i + 1])
        sources = sample.ids[0][part.indices[some]].tolist()
        if sample.cuts is not None:
            assert (sample.cuts[0][part.indices[some]] == cut).all(), "neighbours are as of the same moment"
        found[int(sample.ids[target][i]), cut] = list(zip(sources, part.weights[some].tolist(), strict=True))
    return found


def sampler_of(
    graph: TypedGraph, options: ImportanceWalksConfig, hops: int = 2, paths: Any = PATHS
) -> ImportanceSampler:
    """Rows of type a count; those of type b have neighbours too."""
    return ImportanceSampler(graph.edges(), options, hops, 0, list(paths), {1: (0,)})


@pytest.mark.parametrize(("times", "ids"), [("both", np.int32), ("none", np.int64)])
def test_walks_are_those_of_the_reference(times: str, ids: type) -> None:
    for seed, (count, length, restart) in enumerate([(7, 3, 0.5), (1, 1, 0.3), (17, 4, 0.0), (5, 3, 1.0)]):
        graph = random_graph(seed, times=times, ids=ids)
        options = ImportanceWalksConfig(neighbors=3, count=count, length=length, restart=restart)
        rng = np.random.default_rng(seed)
        seeds = rng.choice(np.flatnonzero(graph.node_type <= 1), 13)
        cuts = None if times == "none" else rng.integers(-6, 22, 13)
        sample = sampler_of(graph, options).sample(seeds, cuts, 5)
        for hop in range(2):
            for number, t in enumerate((0, 1)):
                ways = (PATHS if t == 0 else [(0,)]), PATHS
                for (node, cut), found in neighbors(sample, 1 - hop, number, t).items():
                    wanted = plain_visits(graph, node, cut, derive_key(5, hop), options, ways)
                    assert [one for one, _ in found] == [one for one, _ in wanted]
                    np.testing.assert_allclose([w for _, w in found], [w for _, w in wanted], rtol=1e-6)


def test_many_walks_visit_as_often_as_expected() -> None:
    """Expected visits are sums of powers of the matrix of a traversal."""
    graph, cut = random_graph(3), 9
    options = ImportanceWalksConfig(neighbors=1000, count=10_000, length=4, restart=0.3)
    nodes = np.flatnonzero(graph.node_type == 0)
    size = len(graph.node_type)
    steps = {}
    for relation in (0, 1):
        steps[relation] = np.zeros((size, size))
        for node in range(size):
            for position in (seen := graph.seen(node, relation, cut)):
                steps[relation][node, graph.src[graph.order[position]]] += 1 / len(seen)
    traversal = steps[1] @ steps[0]
    wanted = sum(0.7**k * np.linalg.matrix_power(traversal, k + 1) for k in range(4))
    found = sampler_of(graph, options, 1, [(1, 0)]).visits(nodes, np.full(len(nodes), cut), 1, 1000)
    assert len(found[1]) > 100
    for i, node in enumerate(nodes.tolist()):
        shares = wanted[node].copy()
        shares[node] = 0
        shares /= max(shares.sum(), 1e-9)
        got = np.zeros(size)
        some = slice(found[0][i], found[0][i + 1])
        got[found[1][some]] = found[2][some]
        np.testing.assert_allclose(got, shares, atol=5 * np.sqrt(0.25 / options.count))


def test_what_is_later_changes_nothing() -> None:
    options = ImportanceWalksConfig(neighbors=4, count=20)
    graph = random_graph(4, times="edge")
    nodes = np.flatnonzero(graph.node_type <= 1)
    cuts = np.full(len(nodes), 7)
    one = sampler_of(graph, options).sample(nodes, cuts, 3)
    later = graph.edge_time >= 7
    assert later.any()
    fewer = TypedGraph(
        graph.node_type, graph.node_types, graph.relations, graph.src[~later], graph.dst[~later],
        graph.edge_type[~later], graph.edge_time[~later],
    )  # fmt: skip
    other = sampler_of(fewer, options).sample(nodes, cuts, 3)
    assert not same(one, sampler_of(graph, options).sample(nodes, np.full(len(nodes), 8), 3))
    assert same(one, other)


def same(one: Any, other: Any) -> bool:
    pairs = [
        (getattr(a, name), getattr(b, name))
        for x, y in zip(one.layers, other.layers, strict=True)
        for a, b in zip(x.relations, y.relations, strict=True)
        for name in ("indptr", "indices", "weights")
    ] + list(zip(one.ids, other.ids, strict=True))
    return all(np.array_equal(a, b) for a, b in pairs)


def test_a_row_has_the_same_neighbours_in_every_batch_and_thread() -> None:
    graph = random_graph(5)
    sampler = sampler_of(graph, ImportanceWalksConfig(neighbors=5, count=30))
    nodes = np.flatnonzero(graph.node_type == 0)
    cuts = np.random.default_rng(0).integers(0, 20, len(nodes))
    whole = neighbors(sampler.sample(nodes, cuts, 9), 1, 0, 0)

    def alone(i: int) -> Any:
        return neighbors(sampler.sample(nodes[i : i + 1], cuts[i : i + 1], 9), 1, 0, 0)

    with ThreadPoolExecutor(4) as pool:
        for i, found in enumerate(pool.map(alone, range(len(nodes)))):
            place = nodes[i], int(cuts[i])
            assert found[place] == whole[place]
    assert whole != neighbors(sampler.sample(nodes, cuts, 10), 1, 0, 0)


def test_no_seeds_and_nowhere_to_go() -> None:
    graph = random_graph(0)
    sampler = sampler_of(graph, ImportanceWalksConfig())
    assert sampler.sample(np.empty(0, np.int64), None, 1).layers[0].num_src == (0, 0, 0, 0, 0)
    sample = sampler.sample(np.flatnonzero(graph.node_type == 0), np.full(23, -1000), 1)
    assert all(len(part.indices) > 0 or part.indptr[-1] == 0 for part in sample.layers[0].relations)


def test_paths_are_found_or_named() -> None:
    edges = random_graph(0).edges()
    assert paths_back(edges, 0) == [(1, 0), (2,)]
    named = [["b__r1__a", "a__r0__b"], ["c__r3__a", "c__r5__c", "a__r4__c"]]
    assert paths_back(edges, 0, named) == [(1, 0), (3, 5, 4)]
    for path, said in (
        (["b__r1__x"], r"no relation 'b__r1__x'.*b__r1__a"),
        (["a__r0__b"], r"does not lead on from a row of a.*b__r1__a, a__r2__a, c__r3__a"),
        (["b__r1__a"], r"ends at a row of b; it has to end at one of a"),
    ):
        with pytest.raises(RecipeError, match=said):
            paths_back(edges, 0, [path])
    with pytest.raises(RecipeError, match=r"no keys lead from one row of d to another.*heterosage"):
        paths_back(edges, 4)
