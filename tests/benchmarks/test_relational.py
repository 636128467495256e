"""Benchmarks of typed graphs: graphmill and DGL do the same work, and models learn from the batches."""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from benchmarks import importance, relational_graph, relational_models, relational_sampling
from benchmarks.relational_peers import ANY, AS_OF, RECENT
from benchmarks.side_processes import start_side
from tests.registered import models_of
from tests.support import WITHOUT_DGL


@pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")
def test_the_sides_take_as_many_edges(tmp_path: Path) -> None:
    relational_graph.save(tmp_path / "shop.npz", relational_graph.shop(0.02))
    with ExitStack() as stack:
        sides = {
            name: start_side(stack, name, command)
            for name, command in relational_sampling.commands(relational_sampling.parse([]), tmp_path).items()
        }
        assert sides.keys() == {"graphmill", "DGL"}
        shares = relational_sampling.compare_counts(tmp_path, sides)
        assert shares.keys() == {ANY, AS_OF, RECENT}
        assert shares[ANY]["DGL"][0] == 1.0
        assert shares[ANY]["DGL"][1] == pytest.approx(1, abs=0.02)
        for side, kind in (("graphmill", RECENT), ("DGL", ANY)):
            assert sides[side].run(kind, 0.01).done >= 1  # type: ignore[union-attr]
        counts = json.loads((tmp_path / "graphmill.json").read_text())
        assert sum(map(sum, counts[AS_OF].values())) < sum(map(sum, counts[ANY].values()))


@pytest.mark.slow
def test_importance_neighbourhoods_are_the_same_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    importance.main(["--scale", "0.2", "--rounds", "1", "--seconds", "0.01", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "importance.json").read_text())["checked"]
    assert found["graphmill"][0] > 10
    if importlib.util.find_spec("dgl") is not None:
        assert found["DGL"][0] == pytest.approx(found["graphmill"][0], abs=0.5)
        assert "DGL" in capsys.readouterr().out


# pinsage reads what walks visit, which these batches do not have; dgl_hetero computes with DGL's own convolutions.
@pytest.mark.parametrize("name", [name for name in models_of("relational") if name not in ("pinsage", "dgl_hetero")])
def test_models_run_on_its_batches(name: str) -> None:
    [case], ends = relational_models.make_cases(0.02, 1)
    layers = relational_models.ours(name, ends)
    vectors = relational_models.run_ours(layers, case)
    assert vectors.shape == (relational_graph.BATCH_SIZE, relational_models.WIDTH)
    assert relational_models.seconds(relational_models.run_ours, layers, case) > 0
    assert all(torch.isfinite(p.grad).all() for p in layers.parameters() if p.grad is not None)
