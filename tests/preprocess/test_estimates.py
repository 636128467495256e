"""What `plan` says of a graph's size and memory, against the files that come of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from configs.load import build_recipe
from configs.schema import Recipe
from tasks.sizes import PROCESS_BYTES, Counts, counts_of, disk_bytes, memory_bytes
from tests.preprocess.conftest import make_recipe

NUMBER = 4000


@pytest.mark.parametrize("symmetrize", [True, False])
@pytest.mark.parametrize("dim", [0, 5])
def test_a_typed_graph_takes_what_was_said(
    make_dataset: Any, node_splits: Any, preprocess: Any, symmetrize: bool, dim: int
) -> None:
    rng = np.random.default_rng(1)

    def edges(number: int) -> dict[str, Any]:
        places = rng.choice(NUMBER * NUMBER, number, replace=False)
        columns = {"src": places // NUMBER, "dst": places % NUMBER}
        data = {"x": rng.random((number, dim), np.float32), "weight": np.ones(number, np.float32)}
        return columns | (data if dim else {})

    dataset = make_dataset(
        {
            "a": (NUMBER, {"x": rng.random((NUMBER, 3), np.float32), "label": rng.integers(0, 2, NUMBER)}),
            "b": (NUMBER, {}),
        },
        {("a", "likes", "b"): edges(20_000), ("b", "knows", "a"): edges(10_000)},
        node_splits(NUMBER),
        shard_rows=50_000,
    )
    recipe = make_recipe(symmetrize=symmetrize)
    graph = preprocess(dataset, symmetrize=symmetrize)
    taken = sum(path.stat().st_size for path in graph.folder.glob("*.npy"))
    said = disk_bytes("preprocess", recipe, counts_of(dataset.manifest))
    assert said is not None
    assert 0.8 < said / taken < 1.3
    again = disk_bytes("components", recipe, counts_of(graph.manifest))
    assert again is not None
    assert 0.8 < again / taken < 1.3


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
