"""The benchmark of importance neighbourhoods: graphmill and DGL find as many neighbours."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from benchmarks import importance


@pytest.mark.slow
def test_the_sides_do_the_same_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    importance.main(["--scale", "0.2", "--rounds", "1", "--seconds", "0.01", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "importance.json").read_text())["checked"]
    assert found["graphmill"][0] > 10
    if importlib.util.find_spec("dgl") is None:
        return
    assert found["DGL"][0] == pytest.approx(found["graphmill"][0], abs=0.5)
    assert "DGL" in capsys.readouterr().out
