"""Contenders of the benchmarks: they take turns, compute the same thing, and leave a table."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import depth, embeddings, gnn_plan, kernels, ladder, minibatch, strategies
from benchmarks.gnn_children import Child, ContenderError, Entry, Timing, interleave
from benchmarks.gnn_graphs import graph_recipe
from benchmarks.gnn_report import Head, machine, memory_line, timing_line, write
from benchmarks.gnn_worker import Settings
from benchmarks.side_processes import own_command, start_side
from tests.needs import import_package
from tests.support import node_graph

TOY = Entry("toy", "tests.benchmarks.toy_contender:Toy", {}, {"TOY": "1"})


def toy_settings(**options: Any) -> Settings:
    return Settings(graph="", threads=1, fanout=(3, 2), options=options)


def test_children_answer_and_fail_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with Child(TOY, toy_settings(), log) as child:
        assert child.jobs == ["count", "fail"]
        timing = interleave([(child, "count")], rounds=3, chunk_seconds=0.0, lead_in={"toy": 2})["toy", "count"]
        assert len(timing.wall) == len(timing.cpu) == 3
        # two to warm up, one to see how long it takes, then three rounds of two uncounted and one counted
        assert child.ask("total", plus=100) == {"total": 2 + 1 + 3 * (2 + timing.units) + 100}
        assert child.ask("memory")["peak"] > 0
        assert interleave([(child, "fail")], rounds=1, chunk_seconds=0.0) == {}
        assert "left out: toy: IndexError" in capsys.readouterr().err
        with pytest.raises(ContenderError, match="toy: it ended with 1"):
            child.run("count", 1)
    assert child.process.poll() is not None
    assert "this must not get between" in log.read_text()
    with pytest.raises(ContenderError, match="toy: ValueError: no such graph"):
        Child(TOY, toy_settings(broken=True), log)


def test_lines_are_medians_of_the_rounds_ratios(tmp_path: Path) -> None:
    ours, peer = Timing(1, [1.0, 2.0, 10.0], [1.0, 1.0, 1.0]), Timing(1, [4.0, 6.0, 11.0], [2.0, 8.0, 9.0])
    line = timing_line(Head("g", "epoch", "graphmill float32", "DGL", 3.0), ours, peer)
    assert (line.verdict, line.ratio, line.cpu_ratio, line.ours, line.peer) == ("reached", 3.0, 8.0, 2000.0, 6000.0)
    memory = memory_line(Head("g", "memory", "graphmill float32", "DGL", 1.0), {"peak": 4}, {"peak": 2}, "peak")
    assert memory.verdict == "below"
    write(tmp_path, machine(), {}, [memory, line])
    assert "| g | epoch | float32: 2,000 ms | DGL: 6,000 ms | 3.00x | 8.00x |" in (tmp_path / "gnn.md").read_text()
    assert (tmp_path / "gnn.png").stat().st_size > 1000


def test_what_is_compared_is_there_and_what_is_ours_is_a_recipe() -> None:
    from benchmarks.gnn_ours import training_recipe

    mini_batch, contests = gnn_plan.mini_batch_entries("debdeps"), gnn_plan.operator_entries(64, "debdeps", "cpu")
    names = {entry.name for entry in mini_batch}
    for comparison in (*gnn_plan.MINI_BATCH, *gnn_plan.MEMORY):
        assert {comparison.ours[0], comparison.peer[0]} <= names
    for c in gnn_plan.OPERATORS:
        present = {entry.name for entry in contests[c.job]}
        assert {c.ours, c.peer} <= present or c.peer in ("torch.sparse bfloat16", "PyG")
    for entry in [*mini_batch, *(entry for contest in contests.values() for entry in contest)]:
        if entry.kind == "benchmarks.gnn_ours:Training":
            assert training_recipe(Settings("", options=entry.options)).train.epochs == 1_000_000


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(node_graph(tmp_path_factory.mktemp("graph") / "g", num_nodes=90).folder)


def settings(graph: str, width: int) -> Settings:
    return Settings(graph=graph, threads=1, heads=2, options={"width": width})


def test_all_sides_aggregate_the_same(graph: str) -> None:
    from benchmarks import gnn_dgl, gnn_ours, gnn_torch

    sides = [kind(settings(graph, 16)) for kind in (gnn_torch.GatherScatter, gnn_ours.Aggregation, gnn_dgl.Aggregation)]
    grads = []
    for side in sides:
        side.jobs["aggregate"](2)
        grads.append(side.x.grad)
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0])
    sparse = gnn_torch.TorchSparse(settings(graph, 16))
    torch.testing.assert_close(sparse.matrix @ sides[0].grad, grads[0])  # symmetric


def test_all_sides_attend_the_same(graph: str) -> None:
    from benchmarks import gnn_dgl, gnn_ours, gnn_torch

    unfused, ours, dgl = (
        kind(settings(graph, 32)) for kind in (gnn_torch.UnfusedAttention, gnn_ours.Attention, gnn_dgl.Attention)
    )
    unfused.jobs["attend"](1)
    expected = [tensor.grad for tensor in unfused.inputs]
    for side in (ours, dgl):
        with torch.no_grad():  # DGL keeps scores with one more axis
            side.source.copy_(unfused.source.view_as(side.source))
            side.target.copy_(unfused.target.view_as(side.target))
            side.x.copy_(unfused.x)
            side.grad.copy_(unfused.grad)
        side.jobs["attend"](1)
        for found, wanted in zip((tensor.grad for tensor in side.inputs), expected, strict=True):
            torch.testing.assert_close(found.view_as(wanted), wanted, rtol=1e-4, atol=1e-4)


def test_hops_are_counted_as_pyg_lib_reports_them(monkeypatch: pytest.MonkeyPatch) -> None:
    import_package(monkeypatch, "PyG", "torch_geometric")
    from benchmarks.gnn_pyg import count_hops

    # two seeds; 0 <- 2, 3; 1 <- 3, 0; then 2 <- 4; 3 <- 2 (known already); 4 has no hop left
    edges = torch.tensor([[2, 3, 3, 0, 4, 2], [0, 0, 1, 1, 2, 3]])
    assert count_hops(edges, 2, 2) == ([2, 2, 1], [4, 2])
    assert count_hops(edges[:, :0], 2, 2) == ([2, 0, 0], [0, 0])


@pytest.mark.slow
def test_strategies_go_on_from_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--graph", "generated", "--ranks", "2", "--epochs", "2", "--hidden", "8"]
    command = [*small, "--only", "neighbor, data_parallel, same", "--out", str(tmp_path), "--home", f"{tmp_path}/home"]
    for seeds in ("1", "2"):
        strategies.main([*command, "--seeds", seeds])
        lines = capsys.readouterr().out.splitlines()
        assert [line[:6] for line in lines if line.startswith("seed ")] == [f"seed {int(seeds) - 1}"] * 2
    rows = [line for line in lines if line.startswith("| neighbor")]
    assert [row.split(" | ")[1] for row in rows] == ["1", "2"]
    assert " se)" in rows[1]
    with pytest.raises(SystemExit, match="holds runs with other options"):
        strategies.main([*command, "--epochs", "4"])


@pytest.mark.parametrize("graph", ["generated", "quickstart"])
def test_every_contender_is_a_recipe(graph: str) -> None:
    """Options move; what is run by hand must go with them."""
    words = {"graph": graph, "ranks": [2, 4], "hidden": 8, "epochs": 2, "batch_size": 64, "learning_rate": 0.1}
    args = argparse.Namespace(**words, clusters=10, warmup_steps=20)
    for name, options in (strategies.CONTENDERS | strategies.ALONE).items():
        assert strategies.make_recipe(args, *options(2, args), loader=name.split(",")[0]).train.epochs == 2
    for overrides in minibatch.CONTENDERS.values():
        graph_recipe("quickstart", overrides)
    for blocks in (*depth.BLOCKS.values(), *depth.MEMORY.values()):
        graph_recipe(depth.RECIPE, (*depth.DEEP, *blocks))


def test_vectors_are_measured_against_the_roof(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--graphs", "toy", "--rounds", "2", "--seconds", "0.02", "--dim", "20"]
    embeddings.main([*words, "--home", str(tmp_path / "home"), "--out", str(tmp_path)])
    assert "no --peers: left out" in capsys.readouterr().out
    written = json.loads((tmp_path / "embeddings.json").read_text())
    assert set(written["raw"]["toy"]) == {f"graphmill, {job}" for job in embeddings.ALONE}
    assert all(done["done"] > 0 for rounds in written["raw"]["toy"].values() for done in rounds)
    assert [line["peer"] for line in written["lines"]] == ["graphmill on 1"] + 2 * ["the roof of random rows"]


def test_a_side_that_does_not_come_up_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        command = own_command("benchmarks.embeddings_peers", "nobody", tmp_path, {})
        assert start_side(stack, "toy", command) is None
        assert start_side(stack, "toy", [str(tmp_path / "nowhere")]) is None
    told = capsys.readouterr().out
    assert "left out: toy: KeyError: 'nobody'" in told
    assert "No such file" in told


def test_the_ladder_tells_straight_lines_and_draws_them(tmp_path: Path) -> None:
    def stages(size: float) -> dict[str, Any]:
        took = {"seconds": size, "cpu_seconds": size**1.5, "peak_bytes": 1e9, "artifact_bytes": 1, "disk_bytes": size}
        graph = {"num_nodes": 7, "num_edges": 9, "partitioner": "metis", "edge_cut": 0.25, "node_balance": 1.02}
        return {"partition": took | graph, "train": took | {"rows": 10, "seeds_per_second": 4.0}}

    found = {"graphs": {"100": stages(100), "20": stages(20)}}
    text = ladder.table(found)
    for words in ("| partition | slope | 1.00 | 1.50 | ", "metis cuts 25.00 %", "an epoch of 10 seeds in 2.5 s"):
        assert words in text
    ladder.draw(found, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("op", [*kernels.GRAPH_OPS, *kernels.DENSE_OPS])
def test_all_contenders_run(op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "RESULTS", tmp_path)
    monkeypatch.setattr(kernels, "ROWS", 100)
    args = argparse.Namespace(nodes=20_000, draws=40_000, repeats=1, torch=True)
    found = kernels.compare(op, 8, args, "given")
    assert all(cell["milliseconds"] > 0 for cell in found.values())
    assert next(iter(found.values()))["ratio"] == 1
