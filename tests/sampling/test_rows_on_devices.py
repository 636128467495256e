"""Features that lie on devices and travel between them are those in CPU memory, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from models.block import Batch, Inputs, Mover
from tasks.sampling.parts import device_rows
from tasks.sampling.parts.device_rows import ExchangedRows, Group, WantedRows, cut_destinations
from tasks.sampling.parts.exchange import Exchange
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.gather import gather_mean, gather_rows
from tasks.sampling.rows.stored_rows import stored_rows
from tasks.storage.graph_store import GraphStore
from tests.sampling.part_graphs import rich_graph
from tests.train.two_processes import run_program
from tests.triton_device import DEVICE, MARKS_OF_TABLES

NONE = Group(torch.empty(0, dtype=torch.int32))


@pytest.mark.parametrize(
    ("world_size", "local_size"),
    [pytest.param(2, 1, marks=pytest.mark.slow), (3, 1), pytest.param(4, 2, marks=pytest.mark.slow)],
)
def test_batches_equal_those_of_the_whole_graph(tmp_path: Path, world_size: int, local_size: int) -> None:
    rich_graph(tmp_path)
    run_program("tests.sampling.device_row_ranks", world_size, str(tmp_path), str(local_size))


@pytest.fixture
def part(tmp_path: Path) -> PartGraph:
    """A graph of which the only rank has all."""
    rich_graph(tmp_path)
    store = GraphStore.open(tmp_path)
    return PartGraph(store, np.array([0, store.manifest.num_nodes]), Exchange(0, 1))


def opened(part: PartGraph, kind: Any, dtype: torch.dtype, device: torch.device) -> tuple[ExchangedRows, np.ndarray]:
    """The rows from number 200 on as if they had come from elsewhere; and all as the CPU reads them."""
    rows = ExchangedRows(part, FeatureSource(part["feat"], None, dtype=dtype, rows=kind, rows_on="device"), device)
    rows.own, rows.came = rows.own[:200], rows.own[200:]
    rows._group = NONE
    return rows, stored_rows(part["feat"], rows.kind)


@pytest.mark.parametrize("kernels", ["torch", pytest.param("triton", marks=MARKS_OF_TABLES)])
@pytest.mark.parametrize("kind", ["stored", "bfloat16", "int8"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_and_means(
    part: PartGraph, kind: str, dtype: torch.dtype, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels == "triton" and kind == "int8":
        pytest.skip("Triton's kernels read no int8")
    device = DEVICE if kernels == "triton" else torch.device("cpu")
    monkeypatch.setattr(device_rows, "on_triton", lambda rows: kernels == "triton")
    monkeypatch.setattr(device_rows, "_NUMBERS_AT_ONCE", 7 * 20)
    rows, table = opened(part, kind, dtype, device)
    rng = np.random.default_rng(4)
    degrees = np.array([0, 3, 41, 0, 1, 17, 20, 5, 0])
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    nodes, ids = (rng.integers(0, 301, count).astype(np.int32) for count in (len(degrees), indptr[-1]))
    own, mean = gather_mean(table, nodes, indptr, ids, dtype)

    def found(numbers: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.where(numbers < 200, numbers, ~(numbers - 200)))

    cuts = cut_destinations(indptr, 20)
    assert len(cuts) > 3
    wanted = WantedRows(rows, NONE, found(nodes).to(device), found(ids).to(device), cuts)
    features, means = wanted.gather(torch.from_numpy(indptr).to(device))
    assert means is not None
    assert torch.equal(features.cpu(), own)
    assert torch.equal(means.cpu(), mean)
    alone, none = WantedRows(rows, NONE, found(nodes).to(device)).gather(torch.from_numpy(indptr))
    assert none is None
    assert torch.equal(alone.cpu(), gather_rows(table, nodes, dtype))


def test_what_rows_are_gathered_by_travels_with_the_batch(part: PartGraph) -> None:
    rows, _ = opened(part, "stored", torch.float32, torch.device("cpu"))
    wanted = WantedRows(rows, NONE, torch.arange(3), torch.arange(4), ((0, 3, 0, 4),))
    moved = Batch([], Inputs(torch.arange(3), pending=wanted), torch.zeros(0), 0)._map(Mover(torch.clone))
    found: Any = moved.inputs.pending
    assert found.group is NONE  # the same for all its batches
    assert (found.source, found.cuts) == (rows, wanted.cuts)
    for name in ("nodes", "sources"):
        assert torch.equal(getattr(found, name), getattr(wanted, name))
        assert getattr(found, name) is not getattr(wanted, name)


@pytest.mark.parametrize("degrees", [[], [0], [0, 0, 9], [5, 5, 5, 5], [1] * 23, [40, 0, 0, 1]])
def test_cuts_cover_all_destinations_and_edges(degrees: list[int]) -> None:
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    for most in (1, 4, 10, 1000):
        cuts = cut_destinations(indptr, most)
        covered = [node for first, end, _, _ in cuts for node in range(first, end)]
        assert covered == list(range(len(degrees)))
        for first, end, first_edge, end_edge in cuts:
            assert (indptr[first], indptr[end]) == (first_edge, end_edge)
            assert end_edge - first_edge < most + max(degrees)
