"""`graphmill layout`: which recipe shows a source, which files it writes, and a map from a file to the disk."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe, dump_recipe, load_recipe
from flows.apply.model_use import refuse_other_layout, refuse_other_neighbors
from flows.commands.outputs.layouts import copy_of, name_of, places, recipe_of
from flows.records.use_options import layout_options
from tests.flows.conftest import graphmill


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("a/my vectors.npy", "my-vectors"),
        ("x.csv.gz", "x"),
        ("-.npy", "largevis"),
        ("train-images-idx3-ubyte.gz", "train-images-idx3-ubyte"),
    ],
)
def test_a_run_is_called_as_its_file(source: str, name: str) -> None:
    assert name_of(source) == name


def test_a_file_of_vectors_is_a_data_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    recipe = load_recipe(*recipe_of(str(file), ["preprocess.neighbors.k=20"], "umap", 3, "kind")[:2])
    assert (recipe.name, recipe.dataset.name, recipe.dataset.files) == ("mine", "vectors", (str(file),))
    assert (recipe.model.name, recipe.model.dim) == ("umap", 3)
    assert (recipe.neighbors.k, recipe.neighbors.weights) == (20, "fuzzy")
    assert recipe.evaluate.layout.color == "kind"
    assert build_recipe(dump_recipe(recipe)) == recipe
    assert load_recipe(*recipe_of(str(file), ["name=other"], None, None, None)[:2]).name == "other"


def test_options_of_the_method_are_known_with_it() -> None:
    files = ("v.npy", "a/Vectors.NPY", "images-idx3-ubyte.gz", "rows.csv")
    for source, overrides in (*((file, []) for file in files), ("graph-layout", ["dataset=edges.csv"])):
        asked = recipe_of(source, [*overrides, "model.min_dist=0.5"], "umap", None, None)[:2]
        assert load_recipe(*asked).model.min_dist == 0.5
    with pytest.raises(RecipeError, match="unknown key 'min_dist'"):
        load_recipe(*recipe_of("v.npy", ["model.min_dist=0.5"], "tsne", None, None)[:2])


def test_a_layout_is_not_laid_out_otherwise() -> None:
    refuse_other_layout(layout_options({"color": "kind"}), "v@1")
    with pytest.raises(RecipeError, match="v@1 is a layout itself and stays as it is; leave method, dim out"):
        refuse_other_layout(layout_options({"method": "umap", "dim": 3}), "v@1")
    with pytest.raises(RecipeError, match=r"preprocess.neighbors.k=3: new vectors are placed by what v@1 is"):
        refuse_other_neighbors(["dataset.files=new.npy", "preprocess.neighbors.k=3"], "v@1")
    with pytest.raises(RecipeError, match=r"layout.method: Input should be 'largevis', 'umap' or 'tsne'"):
        layout_options({"method": "umpa"})


@pytest.mark.parametrize("word", ["no", "2024", "1e5", "null", "a, b", "[x]", "a: b", "日本 #1"])
def test_words_are_no_yaml(tmp_path: Path, word: str) -> None:
    file = tmp_path / f"{word}.npy"
    recipe = load_recipe(*recipe_of(str(file), [], None, None, word)[:2])
    assert (recipe.name, recipe.dataset.files) == (name_of(str(file)), (str(file),))
    assert recipe.evaluate.layout.color == word
    assert build_recipe(dump_recipe(recipe)) == recipe  # stages read it so


def test_a_recipe_of_another_model_gets_a_map() -> None:
    recipe = load_recipe(*recipe_of("quickstart", [], "tsne", None, "label")[:2])
    assert recipe.model.name == "graphsage"
    assert (recipe.evaluate.layout.method, recipe.evaluate.layout.color) == ("tsne", "label")
    assert load_recipe(*recipe_of("deepwalk", [], None, None, None)[:2]).evaluate.layout is not None


def test_a_layout_is_its_own_map() -> None:
    with pytest.raises(RecipeError, match=r"evaluate\.layout\.dim: model\.name=largevis is the layout itself"):
        load_recipe("largevis", ["evaluate.layout.dim=3"])


def test_edges_of_a_file_are_laid_out_whole(tmp_path: Path) -> None:
    recipe = load_recipe("graph-layout", [f"dataset={tmp_path / 'edges.csv'}"])
    assert (recipe.dataset.name, recipe.dataset.task) == ("tables", "layout")
    assert load_recipe("deepwalk", [f"dataset={tmp_path / 'edges.csv'}"]).dataset.task == "link"


def test_a_run_without_a_map(tmp_path: Path) -> None:
    record = SimpleNamespace(map="", report="report.html", stages={})
    with pytest.raises(RecipeError, match=r"there is no map, so m.svg was not written: report.html says why"):
        copy_of(record, tmp_path / "m.svg")


def test_where_maps_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert places(None, "demo") == [tmp_path / "demo.map.html"]
    assert places([Path("a/b.svg")], "demo") == [tmp_path / "a" / "b.svg"]
    assert places([Path("b.svg"), Path("a/../b.svg")], "demo") == [tmp_path / "b.svg"]
    with pytest.raises(RecipeError, match=r"--output map.pdf must end with .html, .parquet, .png or .svg"):
        places([Path("map.pdf")], "demo")
    with pytest.raises(RecipeError, match="nothing can be written to"):
        places([Path("/proc/nowhere/map.html")], "demo")


def test_from_a_file_to_a_map(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "mine.npy", rng.standard_normal((150, 6)) + 8 * np.eye(6)[np.arange(150) % 3])
    quick = ["train.samples=100000", "preprocess.neighbors.k=9", "tracking.system_metrics=false"]
    outputs = [word for name in ("m.html", "m.parquet", "m.png", "m.svg") for word in ("-o", name)]
    done = graphmill(tmp_path / "home", "layout", "mine.npy", *quick, *outputs, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["recipe"] == "mine"
    assert record["metrics"]["all"]["trustworthiness"] > 0.8
    assert Path(record["map"]).exists()
    with sqlite3.connect(tmp_path / "home" / "prefect" / "prefect.db") as prefect:
        ((kind, picture),) = prefect.execute("select type, data from artifact where key = 'map'").fetchall()
    assert kind == "image"
    assert json.loads(picture).startswith("data:image/png;base64,iVBOR")
    points = pq.read_table(tmp_path / "m.parquet")
    assert points.column_names[:3] == ["id", "x", "y"]
    assert points.num_rows == 150
    assert b"mine" in (tmp_path / "m.html").read_bytes()
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "m.svg").read_bytes()
    again = graphmill(tmp_path / "home", "layout", "mine@1", "-o", "again.html", "--color", "colour", cwd=tmp_path)
    assert again.returncode == 2
    assert "no column 'colour'" in again.stderr
    assert not (tmp_path / "again.html").exists()
    np.save(tmp_path / "new.npy", rng.standard_normal((30, 6)) + 8 * np.eye(6)[np.arange(30) % 3])
    placed = graphmill(
        tmp_path / "home", "layout", "mine@1", "dataset.files=new.npy", "-o", "all.parquet", cwd=tmp_path
    )
    assert placed.returncode == 0, placed.stderr
    found = pq.read_table(tmp_path / "all.parquet").to_pandas()
    before, now = found[found.placed == "before"], found[found.placed == "now"]
    assert len(now) == 30
    np.testing.assert_array_equal(before[["x", "y"]], points.to_pandas()[["x", "y"]])
    groups = before[["x", "y"]].to_numpy().reshape(50, 3, 2).mean(0)
    gaps = np.linalg.norm(now[["x", "y"]].to_numpy()[:, None] - groups, axis=2)
    assert (gaps.argmin(1) == np.arange(30) % 3).mean() > 0.9
