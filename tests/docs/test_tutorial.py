"""The tutorial's commands, run as they stand on the pages, in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.docs.conftest import ROOT
from tests.flows.conftest import environment, graphmill

PAGES = ROOT / "docs" / "pages" / "tutorial"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.timeout(1800)  # a loaded machine takes ten times as long


def follow(page: str, folder: Path) -> str:
    script = ["set -euo pipefail"]
    for kind, title, text in BLOCK.findall((PAGES / page).read_text()):
        if title:
            (folder / title).write_text(text)
        elif kind in ("console", "bash"):
            script += [line[2:] for line in text.splitlines() if line.startswith("$ ")]
    assert len(script) > 3
    variables = {
        **environment(),
        "GRAPHMILL_SOURCE": str(ROOT),
        "GRAPHMILL_HOME": str(folder / ".graphmill"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-x", "-c", "\n".join(script)], cwd=folder, env=variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return done.stdout + done.stderr


def check_own_tables(folder: Path, said: str) -> None:
    assert "did you mean 'epochs'" in said
    assert "exit code 2" in said
    assert len(list((folder / ".graphmill" / "artifacts" / "publish").glob("*/report.html"))) == 1
    predictions = pq.read_table(folder / "kinds.parquet").to_pydict()
    assert "acc-00001" in predictions["id"]


@pytest.mark.slow
def test_own_tables(tmp_path: Path) -> None:
    check_own_tables(tmp_path, follow("own-tables.md", tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "predictions", "rows"),
    [
        ("typed-nodes.md", "genres", 2000),
        ("from-a-notebook.md", "groups", 1500),
        ("../edges.md", "disputes", 12_000),
    ],
)
def test_other_data(tmp_path: Path, page: str, predictions: str, rows: int) -> None:
    follow(page, tmp_path)
    assert pq.read_metadata(tmp_path / f"{predictions}.parquet").num_rows == rows


@pytest.mark.slow
def test_typed_links(tmp_path: Path) -> None:
    said = follow("typed-links.md", tmp_path)
    best = pq.read_table(tmp_path / "top.parquet").to_pydict()
    assert best["id"] == ["u7"] * 5 + ["u12"] * 5
    assert best["place"] == [1, 2, 3, 4, 5] * 2
    likes = pq.read_table(tmp_path / "data" / "likes.parquet").to_pydict()
    known = set(zip(likes["user"], likes["movie"], strict=True))
    assert not known & set(zip(best["id"], best["prediction"], strict=True))
    assert "rating backwards, which preprocess makes itself" in said


@pytest.mark.slow
def test_in_parts(tmp_path: Path) -> None:
    follow("own-tables.md", tmp_path)
    try:
        said = follow("in-parts.md", tmp_path)
    finally:
        graphmill(tmp_path / ".graphmill", "cluster", "stop")
    assert "ranks 0 to 1, 2 of" in said
    assert re.search(r"evaluate: \S+: ranks 0 to 1\n", said)
    assert "accounts-int8 version 1: champion" in said
    predictions = pq.read_table(tmp_path / "kinds-parts.parquet").to_pydict()
    assert "acc-00001" in predictions["id"]


@pytest.mark.slow
def test_every_night(tmp_path: Path) -> None:
    home = tmp_path / ".graphmill"
    try:
        check_own_tables(tmp_path, follow("own-tables.md", tmp_path))
        said = follow("every-night.md", tmp_path)
    finally:
        graphmill(home, "down")
    assert "years: 3 completed" in said
    assert "2024" in (tmp_path / "years.html").read_text()
    assert len(pq.read_table(tmp_path / "kinds-2025.parquet")) > 2000
