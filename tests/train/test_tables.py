"""Tables that are trained by samples: blocks, pools, equal bits after an interruption, heads."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import IntegrityError, RecipeError
from configs.load import build_recipe
from configs.registry import LOADERS
from configs.values.sizes import in_words, number_of_bytes
from models.kernels.tables.row_layout import UpdateRule
from models.vectors.configs import Pairing
from tasks.sampling.walks.alias import alias_table, draw_many
from tasks.storage.graph_store import GraphStore
from tasks.train.factors.engine import FactorEngine
from tasks.train.families import family_of
from tasks.train.job import BEST, RESULT, Job
from tasks.train.loaders.base import SampleData
from tasks.train.state.checkpoint import load_model
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.block_grid import BlockGrid
from tasks.train.strategies.configs import BlockGridConfig
from tasks.train.tables.objective import Negatives
from tasks.train.tables.pools import PoolDraws
from tasks.train.tables.settings import TableSizes, choose_blocks, choose_room, make_settings
from tests.ranked_shop import store_of
from tests.registered import models_of
from tests.support import link_graph, node_graph, written
from tests.train.in_process import make_job, own_settings, run_engine, stopped_at


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("num_blocks", [1, 2, 3, 4, 5, 8])
def test_rounds_meet_all_pairs_of_blocks_once(num_blocks: int, shared: bool, workers: int) -> None:
    strategy = BlockGrid(BlockGridConfig(blocks=num_blocks), Ranks())
    rounds = strategy.rounds(num_blocks, workers, shared=shared)
    if num_blocks >= workers * (2 if shared else 1):
        assert max(map(len, rounds)) >= workers
    met = [pair for pairs in rounds for pair in pairs]
    assert sorted(met) == [(i, j) for i in range(num_blocks) for j in range(num_blocks)]
    for pairs in rounds:
        if shared:
            touched = [block for i, j in pairs for block in {i, j}]
            assert len(touched) == len(set(touched))
        else:
            assert len({i for i, _ in pairs}) == len({j for _, j in pairs}) == len(pairs)


def make_loader(store: GraphStore, options: dict[str, Any] | str, key: int = 5) -> Any:
    return LOADERS.create(LOADERS.config(options), SampleData(store, key))


@pytest.mark.parametrize(("num_blocks", "deals"), [(1, False), (3, False), (1, True), (2, True), (4, True)])
@pytest.mark.parametrize("options", ["edges", "edge_passes", {"name": "walks", "length": 9, "window": 2}])
def test_a_pool_is_its_chunks_sorted_by_block(tmp_path: Path, options: Any, num_blocks: int, deals: bool) -> None:
    parent = node_graph(tmp_path)
    loader = make_loader(store_of(parent), options)
    owners = np.zeros((num_blocks, num_blocks), np.int64)
    draws = PoolDraws(loader, owners, Ranks(), np.int32, lambda _, count, dtype: np.empty(count, dtype), deals=deals)
    pool = draws.draw(range(4, 7))
    expected: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for chunk in range(4, 7):
        ends = np.empty((2, loader.room), np.int32)
        for number, (u, v) in enumerate(ends[:, : loader.fill(chunk, *ends)].T.tolist()):
            row, column = u % num_blocks, v % num_blocks
            if deals and row == column and num_blocks > 1:
                others = [(row + 1 + other) % num_blocks for other in range(num_blocks - 1)]
                column = num_blocks + others[(chunk + number) % len(others)]
            expected.setdefault((row, column), []).append((u // num_blocks, v // num_blocks))
    assert len(pool) == sum(map(len, expected.values()))
    for (row, column), pairs in expected.items():
        parts = pool.parts(row, column, 1000)
        assert max(part.stop - part.start for part in parts) <= 1000
        found = [pair for p in parts for pair in zip(pool.rows[p].tolist(), pool.columns[p].tolist(), strict=True)]
        assert found == pairs
    sizes = np.zeros((num_blocks, num_blocks), np.int64)
    for (row, column), pairs in expected.items():
        sizes[row, column % num_blocks] += len(pairs)
    np.testing.assert_array_equal(pool.sizes, sizes)


def test_negatives_come_by_degree_within_a_block() -> None:
    made = Negatives(np.array([4, 0, 1, 0, 0, 0]), 2, 0.5)  # block 1: nodes 1, 3, 5, without an edge
    drawn = np.empty((2, 30_000), np.int64)
    for block in range(2):
        made.draw(block, 3, drawn[block])
    assert np.bincount(drawn[0], minlength=3) / 30_000 == pytest.approx([2 / 3, 1 / 3, 0], abs=0.02)
    assert np.bincount(drawn[1], minlength=3) / 30_000 == pytest.approx([1 / 3] * 3, abs=0.02)


@pytest.mark.parametrize("num_nodes", [1, 49, 1000])
def test_negatives_that_are_drawn_alike_are_those_of_a_table(num_nodes: int) -> None:
    made, drawn = Negatives(np.arange(1, num_nodes + 1), 1, 0.0), np.empty((2, 5000), np.int32)
    made.draw(0, 3, drawn[0])
    draw_many(alias_table(np.ones(num_nodes)), np.uint64(3), drawn[1])
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert drawn.max() == num_nodes - 1
    with_alone = Negatives(np.array([0, 3, 0, 7]), 1, 0.0)
    with_alone.draw(0, 3, drawn[0])
    assert set(drawn[0].tolist()) == {1, 3}


def recipe(**changes: Any) -> Any:
    sections: dict[str, Any] = {
        "name": "demo",
        "dataset": "synthetic",
        "model": {"name": "skipgram", "dim": 16, **changes.pop("model", {})},
        "train": {
            "samples": 400_000,
            "loader": {"name": "walks", "length": 20, "window": 3},
            "threads": 1,
            **changes.pop("train", {}),
        },
    }
    return build_recipe({**sections, **changes})


def train(job: Job[Any]) -> dict[str, Any]:
    with own_settings():
        family_of(job.train).train(job, Ranks())
    return json.loads((job.work / RESULT).read_text())


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ({}, {}),
        ({"order": "both"}, {"strategy": {"blocks": 3}}),
        ({"order": "first"}, {"precision": "bfloat16", "strategy": {"blocks": 2}, "threads": 2}),
        ({"shared_negatives": 8}, {"loader": "edge_passes"}),
        ({"order": "both"}, {"strategy": {"memory": 25_000}}),
        ({}, {"strategy": {"memory": 12_000, "blocks": 9}, "threads": 2}),
        # Rows as narrow as a layout's points, several of them on a line.
        ({"dim": 3, "negative_power": 0.0}, {"strategy": {"memory": 8_000}}),
    ],
)
def test_an_interrupted_training_ends_with_the_same_bits(
    tmp_path: Path, model: dict[str, Any], options: dict[str, Any]
) -> None:
    strategy = {"name": "block_grid", "pool": 50_000, **options.pop("strategy", {})}
    asked = recipe(model=model, train={"checkpoint_minutes": 1e-9, "strategy": strategy, **options})
    graph = written(node_graph(tmp_path / "graph"))
    whole, broken = (make_job(asked, graph, tmp_path / name) for name in ("whole", "broken"))
    train(whole)
    with stopped_at(3):
        train(broken)
    result = train(broken)
    assert result["best_metric"] > 0.5
    states = [torch.load(job.work / BEST, weights_only=True)["model"] for job in (whole, broken)]
    for key, tensor in states[0].items():
        assert torch.equal(tensor, states[1][key]), key
    files = [sorted((job.work / "blocks").iterdir()) for job in (whole, broken)]
    assert [path.name for path in files[0]] == [path.name for path in files[1]]
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(*files, strict=True))
    lines = [
        [json.loads(line) for line in (job.work / "metrics.jsonl").read_text().splitlines()] for job in (whole, broken)
    ]
    assert [line["train/loss"] for line in lines[0] if "train/loss" in line] == [
        line["train/loss"] for line in lines[1] if "train/loss" in line
    ]
    assert lines[0][-2]["train/loss"] < 6 * np.log(2)  # of rows of zeros, with five negatives


@pytest.mark.parametrize("options", [{"blocks": 1}, {"blocks": 4}])
@pytest.mark.parametrize(
    ("model", "loader"), [({}, "walks"), ({"order": "first"}, "edges"), ({"order": "both"}, "edges")]
)
def test_vectors_tell_planted_classes(tmp_path: Path, model: Any, loader: str, options: Any) -> None:
    asked = recipe(model=model, train={"loader": loader, "samples": 1e6, "strategy": {"name": "block_grid", **options}})
    job = make_job(asked, written(node_graph(tmp_path / "graph")), tmp_path / "work")
    assert train(job)["best_metric"] > 0.6


@pytest.mark.parametrize("score", ["hadamard", "mlp", "cosine", "dot"])
def test_vectors_tell_edges(tmp_path: Path, score: str) -> None:
    asked = recipe(model={"score": score}, train={"samples": 2e5}, evaluate={"evaluator": "rocauc"})
    job = make_job(asked, written(link_graph(tmp_path / "graph")), tmp_path / "work")
    assert train(job)["best_metric"] > 0.55  # classes alone would give 0.72


def test_vectors_of_length_1_and_what_is_kept(tmp_path: Path) -> None:
    job = make_job(recipe(), written(node_graph(tmp_path / "graph")), tmp_path / "work")
    result = train(job)
    model = load_model(job.work / BEST)
    assert model.table.norm(dim=1).numpy() == pytest.approx(np.ones(300), abs=1e-5)
    assert result["num_parameters"] == 2 * 300 * 16
    assert result["rows"] == pytest.approx(400_000, rel=0.05)


def test_settings_cut_a_training_into_pools() -> None:
    manifest: Any = type("Graph", (), {"num_nodes": 1000, "num_edges": 5000})
    made = make_settings(recipe(train={"samples": 1e7}).train, manifest, 16_000.0, 1)
    assert made.total_chunks == 625
    assert made.chunks_a_pool == 4
    assert made.num_pools == 157
    few = make_settings(recipe(train={"samples": 1}).train, manifest, 16_000.0, 1)
    assert (few.total_chunks, few.num_pools) == (1, 1)


@pytest.mark.parametrize("name", models_of("factors"))
@pytest.mark.parametrize("task", ["node", "link"])
def test_every_factorisation_tells_classes_and_edges(tmp_path: Path, name: str, task: str) -> None:
    evaluate = {} if task == "node" else {"evaluate": {"evaluator": "rocauc"}}
    sections = {"name": "demo", "dataset": "synthetic", "model": {"name": name, "dim": 16}, "train": {"threads": 1}}
    graph = written((node_graph if task == "node" else link_graph)(tmp_path / "graph"))
    job: Any = make_job(build_recipe({**sections, **evaluate}), graph, tmp_path / "work")
    with own_settings():
        run_engine(FactorEngine(job, Ranks()))
    assert json.loads((job.work / RESULT).read_text())["best_metric"] > (0.65 if task == "node" else 0.55)
    again: Any = make_job(build_recipe({**sections, **evaluate}), graph, tmp_path / "again")
    with own_settings():
        run_engine(FactorEngine(again, Ranks()))
    models = [load_model(made.work / BEST) for made in (job, again)]
    assert torch.equal(*[model.table for model in models])  # type: ignore[arg-type]


def test_a_width_beyond_the_nodes_is_refused(tmp_path: Path) -> None:
    sections = {"name": "demo", "dataset": "synthetic", "model": {"name": "prone", "dim": 1000}}
    job: Any = make_job(build_recipe(sections), written(node_graph(tmp_path / "graph")), tmp_path / "work")
    with own_settings(), pytest.raises(RecipeError, match=r"model.dim=1000 is more than the 300 nodes"):
        run_engine(FactorEngine(job, Ranks()))


@pytest.mark.parametrize(
    ("options", "shared", "message"),
    [
        (
            {"strategy": {"name": "block_grid", "blocks": 19}},
            False,
            "blocks=19: the 300 nodes of test make 18 blocks of 16 rows or more .*; give 18 or fewer",
        ),
        ({"num_ranks": 3, "strategy": {"name": "block_grid", "blocks": 2}}, False, "few for 3 ranks; give 3 or more"),
        ({"num_ranks": 3, "strategy": {"name": "block_grid", "blocks": 5}}, True, "give 6 or more, twice as many as"),
        (
            {"num_ranks": 19},
            False,
            "19 ranks train 19 blocks or more, and the 300 nodes of test make 18 .*lower train.n",
        ),
        (
            {"num_ranks": 10},
            True,
            "10 ranks train 20 blocks or more, and the 300 nodes of test make 18 .*lower train.n",
        ),
    ],
)
def test_what_a_grid_cannot_do_is_refused_before_it_starts(
    options: Any, shared: bool, message: str, tmp_path: Path
) -> None:
    asked = recipe(train=options)
    ranks = Ranks(0, asked.train.num_ranks)
    with pytest.raises(RecipeError, match=message):
        BlockGrid(asked.train.strategy, ranks).check(node_graph(tmp_path).manifest, shared=shared)


@pytest.mark.parametrize("name", ["skipgram", "prone"])
def test_tasks_on_graphs_are_refused_wherever_they_are_first_seen(tmp_path: Path, name: str) -> None:
    """In the recipe, or where only the data says that it holds graphs."""
    message = f"model.name={name} has no vectors of nodes that it has not seen"
    with pytest.raises(RecipeError, match=message):
        build_recipe({"name": "demo", "dataset": {"name": "dgl", "path": "graphs.bin", "task": "graph"}, "model": name})
    asked = build_recipe({"name": "demo", "dataset": "synthetic", "model": name})
    data = node_graph(tmp_path).manifest.model_copy(update={"task": "graph"})
    context: Any = None  # nothing is said before
    with pytest.raises(RecipeError, match=message):
        family_of(asked.train).announce(context, asked, data)  # type: ignore[arg-type]


def test_options_without_a_name_are_those_of_the_usual_component() -> None:
    made = recipe(train={"strategy": {"blocks": 3}, "loader": {"length": 8}, "schedule": {"warmup_steps": 2}}).train
    assert (made.strategy.name, made.strategy.blocks) == ("block_grid", 3)
    assert (made.loader.name, made.loader.length) == ("walks", 8)
    assert (made.schedule.name, made.schedule.warmup_steps) == ("linear", 2)


def test_a_block_that_was_damaged_is_named(tmp_path: Path) -> None:
    asked = recipe(train={"checkpoint_minutes": 1e-9, "strategy": {"blocks": 2, "pool": 100_000}})
    job = make_job(asked, written(node_graph(tmp_path / "graph")), tmp_path / "work")
    with stopped_at(1):
        train(job)
    (file,) = (job.work / "blocks").glob("second.contexts.1.*")
    content = file.read_bytes()
    file.write_bytes(content[:5000] + bytes([content[5000] ^ 1]) + content[5001:])
    with pytest.raises(IntegrityError, match=rf"{file.name} was changed after it was written"):
        train(job)
    os.truncate(file, len(content) - 1)
    with pytest.raises(IntegrityError, match=rf"{file.name} has 9,599 bytes instead of 9,600: it was cut off"):
        train(job)


def test_memory_decides_how_many_blocks_lie_there() -> None:
    pairings = [Pairing("first", 16, shared=True), Pairing("second", 16)]
    sizes = TableSizes.of(pairings, 1000, "float32", UpdateRule())
    assert (sizes.all_tables, sizes.largest, sizes.keys) == (3 * 64_000, 64_000, 4)
    one, two = (BlockGrid(BlockGridConfig(), Ranks(0, world)) for world in (1, 2))
    assert choose_blocks(one, sizes, 192_000, 2, shared=True) == 1
    assert choose_room(1, sizes, 192_000, 2, 1) is None
    assert choose_blocks(two, sizes, 96_000, 2, shared=True) == 8  # a pair for each thread of each rank, no block twice
    assert choose_room(8, sizes, 96_000, 2, 2) is None
    assert choose_blocks(one, sizes, 50_000, 2, shared=True) == 11
    assert choose_room(11, sizes, 50_000, 2, 1) == 8
    with pytest.raises(RecipeError, match=r"blocks=10 makes blocks of 6.4 kB, and the 8 .* give 11 blocks or more"):
        choose_room(10, sizes, 50_000, 2, 1)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("threads", [1, 3])
def test_blocks_are_cut_no_smaller_than_negatives_need(threads: int, shared: bool) -> None:
    """A memory that asks for more blocks is refused by its own name, and what the message says instead works."""
    sizes = TableSizes.of([Pairing("second", 16, shared)], 300, "float32", UpdateRule())
    one = BlockGrid(BlockGridConfig(), Ranks())

    def choose(memory: int) -> int | None:
        blocks = choose_blocks(one, sizes, memory, threads, shared=shared)
        assert blocks <= 18
        return choose_room(blocks, sizes, memory, threads, 1)

    with pytest.raises(RecipeError, match=r"have no room in 1 B; .*raise train.strategy.memory") as error:
        choose(1)
    enough = re.search(r"to ([\d.]+ kB) or more, or lower train.threads", str(error.value))
    assert enough
    memory = int(number_of_bytes(enough[1]))
    assert memory < sizes.all_tables
    assert choose(memory) == threads * sizes.keys
    with pytest.raises(RecipeError, match=r"have no room in [\d.]+ kB; raise train.strategy.memory"):
        choose(memory - 1000)


def test_threads_do_with_fewer_blocks() -> None:
    sizes = TableSizes.of([Pairing("second", 16)], 300, "float32", UpdateRule())
    two = BlockGrid(BlockGridConfig(), Ranks(0, 2))
    assert choose_blocks(two, sizes, 10**9, 3, shared=False) == 6
    assert choose_blocks(two, sizes, 10**9, 30, shared=False) == 18
    one_row = TableSizes.of([Pairing("second", 16)], 1, "float32", UpdateRule())
    assert choose_blocks(BlockGrid(BlockGridConfig(), Ranks()), one_row, 1, 3, shared=False) == 1


@pytest.mark.parametrize(
    ("size", "words"), [(1, "1 B"), (999.5, "1000 B"), (39_010, "39.1 kB"), (2e9, "2.0 GB"), (3.21e15, "3210.0 TB")]
)
def test_sizes_in_words_are_read_again(size: float, words: str) -> None:
    assert in_words(size) == words
    assert size <= number_of_bytes(words) <= 1.1 * size


def test_beyond_memory_all_blocks_are_gone_through_less_often() -> None:
    manifest: Any = type("Graph", (), {"num_nodes": 1000, "num_edges": 5000})
    made = make_settings(recipe(train={"samples": 9.6e6}).train, manifest, 16_000.0, 9, beyond_memory=True)
    assert (made.num_blocks, made.num_pools) == (9, 10)
