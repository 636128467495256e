"""EdgeBank against sets of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tasks.controls.pairs.links import EdgeBank


@pytest.mark.parametrize("directed", [True, False])
def test_what_was_an_edge_will_be_one(directed: bool) -> None:
    """Nodes of the graph are in another order."""
    rng = np.random.default_rng(0)
    columns = {"split/train": rng.integers(0, 20, (2, 90))}
    order = rng.permutation(20)

    class Dataset:
        manifest: Any = type("Manifest", (), {"num_nodes": 20, "directed": directed})

        @staticmethod
        def column(table: str, column: str) -> np.ndarray:
            return columns[table][int(column == "dst")]

    graph: Any = type(
        "Graph", (), {"dataset": Dataset, "ids": type("Ids", (), {"dense": staticmethod(order.__getitem__)})}
    )
    asked = rng.integers(0, 20, (400, 2))
    known = {(int(a), int(b)) for a, b in columns["split/train"].T}
    known |= set() if directed else {(b, a) for a, b in known}
    expected = [(int(a), int(b)) in known for a, b in order[asked]]
    assert 0 < sum(expected) < 400
    np.testing.assert_array_equal(EdgeBank(graph).scores(asked), np.array(expected, np.float32))
