"""The benchmarks' own machinery: the children's protocol, ratios, and that all sides compute the same thing."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import depth, embeddings, gnn_plan, ladder, minibatch, side_processes, strategies
from benchmarks.embeddings_peers import Done, Paced
from benchmarks.gnn_children import Child, ContenderError, Entry, Timing, interleave, ratio
from benchmarks.gnn_graphs import graph_recipe
from benchmarks.gnn_report import Head, Line, machine, memory_line, timing_line, write
from benchmarks.gnn_worker import Settings, shuffled
from benchmarks.gpu_sides import Ours, steady_milliseconds
from benchmarks.side_processes import own_command, start_side
from configs.training import TrainConfig
from models.kernels import backends
from tests.needs import import_package
from tests.support import node_graph

TOY = Entry("toy", "tests.toy_contender:Toy", {}, {"TOY": "1"})


def toy_settings(**options: Any) -> Settings:
    return Settings(graph="", threads=1, fanout=(3, 2), options=options)


def test_children_answer_and_fail_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log"
    with Child(TOY, toy_settings(), log) as child:
        assert child.jobs == ["count", "fail"]
        timing = interleave([(child, "count")], rounds=3, chunk_seconds=0.0, lead_in={"toy": 2})["toy", "count"]
        assert len(timing.wall) == len(timing.cpu) == 3
        assert min(timing.wall) > 0
        # two to warm up, one to see how long it takes, then three rounds of two uncounted and one counted
        assert child.ask("total", plus=100) == {"total": 2 + 1 + 3 * (2 + timing.units) + 100}
        child.ask("reset_memory")
        memory = child.ask("memory")
        assert memory["peak"] > memory["beyond_imports"] >= 0
        assert interleave([(child, "fail")], rounds=1, chunk_seconds=0.0) == {}
        assert "left out: toy: IndexError" in capsys.readouterr().err
        with pytest.raises(ContenderError, match=r"toy is gone|toy ended with 1"):
            child.run("count", 1)
    assert child.process.poll() is not None
    assert "this must not get between" in log.read_text()


def test_a_contender_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    with pytest.raises(ContenderError, match="toy: ValueError: no such graph"):
        Child(TOY, toy_settings(broken=True), tmp_path / "log")


def test_ratio_is_the_median_of_rounds() -> None:
    ours, peer = Timing(1, [1.0, 2.0, 10.0], [1.0, 1.0, 1.0]), Timing(1, [4.0, 6.0, 11.0], [2.0, 8.0, 9.0])
    assert ratio(peer, ours, "wall") == 3.0
    assert ratio(peer, ours, "cpu") == 8.0
    line = timing_line(Head("g", "epoch", "graphmill float32", "DGL", 3.0), ours, peer)
    assert (line.verdict, line.ours, line.peer) == ("reached", 2000.0, 6000.0)


def test_what_is_written(tmp_path: Path) -> None:
    memory = memory_line(
        Head("g", "memory", "graphmill float32", "DGL", 1.0), {"peak": 4_000_000}, {"peak": 2_000_000}, "peak"
    )
    assert (memory.ratio, memory.verdict) == (0.5, "below")
    plain = Line(Head("g", "epoch", "graphmill bfloat16", "PyG", None), 2.0, 1.5, 1.0, 2.0, "ms")
    write(tmp_path, machine(), {}, [memory, plain])
    text = (tmp_path / "gnn.md").read_text()
    assert "| g | epoch | bfloat16: 1 ms | PyG: 2 ms | 2.00x | 1.50x |  |  |" in text
    assert (tmp_path / "gnn.png").stat().st_size > 1000


def test_seeds_are_shuffled_anew_each_epoch() -> None:
    batches = shuffled(np.arange(10), 4, seed=3)
    epochs = [[next(batches), next(batches)] for _ in range(3)]
    for epoch in epochs:
        assert [len(batch) for batch in epoch] == [4, 4]
        assert len(np.unique(np.concatenate(epoch))) == 8
    assert not np.array_equal(epochs[0][0], epochs[1][0])


def test_what_is_compared_exists() -> None:
    names = {entry.name for entry in gnn_plan.mini_batch_entries("debdeps")}
    for comparison in (*gnn_plan.MINI_BATCH, *gnn_plan.MEMORY):
        assert {comparison.ours[0], comparison.peer[0]} <= names
    for device in ("cpu", "cuda"):
        contests = gnn_plan.operator_entries(64, "debdeps", device)
        for c in gnn_plan.OPERATORS:
            present = {entry.name for entry in contests.get(c.job, [])}
            assert device == "cuda" or {c.ours, c.peer} <= present or c.peer in ("torch.sparse bfloat16", "PyG")
            assert device == "cpu" or c.job not in contests or c.ours in present
    assert gnn_plan.operator_bytes("attend", "torch unfused", 10, 1000, 8) > gnn_plan.operator_bytes(
        "attend", "DGL", 10, 1000, 8
    )


def test_every_training_of_ours_is_one_that_graphmill_takes() -> None:
    from benchmarks.gnn_ours import training_recipe

    operators = [entry for contest in gnn_plan.operator_entries(64, "debdeps", "cpu").values() for entry in contest]
    ours = [
        e for e in (*gnn_plan.mini_batch_entries("debdeps"), *operators) if e.kind == "benchmarks.gnn_ours:Training"
    ]
    assert len(ours) > 3
    for entry in ours:
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
    expected = [unfused.x.grad, unfused.score_source.grad, unfused.score_target.grad]
    for side in (ours, dgl):
        with torch.no_grad():  # DGL keeps scores with one more axis
            side.source.copy_(unfused.score_source.view_as(side.source))
            side.target.copy_(unfused.score_target.view_as(side.target))
            side.x.copy_(unfused.x)
            side.grad.copy_(unfused.grad)
        side.jobs["attend"](1)
        for found, wanted in zip((side.x.grad, side.source.grad, side.target.grad), expected, strict=True):
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
    only = "neighbor, data_parallel, same"
    small = ["--graph", "generated", "--ranks", "2", "--epochs", "2", "--hidden", "8", "--only", only]
    command = [*small, "--out", str(tmp_path / "out"), "--home", str(tmp_path / "home")]
    strategies.main([*command, "--seeds", "1"])
    assert [line[:20] for line in capsys.readouterr().out.splitlines() if line.startswith("seed ")] == [
        "seed 0, 1 ranks, nei",
        "seed 0, 2 ranks, nei",
    ]
    strategies.main([*command, "--seeds", "2"])
    printed = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in printed if line.startswith("seed ")] == ["seed 1"] * 2
    rows = [line for line in printed if line.startswith("| neighbor")]
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
    embeddings.main([*words, "--home", str(tmp_path / "home"), "--out", str(tmp_path / "out")])
    told = capsys.readouterr().out
    assert "no --peers: left out" in told
    assert "every target is reached" in told  # of none
    written = json.loads((tmp_path / "out" / "embeddings.json").read_text())
    assert set(written["raw"]["toy"]) == {f"graphmill, {job}" for job in embeddings.ALONE}
    assert all(done["done"] > 0 for rounds in written["raw"]["toy"].values() for done in rounds)
    assert [line["peer"] for line in written["lines"]] == ["graphmill on 1"] + 2 * ["the roof of random rows"]
    assert (tmp_path / "out" / "embeddings.png").stat().st_size > 1000


def test_contenders_of_vectors_that_fail_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    class Toy:
        def __init__(self, works: bool) -> None:
            self.works = works

        def run(self, job: str, seconds: float) -> Done:
            if not self.works:
                raise side_processes.LeftOutError("toy: no memory")
            return Done(4e6, 2.0, 1.0)

    found = side_processes.measure({"a": Toy(True), "b": Toy(False)}, [("a", "train"), ("b", "train")], 3, 1.0)
    assert side_processes.rates(found["a", "train"]) == [2.0, 2.0, 2.0]
    assert side_processes.rates(found["a", "train"], "wall") == [4.0, 4.0, 4.0]
    assert list(found) == [("a", "train")]
    assert "left out: toy: no memory" in capsys.readouterr().out


def test_jobs_keep_their_pace() -> None:
    asked: list[int] = []

    def work(units: int) -> Done:
        asked.append(units)
        return Done(units, units * 0.5, units * (0.1 if len(asked) < 3 else 0.2))

    job = Paced(work)
    assert [job(1.0).done, job(1.0).done, job(0.01).done] == [10, 5, 1]
    assert asked == [1, 4, 10, 5, 1]


def test_a_side_that_does_not_come_up_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as stack:
        command = own_command("benchmarks.embeddings_peers", "nobody", tmp_path, {})
        assert start_side(stack, "toy", command) is None
        assert start_side(stack, "toy", [str(tmp_path / "nowhere")]) is None
    told = capsys.readouterr().out
    assert "left out: toy: KeyError: 'nobody'" in told
    assert "No such file" in told


def test_the_ladder_tells_straight_lines_and_draws_them(tmp_path: Path) -> None:
    assert ladder.slope([1, 10, 100], [3, 30, 300]) == pytest.approx(1)
    assert ladder.slope([1, 10, 100], [5, 5, 5]) == pytest.approx(0, abs=1e-9)

    def stages(size: float) -> dict[str, Any]:
        took = {"seconds": size, "cpu_seconds": size**1.5, "peak_bytes": 1e9, "artifact_bytes": 1, "disk_bytes": size}
        graph = {"num_nodes": 7, "num_edges": 9, "partitioner": "metis", "edge_cut": 0.25, "node_balance": 1.02}
        return {"partition": took | graph, "train": took | {"rows": 10, "seeds_per_second": 4.0}}

    found = {"graphs": {"100": stages(100), "20": stages(20)}}
    text = ladder.table(found)
    assert "| partition | slope | 1.00 | 1.50 | " in text
    assert text.index("| partition | 20 |") < text.index("| partition | 100 |")
    assert "metis cuts 25.00 %" in text
    assert "an epoch of 10 seeds in 2.5 s" in text
    ladder.draw(found, tmp_path / "ladder.png")
    assert (tmp_path / "ladder.png").stat().st_size > 1000


def test_a_file_with_two_names_takes_its_room_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(100_000))
    one = ladder.folder_bytes(tmp_path)
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert ladder.folder_bytes(tmp_path) == one >= 100_000


class Making:
    """A clock, and batches that are made in 20 ms each by a thread that is up to four of them ahead."""

    def __init__(self) -> None:
        self.now, self.ready = 0.0, 4.0

    def time(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.ready = min(4.0, self.ready + seconds / 0.02)

    def take(self) -> None:
        self.pass_by(max(0.0, (1 - self.ready) * 0.02))
        self.ready -= 1
        self.pass_by(0.005)  # the step itself


def test_steps_on_a_gpu_are_timed_as_batches_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    making = Making()
    monkeypatch.setattr("benchmarks.gpu_sides.time", SimpleNamespace(perf_counter=making.time, sleep=making.pass_by))
    for _ in range(2):
        found = steady_milliseconds(making.take, 30, 4, torch.device("cpu"))
        assert found == pytest.approx(20, rel=0.05)
        assert making.ready == 4  # nothing is made during the next side's turn


def test_each_side_on_a_gpu_takes_the_kernels_of_its_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_takes_triton", True)  # as another side's recipe says
    seen: list[bool] = []
    side: Any = object.__new__(Ours)
    side.pipeline, side.config, side.device, side.ahead = object(), TrainConfig(), torch.device("cpu"), 0
    side.engine = SimpleNamespace(step=lambda: seen.append(backends._takes_triton))
    side.steps(2)
    assert seen == [False, False]
