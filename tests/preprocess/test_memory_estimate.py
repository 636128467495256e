"""What `plan` says of the memory of preparing a graph."""

from __future__ import annotations

import pytest

from configs.load import build_recipe
from configs.schema import Recipe
from tasks.sizes import PROCESS_BYTES, Counts, memory_bytes


def recipe(*overrides: str) -> Recipe:
    sections = {
        "name": "size",
        "dataset": {"name": "synthetic"},
        "model": {"name": "graphsage"},
        "partition": {"name": "auto"},
    }
    return build_recipe(sections, ["preprocess.workers=2", "partition.num_parts=16", *overrides])


@pytest.mark.parametrize("stage", ["preprocess", "partition"])
def test_memory_does_not_grow_with_the_edges_of_a_large_graph(stage: str) -> None:
    few, many = (memory_bytes(stage, recipe(), Counts(40_000_000, edges)) for edges in (10**8, 10**9))
    assert few == many
    assert few is not None
    assert PROCESS_BYTES + 25 * 40_000_000 < few < 3 * 10**9  # 2.1 and 1.8 GB were measured


def test_metis_needs_memory_for_each_edge_in_both_directions() -> None:
    once = memory_bytes("partition", recipe("partition.name=metis"), Counts(10, 10**8))
    both = memory_bytes("partition", recipe("partition.name=metis"), Counts(10, 2 * 10**8, both_directions=True))
    assert once == both
    assert once is not None
    assert once > 98 * 2 * 10**8


def test_one_part_needs_nothing_and_a_small_graph_little() -> None:
    assert memory_bytes("partition", recipe("partition.num_parts=1"), Counts(10**8, 10**9)) == PROCESS_BYTES
    assert (memory_bytes("preprocess", recipe(), Counts(20_000, 150_000)) or 0) < PROCESS_BYTES + 20_000_000
