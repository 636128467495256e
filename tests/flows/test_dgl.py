"""DGL from the command line: its convolution as a model, a graph out to its file and in again."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from configs.errors import RecipeError
from configs.load import load_own_recipe
from flows.commands.outputs.graph_export import export_graph
from flows.records.run_record import all_runs
from tasks.calls import load_stage
from tasks.stage import run_stage
from tasks.storage.home import Home
from tests.flows.conftest import graphmill
from tests.support import WITHOUT_DGL

needs_dgl = pytest.mark.skipif(WITHOUT_DGL, reason="DGL has no wheel for this Python")


def write_recipe(folder: Path, name: str, dataset: dict[str, Any], conv: str, **preprocess: Any) -> str:
    content = {
        "name": name,
        "dataset": dataset,
        "preprocess": {"workers": 1, **preprocess},
        "model": {"name": "dgl", "conv": conv, "hidden_dim": 8, "num_layers": 2},
        "train": {"epochs": 2, "threads": 1, "num_ranks": 1},
        "tracking": {"system_metrics": False},
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return f"{name}.yaml"


@needs_dgl
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_train_export_read_again_and_predict(tmp_path: Path) -> None:
    home = tmp_path / "home"

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        done = graphmill(home, *arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done

    made = {"name": "synthetic", "num_nodes": 400, "num_edges": 1600, "num_classes": 4, "feature_dim": 8}
    first = write_recipe(tmp_path, "first", made, "GATv2Conv")
    call("run", first, "train.loader=neighbor", "train.loader.fanout=5,5")
    call("export", "graph", first, "--format", "dgl", "--out", "by-recipe.bin")
    told = json.loads(call("export", "graph", "first", "-o", "by-run.bin", "--json").stdout.splitlines()[-1])
    assert told["nodes"] == 400
    assert (tmp_path / "by-run.bin").read_bytes() == (tmp_path / "by-recipe.bin").read_bytes()
    saved = {"name": "dgl", "path": str(tmp_path / "by-run.bin")}
    second = write_recipe(tmp_path, "second", saved, "TAGConv", symmetrize=False, self_loops="keep")
    call("run", second, "train.loader=full")
    call("predict", "--model", "second@1", "--output", "all.parquet")
    assert pq.read_table(tmp_path / "all.parquet").num_rows == 400


@needs_dgl
def test_an_export_of_what_is_there_is_no_run_of_the_recipe(home: Home, tmp_path: Path) -> None:
    """Else it would be the recipe's latest, and `compare` and `inspect` would show two stages without metrics."""
    made = {"name": "synthetic", "num_nodes": 40, "num_edges": 160, "num_classes": 4, "feature_dim": 8}
    source = str(tmp_path / write_recipe(tmp_path, "made", made, "GATv2Conv"))
    recipe = load_own_recipe(source)
    ingested = run_stage(load_stage("ingest"), recipe, {}, home)
    run_stage(load_stage("preprocess"), recipe, {"ingest": ingested.parent}, home)
    output = tmp_path / "graph.bin"
    assert export_graph(home, source, [], str(output), "dgl", verbose=False)["nodes"] == 40
    assert output.stat().st_size > 0
    assert all_runs(home) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"source": None}, "name a recipe, or a run"),
        ({"format": "gdl"}, r"--format gdl \(did you mean 'dgl'\?\): a graph's are dgl"),
        ({"source": "no-such-run"}, "no run 'no-such-run'"),
        ({"source": "3f2a", "overrides": ["a=1"]}, "changes are for recipes, and 3f2a is a run"),
    ],
)
@needs_dgl
def test_export_graph_says_what_is_wrong(home: Home, tmp_path: Path, given: dict[str, Any], message: str) -> None:
    words = {"source": "quickstart", "overrides": [], "output": str(tmp_path / "g.bin"), "format": None, **given}
    with pytest.raises(RecipeError, match=message):
        export_graph(home, **words, verbose=False)
    assert not (tmp_path / "g.bin").exists()
