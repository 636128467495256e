"""A recipe may name a file of the user's that registers the model."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.errors import RecipeError
from configs.load import build_recipe, dump_recipe, load_recipe
from configs.registry import MODELS
from configs.schema import Recipe
from configs.trust import own_files
from models.facts import GraphFacts
from tasks.apply.model.files import load_published, write_model
from tasks.stage import run_stage
from tasks.storage.home import Home
from tasks.train.job import Job
from tasks.train.stage import STAGE
from tasks.train.state import checkpoint
from tests.models.test_contract import EXAMPLE
from tests.registered import forget_registered
from tests.support import as_partition, node_graph


@pytest.fixture(autouse=True)
def _forget(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The user names the files; what they register is forgotten afterwards."""
    forget_registered(monkeypatch, MODELS)
    with own_files():
        yield


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    return Path(shutil.copy(EXAMPLE, tmp_path / "mine.py"))


def test_the_example_trains_in_a_worker_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE.parents[1])
    small = ("train.epochs=2", "train.threads=1", "train.max_restarts=0", "model.hidden_dim=16")
    recipe = load_recipe("examples/damped-mean.yaml", small)
    assert build_recipe(json.loads(json.dumps(dump_recipe(recipe)))) == recipe
    graph = as_partition(node_graph(tmp_path / "graph"))
    (graph.folder / "manifest.json").write_text(graph.manifest.model_dump_json())
    outcome = run_stage(STAGE, recipe, {"partition": graph}, Home.open(tmp_path / "home"))
    assert outcome.manifest.epochs_run == 2
    assert (outcome.folder / "model.py").read_bytes() == EXAMPLE.read_bytes()
    assert "model.py" in outcome.manifest.files
    assert type(checkpoint.load_model(outcome.folder / "best.pt")).__name__ == "DampedMean"


def saved(recipe: Recipe, folder: Path) -> Path:
    """What a training leaves: its job, and its model."""
    folder.mkdir()
    Job.make(recipe, folder, "graph", folder).save()
    model = MODELS.create(recipe.model, GraphFacts(task="node", out_dim=3, num_nodes=10, feature_dim=4))
    checkpoint.save_atomic(checkpoint.best_state(model, "digest", 1, 0.5), folder / "best.pt")
    return folder


def recipe_with(own_file: Path) -> Recipe:
    model = {"name": "damped_mean", "file": str(own_file), "hidden_dim": 8, "num_layers": 2}
    return build_recipe({"name": "demo", "dataset": {"name": "synthetic"}, "model": model})


def another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget all that was loaded."""
    monkeypatch.setattr(MODELS, "_classes", {k: v for k, v in MODELS._classes.items() if k != "damped_mean"})
    monkeypatch.setattr(MODELS, "_own_files", {})


@pytest.mark.parametrize("change", ["moved", "changed"])
def test_a_checkpoint_is_read_with_the_file_that_lies_beside_it(
    own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    folder = saved(recipe_with(own_file), tmp_path / "work")
    if change == "moved":
        own_file.rename(tmp_path / "elsewhere.py")
    else:
        own_file.write_text("raise SystemExit")
    another_process(monkeypatch)
    assert Job.load(folder / "job.json").model.file == str(own_file)  # type: ignore[attr-defined]
    another_process(monkeypatch)
    model = checkpoint.load_model(folder / "best.pt")
    assert type(model).__name__ == "DampedMean"
    another_process(monkeypatch)
    (folder / "model.py").write_text("broken")
    with pytest.raises(RecipeError, match="cannot be read" if change == "moved" else "is not what model"):
        checkpoint.load_model(folder / "best.pt")


def test_a_published_model_brings_its_file_along(
    own_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = checkpoint.load_model(saved(recipe_with(own_file), tmp_path / "work") / "best.pt")
    write_model(tmp_path / "model", tmp_path / "work" / "best.pt", "demo", {"name": "demo"}, {})
    shutil.rmtree(tmp_path / "work")
    own_file.unlink()
    another_process(monkeypatch)
    back = load_published(tmp_path / "model")
    assert type(back) is not type(before)
    assert back.config.model_dump() == before.config.model_dump()
    assert {path.name for path in (tmp_path / "model").iterdir()} >= {"model.py", "README.md"}
    assert "Loading the model runs that file" in (tmp_path / "model" / "README.md").read_text()


def test_the_key_holds_the_files_content_and_not_its_place(own_file: Path, tmp_path: Path) -> None:
    key = STAGE.config(recipe_with(own_file))
    assert STAGE.config(recipe_with(Path(shutil.copy(own_file, tmp_path / "moved.py")))) == key
    own_file.write_text(own_file.read_text() + "# changed")
    assert STAGE.config(recipe_with(own_file)) != key


def test_another_content_is_another_configuration(own_file: Path) -> None:
    before = MODELS.config({"name": "damped_mean", "file": str(own_file)})
    assert before.file_sha256 == hashlib.sha256(own_file.read_bytes()).hexdigest()  # type: ignore[attr-defined]
    own_file.write_text(own_file.read_text().replace("default=0.5", "default=0.25"))
    after = MODELS.config({"name": "damped_mean", "file": str(own_file)})
    assert after != before
    assert after.alpha == 0.25  # type: ignore[attr-defined]
    with pytest.raises(RecipeError, match="is not what model 'damped_mean' was made with"):
        MODELS.config(before.model_dump())


def test_a_change_of_the_file_does_not_stop_the_run_that_loaded_it(own_file: Path) -> None:
    described = json.loads(json.dumps(dump_recipe(recipe_with(own_file))))
    own_file.unlink()
    assert build_recipe(described).model.name == "damped_mean"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("damped_mean", "other"), r"registers no model 'damped_mean' but other; name one of those"),
        (('@MODELS.register("damped_mean")', ""), r"registers no model 'damped_mean' but none"),
        (("from torch", "from tosch"), r"mine\.py cannot be loaded: ModuleNotFoundError: .*tosch"),
        (("from torch", "raise SystemExit(7)\nfrom torch"), r"mine\.py cannot be loaded: SystemExit: 7"),
        (("damped_mean", "gcn"), r"cannot be loaded: TypeError: model 'gcn' is registered twice"),
    ],
)
def test_files_that_do_not_fit_are_refused(own_file: Path, change: tuple[str, str], message: str) -> None:
    own_file.write_text(own_file.read_text().replace(*change))
    with pytest.raises(RecipeError, match=message):
        MODELS.config({"name": "damped_mean", "file": str(own_file)})


def test_a_name_of_ours_stays_ours(own_file: Path) -> None:
    """Even where the class is called as ours is."""
    own_file.write_text(own_file.read_text().replace("damped_mean", "gcn").replace("DampedMean(", "Gcn("))
    with pytest.raises(RecipeError, match="registered twice"):
        MODELS.config({"name": "gcn", "file": str(own_file)})
    with pytest.raises(RecipeError, match="registers no model 'graphsage'"):
        MODELS.config({"name": "graphsage", "file": str(EXAMPLE)})


def test_overrides_name_the_model_and_its_file(own_file: Path) -> None:
    shipped = {"name": "x", "dataset": "synthetic", "model": {"name": "graphsage", "dropout": 0.1, "hidden_dim": 16}}
    file = f"model.file={own_file}"
    for words in (["model.name=damped_mean", file], [file, "model=damped_mean"]):
        recipe = build_recipe(copy.deepcopy(shipped), words)
        assert recipe.model.file == str(own_file)
        assert recipe.model.hidden_dim == 16  # type: ignore[attr-defined]
    dumped = dump_recipe(recipe)
    assert build_recipe(copy.deepcopy(dumped), ["model=damped_mean"]) == recipe
    assert build_recipe(dumped, ["model=graphsage"]).model.file is None
