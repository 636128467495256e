"""A graph in parts gives the batches that the whole graph gives, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sampling.part_graphs import rich_graph
from tests.train.two_processes import run_program


@pytest.mark.parametrize(
    ("world_size", "local_size"),
    [(3, 2), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in ((2, 1), (3, 1), (4, 2)))],
)
def test_neighborhoods_equal_those_of_the_whole_graph(tmp_path: Path, world_size: int, local_size: int) -> None:
    rich_graph(tmp_path)
    run_program("tests.sampling.part_ranks", world_size, str(tmp_path), str(local_size))


@pytest.mark.parametrize(("world_size", "local_size"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.slow)])
def test_edge_batches_equal_those_of_the_whole_graph(tmp_path: Path, world_size: int, local_size: int) -> None:
    rich_graph(tmp_path, "link")
    run_program("tests.sampling.part_ranks", world_size, str(tmp_path), str(local_size))
