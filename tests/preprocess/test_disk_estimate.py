"""What `plan` says of a graph's size, against the files that come of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.sizes import counts_of, disk_bytes
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
