"""Links between two types of nodes with other relations as context: what is dealt out, drawn, seen, and ranked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.ids import IdMap
from tasks.train.families import check_options
from tests.apply.test_needs import Prepared
from tests.ingest.movies import movie_tables

Pairs = set[tuple[str, str]]


def recipe_of(dataset: dict[str, Any], **change: Any) -> Recipe:
    model = {"name": "rgcn", "hidden_dim": 16, "num_layers": 2}
    return build_recipe({"name": "movies", "dataset": dataset, "model": model, "preprocess": {"workers": 1}, **change})


def named(prepared: Prepared, array: str, stage: str = "preprocess") -> list[tuple[str, str]]:
    """Pairs of a stage's graph under their users' ids."""
    graph = GraphStore(prepared.parents[stage].folder, prepared.parents[stage].manifest)
    ids, pairs = IdMap(graph, prepared.dataset), np.asarray(graph[array]).reshape(-1, 2)
    return list(zip(*(ids.lookup(pairs[:, end]).to_pylist() for end in (0, 1)), strict=True))


def messages(prepared: Prepared) -> Pairs:
    """Ends of all edges that carry messages, as TYPE:ID."""
    graph = prepared.graph
    ids, target = (
        IdMap(graph, prepared.dataset),
        np.repeat(np.arange(graph.manifest.num_nodes), np.diff(graph["csc_indptr"])),
    )
    ends = (ids.lookup(np.asarray(nodes), typed=True).to_pylist() for nodes in (graph["csc_indices"], target))
    return set(zip(*ends, strict=True))


@pytest.mark.parametrize(
    "split",
    [
        {"by": "column", "column": "part"},
        {"by": "time", "train": 0.6, "valid": 0.2, "test": 0.2},
        {"by": "ratio", "train": 0.6, "valid": 0.2, "test": 0.2},
    ],
)
def test_held_out_edges_are_nowhere_and_candidates_are_of_the_right_type(
    tmp_path: Path, home: Home, split: dict[str, Any]
) -> None:
    dataset = movie_tables(tmp_path)
    data = Prepared(home, recipe_of({**dataset, "split": split, "candidates": 7}))
    likes = pq.read_table(tmp_path / "likes.parquet").to_pydict()
    rows = list(zip(likes["who"], likes["what"], strict=True))
    train, valid, test = (named(data, f"{name}_edges") for name in ("train", "valid", "test"))
    assert sorted(train + valid + test) == sorted(rows)
    if split["by"] == "column":
        for name, pairs in (("train", train), ("valid", valid), ("test", test)):
            assert set(pairs) == {row for row, part in zip(rows, likes["part"], strict=True) if part == name}
    if split["by"] == "time":
        day = dict(zip(rows, likes["day"], strict=True))
        assert max(map(day.__getitem__, train)) < min(map(day.__getitem__, valid))
        assert max(map(day.__getitem__, valid)) < min(map(day.__getitem__, test))
    seen = messages(data)
    assert {(f"user:{a}", f"movie:{b}") for a, b in train} <= seen
    for a, b in valid + test:
        assert not {(f"user:{a}", f"movie:{b}"), (f"movie:{b}", f"user:{a}")} & seen
    assert {source.partition(":")[0] for source, _ in seen} == {"user", "movie", "genre", "actor"}
    for name, pairs in (("valid", valid), ("test", test)):
        drawn = np.asarray(data.graph[f"{name}_negative"])
        assert drawn.shape == (len(pairs), 7, 2)
        negatives = named(data, f"{name}_negative")
        assert [source for source, _ in negatives] == [source for source, _ in pairs for _ in range(7)]
        assert {target[0] for _, target in negatives} == {"m"}
        assert not set(negatives) & set(rows), "known pairs are no negatives"
    assert data.dataset.manifest.metric == "mrr"
    assert data.dataset.manifest.edge_types[0].name == "user__likes__movie"


def test_edges_of_no_split_are_known(tmp_path: Path, home: Home) -> None:
    """They neither train nor carry messages, and are no candidates, drawn or listed."""
    from tasks.inference.ranked_targets import TargetLinks

    dataset = movie_tables(tmp_path)
    likes = pq.read_table(tmp_path / "likes.parquet").to_pydict()
    likes["part"] = [part if row % 3 else "" for row, part in enumerate(likes["part"])]
    pq.write_table(pa.table(likes), tmp_path / "likes.parquet")
    rows = zip(likes["who"], likes["what"], likes["part"], strict=True)
    without = {(user, movie) for user, movie, part in rows if not part}
    options = {**dataset, "split": {"by": "column", "column": "part"}, "candidates": 20}
    recipe = recipe_of(options, components={"keep": "largest"}, partition={"num_parts": 2, "name": "random"})
    data = Prepared(home, recipe, "ingest", "preprocess", "components", "partition")
    for stage in ("preprocess", "components", "partition"):
        assert set(named(data, "left_out_edges", stage)) == without
    assert not {(source.partition(":")[2], target.partition(":")[2]) for source, target in messages(data)} & without
    for split in ("valid", "test"):
        assert not set(named(data, f"{split}_negative")) & without
        links = TargetLinks(data.graph, split)
        sources = np.unique(data.graph["left_out_edges"][:, 0])
        indptr, columns, _, _ = links.past(sources, links.moments(sources))
        pairs = np.stack([np.repeat(sources, np.diff(indptr)), links.candidates[columns]], 1)
        left = set(map(tuple, np.asarray(data.graph["left_out_edges"]).tolist()))
        assert left <= set(map(tuple, pairs.tolist()))


def test_a_scored_edge_is_not_in_its_own_batch(tmp_path: Path, home: Home) -> None:
    """Nor is its reverse, while the other relations are; negatives of training join a user and a movie."""
    from configs.registry import MODELS
    from tasks.sampling.rows.features import FeatureSource
    from tasks.storage.graph_facts import graph_facts
    from tests.loaders import make_loader

    data = Prepared(home, recipe_of(movie_tables(tmp_path)))
    graph = data.graph
    assert data.recipe.train.loader.resolve(graph.manifest).name == "edge"  # type: ignore[union-attr]
    model = MODELS.create(data.recipe.model, graph_facts(graph.manifest))
    loader = make_loader("edge", graph, FeatureSource.of(graph, model), model, fanout=(-1, -1), batch_size=32)
    batch = loader.batch(np.arange(32), 5)
    nodes = batch.inputs.node_ids.numpy()
    pairs = nodes[batch.pairs.numpy()]
    kinds = np.asarray(graph["node_type"])[pairs]
    names = graph.manifest.node_types
    assert {names[kind] for kind in kinds[0]} == {"user"}
    assert {names[kind] for kind in kinds[1]} == {"movie"}
    scored = set(zip(*pairs[:, :32].tolist(), strict=True))
    relations = set()
    for block in batch.blocks:
        target = np.repeat(np.arange(block.num_dst), np.diff(block.adjacency.indptr.numpy()))
        ends = set(zip(nodes[block.indices.numpy()].tolist(), nodes[target].tolist(), strict=True))
        assert not ends & (scored | {(b, a) for a, b in scored})
        relations |= set(block.edge_type.tolist())
    assert len(relations) == len(graph.manifest.edge_types) == 6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_relation": None}, "which links are predicted.*plays, likes, has_genre"),
        ({"target_relation": "like"}, r"'like' names no single table \(did you mean 'likes'\?\)"),
        ({"split": {"by": "time", "known_pairs": "keep", "negatives": ["random"]}}, "say `candidates` instead"),
        ({"task": "node", "target_relation": None, "candidates": 5}, "are for link tasks|one place of labels"),
    ],
)
def test_what_cannot_be(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe_of({**movie_tables(tmp_path), **change})


@pytest.mark.parametrize("change", [{}, {"candidates": 5}, {"edges": 1}])
def test_a_graph_in_parts_is_refused_before_there_is_one(tmp_path: Path, change: dict[str, Any]) -> None:
    dataset = {**movie_tables(tmp_path), **change}
    if "edges" in change:
        dataset["edges"] = movie_tables(tmp_path)["edges"][1:2]
    train = {"loader": "edge", "strategy": "partitioned", "num_ranks": 2}
    with pytest.raises(RecipeError, match=r"strategy=partitioned does not train links with .*data_parallel"):
        check_options(recipe_of(dataset, train=train, partition={"num_parts": 2}))


@pytest.mark.slow
def test_context_tells_more_than_likes_alone_and_than_popularity(tmp_path: Path, home: Home) -> None:
    """Of few likes: what a movie is like stands in its genre."""
    dataset = movie_tables(tmp_path, users=150, movies=121, likes=900)
    alone = [one for one in dataset["edges"] if one["relation"] == "likes"]
    with_context, popularity = mrr(home, {**dataset, "candidates": 50})
    without, _ = mrr(home, {**dataset, "edges": alone, "candidates": 50})
    assert with_context > 1.2 * without
    assert with_context > 1.5 * popularity


def mrr(home: Home, dataset: dict[str, Any]) -> tuple[float, float]:
    """Train, and return the model's MRR on the test split and that of the product of the ends' degrees."""
    model = {"name": "rgcn", "hidden_dim": 32, "num_layers": 2, "dropout": 0.1, "decoder": "dot"}
    train = {"loader": {"name": "edge", "fanout": [10, 10], "batch_size": 128}, "epochs": 30, "learning_rate": 0.01}
    recipe = recipe_of(dataset, model=model, train={**train, "threads": 1}, preprocess={"transforms": ["standardize"]})
    made = Prepared(home, recipe, "ingest", "preprocess", "components", "partition", "train", "evaluate")
    report = made.parents["evaluate"].manifest
    return report.metrics["test"]["mrr"], report.controls["degree"]["test"]["mrr"]
