"""The benchmarks of whole graphs and of layouts: their sides, PyG's where that is installed, lines and pictures."""

from __future__ import annotations

import gzip
import json
import math
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import graph_layout_sides, graph_layouts, graphs, graphs_sides, layout_peers, layout_sides
from benchmarks.embeddings_ours import training_job
from benchmarks.embeddings_peers import Done
from benchmarks.gnn_graphs import DATA
from benchmarks.side_processes import LeftOutError, own_command, start_side
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
        with pytest.raises(LeftOutError, match="GIN, int8"):
            side.run("GIN, int8", 0.01)


def test_recipes_are_those_of_the_published_settings() -> None:
    for model, width, layers, dropout, rate in (
        ("GIN", 300, 5, 0.5, 0.001),
        ("GIN-virtual", 300, 5, 0.5, 0.001),
        ("DeeperGCN", 256, 7, 0.2, 0.01),
    ):
        recipe = graphs_sides.make_recipe("ogbg-molhiv", model, "bfloat16")
        assert (recipe.model.hidden_dim, recipe.model.num_layers, recipe.model.dropout) == (width, layers, dropout)
        assert (recipe.train.optimizer, recipe.train.learning_rate, recipe.train.precision) == (
            "adam",
            rate,
            "bfloat16",
        )
        assert (recipe.train.loader.batch_size, recipe.train.threads) == (32, 1)
        assert recipe.model.virtual_node == (model == "GIN-virtual")


def test_lines_of_trainings_of_graphs() -> None:
    def side(name: str, precision: str, *cpu: float) -> tuple[tuple[str, str], list[Done]]:
        return (name, graphs_sides.job_name("GIN", precision)), [Done(10, seconds, 2 * seconds) for seconds in cpu]

    found = dict(
        [
            side("graphmill", "float32", 1.0, 2.0, 1.0),
            side("graphmill", "bfloat16", 0.5, 0.5, 0.5),
            side("PyG", "float32", 1.5, 3.0, 9.0),
            side("PyG tuned", "bfloat16", 2.0, 2.0, 2.0),
        ]
    )
    lines = graphs.compare("g", found, ["GIN", "DeeperGCN"])
    told = [(line.head.measure, line.head.peer, line.ratio, line.head.target, line.verdict) for line in lines]
    assert told == [
        ("GIN, float32", "PyG, float32", 1.5, 1.4, "reached"),
        ("GIN, bfloat16", "PyG, float32", 6.0, 2.2, "reached"),
        ("GIN, bfloat16", "PyG tuned, bfloat16", 4.0, None, ""),
    ]
    assert (lines[0].ours, lines[0].peer, lines[0].unit) == (100.0, 300.0, "ms")


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


def test_a_side_leaves_coordinates_and_says_what_they_took(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "vectors.npy", np.zeros((9, 3), np.float32))
    monkeypatch.setitem(layout_sides.SIDES, "graphmill", lambda vectors, options: vectors[:, :2] + options["threads"])
    words = ["", "graphmill", str(tmp_path / "vectors.npy"), str(tmp_path / "out.npy"), '{"threads": 2}']
    monkeypatch.setattr("sys.argv", words)
    layout_sides.main()
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found.keys() == {"seconds", "cpu_seconds", "warm_seconds", "peak_mb", "version"}
    assert (np.load(tmp_path / "out.npy") == 2).all()


def test_a_graphs_side_leaves_coordinates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "indptr.npy", np.array([0, 1, 2]))
    np.save(tmp_path / "indices.npy", np.array([1, 0], np.int32))
    monkeypatch.setitem(graph_layout_sides.SIDES, "DrL", graph_layout_sides.pairs_of)
    monkeypatch.setattr("sys.argv", ["", "DrL", str(tmp_path)])
    graph_layout_sides.main()
    assert json.loads(capsys.readouterr().out)["cpu_seconds"] >= 0
    assert np.load(tmp_path / "out.npy").tolist() == [[0, 1]]


def test_images_and_labels_of_both_files_are_read_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vectors").mkdir()
    monkeypatch.setattr(layout_peers, "DATA", tmp_path)
    for name, value in (("train", 51), ("t10k", 255)):
        for kind, header, size in (("images-idx3", 16, 784), ("labels-idx1", 8, 1)):
            with gzip.open(tmp_path / "vectors" / f"{name}-{kind}-ubyte.gz", "wb") as file:
                file.write(bytes(header) + bytes([value]) * 2 * size)
    vectors, labels = layout_peers.fashion_mnist(3)
    assert vectors.shape == (3, 784)
    assert vectors[:, 0].tolist() == pytest.approx([0.2, 0.2, 1.0])
    assert labels.tolist() == [51, 51, 255]


def test_a_picture_is_dark_where_edges_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_layouts, "PIXELS", 100)
    corners = np.array([[0.0, 0], [1, 0], [1, 0.7], [0, 0.7]])
    pixels = graph_layouts.picture(corners, np.array([0, 1, 2, 3, 4]), np.array([1, 0, 3, 2]))
    dark = np.argwhere(pixels < 1)
    assert len(np.unique(dark[:, 0])) == 2  # two lines from the left to the right, and nothing between them
    assert np.ptp(dark[:, 1]) > 90
    assert (graph_layouts.picture(np.zeros((4, 2)), np.zeros(5, np.int64), np.zeros(0, np.int64)) == 1).all()
