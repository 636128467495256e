"""What transforms learn comes from the training split: held-out rows change nothing of what training reads.

Which invariance holds where:

- labels of held-out nodes and graphs reach nothing but the array `label`;
- features of held-out nodes reach no training node's row through what a transform learned (mean, categories, ranks).
  Through edges they may: a node's neighbours are known when it is asked about. Transforms that read neighbours (hops)
  are tried with held-out nodes that no path joins to training nodes;
- features of held-out graphs, and held-out links, reach nothing that training reads.

Categories that no training row has are a fact of the data set, as the number of its columns is: a column has as many
codes as the data has categories, unless the transform `codes` or `one_hot` counts those of the training rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from configs.registry import TRANSFORMS
from tasks.storage.graph_store import Array, GraphStore
from tests.leaks.cases import HOPS, ISLANDS, NODES, opened, prepare

READS_NEIGHBOURS = {"hops"}
OF_ONE_GRAPH = {"embedding"}
OPTIONS: dict[str, dict[str, Any]] = {"hops": HOPS}


def transforms(name: str, task: str) -> list[Any]:
    """The transform after what gives it something to do."""
    options = dict(OPTIONS.get(name, {"name": name}))
    if task != "node":
        options.pop("labels", None)  # hops: shares of classes of nodes
    return [options]


def takes_codes(name: str) -> bool:
    return "categorical" in getattr(TRANSFORMS.get(name), "takes", ())


def rows(graph: GraphStore, chosen: Array) -> dict[str, bytes]:
    """Features of some nodes, bit by bit."""
    tables = {name: graph.get(name) for name in ("feat", "feat_cat")}
    return {name: np.asarray(table[chosen]).tobytes() for name, table in tables.items() if table is not None}


def arrays(graph: GraphStore, *but: str) -> dict[str, bytes]:
    return {name: np.asarray(graph[name]).tobytes() for name in graph.manifest.arrays if name not in but}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Prepare a data set, with something altered, once for each transform."""
    known: dict[tuple[str, str, str], GraphStore] = {}

    def make(task: str, name: str, alter: str = "") -> GraphStore:
        if (task, name, alter) not in known:
            codes = {"categorical": True} if task == "graph" and takes_codes(name) else {}
            parent = prepare(
                tmp_path_factory.mktemp("leaks"), task, alter, transforms(name, task), whole=False, **codes
            )
            known[task, name, alter] = opened(parent)
        return known[task, name, alter]

    return make


@pytest.mark.parametrize("name", TRANSFORMS.names())
def test_nodes(made: Any, name: str) -> None:
    before = made("node", name)
    train = np.asarray(before["train_idx"])
    altered = "islands" if name in READS_NEIGHBOURS else "features"
    after = made("node", name, altered)
    assert rows(before, train) == rows(after, train)
    assert before.manifest.report["transforms"] == after.manifest.report["transforms"]
    assert before.manifest.categories == after.manifest.categories
    held_out = np.setdiff1d(np.arange(NODES), train)
    assert rows(before, held_out) != rows(after, held_out), "nothing was altered"

    after = made("node", name, "valid test labels")
    assert (before["label"] != after["label"]).any()
    assert arrays(before, "label") == arrays(after, "label")


@pytest.mark.parametrize("name", TRANSFORMS.names())
def test_links(made: Any, name: str) -> None:
    """Pairs that are held out are others: only they and the negatives are."""
    of_held_out = [f"{split}_{what}" for split in ("valid", "test") for what in ("edges", "negative")]
    before, after = made("link", name), made("link", name, "valid test")
    assert arrays(before, *of_held_out) == arrays(after, *of_held_out)
    assert arrays(before)["test_edges"] != arrays(after)["test_edges"]


@pytest.mark.parametrize("name", [name for name in TRANSFORMS.names() if name not in OF_ONE_GRAPH])
def test_graphs(made: Any, name: str) -> None:
    before, after = made("graph", name), made("graph", name, "valid test")
    offsets = before["graph_offsets"]
    train = np.concatenate([np.arange(offsets[g], offsets[g + 1]) for g in before["train_idx"]])
    assert rows(before, train) == rows(after, train)
    assert before.manifest.report["transforms"] == after.manifest.report["transforms"]
    assert arrays(before, "graph_label") != arrays(after, "graph_label"), "nothing was altered"


def test_the_islands_are_islands(made: Any) -> None:
    graph = made("node", "standardize")
    old = np.argsort(np.asarray(graph["node_ids"]))
    assert len(old) == NODES
    indptr, indices = graph["csc_indptr"], np.asarray(graph["csc_indices"])
    target = np.repeat(np.arange(NODES), np.diff(indptr))
    trains = np.isin(np.arange(NODES), graph["train_idx"])
    reached = trains.copy()
    for _ in range(NODES):
        reached[target[reached[indices]]] = True
    assert (~reached).sum() >= ISLANDS
