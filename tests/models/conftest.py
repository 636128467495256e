from __future__ import annotations

import pytest

from tasks.processes.device import use_threads


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    """On small graphs on a busy machine OpenMP's waiting costs far more than its work."""
    use_threads(1)
