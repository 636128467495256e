"""The benchmark of typed models: its batches, and that each model learns from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks import relational_models
from benchmarks.relational_graph import BATCH_SIZE
from tests.registered import models_of

# pinsage reads what walks visit, which these batches do not have; dgl_hetero computes with DGL's own convolutions.
_OTHERS = ("pinsage", "dgl_hetero")


@pytest.mark.parametrize("name", [name for name in models_of("relational") if name not in _OTHERS])
def test_models_run_on_its_batches(name: str) -> None:
    [case], ends = relational_models.make_cases(0.02, 1)
    assert case.blocks[-1].num_dst[0] == BATCH_SIZE
    assert all(len(case.x[t]) == n for t, n in enumerate(case.blocks[0].num_src))
    layers = relational_models.ours(name, ends)
    assert relational_models.run_ours(layers, case).shape == (BATCH_SIZE, relational_models.WIDTH)
    assert relational_models.seconds(relational_models.run_ours, layers, case) > 0
    assert all(torch.isfinite(x.grad).all() for x in case.x.values() if x.grad is not None)
    assert np.isfinite([float(p.grad.norm()) for p in layers.parameters() if p.grad is not None]).all()
