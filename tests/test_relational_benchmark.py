"""Benchmarks of typed graphs: sampling, models, importance neighbourhoods."""

from __future__ import annotations

import importlib.util
import json
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import importance, relational_graph, relational_models, relational_sampling
from benchmarks.embeddings_peers import Done
from benchmarks.relational_graph import BATCH_SIZE
from benchmarks.relational_peers import ANY, AS_OF, RECENT
from benchmarks.side_processes import start_side
from tests.registered import models_of
from tests.support import WITHOUT_DGL


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("shop")
    relational_graph.save(work / "shop.npz", relational_graph.shop(0.02))
    return work


def test_the_shop_has_each_edge_both_ways_and_sources_by_time(folder: Path) -> None:
    relations = relational_graph.load(folder / "shop.npz")
    assert len(relations) == 10
    for one, reverse in zip(relations[::2], relations[1::2], strict=True):
        assert (one.source, one.target) == (reverse.target, reverse.source)
        pairs = []
        for relation in (one, reverse):
            targets = np.repeat(np.arange(relational_graph.NODES[relation.target]), np.diff(relation.indptr))
            pairs.append([relation.sources, targets, relation.times])
            same = targets[1:] == targets[:-1]
            assert (np.diff(relation.times)[same] >= 0).all()
        forth, back = np.array(pairs[0]), np.array([pairs[1][1], pairs[1][0], pairs[1][2]])
        assert (forth[:, np.lexsort(forth)] == back[:, np.lexsort(back)]).all()
    degree = np.diff(relations[2].indptr)
    assert degree.max() > 20 * degree.mean(), "some products are in far more orders than others"


@pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")
def test_the_sides_take_as_many_edges(folder: Path) -> None:
    with ExitStack() as stack:
        sides = {
            name: start_side(stack, name, command)
            for name, command in relational_sampling.commands(relational_sampling.parse([]), folder).items()
        }
        assert sides.keys() == {"graphmill", "DGL"}
        shares = relational_sampling.compare_counts(folder, sides)
        assert shares.keys() == {ANY, AS_OF, RECENT}
        assert shares[ANY]["DGL"][0] == 1.0
        assert shares[ANY]["DGL"][1] == pytest.approx(1, abs=0.02)
        for side, kind in (("graphmill", RECENT), ("DGL", ANY)):
            assert sides[side].run(kind, 0.01).done >= 1  # type: ignore[union-attr]
        counts = json.loads((folder / "graphmill.json").read_text())
        assert sum(map(sum, counts[AS_OF].values())) < sum(map(sum, counts[ANY].values()))


def test_lines_compare_cpu_time_by_round() -> None:
    found = {
        ("graphmill", ANY): [Done(10, 0.1, 0.1), Done(10, 0.2, 0.2), Done(10, 0.1, 0.1)],
        ("DGL", ANY): [Done(10, 0.5, 0.5), Done(10, 0.4, 0.4), Done(10, 0.6, 0.6)],
        ("graphmill", RECENT): [Done(10, 0.1, 0.1)],
    }
    (line,) = relational_sampling.compare(found, {ANY: {"graphmill": [1.0, 1.0], "DGL": [1.0, 0.9]}})
    assert line.ratio == pytest.approx(5)
    assert (line.ours, line.peer) == (pytest.approx(10), pytest.approx(50))
    assert (line.head.peer, line.verdict, line.details["edges"]) == ("DGL", "reached", [1.0, 0.9])


# pinsage reads what walks visit, which these batches do not have; dgl_hetero computes with DGL's own convolutions.
_OTHERS = ("pinsage", "dgl_hetero")


@pytest.mark.parametrize("name", [name for name in models_of("relational") if name not in _OTHERS])
def test_models_run_on_its_batches(name: str) -> None:
    [case], ends = relational_models.make_cases(0.02, 1)
    assert case.blocks[-1].num_dst[0] == BATCH_SIZE
    assert all(len(case.x[t]) == n for t, n in enumerate(case.blocks[0].num_src))
    layers = relational_models.ours(name, ends)
    assert relational_models.run_ours(layers, case).shape == (BATCH_SIZE, relational_models.WIDTH)
    assert relational_models.seconds(relational_models.run_ours, layers, case) > 0
    assert all(torch.isfinite(x.grad).all() for x in case.x.values() if x.grad is not None)
    assert np.isfinite([float(p.grad.norm()) for p in layers.parameters() if p.grad is not None]).all()


@pytest.mark.slow
def test_the_sides_do_the_same_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    importance.main(["--scale", "0.2", "--rounds", "1", "--seconds", "0.01", "--out", str(tmp_path)])
    found = json.loads((tmp_path / "importance.json").read_text())["checked"]
    assert found["graphmill"][0] > 10
    if importlib.util.find_spec("dgl") is None:
        return
    assert found["DGL"][0] == pytest.approx(found["graphmill"][0], abs=0.5)
    assert "DGL" in capsys.readouterr().out
