"""All tests that a GPU changes, in one command: `python -m tests.gpu [-x] [-k WORDS]`. Options go to pytest.

They are those of this folder, and those of Triton's kernels, which run in its interpreter where there is no GPU.
Neither Prefect nor MLflow, DGL, OGB or METIS is needed, nor pytest-timeout. Under compute-sanitizer: `compute-sanitizer
python -m tests.gpu -k "device or triton"`.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
FILES = sorted(str(path) for path in TESTS.rglob("test_*.py") if "from tests.triton_device" in path.read_text())


class NoTimeouts:
    """Knows pytest-timeout's option and mark, and does nothing with them."""

    def pytest_addoption(self, parser: pytest.Parser) -> None:
        parser.addini("timeout", "seconds of a test")

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "timeout(seconds): of a test")


if __name__ == "__main__":
    os.environ["GRAPHMILL_GPU_TESTS"] = "1"  # else `conftest.py` hides all GPUs
    plugins = [] if importlib.util.find_spec("pytest_timeout") else [NoTimeouts()]
    sys.exit(pytest.main(["-q", "-rs", "-W", "default", *sys.argv[1:], str(Path(__file__).parent), *FILES], plugins))
