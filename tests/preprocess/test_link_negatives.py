"""What preprocess makes of negatives: missing ones join what could be an edge, given ones are looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.load import build_recipe
from flows.commands.recipes.check import show_check
from flows.commands.recipes.data_check import check_data
from tasks.stage import Listener
from tasks.storage.home import Home
from tests.ingest.test_edge_ends import ITEMS, USERS, crosses, purchases, save, turned
from tests.preprocess.snapshot_tables import Run

NODES = USERS + ITEMS
EDGES = ("node", "to", "node")


def ends(pairs: np.ndarray) -> dict[str, Any]:
    return {"src": pairs[:, 0], "dst": pairs[:, 1]}


def tables(pairs: np.ndarray) -> dict[str, Any]:
    cuts = np.split(pairs, [240, 320])
    return {f"split/{name}": ends(part) for name, part in zip(("train", "valid", "test"), cuts, strict=True)}


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("turn", [False, True])
@pytest.mark.parametrize("symmetrize", [False, True])
def test_missing_negatives(make_dataset: Any, preprocess: Any, directed: bool, turn: bool, symmetrize: bool) -> None:
    """As of files in OGB's layout and of DGL and PyG, which bring none."""
    splits = tables(turned(purchases()) if turn else purchases())
    fields = {"task": "link", "task_type": "link", "directed": directed}
    dataset = make_dataset({"node": (NODES + 5, {})}, {EDGES: splits["split/train"]}, splits, **fields)
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
    splits = tables(purchases() - [0, USERS])
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
    splits = tables(purchases())
    splits["split/valid_negative"] = ends(np.array([(0, 1), (0, USERS), (USERS, USERS + 1)]))
    fields = {"task": "link", "task_type": "link", "ogb_name": ogb_name}
    graph = preprocess(make_dataset({"node": (NODES, {})}, {EDGES: splits["split/train"]}, splits, **fields))
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
