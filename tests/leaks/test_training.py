"""Held-out labels, features and links leave the weights as they are, bit for bit, however a model is trained.

Test labels change nothing at all. Validation labels choose which epoch is kept and when patience ends (and, in
self-training, whose guesses the next round learns from), so without those the last epoch's weights are the same.
Features of held-out nodes are known to neighbours: those tried here are joined to no training node. (With batch norm
the loader full takes its statistics over all nodes of the graph, theirs too, as it is usual; hence norm=layer.)
Links that are tested touch validation in one way: they are not among its drawn negatives, as no edge is. Those tried
here are not either way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from tasks.stage import Parent
from tests.leaks.cases import HOPS, learnt, opened, prepare

NODE_WAYS = {
    "full": "train.loader=full",
    "neighbor": "train.loader=neighbor train.loader.fanout=3,3",
    "precomputed mean": (
        "train.loader=neighbor train.loader.first_hop=precomputed train.loader.fanout=3,-1 model.edge_features=false"
    ),
    "cluster": "train.loader=cluster train.loader.clusters_per_batch=2",
    "random_partition": "train.loader=random_partition train.loader.num_clusters=4",
    "precomputed": "train.loader=precomputed model.name=sgc",
    "label reuse": "train.loader=neighbor train.loader.fanout=3,3 model.label_reuse=true",
    "self-training": "train.loader=full train.self_training.min_probability=0.34",
    "early stopping": "train.loader=full train.epochs=12 train.patience=1",
}
LINK_WAYS = {
    "full": "train.loader=full_edge",
    "edge": "train.loader=edge train.loader.fanout=3,3",
    "patience": "train.loader=full_edge train.epochs=12 train.patience=1",
}
GRAPH_WAYS = {"batch norm": "model.norm=batch", "virtual node": "model.virtual_node=true"}
COMMON = {"node": ["degree", "standardize", "one_hot"], "link": ["degree", "standardize", "codes"], "graph": ["degree"]}
NO_WAY_BACK = ("self-training", "early stopping", "patience")
"""Where validation has a say in more than which epoch is kept."""


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Prepare a data set, with something altered, once for each list of transforms."""
    known: dict[tuple[str, str, str], Parent] = {}

    def make(task: str, alter: str, transforms: list[Any]) -> Parent:
        key = (task, alter, str(transforms))
        if key not in known:
            known[key] = prepare(tmp_path_factory.mktemp("graphs"), task, alter, transforms)
        return known[key]

    return make


def check(graphs: Any, work: Path, task: str, way: str, options: str, transforms: list[Any]) -> None:
    """Train on the data as it is, and with what is held out altered."""

    def train(alter: str) -> Any:
        graph = graphs(task, alter, transforms)
        return learnt(work / (alter or "as it is"), task, graph, *options.split())

    before = train("")
    if way not in NO_WAY_BACK:
        for alter in {"node": ("valid labels", "islands"), "link": ("valid test",), "graph": ("valid test",)}[task]:
            after = train(alter)
            # Gradients of an embedding of codes are sums over all nodes of a batch: zeros in between move the rounding.
            rounded = alter == "islands" and "feat_cat" in opened(graphs(task, alter, transforms))
            assert after.is_near(before) if rounded else after.last == before.last, alter
    alter = "test labels" if task == "node" else "test"
    assert train(alter) == before, alter


@pytest.mark.parametrize("way", NODE_WAYS)
def test_nodes(graphs: Any, tmp_path: Path, way: str) -> None:
    check(graphs, tmp_path, "node", way, NODE_WAYS[way], COMMON["node"])


@pytest.mark.parametrize("way", LINK_WAYS)
def test_links(graphs: Any, tmp_path: Path, way: str) -> None:
    negatives = [opened(graphs("link", alter, COMMON["link"]))["valid_negative"].tolist() for alter in ("", "test")]
    assert negatives[0] == negatives[1], "the data does not show what is tried here"
    check(graphs, tmp_path, "link", way, LINK_WAYS[way], COMMON["link"])


@pytest.mark.parametrize("way", GRAPH_WAYS)
def test_graphs(graphs: Any, tmp_path: Path, way: str) -> None:
    check(graphs, tmp_path, "graph", way, GRAPH_WAYS[way], COMMON["graph"])


def test_training_labels_do_matter(graphs: Any, tmp_path: Path) -> None:
    """The tests above see a change where there is one."""
    same = graphs("node", "", COMMON["node"])
    seeds = [learnt(tmp_path / str(seed), "node", same, f"seed={seed}") for seed in (0, 0, 1)]
    assert seeds[0] == seeds[1]
    assert seeds[0].last != seeds[2].last


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMS.names())
@pytest.mark.parametrize("task", ["node", "link", "graph"])
def test_every_transform_with_every_way(graphs: Any, tmp_path: Path, task: str, name: str) -> None:
    options: dict[str, Any] = {**HOPS} if name == "hops" else {"name": name}
    if task != "node":
        options.pop("labels", None)
    transforms = [options] if name in ("codes", "one_hot") else ["one_hot", options]
    ways = {"node": NODE_WAYS, "link": LINK_WAYS, "graph": GRAPH_WAYS}[task]
    if (task, name) == ("graph", "embedding"):  # vectors of the nodes of one graph
        with pytest.raises(RecipeError, match="this is a set of graphs"):
            check(graphs, tmp_path / "plain", task, "plain", next(iter(ways.values())), transforms)
        return
    refused = []
    for way, text in ways.items():
        try:
            check(graphs, tmp_path / way, task, way, text, transforms)
        except RecipeError:  # codes do not go through a loader that averages, say
            refused.append(way)
    assert set(refused) <= {"precomputed", "precomputed mean"}
