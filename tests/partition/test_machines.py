"""Parts of several machines: machines are split first, and each machine's parts lie next to each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from pydantic import ValidationError

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext
from tasks.partition.configs import PartitionerConfig
from tasks.partition.kernels.graphs import count_cut
from tasks.partition.machines import partition_by_machine
from tasks.storage.home import Home
from tests.partition.test_partitioners import NAMES, csr_of, grid, make, planted, star_and_isolated
from tests.partition.test_stage import dense, run, store_of
from tests.support import node_graph


def config_of(name: str, **options: Any) -> PartitionerConfig:
    config = PARTITIONERS.config({"name": name, **options})
    assert isinstance(config, PartitionerConfig)
    return config


def split(csr: Csr, name: str, context: PartitionContext | None = None, **options: Any) -> np.ndarray:
    return partition_by_machine(config_of(name, **options), csr, context or PartitionContext())


@pytest.mark.parametrize("graph", ["planted", "star"])
@pytest.mark.parametrize("name", NAMES)
def test_contract(name: str, graph: str, tmp_path: Path) -> None:
    csr = planted(5001) if graph == "planted" else star_and_isolated()
    context = PartitionContext(scratch=tmp_path)
    part = split(csr, name, context, num_parts=6, machines=3)
    assert part.dtype == np.int32
    sizes = np.bincount(part, minlength=6)
    assert len(sizes) == 6
    assert sizes.max() <= np.ceil(1.03 * csr.num_nodes / 6) + 1
    assert np.array_equal(part, split(csr, name, context, num_parts=6, machines=3))
    assert list(tmp_path.iterdir()) == []


def test_machines_come_first_and_parts_are_those_of_a_machine_alone() -> None:
    csr, options = planted(6001), {"seed": 4}
    part = split(csr, "metis", num_parts=6, machines=2, **options)
    first = 1.03**0.5 - 1
    machine = make("metis", imbalance=first, **options).partition(csr, 2)
    assert np.array_equal(part // 3, machine)
    matrix = sp.csr_matrix((np.ones(csr.num_edges), csr.indices, csr.indptr))
    for m in range(2):
        nodes = np.flatnonzero(machine == m)
        inner = matrix[nodes][:, nodes]
        inner.sort_indices()
        left = 1.03 * csr.num_nodes / 6 / (len(nodes) / 3) - 1
        alone = Csr(inner.indptr.astype(np.int64), inner.indices.astype(np.int32))
        expected = make("metis", imbalance=max(first, left), **options).partition(alone, 3)
        assert np.array_equal(part[nodes] - 3 * m, expected)


@pytest.mark.parametrize("name", ["metis", "coarsened"])
def test_fewer_edges_join_machines_than_parts_in_their_order(name: str) -> None:
    csr = planted(9000)
    flat = make(name, num_parts=16).partition(csr, 16) // 4
    nested = split(csr, name, num_parts=16, machines=4) // 4
    assert count_cut(csr.indptr, csr.indices, nested) < 0.97 * count_cut(csr.indptr, csr.indices, flat)


def test_as_many_machines_as_parts() -> None:
    csr = planted(3001)
    part = split(csr, "coarsened", num_parts=4, machines=4)
    assert np.array_equal(part, make("coarsened", imbalance=1.03**0.5 - 1).partition(csr, 4))


def test_as_many_parts_as_nodes() -> None:
    part = split(grid(4), "metis", num_parts=16, machines=4)
    assert 0 <= part.min() <= part.max() < 16


def test_a_machine_without_edges_of_its_own() -> None:
    csr = csr_of(np.array([0]), np.array([1]), 12)
    part = split(csr, "coarsened", num_parts=4, machines=2)
    assert np.bincount(part, minlength=4).max() <= 4


def test_training_nodes_are_balanced() -> None:
    csr = planted(9000)
    train_idx = np.arange(0, 900, dtype=np.int32)
    part = split(csr, "coarsened", PartitionContext(train_idx=train_idx), num_parts=6, machines=2, balance_train=True)
    assert np.bincount(part[train_idx], minlength=6).max() <= np.ceil(1.03 * 900 / 6) + 3


def test_num_parts_must_be_a_multiple() -> None:
    with pytest.raises(ValidationError, match="num_parts=10 is no multiple of it; set num_parts to 12"):
        config_of("metis", num_parts=10, machines=4)


def test_the_manifest_tells_the_cut_between_machines(tmp_path: Path, home: Home) -> None:
    manifest = (outcome := run(node_graph(tmp_path / "graph"), home, num_parts=6, machines=2)).manifest
    adjacency = dense(store_of(outcome))
    machine = np.repeat(np.arange(6) // 3, np.diff(manifest.part_offsets))
    between = adjacency[machine[:, None] != machine[None, :]].sum() / adjacency.sum()
    report = manifest.report["partition"]
    assert report["machine_cut"] == pytest.approx(between)
    assert 0 < report["machine_cut"] < manifest.edge_cut
    assert report["machines"] == 2
