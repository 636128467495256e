"""Torch's functions of single numbers and of rows: where rows come in multiples of 64, none follows from another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from tasks.inference.row_stable import by_rows

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(1),
    "mean of heads": lambda x: torch.stack([x, 2 * x, 3 * x], 1).mean(1),
    "norm": lambda x: x.norm(dim=1),
    "normalize": lambda x: F.normalize(x, dim=1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "batch_norm": lambda x: F.batch_norm(x, torch.linspace(0, 1, x.shape[1]), torch.linspace(0.5, 2, x.shape[1])),
    "softmax": lambda x: x.softmax(1),
    "softmax of heads": lambda x: torch.stack([x, 2 * x], 1).softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "exp": torch.exp,
    "elu": F.elu,
    "gelu": F.gelu,
    "leaky_relu": F.leaky_relu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "rsqrt": lambda x: x.abs().rsqrt(),
    "power": lambda x: x.abs() ** 1.7,
}


@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_rows_follow_from_no_other_row(name: str) -> None:
    rng, wrong = np.random.default_rng(0), []
    for width in (1, 2, 3, 7, 16, 24, 33, 47, 100, 136, 256, 500):
        x = torch.from_numpy(rng.standard_normal((1000, width)).astype(np.float32))
        whole = by_rows(FUNCTIONS[name], x)
        for start, count in ((5, 1), (9, 3), (100, 37), (64, 64), (1, 65), (300, 192), (500, 500)):
            if not torch.equal(by_rows(FUNCTIONS[name], x[start : start + count]), whole[start : start + count]):
                wrong.append((width, start, count))
    assert not wrong
