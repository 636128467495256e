"""Held-out links neither train nor carry messages; negatives join what could be an edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from configs.load import build_recipe
from flows.commands.recipes.check import show_check
from flows.commands.recipes.data_check import check_data
from tasks.stage import Listener
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tests.ingest.test_edge_ends import ITEMS, USERS, crosses, purchases, save, turned
from tests.preprocess.snapshot_tables import Run, edges_of, link_tables, pairs_of, write

NODES, HELD = 25, 12
SPLITS = ("train", "valid", "test")
NODE = ("node", "to", "node")
Pair = tuple[int, int]
SHOP_NODES = USERS + ITEMS
EDGES = ("node", "to", "node")


def ends(pairs: np.ndarray, **more: Any) -> dict[str, Any]:
    return {"src": pairs[:, 0], "dst": pairs[:, 1], **more}


def messages(graph: GraphStore) -> list[Pair]:
    indptr, indices = graph["csc_indptr"], graph["csc_indices"]
    target = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return list(zip(indices.tolist(), target.tolist(), strict=True))


def kind(pairs: Any, directed: bool) -> set[Any]:
    """Pairs as the graph tells them apart."""
    return {(u, v) if directed else (min(u, v), max(u, v)) for u, v in np.asarray(pairs).reshape(-1, 2).tolist()}


def leaky(rng: np.random.Generator, negatives: bool = True) -> dict[str, Any]:
    """A table of edges in which half of the held-out pairs stand, some reversed, some twice; loops; shared pairs."""
    edges = rng.integers(0, NODES, (120, 2))
    held = rng.integers(0, NODES, (2, HELD, 2))
    held[1, :3], held[1, 3], held[0, 5] = held[0, 2:5, ::-1], held[0, 6], 7
    edges = np.concatenate([edges, held[0, :6], held[1, :6, ::-1], held[0, :2], [[7, 7], [8, 8]]])
    tables = {"split/train": ends(edges, weight=np.arange(len(edges)) + 1.0)}
    for name, pairs in zip(("valid", "test"), held, strict=True):
        tables[f"split/{name}"] = ends(pairs)
        if negatives:
            candidates = {"src": pairs[:, 0], "dst": np.repeat(np.arange(HELD)[:, None], 4, axis=1)}
            tables[f"split/{name}_negative"] = candidates
    return tables


@pytest.fixture
def links(make_dataset: Any, preprocess: Any) -> Any:
    """Returns the graph of a link task: its splits, and its edges, those of train where none are given."""

    def made(tables: dict[str, Any], edges: Any = None, num_nodes: int = 7, **fields: Any) -> GraphStore:
        edges = edges or {NODE: {key: tables["split/train"][key] for key in ("src", "dst")}}
        data = make_dataset({"node": (num_nodes, {})}, edges, tables, task="link", task_type="link", **fields)
        graph: GraphStore = preprocess(data)
        return graph

    return made


@pytest.mark.parametrize("self_loops", ["keep", "remove", "add"])
@pytest.mark.parametrize(("directed", "symmetrize"), [(False, True), (False, False), (True, True), (True, False)])
def test_held_out_pairs_leave_training_and_messages(
    make_dataset: Any, preprocess: Any, directed: bool, symmetrize: bool, self_loops: str
) -> None:
    tables = leaky(np.random.default_rng(3 * directed + symmetrize))
    train, valid, test = (np.stack([tables[f"split/{s}"][k] for k in ("src", "dst")], 1) for s in SPLITS)
    edges = {NODE: {**tables["split/train"], "note": np.arange(len(train), dtype=np.float32)}}
    dataset = make_dataset(
        {"node": (NODES, {})}, edges, tables, task="link", task_type="link", directed=directed, shard_rows=31
    )
    options = {"symmetrize": symmetrize, "self_loops": self_loops, "deduplicate": False}
    graph = preprocess(dataset, **options)

    apart = directed and not symmetrize
    held = kind([*valid, *test], apart)
    stays = [row for row, pair in enumerate(train) if not kind(pair, apart) & held]
    assert graph["train_edges"].tolist() == train[stays].tolist()
    assert graph["train_edge_weight"].tolist() == [row + 1.0 for row in stays]
    assert graph["test_edges"].tolist() == test.tolist()
    validated = [row for row, pair in enumerate(valid) if not kind(pair, apart) & kind(test, apart)]
    assert graph["valid_edges"].tolist() == valid[validated].tolist()
    assert graph["valid_negative"][:, 0, 0].tolist() == valid[validated, 0].tolist(), "candidates follow their edges"

    loops = {"keep": train[stays], "remove": [], "add": [(v, v) for v in range(NODES)]}[self_loops]
    expected = [(u, v) for u, v in train[stays].tolist() if u != v]
    expected += [(v, u) for u, v in expected] if symmetrize else []
    expected += [(u, v) for u, v in np.asarray(loops).reshape(-1, 2).tolist() if u == v]
    assert sorted(messages(graph)) == sorted(expected)
    noted = sorted(set(graph["edge_feat"][:, 0].tolist()) - ({0.0} if self_loops == "add" else set()))
    known = [row for row in stays if (self_loops == "keep" or train[row, 0] != train[row, 1])]
    assert noted == [row for row in known if row or self_loops != "add"], "what edges carry follows them"

    met = len(held & kind(train, apart))
    assert 0 < met < len(held)
    counts = {"pairs": len(held), "in_train": met, "taken_out": met}
    left_out = {"train": len(train) - len(stays), "valid": HELD - len(validated), "test": 0}
    assert graph.manifest.report["held_out"] == {"rule": "hold_out", **counts, "left_out": left_out}
    assert graph.manifest.splits == {"train": len(stays), "valid": len(validated), "test": HELD}
    assert (
        f"{met} of {len(held)} held-out pairs were also among the edges that train or carry messages"
        in graph.manifest.warnings[0]
    )
    assert f"{left_out['train']} training edges went" in graph.manifest.warnings[0]
    assert graph.manifest.warnings[1].startswith(f"{left_out['valid']} of {HELD} valid edges")


def test_messages_alone_may_hold_what_is_to_be_predicted(links: Any) -> None:
    """A folder in OGB's layout: the raw edges hold all, the training split does not. Two relations: both are cut."""
    pairs = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0)])
    tables = {f"split/{s}": ends(pairs[2 * i : 2 * i + 2]) for i, s in enumerate(SPLITS)}
    graph = links(tables, {NODE: ends(pairs), ("node", "rev", "node"): ends(pairs[:, ::-1])})
    assert kind(messages(graph), False) == kind(pairs[:2], False)
    assert "4 of 4 held-out pairs were also among the edges that train or carry messages" in graph.manifest.warnings[0]
    assert "0 training edges went" in graph.manifest.warnings[0]


def test_splits_that_ogb_lists_stay_as_they_are(links: Any) -> None:
    """ogbl-collab's pairs come up again year after year; what is held out and no training edge goes there too."""
    pairs = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)])
    tables = {"split/train": ends(pairs[:3]), "split/valid": ends(pairs[2:4, ::-1]), "split/test": ends(pairs[4:])}
    graph = links(tables, {NODE: ends(pairs)}, ogb_name="ogbl-collab")
    assert graph.manifest.splits == {"train": 3, "valid": 2, "test": 1}
    assert kind(messages(graph), False) == kind(pairs[:3], False)
    assert "2 of 3 held-out pairs were also among" in graph.manifest.warnings[0]
    assert "1 of 3 held-out pairs train too" in graph.manifest.warnings[1]


@pytest.mark.parametrize("gone", ["train", "valid"])
def test_a_split_that_is_all_held_out_elsewhere_is_refused(links: Any, gone: str) -> None:
    pairs = {"train": [(0, 1), (1, 2)], "valid": [(2, 3)], "test": [(4, 5)], gone: [(5, 4)]}
    with pytest.raises(DataError, match=f"split/{gone}: every pair of the {gone} split is held out in another split"):
        links({f"split/{s}": ends(np.array(pairs[s])) for s in SPLITS})


def test_missing_negatives_are_edges_of_no_split(links: Any) -> None:
    rng = np.random.default_rng(0)
    tables = leaky(rng, negatives=False)
    further = ends(rng.integers(0, NODES, (40, 2)))  # carry messages, and are in no split
    edges = {NODE: {k: np.concatenate([tables["split/train"][k], further[k]]) for k in ("src", "dst")}}
    graph = links(tables, edges, NODES)
    taken = kind(messages(graph), False) | {pair for s in SPLITS for pair in kind(graph[f"{s}_edges"], False)}
    for split in SPLITS[1:]:
        negative = graph[f"{split}_negative"]
        assert negative.shape == graph[f"{split}_edges"].shape
        assert (negative[:, 0] != negative[:, 1]).all()
        assert not kind(negative, False) & taken


@pytest.mark.parametrize("wide", [False, True])
def test_given_negatives_that_are_edges_are_told(links: Any, wide: bool) -> None:
    pairs = np.array([(0, 1), (1, 2), (2, 3), (3, 4)])
    tables = {"split/train": ends(pairs[:2]), "split/valid": ends(pairs[2:3]), "split/test": ends(pairs[3:])}
    tables["split/valid_negative"] = ends(np.array([(0, 5), (4, 3), (1, 2), (5, 2)]))  # a test and a training edge
    if wide:
        tables["split/valid_negative"] = {"src": [2], "dst": np.array([[1, 5, 4, 3]])}
    graph = links(tables)
    assert graph["valid_negative"].reshape(-1, 2).shape == (4, 2), "they stay"
    (told,) = graph.manifest.warnings
    assert "2 of 4 given negatives of the valid split are edges" in told


@pytest.mark.parametrize("by", ["files", "column", "time"])
@pytest.mark.parametrize("directed", [False, True])
def test_tables(run: Run, by: str, directed: bool) -> None:
    """The held-out pairs c-d and e-f stand in the table too, reversed where edges have no direction."""
    src, dst = list("abxyccde") + list("e"), list("bcyzdzef") + list("f")
    src[4], dst[4] = ("c", "d") if directed else ("d", "c")
    parts = ["train"] * 8 + ["valid"]
    if by != "files":
        src, dst, parts = [*src, "c"], [*dst, "d"], [*parts, "test"]
    write("edges", src=src, dst=dst, part=parts, time=list(range(len(src))))
    split: dict[str, Any] = {"by": by, "train": 0.8, "valid": 0.1, "test": 0.1}
    if by == "column":
        split = {"by": by, "column": "part"}
    elif by == "files":
        split = {"by": by, "files": {"valid": "valid.csv", "test": "test.csv"}}
        Path("valid.csv").write_text("e,f\n")
        Path("test.csv").write_text("c,d\n")
    section = {**link_tables(), "directed": directed, "num_negatives": 5}
    made = run({**section, "split": split}, symmetrize=not directed)
    assert pairs_of(made, "valid_edges") == [("e", "f")]
    assert pairs_of(made, "test_edges") == [("c", "d")]
    trains = {frozenset(pair) for pair in pairs_of(made, "train_edges")}
    assert trains == {frozenset(pair) for pair in edges_of(made)}
    assert not trains & {frozenset("ef"), frozenset("cd")}
    assert any("2 of 2 held-out pairs were also among" in warning for warning in made.manifest.warnings)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_pairs_that_name_a_relation_leave_that_one(
    make_dataset: Any, preprocess: Any, directed: bool, keep: bool
) -> None:
    """That a pair is joined in another relation stays known; `keep`: all stay."""
    rng = np.random.default_rng(int(directed))
    edges = rng.integers(0, NODES, (160, 2))
    relation = np.sort(rng.integers(0, 3, 160))
    held = np.concatenate([edges[rng.permutation(160)[:20]], rng.integers(0, NODES, (10, 2))])
    if not directed:
        held[:10] = held[:10, ::-1]
    of_held = rng.integers(0, 3, 30)
    tables: dict[str, Any] = {"split/train": ends(edges, relation=relation)}
    for name, part in (("valid", slice(0, 15)), ("test", slice(15, 30))):
        tables[f"split/{name}"] = ends(held[part], relation=of_held[part])
        tables[f"split/{name}_negative"] = ends(held[part] * 0 + [[0, 1]], relation=of_held[part])
    dataset = make_dataset(
        {"node": (NODES, {})},
        {("node", f"r{r}", "node"): ends(edges[relation == r]) for r in range(3)},
        tables,
        task="link",
        task_type="link",
        metric="rocauc",
        directed=directed,
        num_relations=3,
        keep_known_pairs=keep,
    )
    graph = preprocess(dataset, symmetrize=not directed, self_loops="keep")

    def named(pairs: np.ndarray, kinds: np.ndarray) -> set[Any]:
        ordered = np.asarray(pairs) if directed else np.sort(pairs, 1)
        return set(zip(*ordered.T.tolist(), np.asarray(kinds).tolist(), strict=True))

    test = named(held[15:], of_held[15:])
    valid = named(held[:15], of_held[:15])
    gone = set() if keep else valid | test
    train = named(edges, relation) - gone
    assert named(graph["train_edges"], graph["train_relation"]) == train
    assert named(graph["valid_edges"], graph["valid_relation"]) == (valid if keep else valid - test)
    assert named(graph["test_edges"], graph["test_relation"]) == test
    target = np.repeat(np.arange(NODES), np.diff(graph["csc_indptr"]))
    assert named(np.stack([graph["csc_indices"], target], 1), graph["edge_type"]) == train


def shop_tables(pairs: np.ndarray) -> dict[str, Any]:
    cuts = np.split(pairs, [240, 320])
    return {f"split/{name}": ends(part) for name, part in zip(("train", "valid", "test"), cuts, strict=True)}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("symmetrize", [False, True])
def test_missing_negatives(make_dataset: Any, preprocess: Any, directed: bool, turn: bool, symmetrize: bool) -> None:
    """As of files in OGB's layout and of DGL and PyG, which bring none."""
    splits = shop_tables(turned(purchases()) if turn else purchases())
    fields = {"task": "link", "task_type": "link", "directed": directed}
    dataset = make_dataset({"node": (SHOP_NODES + 5, {})}, {EDGES: splits["split/train"]}, splits, **fields)
    graph = preprocess(dataset, symmetrize=symmetrize)
    for split in ("valid", "test"):
        negative = graph[f"{split}_negative"]
        assert crosses(negative[:, 0], negative[:, 1]).all()
    [text] = graph.manifest.report["negatives"]
    assert "the graph is bipartite" in text
    assert ("edge_side" in graph) == turn
    role, trained = np.asarray(graph["edge_role"]), np.asarray(graph["train_edges"])
    assert np.flatnonzero(role).tolist() == np.unique(trained).tolist(), (
        "training's own say nothing of what is held out"
    )


def test_two_types_of_nodes(make_dataset: Any, preprocess: Any) -> None:
    splits = shop_tables(purchases() - [0, USERS])
    kind = ("user", "buys", "item")
    dataset = make_dataset(
        {"user": (USERS, {}), "item": (ITEMS, {})},
        {kind: splits["split/train"]},
        splits,
        task="link",
        task_type="link",
        target_type="user",
    )
    graph = preprocess(dataset)
    for split in ("valid", "test"):
        assert (graph[f"{split}_negative"][:, 0] < USERS).all()
        assert (graph[f"{split}_negative"][:, 1] >= USERS).all()


@pytest.mark.parametrize("ogb_name", [None, "ogbl-mine"])
def test_given_negatives_within_a_side_are_told(make_dataset: Any, preprocess: Any, ogb_name: str | None) -> None:
    """OGB's own stay without a word: published results have them."""
    splits = shop_tables(purchases())
    splits["split/valid_negative"] = ends(np.array([(0, 1), (0, USERS), (USERS, USERS + 1)]))
    fields = {"task": "link", "task_type": "link", "ogb_name": ogb_name}
    graph = preprocess(make_dataset({"node": (SHOP_NODES, {})}, {EDGES: splits["split/train"]}, splits, **fields))
    told = [text for text in graph.manifest.warnings if "one side" in text]
    assert len(told) == (ogb_name is None)
    assert all("2 of 3 given negatives of the valid split join nodes of one side of the graph" in text for text in told)


@pytest.mark.parametrize("by_time", [False, True])
def test_snapshots(run: Run, by_time: bool) -> None:
    save(purchases(), time=range(400))
    section = {
        "name": "tables",
        "task": "link",
        "edges": {"files": "e.csv", "time": "time"},
        "num_negatives": 500,
        "split": {"by": "time", "known_pairs": "keep", "negatives": ["random"], "per_edge": 4} if by_time else {},
    }
    found = run(section, "snapshot.as_of=300", "snapshot.train=0.6", "snapshot.valid=0.2", "snapshot.test=0.2")
    names = np.array([int(name) for name in found.names])
    for split in ("valid", "test"):
        negative = names[np.asarray(found.graph[f"{split}_negative"]).reshape(-1, 2)]
        assert crosses(negative[:, 0], negative[:, 1]).all()


def test_check_says_what_negatives_join(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(purchases())
    dataset = {"name": "tables", "task": "link", "edges": {"files": "e.csv"}, "num_negatives": 50}
    found = check_data(build_recipe({"name": "shop", "dataset": dataset, "model": "gcn"}), home, Listener())
    assert found.ok
    show_check(found)
    assert "the graph is bipartite, for no node is both" in " ".join(capsys.readouterr().out.split())
