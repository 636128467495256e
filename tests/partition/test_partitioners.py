"""Every registered partitioner keeps the contract; METIS' and the coarsening's own promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from configs.registry import PARTITIONERS
from tasks.partition import metis
from tasks.partition.base import Csr, PartitionContext, Partitioner
from tasks.partition.configs import METIS_MAX_EDGES
from tasks.partition.kernels.graphs import count_cut
from tasks.partition.simple import chosen_name
from tests.support import planted_edges

NAMES = PARTITIONERS.names()


def make(name: str, **options: Any) -> Partitioner:
    partitioner: Partitioner = PARTITIONERS.create(PARTITIONERS.config({"name": name, **options}))
    return partitioner


def csr_of(src: np.ndarray, dst: np.ndarray, num_nodes: int, dtype: type = np.int32) -> Csr:
    matrix = sp.csr_matrix((np.ones(len(src), bool), (src, dst)), shape=(num_nodes, num_nodes))
    matrix = (matrix + matrix.T).tocsr()
    matrix.setdiag(False)
    matrix.eliminate_zeros()
    matrix.sort_indices()
    return Csr(matrix.indptr.astype(np.int64), matrix.indices.astype(dtype))


def planted(num_nodes: int = 9000, num_classes: int = 40, degree: float = 12.0) -> Csr:
    edges, _ = planted_edges(num_nodes, num_classes, degree * 4)
    return csr_of(edges[0], edges[1], num_nodes)


def grid(side: int) -> Csr:
    ids = np.arange(side * side).reshape(side, side)
    src = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    dst = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    return csr_of(src, dst, side * side)


def star_and_isolated() -> Csr:
    """A hub with 500 leaves, 300 nodes without edges, a path."""
    src = np.concatenate([np.zeros(500, int), np.arange(801, 900)])
    dst = np.concatenate([np.arange(1, 501), np.arange(802, 901)])
    return csr_of(src, dst, 901)


@pytest.mark.parametrize("graph", ["planted", "grid", "star"])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, graph: str) -> None:
    csr = {"planted": planted, "grid": lambda: grid(31), "star": star_and_isolated}[graph]()
    part = make(name, num_parts=5).partition(csr, 5)
    assert part.dtype == np.int32
    assert part.shape == (csr.num_nodes,)
    sizes = np.bincount(part, minlength=5)
    assert len(sizes) == 5
    assert sizes.min() > 0
    assert sizes.max() <= np.ceil(1.03 * csr.num_nodes / 5) + 1
    assert np.array_equal(part, make(name, num_parts=5).partition(csr, 5)), "the same seed gives the same parts"


@pytest.mark.parametrize("name", NAMES)
def test_as_many_parts_as_nodes(name: str) -> None:
    csr = grid(3)
    part = make(name, num_parts=9).partition(csr, 9)
    assert part.min() >= 0
    assert part.max() < 9


@pytest.mark.slow  # all kernels are compiled once more
def test_read_only_and_wide_ids() -> None:
    narrow = planted(5000)
    wide = Csr(narrow.indptr, narrow.indices.astype(np.int64))
    wide.indices.flags.writeable = False
    assert np.array_equal(make("coarsened").partition(wide, 4), make("coarsened").partition(narrow, 4))


@pytest.mark.parametrize("num_parts", [2, 8])
@pytest.mark.parametrize("graph", ["planted", "grid"])
def test_coarsened_is_about_as_good_as_metis(graph: str, num_parts: int) -> None:
    csr = planted(12_000) if graph == "planted" else grid(110)
    cuts = {}
    for name in ("metis", "coarsened"):
        cuts[name] = count_cut(csr.indptr, csr.indices, make(name).partition(csr, num_parts))
    assert cuts["coarsened"] <= 1.05 * cuts["metis"]


@pytest.mark.parametrize("name", ["metis", "coarsened", "random"])
def test_training_nodes_are_balanced(name: str) -> None:
    csr = planted(9000)
    train_idx = np.arange(0, 900, dtype=np.int32)
    part = make(name, balance_train=True).partition(csr, 6, PartitionContext(train_idx=train_idx))
    train = np.bincount(part[train_idx], minlength=6)
    assert train.max() <= np.ceil(1.03 * 900 / 6) + 2
    assert np.bincount(part).max() <= np.ceil(1.03 * 9000 / 6) + 2


def test_auto_goes_by_size() -> None:
    assert chosen_name(METIS_MAX_EDGES) == "metis"
    assert chosen_name(METIS_MAX_EDGES + 1) == "coarsened"
    said: list[str] = []
    part = make("auto").partition(grid(20), 4, PartitionContext(message=said.append))
    assert "metis" in said[0]
    assert np.array_equal(part, make("metis").partition(grid(20), 4))


@pytest.mark.parametrize("name", ["metis", "coarsened", "random"])
def test_memory_grows_with_what_it_is_said_to(name: str) -> None:
    config = make(name).config
    small, more_edges = config.memory_bytes(10**6, 10**8), config.memory_bytes(10**6, 10**9)
    assert small is not None
    assert more_edges is not None
    assert more_edges == small if name != "metis" else more_edges > 5 * small
    assert (config.memory_bytes(10**7, 10**8) or 0) > small


def test_metis_agrees_with_pymetis() -> None:
    import pymetis

    csr = grid(40)
    graph = pymetis.CSRAdjacency(csr.indptr, csr.indices.astype(np.int64))
    options = pymetis.Options(ufactor=30, seed=5)
    expected = pymetis.part_graph(6, graph, options=options, recursive=False)
    assert np.array_equal(make("metis", seed=5).partition(csr, 6), expected.vertex_part)


def test_metis_warns_when_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(metis, "available_bytes", lambda: 1000)
    make("metis").partition(grid(10), 2, PartitionContext(warn=said.append))
    assert len(said) == 1
    assert "take partition.name=coarsened" in said[0]
