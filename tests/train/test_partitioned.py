"""Training on a graph of which every rank holds its parts only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import DataError, RecipeError
from configs.registry import STRATEGIES
from models.base import GraphModel
from tasks.inference import parts
from tasks.inference.layerwise import widest
from tasks.inference.parts import PartPredictor
from tasks.sampling.parts.graph import PartGraph
from tasks.storage.graph_store import GraphStore
from tasks.storage.split_rows import SplitRows
from tasks.train.job import BEST, LAST
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tests.sampling.part_graphs import rich_graph
from tests.support import written
from tests.train.in_process import make_engine, make_job, own_settings
from tests.train.test_training import partition, recipe
from tests.train.two_processes import run_ranks

WHOLE = ("train.strategy=data_parallel",)
PARTS = ("train.strategy=partitioned", "train.strategy.seeds=shuffled", "train.strategy.exchange_batches=3")


KINDS = {
    "sage": ("model=graphsage", "model.num_layers=3", "train.loader.fanout=4,3,-1", "train.patience=1"),
    "gat": ("model=gat",),
    "rgcn": ("model=rgcn", "train.accumulate_steps=2", "train.prefetch=0"),
    "gin": ("model=gin", "train.precision=bfloat16"),
}


def without_features(graph: Any) -> Any:
    """The same graph, whose nodes are known by embeddings."""
    arrays = {name: entry for name, entry in graph.manifest.arrays.items() if name not in ("feat", "feat_cat")}
    return written(graph, arrays=arrays, feature_dim=0, categories=())


SPARSE = {
    "adagrad": ("model=graphsage", "train.accumulate_steps=2"),
    "adam": ("model=gat", "train.embeddings.optimizer=sparse_adam", "train.patience=1"),
}


@pytest.mark.parametrize("world_size", [1, 3])
def test_learns_embeddings_as_on_the_whole_graph(tmp_path: Path, world_size: int) -> None:
    graph = without_features(rich_graph(tmp_path / "graph"))
    common = ("train.loader=neighbor", "train.loader.batch_size=8", "train.epochs=3", "train.embeddings.name=sparse")
    jobs: list[Any] = [
        make_job(recipe("node", *common, *options, *strategy, f"train.num_ranks={world_size}"), graph, tmp_path / work)
        for kind, options in SPARSE.items()
        for work, strategy in ((f"{kind}-whole", WHOLE), (f"{kind}-parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", world_size, *jobs)
    for kind in SPARSE:
        for name in (BEST, LAST):
            whole, parts = (checkpoint.load(tmp_path / f"{kind}-{side}" / name) for side in ("whole", "parts"))
            for table, rows in [*whole["model"].items(), *whole.get("embedding", {}).items()]:
                found = parts["model"] if table in parts["model"] else parts["embedding"]
                assert torch.equal(found[table], rows), (kind, name, table)


LINKS = {"sage": ("model=graphsage", "train.loader.fanout=4,-1"), "gcn": ("model=gcn", "train.loader.num_negatives=2")}


@pytest.mark.parametrize("world_size", [1, 2])
def test_trains_links_as_on_the_whole_graph(tmp_path: Path, world_size: int) -> None:
    graph = rich_graph(tmp_path / "graph", "link")
    common = ("train.loader=edge", "train.loader.batch_size=16", "train.epochs=2", f"train.num_ranks={world_size}")
    jobs: list[Any] = [
        make_job(recipe("link", *common, *options, *strategy), graph, tmp_path / f"{kind}-{name}")
        for kind, options in LINKS.items()
        for name, strategy in (("whole", WHOLE), ("parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", world_size, *jobs)


@pytest.mark.parametrize("world_size", [1, 3, pytest.param(2, marks=pytest.mark.slow)])
def test_trains_as_on_the_whole_graph(tmp_path: Path, world_size: int) -> None:
    graph = rich_graph(tmp_path / "graph")
    common = ("train.loader=neighbor", "train.loader.batch_size=8", "train.epochs=3", f"train.num_ranks={world_size}")
    jobs: list[Any] = [
        make_job(recipe("node", *common, *options, *strategy), graph, tmp_path / f"{kind}-{name}")
        for kind, options in KINDS.items()
        for name, strategy in (("whole", WHOLE), ("parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", world_size, *jobs)


def test_validates_by_chunks_where_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_TEST_SHORT_OF_MEMORY", "1")
    graph = rich_graph(tmp_path / "graph")
    common = ("train.loader=neighbor", "train.loader.batch_size=8", "train.epochs=1", "train.num_ranks=3")
    jobs: list[Any] = [
        make_job(recipe("node", *common, *options, *strategy), graph, tmp_path / f"{kind}-{name}")
        for kind, options in KINDS.items()
        if kind in ("sage", "gat")
        for name, strategy in (("whole", WHOLE), ("parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", 3, *jobs)


def test_what_a_part_cannot_compute_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = partition(tmp_path / "graph")
    options = ("train.strategy=partitioned", "train.loader=neighbor")
    means = recipe("node", *options, "train.loader.first_hop=precomputed", "train.loader.fanout=3,-1")
    with own_settings(), pytest.raises(RecipeError, match=r"means over the whole graph.*first_hop=auto"):
        make_engine(make_job(means, graph, tmp_path / "means"))
    monkeypatch.setattr(GraphModel, "is_layered", property(lambda _: False))
    with own_settings(), pytest.raises(RecipeError, match=r"layer by layer.*take train\.strategy=data_parallel"):
        make_engine(make_job(recipe("node", *options), graph, tmp_path / "layers"))


def test_ranks_without_seeds_are_named() -> None:
    train = recipe("node", "train.strategy=partitioned").train
    strategy = STRATEGIES.create(train.strategy, Ranks(0, 4))
    strategy._refuse_empty(np.array([1, 2, 3, 4]), SimpleNamespace(split_rows=SplitRows(are_nodes=True)))
    words = r"2 of 4 ranks.*the first of them rank 1; set train\.strategy\.seeds=shuffled"
    with pytest.raises(DataError, match=rf"{words}, or partition\.balance_train=true"):
        strategy._refuse_empty(np.array([3, 0, 0, 1]), SimpleNamespace(split_rows=SplitRows(are_nodes=True)))
    with pytest.raises(DataError, match=rf"{words}, or take fewer"):
        strategy._refuse_empty(np.array([3, 0, 0, 1]), SimpleNamespace(split_rows=SplitRows(are_pairs=True)))


def test_rows_of_no_features_are_refused() -> None:
    train = recipe("node", "train.strategy=partitioned", "train.strategy.rows=int8").train
    manifest: Any = SimpleNamespace(num_parts=2, feature_dim=0, dataset="planted")
    with pytest.raises(RecipeError, match=r"rows=int8 is for numeric features of nodes, and planted has none"):
        STRATEGIES.create(train.strategy, Ranks(0, 2)).check(train, "neighbor", manifest)


@pytest.mark.parametrize("made_for", [1, 2, 3, 4])
def test_parts_that_were_made_for_other_machines_are_told(made_for: int, capsys: pytest.CaptureFixture[str]) -> None:
    manifest: Any = SimpleNamespace(report={"partition": {"machines": made_for}} if made_for > 1 else {})
    config = recipe("node", "train.strategy=partitioned").train.strategy
    for rank in range(2):
        STRATEGIES.create(config, Ranks(rank, 2, 0, 1, rank, 2))._compare_machines(manifest)
    assert capsys.readouterr().out.count("with partition.machines=2 fewer edges") == made_for % 2


def without_nodes_on(graph: Any, rank: int, ranks: int) -> Any:
    """The same graph, where a rank other than the last has no node: those are in the next one's first part."""
    offsets, each = list(graph.manifest.part_offsets), graph.manifest.num_parts // ranks
    first, end = rank * each, (rank + 1) * each
    offsets[first : end + 1] = [offsets[first]] * (each + 1)
    return written(graph, part_offsets=tuple(offsets))


@pytest.mark.parametrize(("empty", "each"), [(0, 1), (0, 2), pytest.param(1, 1, marks=pytest.mark.slow)])
def test_a_rank_without_nodes_takes_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: int, each: int
) -> None:
    """Partitioners may leave parts empty; with seeds=shuffled its rank has seeds nevertheless.

    Of three ranks `each` are on a machine: machines may have unequally many.
    """
    monkeypatch.setenv("GRAPHMILL_TEST_RANKS_A_MACHINE", str(each))
    featured = without_nodes_on(rich_graph(tmp_path / "graph"), empty, 3)
    embedded = without_features(without_nodes_on(rich_graph(tmp_path / "embedded"), empty, 3))
    linked = without_nodes_on(rich_graph(tmp_path / "linked", "link"), empty, 3)
    common = ("train.loader.batch_size=8", "train.epochs=2", "train.num_ranks=3")
    jobs: list[Any] = [
        make_job(recipe(task, f"train.loader={loader}", *common, *options, *strategy), graph, tmp_path / kind / name)
        for kind, task, loader, graph, options in (
            ("sage", "node", "neighbor", featured, KINDS["sage"]),
            ("rgcn", "node", "neighbor", featured, KINDS["rgcn"]),
            ("sparse", "node", "neighbor", embedded, ("train.embeddings=sparse",)),
            ("link", "link", "edge", linked, LINKS["sage"]),
        )
        for name, strategy in (("whole", WHOLE), ("parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", 3, *jobs)


def test_ranks_of_a_machine_share_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each keeps the rows of two layers."""
    graph = partition(tmp_path / "graph")
    with own_settings():
        engine = make_engine(make_job(recipe("node", *PARTS, "train.loader=neighbor"), graph, tmp_path / "work"))
        ranges = engine.validation._parts.ranges
        rows = 2 * 4 * widest(engine.model) * graph.manifest.num_nodes
        monkeypatch.setattr(parts, "available_bytes", lambda: int(3 * rows))
        for ranks, by_chunk in ((1, False), (2, True)):
            part = PartGraph(GraphStore.open(graph.folder), ranges.bounds, ranges.exchange)
            part.local_size = ranks
            predictor = PartPredictor(part, ranges, device=torch.device("cpu"))
            predictor.node_scores(engine.model, part.own_seeds("valid"))
            assert predictor._layerwise.by_chunk == by_chunk


def test_ranks_hold_rows_of_one_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has no room for a copy of its features in bfloat16."""
    monkeypatch.setenv("GRAPHMILL_TEST_NO_COPY_ON", "1")
    monkeypatch.setenv("GRAPHMILL_TEST_RANKS_A_MACHINE", "1")
    graph = rich_graph(tmp_path / "graph")
    floats = np.load(graph.folder / "feat.npy").astype(np.float32)  # copies of float16 are as wide
    np.save(graph.folder / "feat.npy", floats)
    entry = graph.manifest.arrays["feat"].model_copy(update={"dtype": "float32"})
    graph = written(graph, arrays={**graph.manifest.arrays, "feat": entry})
    options = ("train.loader=neighbor", "train.loader.batch_size=8", "train.epochs=1", "train.precision=bfloat16")
    jobs: list[Any] = [
        make_job(recipe("node", *options, *strategy, "train.num_ranks=2"), graph, tmp_path / name)
        for name, strategy in (("whole", WHOLE), ("parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", 2, *jobs)
