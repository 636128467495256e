"""The kernels' benchmark, on a graph of no size."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from benchmarks import kernels


@pytest.mark.slow
@pytest.mark.parametrize("op", [*kernels.GRAPH_OPS, *kernels.DENSE_OPS])
def test_all_contenders_run(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "RESULTS", tmp_path)
    monkeypatch.setattr(kernels, "ROWS", 100)
    args = argparse.Namespace(nodes=20_000, draws=40_000, repeats=1, torch=True)
    found = kernels.compare(op, 8, args, "given")
    assert all(cell["milliseconds"] > 0 for cell in found.values())
    assert next(iter(found.values()))["ratio"] == 1
