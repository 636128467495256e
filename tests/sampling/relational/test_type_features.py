"""Types with matrices of their own give the batches that a shared one gives, also where nodes are numbered anew."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.load import load_recipe
from tasks.apply.graph_file import _own_features
from tasks.calls import load_stage
from tasks.preprocess import features
from tasks.preprocess.features import FeatureMatrices
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.sampling.relational.type_features import TypeFeatures
from tasks.stage import Parent, run_stage
from tasks.storage.graph_store import GraphStore
from tasks.storage.home import Home
from tasks.storage.manifests import array_of_type

SIZES = ["dataset.num_customers=200", "dataset.num_products=40", "dataset.reviews_a_quarter=150"]
PARTS = ["partition.name=metis", "partition.num_parts=3"]


def shop(home: Home, *overrides: str) -> GraphStore:
    recipe, made = load_recipe("shop", [*SIZES, *overrides]), dict[str, Parent]()
    for name in ("ingest", "preprocess", "components", "partition"):
        made[name] = run_stage(load_stage(name), recipe, dict(made), home).parent
    return GraphStore.open(made["partition"].folder)


def batch(store: GraphStore) -> Any:
    return TypedNeighborhoods(store, [4, 4, 4], newest=True).batch(
        np.asarray(store["train_idx"][::7]), 3, torch.empty(0)
    )


@pytest.fixture
def one_matrix(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    def shared(*args: Any, by_type: bool) -> FeatureMatrices:
        return FeatureMatrices(*args, by_type=False)

    monkeypatch.setattr(features, "FeatureMatrices", shared)
    return monkeypatch


def test_batches_are_those_of_a_shared_matrix(tmp_path: Path, one_matrix: pytest.MonkeyPatch) -> None:
    shared = shop(Home.open(tmp_path / "shared"))
    one_matrix.undo()
    own = shop(Home.open(tmp_path / "own"))
    assert ("feat" in shared, "feat" in own) == (True, False)
    for one, two in zip(batch(shared).inputs.types, batch(own).inputs.types, strict=True):
        for field in fields(one):
            torch.testing.assert_close(
                getattr(one, field.name), getattr(two, field.name), rtol=0, atol=0, equal_nan=True
            )
    cells = [sum(np.prod(s.manifest.arrays[n].shape) for n in s.manifest.arrays if "feat" in n) for s in (shared, own)]
    assert cells[1] < 0.5 * cells[0]


def test_rows_follow_nodes_that_are_numbered_anew(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    plain, parts = shop(home), shop(home, *PARTS)
    assert not np.array_equal(plain["node_ids"], parts["node_ids"])
    for kind, name in enumerate(plain.manifest.node_types):
        for what in ("feat", "feat_cat"):
            table = plain.get(array_of_type(what, name))
            columns = plain.manifest.type_columns[name]
            wanted = columns.numeric if what == "feat" else columns.categorical
            if table is None:
                continue
            nodes = np.flatnonzero(np.asarray(parts["node_type"]) == kind)[::3]
            rows = parts["node_ids"][nodes] - plain.manifest.type_offsets[kind]
            for some in (wanted, wanted[::-1][:1]):
                found = TypeFeatures(parts, what).gather(kind, nodes, some, np.float32)  # type: ignore[arg-type]
                assert found is not None
                expected = table[rows][:, [wanted.index(column) for column in some]]
                np.testing.assert_array_equal(found.numpy(), expected.astype(np.float32))
            exported = _own_features(parts, name, nodes)[what]
            np.testing.assert_array_equal(exported.numpy(), table[rows])
    assert TypeFeatures(plain, "feat").gather(0, np.arange(3), (), np.float32) is None
