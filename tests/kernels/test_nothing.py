"""Kernels outside of `models/kernels` with no rows, no edges and no columns (those inside: test_shapes)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tasks.components.connected import connected_components
from tasks.ingest.ids.id_index import IdIndex
from tasks.partition.kernels.graphs import count_cut, cut_matrix, is_simple, order_by_part
from tasks.preprocess.edges.edge_kernels import sort_and_compress
from tasks.preprocess.transforms.hops import count_labels, mean_rows
from tasks.sampling.negatives import NegativeSampler
from tasks.sampling.rows.gather import gather_mean, gather_rows

NO_EDGES = np.zeros(0, np.int32)


@pytest.mark.parametrize("num_nodes", [0, 3])
def test_graphs_without_edges(num_nodes: int) -> None:
    indptr = np.zeros(num_nodes + 1, np.int64)
    part = np.zeros(num_nodes, np.int32)
    count, component = connected_components(indptr, NO_EDGES)
    assert (count, component.tolist()) == (num_nodes, [*range(num_nodes)])
    assert is_simple(indptr, NO_EDGES)
    assert count_cut(indptr, NO_EDGES, part) == 0
    assert not cut_matrix(indptr, NO_EDGES, part, 2).any()
    assert order_by_part(part, 2, np.dtype(np.int32)) is not None
    count_labels(indptr, NO_EDGES, np.full(num_nodes, -1, np.int64), np.zeros((num_nodes, 0), np.float32))


@pytest.mark.parametrize(("num_nodes", "width", "rows"), [(0, 0, 0), (0, 2, 0), (3, 0, 0), (3, 0, 2), (3, 2, 0)])
@pytest.mark.parametrize("stored", [np.float32, np.float16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features(num_nodes: int, width: int, rows: int, stored: Any, dtype: torch.dtype) -> None:
    table, chosen = np.zeros((num_nodes, width), stored), np.zeros(rows, np.int64)
    assert gather_rows(table, chosen, dtype).shape == (rows, width)
    own, mean = gather_mean(table, chosen, np.zeros(rows + 1, np.int64), np.zeros(0, np.int64), dtype)
    assert own.shape == mean.shape == (rows, width)
    x = table.astype(np.float32)
    mean_rows(np.zeros(num_nodes + 1, np.int64), NO_EDGES, x, x.copy())


class EmptyGraph(dict[str, Any]):
    """A graph of one relation, without an edge."""

    manifest = SimpleNamespace(has_context=False)


def test_lists_and_negatives() -> None:
    assert len(sort_and_compress(np.zeros(0, np.uint64), np.zeros(0, np.int64), 40, True)[0]) == 0
    assert len(IdIndex().sort()) == 0
    graph: Any = EmptyGraph(csc_indptr=np.zeros(1, np.int64), csc_indices=NO_EDGES)
    assert NegativeSampler(graph, 2).draw(np.zeros((0, 2), np.int64), 0).shape == (0, 2)
