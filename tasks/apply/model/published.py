"""A registered model's files as serving reads them, and which recipe makes data fit for it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from configs.errors import IntegrityError, RecipeError
from configs.load import build_recipe, stored_options
from configs.registry import MODELS
from configs.schema import Recipe
from tasks.apply.model.files import FILES, MARKS, MODEL, WEIGHTS, read_tensors, tensor_shapes, write_tensors
from tasks.apply.model.needs import DataNeeds, adapted_recipe, refuse_rows
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import beside
from tasks.storage.stored import of_kind, read_json
from tasks.train.job import OWN_MODEL


@dataclass(frozen=True)
class Published:
    """A model's files."""

    folder: Path
    name: str
    """`NAME@VERSION`, for messages."""
    values: dict[str, Any]
    """The recipe that it was trained by, as plain values."""
    lineage: dict[str, dict[str, Any]]
    """Stage to key, digest and code version of the artifact that it comes from."""
    described: dict[str, Any]
    """`config` of the model and `facts` of its graph."""
    needs: DataNeeds

    @cached_property
    def recipe(self) -> Recipe:
        """What it was trained by. Runs the model's own file, where it has one: nothing that only copies asks for it.

        Raises RecipeError: this graphmill cannot read it; UntrustedCodeError: nobody has allowed the file to run.
        """
        return model_recipe(self.folder, self.values)

    @property
    def _facts(self) -> dict[str, Any]:
        return _WholeRecord(self.described["facts"], f"{self.folder / MODEL}: facts")

    @property
    def task(self) -> str:
        """What the model scores: `node`, `link` or `graph`."""
        return str(self._facts["task"])

    def recipe_for(self, recipe: Recipe, preprocess_key: str, store: DatasetStore) -> Recipe:
        """Return the recipe by which the data of `recipe`, ingested in `store`, becomes a graph for this model.

        `preprocess_key`: key that the preprocess stage gives the recipe as it is. Raises RecipeError: the model or the
        recipe cannot be used so; DataError: the data is not of the training data's kind.
        """
        if self.lineage["preprocess"]["key"] == preprocess_key:
            return recipe  # the training data: fitting finds what it found
        if not self.recipe.is_layout:  # new points are placed among those that it has
            facts, shapes = self._facts, tensor_shapes(self.folder / WEIGHTS)
            for name in ("encoder.embedding", "encoder.rows") if not facts.get("fanouts") else ():
                rows = shapes.get(f"{name}.weight", (0,))[0]  # of graphmill's own models
                refuse_rows(self.name, name, rows, facts["num_nodes"], facts["task"])
        same = store.manifest.digest == self.lineage["ingest"]["digest"]
        return adapted_recipe(recipe, self.recipe, self.needs, store, same_tables=same)

    def export(self, output: Path, format: str) -> None:
        """Copy the files into a folder (`files`), or write weights, options and facts as one `safetensors` file.

        A folder that holds an exported model is replaced. Raises RecipeError where it holds anything else.
        """
        output.parent.mkdir(parents=True, exist_ok=True)
        draft, former = beside(output, ".partial"), beside(output, ".former")
        shutil.rmtree(draft, ignore_errors=True)
        if format == "safetensors":
            described = (self.folder / MODEL).read_text(encoding="utf-8")
            try:  # the library's drafts have names of its own, which a killed process leaves: in a folder they are ours
                draft.mkdir()  # not into a folder, or through a link, that another user has put there
                write_tensors(draft / output.name, read_tensors(self.folder / WEIGHTS), ("model", described))
                (draft / output.name).replace(output)
            finally:
                shutil.rmtree(draft, ignore_errors=True)
            return
        if (output.exists() or output.is_symlink()) and not _is_export(output):
            raise RecipeError(
                f"--output {output} is there and holds no exported model, or other files too; name a folder that is "
                "not there"
            )
        if _is_export(former):  # undo, or complete, a replacement that was killed
            if output.exists():
                shutil.rmtree(former, ignore_errors=True)
            else:
                former.rename(output)
        try:
            draft.mkdir()
            for path in filter(Path.is_file, self.folder.iterdir()):
                shutil.copy2(path, draft)  # copytree does not say which error it met
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        with contextlib.suppress(FileNotFoundError):
            output.rename(former)
        draft.rename(output)
        shutil.rmtree(former, ignore_errors=True)


def _is_export(folder: Path) -> bool:
    """Whether a folder is empty, or has the files of an exported model and no others."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    paths = list(folder.iterdir())
    plain = all(path.is_file() and not path.is_symlink() for path in paths)
    return not paths or (plain and MARKS <= {path.name for path in paths} <= FILES)


class _WholeRecord(dict[str, Any]):
    """A record that somebody else may have made: a missing key is damage."""

    def __init__(self, values: Any, source: str) -> None:
        super().__init__(of_kind(dict[str, Any], values, source))
        self.source = source

    def __missing__(self, key: str) -> Any:
        raise IntegrityError(f"{self.source} is damaged: it has no {key!r}; publish the model again")


def read_published(folder: Path, name: str) -> Published:
    """Read a model's files, without its weights and without running any.

    Raises IntegrityError: they are damaged; RecipeError: of another layout than this graphmill's.
    """
    try:
        values = of_kind(dict[str, Any], read_json(folder / "recipe.json"), "recipe.json")
        described = _WholeRecord(read_json(folder / MODEL), MODEL)
        stages = of_kind(dict[str, Any], read_json(folder / "lineage.json"), "lineage.json")
        lineage = _WholeRecord(
            {stage: _WholeRecord(one, f"lineage.json: {stage}") for stage, one in stages.items()}, "lineage.json"
        )
        return Published(folder, name, values, lineage, described, DataNeeds.read(folder))
    except RecipeError as error:
        raise RecipeError(f"{name}: {error}") from error
    except (OSError, IntegrityError) as error:
        why = f"{folder} does not hold a whole model: {error}; remove it, it is fetched again"
        raise IntegrityError(why) from error


def model_recipe(folder: Path, values: dict[str, Any] | None = None, overrides: Sequence[str] = ()) -> Recipe:
    """Return the recipe of a model's training with `dotted.key=value` changes of the data that it is used on.

    Raises RecipeError: a change of the model itself, or an unknown option; a library that the model needs is missing;
    IntegrityError: the recipe is missing or damaged; UntrustedCodeError: the model has a file of its own, and nobody
    has allowed it to run.
    """
    place = folder / "recipe.json"
    try:
        values = _WholeRecord(values or read_json(place), str(place))
    except FileNotFoundError as error:
        raise IntegrityError(f"{folder} does not hold a whole model: {error}") from error
    changed = [text for text in overrides if text.partition("=")[0].partition(".")[0] == "model"]
    if changed:
        raise RecipeError(f"{changed[0]}: a registered model stays as it was trained; leave it out")
    # A user's own model: its file may be gone from its place.
    model = stored_options(MODELS, values["model"], folder / OWN_MODEL, f"{place}: model")
    # Neither tracking nor the loss matter here, whose file may be gone too.
    replaced, train = {"model": model, "tracking": {}}, values.get("train")
    if isinstance(train, dict) and isinstance(train.get("loss"), dict) and train["loss"].get("file"):
        replaced["train"] = {name: value for name, value in train.items() if name != "loss"}
    source = f"the model's recipe with {' '.join(overrides)}" if overrides else str(place)
    return build_recipe({**values, **replaced}, overrides, source=source)
