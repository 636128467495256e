"""The benchmarks of knowledge graphs: their sides without a peer, the lines of the table, how PyKEEN is timed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import knowledge, knowledge_sides, ranking


@pytest.fixture
def triples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Data with a small knowledge graph called toy."""
    (tmp_path / "knowledge" / "toy").mkdir(parents=True)
    for module in (ranking, knowledge):
        monkeypatch.setattr(module, "DATA", tmp_path)
    rng = np.random.default_rng(1)
    for split in ranking.SPLITS:
        drawn = {"h": rng.integers(30, size=50), "r": rng.integers(4, size=50), "t": rng.integers(30, size=50)}
        pq.write_table(pa.table(drawn), tmp_path / "knowledge" / "toy" / f"{split}.parquet")
    return tmp_path


def test_triples_are_ranked_without_a_peer(triples: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--graph", "toy", "--width", "6", "--triples", "20", "--rounds", "1", "--large", "0"]
    ranking.main([*words, "--out", str(triples)])
    assert "no --peers: left out" in capsys.readouterr().out
    written = json.loads((triples / "ranking.json").read_text())
    assert written["lines"] == []
    assert all(0 < found["graphmill"] <= 1 for found in written["mrr"].values())
    jobs = {f"graphmill on {threads}, {job}" for threads in (1, 2) for job in ("TransE", "RotatE, all", "candidates")}
    assert jobs < set(written["raw"])


def test_triples_are_trained_without_a_peer(
    triples: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge, "BATCHES", (20,))
    words = ["--graph", "toy", "--width", "6", "--negatives", "2,4", "--rounds", "2"]
    knowledge.main([*words, "--seconds", "0.02", "--home", str(triples / "home"), "--out", str(triples / "out")])
    told = capsys.readouterr().out
    assert "no --peers: left out" in told
    assert "graphmill, RotatE, 4 negatives a triple, not shared: " in told
    written = json.loads((triples / "out" / "knowledge.json").read_text())
    assert written["lines"] == []
    jobs = {
        f"graphmill, {model}, {count} negatives {variant}"
        for model in ("TransE", "ComplEx", "RotatE")
        for count in (2, 4)
        for variant in knowledge_sides.VARIANTS
    }
    assert set(written["raw"]) == jobs
    assert set(written["batches"]["graphmill"].values()) == {20}
    assert all(len(rounds) == 2 and done["done"] > 0 for rounds in written["raw"].values() for done in rounds)
