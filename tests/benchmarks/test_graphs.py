"""The benchmark of whole graphs: graphmill's side, PyG's where that is installed, the lines of the table."""

from __future__ import annotations

import json
import math
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from benchmarks import graphs, graphs_sides
from benchmarks.embeddings_ours import training_job
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_children import ContenderError
from benchmarks.gnn_graphs import DATA
from benchmarks.side_processes import own_command, start_side
from tasks.storage.graph_store import GraphStore
from tasks.train.gradients.engine import GradientEngine
from tasks.train.strategies.base import Ranks
from tests.needs import import_package
from tests.support import as_partition, molecule_graph


@pytest.fixture
def molecules(tmp_path: Path) -> Path:
    graph = as_partition(molecule_graph(tmp_path / "graph", 150))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    return graph.folder


def test_graphmill_takes_steps(molecules: Path, tmp_path: Path) -> None:
    options = {"graphs": "ogbg-molhiv", "models": list(graphs_sides.MODELS), "work": str(tmp_path), "peers": None}
    with ExitStack() as stack:
        side = start_side(stack, "graphmill", own_command("benchmarks.graphs_sides", "graphmill", molecules, options))
        assert side is not None
        for model, precision in (("GIN-virtual", "bfloat16"), ("DeeperGCN", "float32")):
            done = side.run(graphs_sides.job_name(model, precision), 0.01)
            assert done.done >= 1
            assert done.cpu > 0
        with pytest.raises(ContenderError, match="GIN, int8"):
            side.run("GIN, int8", 0.01)


def test_lines_of_trainings_of_graphs() -> None:
    def side(name: str, precision: str, *cpu: float) -> tuple[tuple[str, str], list[Done]]:
        return (name, graphs_sides.job_name("GIN", precision)), [Done(10, seconds, 2 * seconds) for seconds in cpu]

    done = [side("graphmill", "float32", 1.0, 2.0, 1.0), side("PyG", "float32", 1.5, 3.0, 9.0)]
    [line] = graphs.compare("g", dict(done), ["GIN", "DeeperGCN"])
    assert (line.head.measure, line.head.peer, line.ratio, line.verdict) == (
        "GIN, float32",
        "PyG, float32",
        1.5,
        "reached",
    )
    assert (line.ours, line.peer, line.unit, line.details) == (100.0, 300.0, "ms", {"wall_ratio": 1.5})


@pytest.mark.slow
def test_the_whole_benchmark_on_molbace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if not (DATA / "ogb" / "ogbg_molbace").exists():
        pytest.skip("ogbg-molbace is not here")
    words = ["--graphs", "ogbg-molbace", "--models", "GIN", "--quick", "--home", str(tmp_path / "home")]
    graphs.main([*words, "--out", str(tmp_path)])
    assert "no --peers: left out" in capsys.readouterr().out
    written = json.loads((tmp_path / "graphs.json").read_text())
    assert set(written["raw"]) == {"graphmill, GIN, float32", "graphmill, GIN, bfloat16"}


@pytest.mark.parametrize("model", graphs_sides.MODELS)
def test_pyg_has_the_same_graphs_and_as_many_parameters(
    molecules: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import_package(monkeypatch, "PyG", "torch_geometric")
    from benchmarks import graphs_pyg

    store = GraphStore.open(molecules)
    data = graphs_pyg.read_graphs(molecules)
    assert len(data) == len(store["train_idx"])
    first = int(store["train_idx"][0])
    low, high = (int(store["csc_indptr"][store["graph_offsets"][graph]]) for graph in (first, first + 1))
    assert data[0].edge_index.shape == (2, high - low)
    assert data[0].edge_index.max() < data[0].num_nodes == len(data[0].x)
    loop = graphs_pyg.Loop(data, model, batch=32, learning_rate=0.001, autocast=False)
    assert loop.take(2) == 2
    assert math.isfinite(loop.loss)
    work = molecules.parent / "work"
    recipe = graphs_sides.make_recipe("ogbg-molhiv", model, "float32")
    engine = GradientEngine(training_job(recipe, molecules, work), Ranks(), torch.device("cpu"))
    mine, theirs = (sum(p.numel() for p in made.parameters()) for made in (engine.model, loop.model))
    assert mine == theirs
