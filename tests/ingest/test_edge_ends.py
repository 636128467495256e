"""What negatives of links join: only what could be an edge."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from configs.errors import DataError
from tasks.edge_ends import ANY, EdgeEnds, Pairs, ends_of, find_ends, write_ends
from tasks.ingest.graph_tables.link_splits import EventNegatives, Events
from tasks.negatives import draw_negatives, draw_pool
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter

USERS, ITEMS = 50, 80
Edges = np.ndarray


def purchases(count: int = 400, users: int = USERS, items: int = ITEMS, seed: int = 0) -> Edges:
    """Random ones, without a structure: users are the first nodes."""
    chosen = np.random.default_rng(seed).choice(users * items, count, replace=False)
    return np.stack([chosen // items, users + chosen % items], 1)


def turned(pairs: Edges) -> Edges:
    """The same edges, half of them from item to user."""
    turn = np.random.default_rng(1).random(len(pairs)) < 0.5
    return np.where(turn[:, None], pairs[:, ::-1], pairs)


def reader(pairs: Edges, chunk: int = 37) -> Pairs:
    parts = [pairs[at : at + chunk].astype(np.int32) for at in range(0, len(pairs), chunk)]
    return lambda: iter([(part[:, 0], part[:, 1]) for part in parts])


def crosses(src: np.ndarray, dst: np.ndarray, users: int = USERS) -> np.ndarray:
    return (src < users) != (dst < users)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("turn", [False, True])
def test_random_purchases_have_negatives_of_a_user_and_an_item(directed: bool, turn: bool) -> None:
    pairs = turned(purchases()) if turn else purchases()
    nodes = USERS + ITEMS + 7  # some that no edge touches
    ends = find_ends(reader(pairs), nodes, directed=directed)
    pool = draw_pool(0, 5000, nodes, 3, reader(pairs), directed=directed, ends=ends)
    assert crosses(pool["src"], pool["dst"]).all()
    assert max(pool["src"].max(), pool["dst"].max()) < USERS + ITEMS
    assert "bipartite" in ends.text(nodes)
    pair = tuple if directed else frozenset
    drawn = {pair(one) for one in zip(pool["src"].tolist(), pool["dst"].tolist(), strict=True)}
    assert not drawn & {pair(one) for one in pairs.tolist()}
    touched = np.unique(pairs)
    left = (touched < USERS).sum() * (touched >= USERS).sum() - len(pairs)
    assert len(drawn) > (0.4 if directed and turn else 0.7) * left, "nearly all others come up"


@pytest.mark.parametrize("turn", [False, True])
def test_candidates_of_an_edge_are_ends_that_it_could_have(turn: bool) -> None:
    pairs = turned(purchases()) if turn else purchases()
    ends = find_ends(reader(pairs), USERS + ITEMS, directed=False)
    src = np.repeat(pairs[:, 0], 20).astype(np.int32)
    dst = np.empty_like(src)
    left = draw_negatives(0, src, dst, USERS + ITEMS, 3, reader(pairs), directed=False, ends=ends, keep_src=True)
    assert not len(left)
    assert (src == np.repeat(pairs[:, 0], 20)).all()
    assert crosses(src, dst).all()


def test_a_source_that_has_everything_gives_way() -> None:
    """Three items, and half of the users have bought all of them."""
    pairs = np.array([(u, 10 + i) for u in range(10) for i in range(3) if u < 5 or i == 0])
    ends = find_ends(reader(pairs), 13, directed=True)
    src, dst = pairs[:, 0].astype(np.int32), np.empty(len(pairs), np.int32)
    left = draw_negatives(0, src, dst, 13, 3, reader(pairs), directed=True, ends=ends, keep_src=True)
    assert not len(left)
    assert set(src.tolist()) == set(range(5, 10))
    assert set(dst.tolist()) == {11, 12}
    events = Events(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)))
    drawn = EventNegatives(events, 13, directed=True, seed=0, ends=ends).draw(events, ["random"], 4, 1)
    assert set(drawn["src"].ravel().tolist()) == set(range(5, 10))
    assert set(drawn["dst"].ravel().tolist()) == {11, 12}


def test_where_everybody_has_everything_there_are_no_negatives() -> None:
    pairs = np.array(list(itertools.product(range(4), range(4, 9))))
    ends = find_ends(reader(pairs), 9, directed=False)
    with pytest.raises(DataError, match="nearly all pairs of nodes are edges"):
        draw_pool(0, 100, 9, 3, reader(pairs), ends=ends)
    events = Events(pairs[:, 0], pairs[:, 1], np.arange(len(pairs)))
    with pytest.raises(DataError, match="no random negatives"):
        EventNegatives(events, 9, directed=False, seed=0, ends=ends).draw(events, ["random"], 1, 1)


def test_few_pairs_that_are_left_are_drawn_again_and_again() -> None:
    pairs = np.array([pair for pair in itertools.product(range(4), range(4, 9)) if pair not in ((0, 4), (3, 8))])
    ends = find_ends(reader(pairs), 9, directed=False)
    pool = draw_pool(0, 2000, 9, 3, reader(pairs), ends=ends)
    assert {tuple(pair) for pair in zip(pool["src"].tolist(), pool["dst"].tolist(), strict=True)} == {(0, 4), (3, 8)}
    assert len(pool["src"]) > 1500


def test_of_directed_edges_a_node_that_is_never_a_target_is_none() -> None:
    """New papers cite and are not cited; the graph is not bipartite."""
    rng = np.random.default_rng(0)
    pairs = np.array([(u, v) for u in range(20, 60) for v in rng.choice(u if u < 40 else 40, 5, replace=False)])
    ends = find_ends(reader(pairs), 70, directed=True)
    assert ends.sources.tolist() == list(range(20, 60))
    assert ends.targets.tolist() == np.unique(pairs[:, 1]).tolist()
    assert not len(ends.side)
    assert "bipartite" not in ends.text(70)
    pool = draw_pool(0, 3000, 70, 3, reader(pairs), directed=True, ends=ends)
    assert pool["src"].min() >= 20
    assert pool["src"].max() < 60
    assert set(pool["dst"].tolist()) == set(ends.targets.tolist())


def test_other_graphs_have_negatives_of_all_nodes_that_edges_touch() -> None:
    pairs = np.array([(0, 1), (1, 2), (2, 0), (3, 2), (4, 4)])  # a loop says nothing
    for nodes, text in ((4, "any two of the 4 nodes"), (9, "any two of the 4 of 9 nodes that edges touch")):
        ends = find_ends(reader(pairs[: 4 if nodes == 4 else 5]), nodes, directed=False)
        assert ends.text(nodes) == text
        assert not len(ends.side)
        assert len(ends.sources) == len(ends.targets) == (0 if nodes == 4 else 4)
    assert find_ends(reader(np.empty((0, 2), int)), 9, directed=False) is ANY


def test_few_nodes_that_are_both_do_not_undo_two_sides() -> None:
    pairs = np.concatenate([purchases(3000, 300, 400), [(0, 1), (700 - 1, 300)]])
    ends = find_ends(reader(pairs), 700, directed=False)
    assert "bipartite, for only 2 of them are both" in ends.text(700)
    assert set(np.intersect1d(ends.sources, ends.targets).tolist()) == {1, 699}
    more = np.concatenate([pairs, [(u, u + 1) for u in range(20)]])
    assert "bipartite" not in find_ends(reader(more), 700, directed=False).text(700)


@pytest.mark.parametrize("seed", range(20))
def test_sides_are_those_of_components_that_have_no_odd_cycle(seed: int) -> None:
    """Against NetworkX: nodes of one component and one colour have one number, all others different ones."""
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(30, 60))
    colour = rng.integers(0, 2, nodes)
    pairs = rng.integers(0, nodes, (200, 2))
    pairs = pairs[colour[pairs[:, 0]] != colour[pairs[:, 1]]][: rng.integers(40, 90)]
    pairs = np.concatenate([pairs, pairs[:, ::-1]]) if seed % 2 else np.repeat(pairs, 2, 0)
    if seed % 4 > 1:  # an edge and its repetition or reverse stand beside each other
        pairs = pairs.reshape(2, -1, 2).transpose(1, 0, 2).reshape(-1, 2) if seed % 2 else turned(pairs)
    graph = nx.Graph(pairs.tolist())
    graph.add_nodes_from(range(nodes))
    side = find_ends(reader(pairs), nodes, directed=False).side
    cycles = graph.number_of_edges() - nodes + nx.number_connected_components(graph)
    assert bool(len(side)) == (cycles >= 20), "a tree has no odd cycle either"
    if not len(side):
        return
    expected = np.empty(nodes, np.int64)
    for number, part in enumerate(nx.connected_components(graph)):
        of_node = nx.bipartite.color(graph.subgraph(part))
        for node in part:
            expected[node] = 2 * number + of_node[node]
    assert ((side[:, None] == side[None]) == (expected[:, None] == expected[None])).all()
    for some in (reader(pairs[::-1]), reader(rng.permutation(pairs), 5)):
        assert (find_ends(some, nodes, directed=False).side == side).all()
    odd = np.concatenate([pairs, pairs[:1], [(pairs[0, 1], nodes), (nodes, pairs[0, 0])]])
    assert not len(find_ends(reader(odd), nodes + 1, directed=False).side)


def test_given_pairs_within_a_side() -> None:
    src, dst = np.array([0, 1, USERS, 0]), np.array([1, USERS, 3, USERS + ITEMS])
    for turn in (False, True):
        ends = find_ends(reader(turned(purchases()) if turn else purchases()), USERS + ITEMS + 1, directed=False)
        assert ends.within_a_side(src, dst, USERS + ITEMS + 1).tolist() == [True, False, False, False]
    circle = find_ends(reader(np.array([(0, 1), (1, 2), (2, 0)])), 131, directed=False)
    assert not circle.within_a_side(src, dst, 131).any()


@pytest.mark.parametrize("ends", [ANY, EdgeEnds(np.array([0, 2]), ANY.targets, ANY.side)])
def test_ends_that_are_written_are_read_again(tmp_path: Path, ends: EdgeEnds) -> None:
    for own in (ends, ends._replace(side=np.array([0, 2, 1, 0]))):
        writer = ArrayWriter(tmp_path)
        write_ends(own, 4, writer)
        read = ends_of(*(writer.read(name) if name in writer.entries else None for name in ("edge_role", "edge_side")))
        assert (read.roles(4) == own.roles(4)).all()
        assert read.side.tolist() == own.side.tolist()


TABLE: dict[str, Any] = {"name": "tables", "task": "link", "num_negatives": 3000}


def save(pairs: Edges, name: str = "e.csv", **columns: Any) -> None:
    names = ["src", "dst", *columns]
    rows = zip(*pairs.T.tolist(), *(list(values) for values in columns.values()), strict=True)
    Path(name).write_text("\n".join([",".join(names), *(",".join(map(str, row)) for row in rows)]) + "\n")


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("split", [{}, {"by": "time"}])
def test_tables(ingest: Callable[..., DatasetStore], folder: Path, directed: bool, split: dict[str, Any]) -> None:
    save(purchases(), time=range(400))
    edges = {"files": "e.csv"} | ({"time": "time"} if split else {})
    store = ingest(**TABLE, directed=directed, edges=edges, split=split, nodes={"count": USERS + ITEMS + 9})
    for name in ("valid", "test"):
        negative = store.read(f"split/{name}_negative")
        assert crosses(negative["src"].to_numpy(), negative["dst"].to_numpy()).all()


def test_events(ingest: Callable[..., DatasetStore], folder: Path) -> None:
    save(purchases(), time=range(400))
    split = {"by": "time", "known_pairs": "keep", "negatives": ["random"], "per_edge": 3}
    store = ingest(**TABLE, directed=True, edges={"files": "e.csv", "time": "time"}, split=split)
    users = store.read("split/train")["src"].to_pylist()
    for name in ("valid", "test"):
        src, dst = (store.column(f"split/{name}_negative", end) for end in ("src", "dst"))
        assert src.max() < USERS <= dst.min()
        assert set(src.ravel().tolist()) <= set(users) | set(store.read(f"split/{name}")["src"].to_pylist())


def test_each_relation_has_ends_of_its_own(ingest: Callable[..., DatasetStore], folder: Path) -> None:
    """Users buy items and know users: only the second kind of negative joins two users."""
    rng = np.random.default_rng(0)
    friends = np.unique(np.sort(rng.integers(0, USERS, (400, 2)), 1), axis=0)
    friends = friends[friends[:, 0] != friends[:, 1]]
    pairs = np.concatenate([purchases(), friends])
    save(pairs, kind=["buys"] * 400 + ["knows"] * len(friends))
    store = ingest(**TABLE, edges={"files": "e.csv", "relation_column": "kind"}, nodes={"count": USERS + ITEMS})
    kinds = [kind.relation for kind in store.manifest.edge_types]
    for name in ("valid", "test"):
        relation = np.asarray(store.column(f"split/{name}_negative", "relation"))
        src, dst = (store.column(f"split/{name}_negative", end) for end in ("src", "dst"))
        buys = relation == kinds.index("buys")
        assert 0.3 < buys.mean() < 0.8
        assert crosses(src[buys], dst[buys]).all()
        assert max(src[~buys].max(), dst[~buys].max()) < USERS
