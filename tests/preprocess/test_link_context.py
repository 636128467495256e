"""Links in one relation of several: edges of the others between the same nodes are context, and never an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tasks.explain.neighborhood import neighborhood_of
from tasks.sampling.negatives import NegativeSampler
from tasks.sampling.neighborhoods.neighbors import NeighborSampler
from tasks.sampling.neighborhoods.relabel import asked_edges
from tasks.storage.graph_store import GraphStore
from tests.preprocess.snapshot_tables import Run

USERS, ITEMS = 23, 17
Pairs = set[tuple[int, int]]


def write(name: str, pairs: np.ndarray) -> None:
    pq.write_table(pa.table({"user": pairs[:, 0], "item": pairs[:, 1]}), name)


def bought_and_seen(**options: Any) -> dict[str, Any]:
    """Half of all pairs were seen, and half of what was seen was bought, and some that was not seen."""
    random = np.random.default_rng(5)
    everything = np.stack(np.divmod(np.arange(USERS * ITEMS), ITEMS), 1)
    seen = random.random(len(everything)) < 0.5
    bought = np.where(seen, random.random(len(everything)) < 0.5, random.random(len(everything)) < 0.1)
    write("seen.parquet", everything[seen])
    write("bought.parquet", everything[bought])
    ends = {"source": "user", "target": "item", "source_type": "user", "target_type": "item"}
    edges = [{"relation": name, "files": f"{name}.parquet", **ends} for name in ("seen", "bought")]
    split = {"by": "ratio", "train": 0.6, "valid": 0.2, "test": 0.2}
    made = {"name": "tables", "task": "link", "target_relation": "bought", "edges": edges, "split": split}
    return {**made, **options}


def pairs_of(graph: GraphStore, relation: str) -> Pairs:
    """Edges of a relation that carry messages, source and target in the graph's ids."""
    targets = np.repeat(np.arange(graph.manifest.num_nodes), np.diff(graph["csc_indptr"]))
    of_relation = np.asarray(graph["edge_type"]) == graph.manifest.edge_types.index(relation)
    return set(zip(graph["csc_indices"][of_relation].tolist(), targets[of_relation].tolist(), strict=True))


def as_set(pairs: Any) -> Pairs:
    return set(map(tuple, np.asarray(pairs).reshape(-1, 2).tolist()))


@pytest.fixture
def graph(run: Run) -> GraphStore:
    made: GraphStore = run(bought_and_seen(candidates=100)).graph
    return made


def test_context_stays_where_pairs_are_held_out(graph: GraphStore) -> None:
    splits = {split: as_set(graph[f"{split}_edges"]) for split in ("train", "valid", "test")}
    assert graph.manifest.edge_types[0] == "user__bought__item"
    assert pairs_of(graph, "user__bought__item") == splits["train"]
    assert {(b, a) for a, b in pairs_of(graph, "item__rev_bought__user")} == splits["train"]
    seen = pairs_of(graph, "user__seen__item")
    assert len(seen) == pq.read_table("seen.parquet").num_rows
    assert seen & splits["valid"]
    assert seen & splits["test"]


def test_edges_of_a_neighbourhood_go_as_the_tables_say(graph: GraphStore) -> None:
    """Explanations name edges by them; messages go along their reverses too."""
    types, relations = graph.manifest.node_types, graph.manifest.edge_types
    for seed in (0, graph.manifest.num_nodes - 1):
        hood = neighborhood_of(graph, np.array([seed], np.int32), 2, 10_000)
        kinds = np.asarray(graph["node_type"])[hood.nodes]
        assert {types[kind] for kind in kinds[hood.units.source]} == {"user"}
        assert {types[kind] for kind in kinds[hood.units.target]} == {"item"}
        assert {relations[number] for number in hood.units.relation} == {"user__bought__item", "user__seen__item"}


def test_candidates_may_be_joined_in_context(graph: GraphStore) -> None:
    bought = set().union(*(as_set(graph[f"{split}_edges"]) for split in ("train", "valid", "test")))
    for split in ("valid", "test"):
        negative = graph[f"{split}_negative"]
        assert negative.shape == (len(graph[f"{split}_edges"]), 100, 2)
        assert (negative[:, :, 0] == graph[f"{split}_edges"][:, :1]).all()
        assert (np.asarray(graph["node_type"])[negative[:, :, 1]] == graph.manifest.node_types.index("item")).all()
        drawn = as_set(negative)
        assert not drawn & bought
        assert drawn & pairs_of(graph, "user__seen__item")


def test_training_negatives_may_be_joined_in_context(graph: GraphStore) -> None:
    drawn = as_set(NegativeSampler(graph, 40).draw(np.asarray(graph["train_edges"], np.int64), 3))
    assert not drawn & as_set(graph["train_edges"])
    assert drawn & pairs_of(graph, "user__seen__item")


def test_a_batch_leaves_out_its_own_edges_and_no_context(graph: GraphStore) -> None:
    sampler = NeighborSampler(graph["csc_indptr"], graph["csc_indices"], (-1,), asked=asked_edges(graph))
    batch = np.asarray(graph["train_edges"], np.int64)[::3]
    local, seeds = sampler.number(batch.T)
    nodes, [layer] = sampler.sample(seeds, 1, local)
    targets = np.repeat(np.arange(len(seeds)), np.diff(layer.indptr))
    ends = zip(nodes[layer.indices].tolist(), seeds[targets].tolist(), strict=True)
    kinds = np.asarray(graph["edge_type"])[layer.positions].tolist()
    kept = set(zip(ends, kinds, strict=True))
    names = graph.manifest.edge_types
    left_out = {*as_set(batch), *as_set(batch[:, ::-1])}
    inside = set(seeds.tolist())
    expected = {
        (pair, number)
        for number, name in enumerate(names)
        for pair in pairs_of(graph, name)
        if pair[1] in inside and not ("bought" in name and pair in left_out)
    }
    assert kept == expected
    counts = np.bincount(targets, minlength=len(seeds))
    np.testing.assert_array_equal(layer.degree[: len(seeds)], counts)


def test_relations_apart_need_no_looking_up(run: Run) -> None:
    dataset = bought_and_seen()
    dataset["edges"][0] |= {"source_type": "guest"}
    assert asked_edges(run(dataset).graph).is_asked.size == 0


@pytest.mark.parametrize("fanout", [2, -1, 40])
def test_neighbours_are_drawn_by_relation(graph: GraphStore, fanout: int) -> None:
    edge_type, indptr = np.asarray(graph["edge_type"]), np.asarray(graph["csc_indptr"])
    sampler = NeighborSampler(indptr, graph["csc_indices"], (fanout,), edge_type=edge_type)
    seeds = np.random.default_rng(1).permutation(graph.manifest.num_nodes)[:19]
    met: set[int] = set()
    for key in range(30):
        nodes, [layer] = sampler.sample(seeds, key)
        np.testing.assert_array_equal(np.asarray(graph["csc_indices"])[layer.positions], nodes[layer.indices])
        assert len(set(layer.positions.tolist())) == len(layer.positions), "without replacement"
        for row, seed in enumerate(seeds.tolist()):
            own = layer.positions[layer.indptr[row] : layer.indptr[row + 1]]
            assert ((indptr[seed] <= own) & (own < indptr[seed + 1])).all()
            counts = np.bincount(edge_type[indptr[seed] : indptr[seed + 1]], minlength=4)
            wanted = counts if fanout < 0 else np.minimum(counts, fanout)
            np.testing.assert_array_equal(np.bincount(edge_type[own], minlength=4), wanted)
        met |= set(layer.positions.tolist())
        np.testing.assert_array_equal(layer.degree[: len(seeds)], np.diff(indptr)[seeds])
    assert len(met) > 0.9 * np.diff(indptr)[seeds].sum()
