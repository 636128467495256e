"""What a rule that knows only degrees tells of negatives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tasks.controls.pairs.links import DegreeRule
from tasks.storage.graph_store import ArrayWriter, GraphStore
from tests.support import finish

NODES = 1000


def rule(folder: Path, train: np.ndarray, *, symmetric: bool = True) -> DegreeRule:
    writer = ArrayWriter(folder)
    writer.write("train_edges", train.astype(np.int32))
    parent = finish(folder, writer, task="link", symmetric=symmetric, num_nodes=NODES, num_edges=2 * len(train))
    return DegreeRule(GraphStore(parent.folder, parent.manifest))


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_random_pairs_are_told_by_chance(tmp_path: Path, symmetric: bool, wide: bool) -> None:
    """Also where a class has few pairs: what is counted on one half is applied to the other."""
    rng = np.random.default_rng(0)
    found = rule(tmp_path, (NODES * rng.random((3000, 2)) ** 3).astype(int), symmetric=symmetric)
    areas = []
    for _ in range(20):
        true, false = rng.integers(0, NODES, (200, 2)), rng.integers(0, NODES, (200, 5, 2) if wide else (2000, 2))
        areas.append(found.rocauc(true, false))
    assert abs(np.mean(areas) - 0.5) < 0.02


def test_negatives_of_nodes_without_edges_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    found = rule(tmp_path, rng.integers(0, 500, (3000, 2)))
    area = found.rocauc(rng.integers(0, 500, (400, 2)), rng.integers(0, NODES, (4000, 2)))
    assert 0.85 < area < 0.9  # three in four negatives have a node without edges
    assert found.note("test", area).endswith("tells who is joined often, not who is joined to whom")
    assert found.note("test", 0.5).endswith("ROC-AUC 0.5000")


def test_a_direction_has_degrees_of_its_own(tmp_path: Path) -> None:
    """All are joined alike often, but some are sources only."""
    rng = np.random.default_rng(0)
    train = np.stack([rng.integers(0, 500, 3000), rng.integers(500, NODES, 3000)], 1)
    true = np.stack([rng.integers(0, 500, 400), rng.integers(500, NODES, 400)], 1)
    false = rng.permuted(np.stack([rng.integers(0, 500, 4000), rng.integers(500, NODES, 4000)], 1), axis=1)
    for symmetric, least, most in ((True, 0.45, 0.55), (False, 0.7, 0.8)):
        assert least < rule(tmp_path, train, symmetric=symmetric).rocauc(true, false) < most
