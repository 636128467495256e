"""Edges as kernels take them, and the threads that run over ranges of their rows."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch

from models.kernels.sparse.adjacency import (
    Adjacency,
    Transposed,
    few_ranges,
    split_rows,
    transpose,
    transpose_by_sorting,
)
from models.kernels.threads import even_rows, run_rows
from tests.kernels.graphs import large_graph, random_graph, symmetric_graph


def pairs(adj: Adjacency) -> list[tuple[int, int]]:
    return list(zip(adj.indices.tolist(), adj.targets().tolist(), strict=True))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("sizes", [(37, 53, 400), (12, 17, 80), (1, 1, 3), (5, 3, 0), (40, 7, 333)])
@pytest.mark.parametrize("make", [transpose, transpose_by_sorting])
def test_transpose(make: Callable[..., Transposed], sizes: tuple[int, int, int], wide: bool) -> None:
    adj = random_graph(*sizes)
    out = make(adj.indptr, adj.indices.long() if wide else adj.indices, adj.num_src)
    assert out.indptr.dtype == torch.int64
    assert out.indices.dtype == (torch.int64 if wide else torch.int32)
    sources, edges = torch.repeat_interleave(out.indptr.diff()), pairs(adj)
    by_source = list(zip(sources.tolist(), out.indices.tolist(), strict=True))
    assert len(out.indptr) == adj.num_src + 1
    assert by_source == [edges[e] for e in out.edges.tolist()] == sorted(edges)  # destinations ascend within a source
    assert sorted(out.edges.tolist()) == list(range(adj.num_edges))


def test_a_hub_s_ranges_are_never_empty() -> None:
    """One row with nearly all work: the bounds of several ranges would be the same."""
    torch.set_num_threads(3)
    hub = Adjacency(torch.tensor([0, 2, 20_000, 20_001]), torch.zeros(20_001, dtype=torch.int32), 1)
    assert (np.diff(hub.chunks()) == 0).any()
    bounds = few_ranges(hub)
    assert (np.diff(bounds) > 0).all()
    assert (bounds[0], bounds[-1]) == (0, 3)
    no_rows = Adjacency(torch.zeros(1, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 1)
    assert few_ranges(no_rows).tolist() == [0]


def test_reverse_is_made_once() -> None:
    adj, symmetric = random_graph(), symmetric_graph()
    reverse = adj.reverse()
    assert reverse is adj.reverse(ordered=False)
    assert (reverse.num_src, reverse.num_dst, reverse.num_edges) == (37, 53, 400)
    assert symmetric.reverse(ordered=False) is symmetric
    assert sorted(pairs(symmetric.reverse())) == sorted(pairs(symmetric))


def test_ranges_cost_about_the_same() -> None:
    adj = large_graph()
    bounds = split_rows(adj.indptr.numpy(), 3)
    assert bounds[0] == 0
    assert bounds[-1] == adj.num_dst
    assert np.all(np.diff(bounds) >= 0)
    hub = int(adj.degrees().max())
    work = np.diff(adj.indptr.numpy()[bounds] + 4 * bounds)
    assert work.max() - work.min() <= hub + 8
    assert split_rows(adj.indptr.numpy(), 1).tolist() == [0, adj.num_dst]
    assert split_rows(random_graph().indptr.numpy(), 3).tolist() == [0, 37]  # too little for a second thread


def test_every_range_runs_once(threads: int) -> None:
    seen: list[tuple[int, int]] = []
    lock = threading.Lock()

    def kernel(low: int, high: int) -> None:
        with lock:
            seen.append((low, high))

    bounds = even_rows(100)
    run_rows(kernel, bounds)
    assert sorted(seen) == list(itertools.pairwise(bounds))
    assert len(bounds) == (2 if threads == 1 else 13)


def test_an_error_of_a_range_is_raised(threads: int) -> None:
    def kernel(low: int, high: int) -> None:
        if low == 0:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_rows(kernel, even_rows(100))


def test_kernels_run_side_by_side_with_others() -> None:
    """Samplers run kernels beside the training step: nobody waits for a pool that is busy with the other's ranges."""
    torch.set_num_threads(3)
    gate, entered = threading.Event(), threading.Barrier(4, timeout=20)

    def wait(low: int, high: int) -> None:
        entered.wait()
        gate.wait(20)

    slow = threading.Thread(target=lambda: run_rows(wait, even_rows(3)))
    slow.start()
    entered.wait()  # the pool's two threads are taken
    run_rows(lambda low, high: None, even_rows(3))
    assert slow.is_alive()
    gate.set()
    slow.join()
