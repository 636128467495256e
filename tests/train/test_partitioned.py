"""Training on a graph of which every rank holds its parts only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.sampling.part_graphs import rich_graph
from tests.train.in_process import make_job
from tests.train.test_training import recipe
from tests.train.two_processes import run_ranks

WHOLE = ("train.strategy=data_parallel",)
PARTS = ("train.strategy=partitioned", "train.strategy.seeds=shuffled", "train.strategy.exchange_batches=3")


KINDS = {
    "sage": ("model=graphsage", "model.num_layers=3", "train.loader.fanout=4,3,-1", "train.patience=1"),
    "gat": ("model=gat", "train.loader.sampler=labor", "model.jumping=cat"),
    "rgcn": ("model=rgcn", "train.accumulate_steps=2", "train.prefetch=0"),
    "gin": ("model=gin", "train.precision=bfloat16"),
}


LINKS = {
    "sage": ("model=graphsage", "train.loader.fanout=4,-1", "train.loader.negatives=degree"),
    "gcn": ("model=gcn", "train.loader.num_negatives=2", "model.jumping=sum"),
}


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


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_trains_as_on_the_whole_graph(tmp_path: Path, world_size: int) -> None:
    graph = rich_graph(tmp_path / "graph")
    common = ("train.loader=neighbor", "train.loader.batch_size=8", "train.epochs=3", f"train.num_ranks={world_size}")
    jobs: list[Any] = [
        make_job(recipe("node", *common, *options, *strategy), graph, tmp_path / f"{kind}-{name}")
        for kind, options in KINDS.items()
        for name, strategy in (("whole", WHOLE), ("parts", PARTS))
    ]
    run_ranks("tests.train.partitioned_ranks", world_size, *jobs)
