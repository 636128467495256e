"""What cannot be learnt from pairs is refused, with a way out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from configs.registry import LOADERS
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.samples.pairs import PairData
from tests.support import ArrayWriter, finish


def graph(folder: Path, weight: list[float] | None, ends: tuple[list[int], list[int]]) -> GraphStore:
    """A directed graph of four nodes with an edge from 0 to 1 and one from 1 to 2, or what `ends` has instead."""
    writer = ArrayWriter(folder)
    writer.write("csr_indptr", np.array(ends[0]))
    writer.write("csr_indices", np.array(ends[1], np.int32))
    writer.write("csr_eids", np.arange(len(ends[1])))
    if weight is not None:
        writer.write("edge_weight", np.array(weight, np.float32))
    made = finish(folder, writer, num_nodes=4, num_edges=len(ends[1]), symmetric=False)
    return GraphStore(made.folder, made.manifest)


_TWO_EDGES = [0, 1, 2, 2, 2], [1, 2]
_NONE = [0, 0, 0, 0, 0], []


@pytest.mark.parametrize("loader", ["walks", "edges"])
@pytest.mark.parametrize(
    ("weight", "ends", "message"),
    [
        ([1.0, -1.0], _TWO_EDGES, "edge weights must be finite and none below 0; .*train.loader.edge_weights=false"),
        ([1.0, float("nan")], _TWO_EDGES, "edge weights must be finite and none below 0"),
        ([0.0, 0.0], _TWO_EDGES, "train.loader.edge_weights=false"),
        (None, _NONE, "look at preprocess and at components.keep"),
    ],
)
def test_graphs_without_an_edge_to_take_are_refused(
    tmp_path: Path, loader: str, weight: Any, ends: Any, message: str
) -> None:
    store = graph(tmp_path, weight, ends)
    with pytest.raises(DataError, match=f"test: .*{message}"):
        LOADERS.create(LOADERS.config(loader), PairData(store, 5))


@pytest.mark.parametrize("loader", ["walks", "edges"])
def test_weights_that_are_left_alone_may_be_anything(tmp_path: Path, loader: str) -> None:
    store = graph(tmp_path, [1.0, -1.0], _TWO_EDGES)
    made: Any = LOADERS.create(LOADERS.config({"name": loader, "edge_weights": False}), PairData(store, 5))
    pairs = np.empty((2, made.room), np.int32)
    count = made.fill(0, *pairs)
    assert count > 0
    assert set(np.unique(pairs[:, :count])) <= {0, 1, 2}
