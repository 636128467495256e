"""Where models score that were trained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks.inference.opened import device_of


def test_ranks_score_on_gpus_of_their_own_and_tables_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """What describes vectors reads the model's lengths beside its table, which never leaves the CPU."""
    for name, stand_in in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": lambda device: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    layered: Any = SimpleNamespace(table=None)
    vectors: Any = SimpleNamespace(table=torch.zeros(3, 2))
    for wanted in ("auto", "cuda"):
        assert [device_of(layered, wanted, rank).index for rank in range(3)] == [0, 1, 0]
        assert device_of(vectors, wanted, 1) == torch.device("cpu")
    assert device_of(layered, "cpu") == torch.device("cpu")
