"""From a registered model's files to predictions on other data, over the real stages: graphs, node types, links."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

from configs.errors import RecipeError
from configs.load import build_recipe, dump_recipe
from configs.schema import Recipe
from tasks import supervise
from tasks.apply import worker
from tasks.apply.model.files import write_model
from tasks.apply.model.needs import DataNeeds
from tasks.apply.model.published import Published, read_published
from tasks.apply.run import OutputRequest, write_outputs
from tasks.calls import load_stage
from tasks.stage import Listener, Parent, run_stage, stage_key
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tests.apply.test_needs import Prepared
from tests.finished import trained
from tests.ingest.ogb_folders import mag_folder, molecules_folder, put
from tests.preprocess.ears import Ears

TO_PARTITION = ("ingest", "preprocess", "components", "partition")


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing torch and DGL in a process of its own takes seconds; one test does so, that is enough."""
    monkeypatch.setattr(supervise, "run_worker", lambda module, job, *_: worker.main(job))


def recipe_of(model: str, **dataset: Any) -> Recipe:
    return build_recipe(
        {
            "name": "demo",
            "dataset": dataset,
            "model": {"name": model, "hidden_dim": 16, "num_layers": 2},
            "preprocess": {"transforms": ["standardize"], "workers": 1},
            "partition": {"name": "metis", "num_parts": 2, "imbalance": 1.0},
            "train": {"threads": 1, "device": "cpu"},
        }
    )


class Registered:
    """A model with random weights, as it comes from the registry, and a way to use it."""

    def __init__(self, folder: Path, home: Home, recipe: Recipe) -> None:
        self.folder, self.home = folder, home
        self.prepared = Prepared(home, recipe, *TO_PARTITION)
        self.files = folder / "model"
        graph = self.prepared.parents["partition"]
        checkpoint = trained(folder / "train", graph, recipe.model.name).folder / "best.pt"
        lineage = {n: {"key": p.manifest.key, "digest": p.manifest.digest} for n, p in self.prepared.parents.items()}
        write_model(self.files, checkpoint, "demo", dump_recipe(recipe), lineage)
        self.prepared.needs(self.files)

    @property
    def published(self) -> Published:
        return read_published(self.files, "demo@1")

    def parents(self, recipe: Recipe) -> dict[str, Parent]:
        """Prepare data as the flow does."""
        data = Prepared(self.home, recipe, "ingest")
        key = stage_key(load_stage("preprocess"), recipe, data.parents, self.home)
        data.recipe = self.published.recipe_for(recipe, key, data.dataset)
        data.run(*TO_PARTITION[1:])
        return data.parents

    def serve(self, recipe: Recipe, what: Any = "predictions", **wanted: Any) -> tuple[dict[str, Any], pa.Table]:
        output = self.folder / "out" / "served.parquet"
        asked = OutputRequest(what, str(output), "parquet", **wanted)
        listener: Listener = Ears()
        record = write_outputs(self.home, listener, self.published, asked, recipe, self.parents(recipe))
        assert [path.name for path in output.parent.iterdir()] == ["served.parquet"]
        return record, pq.read_table(output)


def test_graphs_of_another_folder(tmp_path: Path, home: Home) -> None:
    molecules_folder(tmp_path / "old" / "ogbg_molclintox")
    molecules_folder(tmp_path / "new" / "ogbg_molclintox")
    raw = tmp_path / "new" / "ogbg_molclintox" / "raw"
    put(raw / "node-feat.csv.gz", np.array([[6, 1, 3, 5, 2, 0, 1, 1, 0]] * 8))
    data = {"name": "ogb", "dataset": "ogbg-molclintox"}
    model = Registered(tmp_path, home, recipe_of("gin", **data, root=str(tmp_path / "old")))
    own, before = model.serve(model.prepared.recipe)
    assert own["rows"] == 3
    _, after = model.serve(recipe_of("gin", **data, root=str(tmp_path / "new")))
    assert after.column("graph_id").to_pylist() == before.column("graph_id").to_pylist()
    assert after.column("score").to_pylist() != before.column("score").to_pylist()
    _, vectors = model.serve(model.prepared.recipe, "embeddings")
    assert len(vectors.column("embedding")[0]) == 16


@pytest.mark.usefixtures("in_this_process")
def test_nodes_of_one_type_among_several(tmp_path: Path, home: Home) -> None:
    mag_folder(tmp_path / "old" / "mine")
    mag_folder(tmp_path / "new" / "mine")
    put(tmp_path / "new/mine/raw/node-feat/paper/node-feat.csv.gz", np.full((8, 2), 3.0))
    data = {"name": "ogb", "dataset": "mine", "task": "node", "num_classes": 4}
    model = Registered(tmp_path, home, recipe_of("rgcn", **data, root=str(tmp_path / "old")))
    record, table = model.serve(model.prepared.recipe)
    assert record["rows"] == 8, "papers only"
    _, other = model.serve(recipe_of("rgcn", **data, root=str(tmp_path / "new")))
    assert other.column("id").to_pylist() == table.column("id").to_pylist()
    authors, vectors = model.serve(model.prepared.recipe, "embeddings", node_type="author")
    assert (authors["rows"], authors["dim"], vectors.num_rows) == (5, 16, 5)
    with pytest.raises(RecipeError, match=r"no node type 'autor' \(did you mean 'author'\?\)"):
        model.serve(model.prepared.recipe, "embeddings", node_type="autor")


def synthetic(**options: Any) -> Recipe:
    sizes = {"num_nodes": 120, "num_edges": 700, "num_classes": 4, "community_size": 40, "num_negatives": 40}
    return recipe_of("graphsage", name="synthetic", task="link", **{**sizes, "feature_dim": 8, **options})


@pytest.mark.usefixtures("in_this_process")
def test_pairs_of_a_larger_graph(tmp_path: Path, home: Home) -> None:
    model = Registered(tmp_path, home, synthetic())
    pc.write_csv(pa.table({"source": [3, 150], "target": [7, 9]}), tmp_path / "pairs.csv")
    record, table = model.serve(synthetic(num_nodes=160, seed=9), given={"pairs": str(tmp_path / "pairs.csv")})
    assert record["rows"] == 2
    assert table.column("source").to_pylist() == [3, 150]
    assert np.isfinite(table.column("score").to_numpy()).all()


@pytest.mark.usefixtures("in_this_process")
def test_a_model_without_features_is_refused_before_other_data_is_prepared(tmp_path: Path, home: Home) -> None:
    model = Registered(tmp_path, home, synthetic(feature_dim=0))
    assert model.serve(model.prepared.recipe, "embeddings")[0]["rows"] == 120
    before = set(home.artifacts.glob("preprocess/*"))
    with pytest.raises(RecipeError, match=r"demo@1 learnt a vector for each of its 120 nodes \(encoder\.embedding\)"):
        model.parents(synthetic(feature_dim=0, seed=9))
    assert set(home.artifacts.glob("preprocess/*")) == before


@pytest.mark.usefixtures("in_this_process")
def test_a_user_s_own_model_travels_with_its_file(tmp_path: Path, home: Home) -> None:
    """What `recipe.json` says of the model's file is where it was on another machine."""
    from configs.registry import MODELS
    from configs.trust import own_files
    from tests.models.test_contract import EXAMPLE

    own = tmp_path / "mine.py"
    own.write_text(EXAMPLE.read_text())
    recipe = synthetic()
    with own_files():
        config = MODELS.config({"name": "damped_mean", "file": str(own), "hidden_dim": 8, "num_layers": 2})
    recipe = recipe.model_copy(update={"model": config})
    model = Registered(tmp_path, home, synthetic())
    values = dump_recipe(recipe)
    (model.files / "recipe.json").write_text(json.dumps(values))
    (model.files / "model.py").write_text(own.read_text())
    own.unlink()
    assert model.published.recipe.model.name == "damped_mean"


def test_stages_are_named_by_what_the_model_learned(tmp_path: Path, home: Home) -> None:
    """Two models on one data set do not share features; one model asked twice does."""
    first = Registered(tmp_path, home, synthetic())
    again = first.parents(synthetic(seed=9))
    assert first.parents(synthetic(seed=9))["partition"].manifest.key == again["partition"].manifest.key
    (tmp_path / "b").mkdir()
    second = Registered(tmp_path / "b", home, synthetic(seed=5))
    assert second.parents(synthetic(seed=9))["partition"].manifest.key != again["partition"].manifest.key
    assert DataNeeds.read(first.files) is not None
    assert run_stage(load_stage("ingest"), synthetic(seed=9), {}, home).cached
    assert DatasetStore(again["ingest"].folder, again["ingest"].manifest).manifest.num_nodes == 120
