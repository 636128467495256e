from __future__ import annotations

import pytest
import torch

from models import dgl_adapter


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """On small graphs on a busy machine OpenMP's waiting costs far more than its work."""
    torch.set_num_threads(1)
    dgl_adapter.use_threads(1)
