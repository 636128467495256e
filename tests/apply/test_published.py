"""A model's files that somebody else has made or damaged, and the folder that an export may replace."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.errors import IntegrityError, RecipeError
from tasks.apply.model.files import load_published, write_tensors
from tasks.apply.model.needs import DataNeeds
from tasks.apply.model.published import model_recipe, read_published
from tasks.storage.file_names import beside

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("recipe.json", "model.json", "lineage.json"):
        (folder / name).write_text("{}")
    write_tensors(folder / "model.safetensors", {"weight": torch.zeros(1)}, ("format", "pt"))
    DataNeeds("node", "node", (), (), 2, None, {}, ()).write(folder)
    return folder


USES: dict[str, Callable[[Path], Any]] = {
    "task": lambda folder: read_published(folder, "x@1").task,
    "recipe": lambda folder: read_published(folder, "x@1").recipe,
    "recipe_for": lambda folder: read_published(folder, "x@1").recipe_for(None, "k", None),  # type: ignore[arg-type]
    "lineage": lambda folder: read_published(folder, "x@1").lineage["partition"]["digest"],
    "model_recipe": lambda folder: model_recipe(folder),
    "load_published": lambda folder: load_published(folder),
}
DAMAGE = {
    "empty": {},
    "no objects": {"model.json": '{"facts": 3, "config": 3}', "lineage.json": '{"preprocess": 3, "partition": []}'},
    "lists": dict.fromkeys(("recipe.json", "model.json", "lineage.json"), "[]"),
    "nothing in it": {"model.json": '{"facts": {}, "config": {}}', "lineage.json": '{"preprocess": {}}'},
    "no weights": {"model.safetensors": ""},
    "missing": {"recipe.json": None, "model.json": None},
}


@pytest.mark.parametrize("damage", sorted(DAMAGE))
@pytest.mark.parametrize("use", sorted(USES))
def test_damage_is_said_to_be_damage(model: Path, use: str, damage: str) -> None:
    for name, text in DAMAGE[damage].items():
        (model / name).unlink()
        if text is not None:
            (model / name).write_text(text)
    with pytest.raises(IntegrityError):
        USES[use](model)


def test_a_folder_with_anything_else_is_not_replaced(model: Path, tmp_path: Path) -> None:
    published = read_published(model, "x@1")
    mine = tmp_path / "mine"
    published.export(mine, "files")
    kept = {
        "thesis.ipynb": lambda: (mine / "thesis.ipynb").write_text("x"),
        "profile.json": lambda: (mine / "profile.json").mkdir(),
        "README.md": lambda: (mine / "README.md").symlink_to(tmp_path),
    }
    for name, make in kept.items():
        make()
        with pytest.raises(RecipeError, match="holds no exported model, or other files too"):
            published.export(mine, "files")
        assert (mine / name).exists()
        (mine / name).rmdir() if name == "profile.json" else (mine / name).unlink()
    for name in ("model.safetensors", "lineage.json", "model.json"):
        (mine / name).rename(tmp_path / name)
        with pytest.raises(RecipeError, match="holds no exported model"):
            published.export(mine, "files")
        (tmp_path / name).rename(mine / name)
    published.export(mine, "files")
    assert {path.name for path in mine.iterdir()} == {path.name for path in model.iterdir()}
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "model"}
    (tmp_path / "link").symlink_to(mine)
    with pytest.raises(RecipeError):
        published.export(tmp_path / "link", "files")
    (tmp_path / "empty").mkdir()
    published.export(tmp_path / "empty", "files")
    assert (tmp_path / "empty" / "model.json").is_file()


_CUT = """
import resource, signal, sys
from pathlib import Path
from tasks.apply.model.published import read_published
published = read_published(Path(sys.argv[1]), "x@1")
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
published.export(Path(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.parametrize("format", ["safetensors", "files"])
def test_nothing_is_written_through_a_link_in_the_place_of_the_draft(model: Path, tmp_path: Path, format: str) -> None:
    write_tensors(model / "model.safetensors", {"weight": torch.zeros(1)}, ("format", "pt"))
    output, elsewhere = tmp_path / "x.safetensors", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / output.name).write_text("theirs")
    beside(output, ".partial").symlink_to(elsewhere)
    with pytest.raises(FileExistsError):
        read_published(model, "x@1").export(output, format)
    assert [path.read_text() for path in elsewhere.iterdir()] == ["theirs"]


@pytest.mark.parametrize("format", ["safetensors", "files"])
def test_an_export_that_is_killed_while_it_writes_leaves_nothing_once_it_is_given_again(
    model: Path, tmp_path: Path, format: str
) -> None:
    write_tensors(model / "model.safetensors", {"weight": torch.zeros(9000)}, ("format", "pt"))
    output = tmp_path / "out"
    cut = subprocess.run([sys.executable, "-c", _CUT, str(model), str(output), format], cwd=ROOT, check=False)
    assert cut.returncode == -signal.SIGXFSZ
    assert {path.name for path in tmp_path.iterdir()} == {"model", ".out.partial"}
    read_published(model, "x@1").export(output, format)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}


@pytest.mark.parametrize("at", ["before the old one is away", "when it is away", "before it is deleted"])
def test_an_export_that_is_killed_loses_nothing(model: Path, tmp_path: Path, at: str) -> None:
    published = read_published(model, "x@1")
    output, former = tmp_path / "out", tmp_path / ".out.former"
    published.export(output, "files")
    (output / "README.md").write_text("old")
    if at == "when it is away":
        output.rename(former)
    elif at == "before it is deleted":
        output.rename(former)
        published.export(tmp_path / "new", "files")
        (tmp_path / "new").rename(output)
    published.export(output, "files")
    assert not (output / "README.md").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"model", "out"}
