"""Use a registered model: predictions, vectors, the model's files, from data that is found or prepared.

`ModelUse` finds what its stages made before, without Prefect; as a flow (`flows/apply/flows.py`) it has them run.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from configs.errors import IntegrityError, RecipeError
from configs.layout_options import LayoutOptions
from configs.load import load_own_recipe, load_recipe
from configs.schema import Recipe
from flows.pipeline.watched_data import DataWatch
from flows.records.parameters import requested_overrides
from flows.records.tables import stage_text
from flows.terminal.console import format_bytes, format_seconds
from flows.terminal.progress import REPORTER, Reporter, RunListener
from tasks.apply.layers import check_keeps, describe_kept
from tasks.apply.model.needs import check_options
from tasks.apply.model.published import Published, model_recipe, read_published
from tasks.apply.run import OutputRequest, write_outputs
from tasks.calls import ParentGoneError, StageRecord, expected_key, find_stage, load_parents, load_stage
from tasks.ingest.graph_tables.configs import SplitConfig
from tasks.markdown import plain_markdown
from tasks.processes import ending
from tasks.publish.expectations import Reference
from tasks.publish.tracking.registered import fetch_model, find_version
from tasks.publish.tracking.registry import open_registry
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.publish.vectors import with_recorded_versions
from tasks.stage import Parent
from tasks.storage.artifacts import output_errors
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import temporary_folder
from tasks.storage.home_files.trusted_code import remember_in_home
from tasks.storage.snapshots import check_snapshot

STAGES = ("ingest", "preprocess", "components", "partition")


class NotFoundError(Exception):
    """A stage has to run first."""


@dataclass(frozen=True)
class Data:
    """Which data a model is used on."""

    recipe: str | None = None
    overrides: list[str] | None = None
    snapshot: str | None = None
    is_own: bool = False
    """Whether a person names the recipe now: the file of a model in it may run."""


class ModelUse:
    """One use of a model: find it, prepare its data, write what is wanted. Here nothing is made but found."""

    def __init__(
        self, model: str, request: OutputRequest, data: Data, home: str | None, scheduled_at: datetime.datetime
    ) -> None:
        """Find the model and check what can be checked before anything is computed. Raises UserError.

        `scheduled_at` is when the run was to start.
        """
        self.started = time.perf_counter()
        self.home = Home.open(home)
        remember_in_home(self.home)
        self.listener = self.make_listener()
        registry = open_registry(self.home)
        self.version: ModelVersion = find_version(registry, model)
        self.published: Published = read_published(fetch_model(registry, self.version), self.version.reference)
        if request.what in ("predictions", "relations") and self.published.recipe.is_layout:
            raise RecipeError(
                f"{self.version.reference} is a layout, which predicts nothing: graphmill layout "
                f"{self.version.reference} shows it, and graphmill export embeddings writes its coordinates"
            )
        if request.what == "layout" and self.published.recipe.is_layout:
            refuse_other_layout(request.layout, self.version.reference)
        self.request = request.placed(f"{self.version.name}-v{self.version.version}", self.published.task)
        self.stages: dict[str, StageRecord] = {}
        self.warnings: list[str] = []
        """Of data that is unlike the model's own."""
        if self.request.what == "model":
            return  # its files are copied: there may be code among them, and nothing of it runs
        texts = requested_overrides(data.overrides, None, data.snapshot, scheduled_at)
        if request.what == "layout" and self.published.recipe.neighbors is not None and (data.recipe or texts):
            refuse_other_neighbors(texts, self.version.reference)
            texts = [*texts, "preprocess.neighbors=null"]  # new vectors go by those of the layout
        if data.recipe is None:
            self.recipe: Recipe = model_recipe(self.published.folder, overrides=texts)
        else:
            load = load_own_recipe if data.is_own else load_recipe
            self.recipe = with_recorded_versions(load(data.recipe, texts), self.published.recipe)
        if not request.names_splits and data.recipe is not None:
            self.recipe = without_splits(self.recipe)
        check_options(self.recipe, self.published.recipe)
        if self.request.keep_layers:
            check_keeps(self.published, self.recipe.train.device)
        check_snapshot(self.recipe)

    def make_listener(self) -> Reporter | RunListener:
        """Return who hears how it goes."""
        return REPORTER.get() or Reporter()

    def run(self) -> dict[str, Any]:
        """Prepare the data, write what is wanted, and say so."""
        with ending.prompt_ending(), temporary_folder(self.home):
            return self._run()

    def _run(self) -> dict[str, Any]:
        what, output = self.request.what, self.request.output
        record: dict[str, Any] = {
            "what": what,
            "model": self.version.name,
            "version": self.version.version,
            "output": output,
        }
        if what == "model":
            with output_errors(Path(str(output))):
                self.published.export(Path(str(output)), str(self.request.format))
        else:
            with ExitStack() as stack:
                stack.callback(self.listener.close)
                self._prepare()
                graph = self.parents()["partition"].manifest
                self.listener.begin(what)
                record |= self.score()
                self.listener.end(what, f"written {record['rows']:,} rows, peak {format_bytes(record['peak_bytes'])}")
                record["data"] = {
                    "name": graph.dataset,
                    "nodes": graph.num_nodes,
                    "edges": graph.num_edges,
                    "as_of": self.recipe.snapshot.as_of,
                    "of_training": graph.digest == self.published.lineage["partition"]["digest"],
                }
                plain = {"status", "key", "seconds"}
                record["stages"] = {name: stage.model_dump(include=plain) for name, stage in self.stages.items()}
                record["data_warnings"] = self.warnings
        record["seconds"] = round(time.perf_counter() - self.started, 3)
        return record

    def _prepare(self) -> None:
        """Run ingest to partition, or find what they made; what the model needs of them is in the recipe then."""
        self.warnings.clear()
        try:
            self._stages()
        except (ParentGoneError, IntegrityError) as error:
            self.listener.warning(self.request.what, f"{error}; looking at the earlier stages again")
            self._stages()

    def _stages(self) -> None:
        recipe = self.recipe
        for name in STAGES:
            parents = {parent: self.stages[parent].key for parent in load_stage(name).parents}
            self.stages[name] = self.stage(name, recipe, parents)
            self.listener.end(name, stage_text(self.stages[name]))
            if name in ("ingest", "partition"):
                self._watch_data(name)
            if name == "ingest":
                ingest = self.parents()["ingest"]
                key = expected_key("preprocess", self.recipe, {"ingest": ingest.manifest.key}, self.home)
                recipe = self.published.recipe_for(self.recipe, key, DatasetStore(ingest.folder, ingest.manifest))

    def _watch_data(self, stage: str) -> None:
        """Compare data with the model's own as far as it is prepared. Raises UserError where the recipe says so."""

        def warn(text: str) -> None:
            self.warnings.append(text)
            self.listener.warning(stage, text)

        model = Reference(self.version.reference, self.published.folder)
        keys = {name: made.key for name, made in self.stages.items()}
        DataWatch(self.home, self.recipe, model).look(stage, keys, partial(self.listener.message, stage), warn)

    def stage(self, name: str, recipe: Recipe, parents: dict[str, str]) -> StageRecord:
        """Find a stage's artifact. Raises NotFoundError where it is to be made."""
        self.listener.begin(name)
        outcome = find_stage(name, recipe, parents, self.home)
        if outcome is None:
            raise NotFoundError
        return StageRecord.of(outcome)

    def parents(self) -> dict[str, Parent]:
        """Open ingest's artifact, and partition's where there is one."""
        keys = {name: made.key for name, made in self.stages.items()}
        parents = load_parents(load_stage("preprocess"), self.home, keys)
        return parents | (load_parents(load_stage("train"), self.home, keys) if "partition" in keys else {})

    def score(self) -> dict[str, Any]:
        """Write the files; returns what `write_outputs` does."""
        return write_outputs(self.home, self.listener, self.published, self.request, self.recipe, self.parents())


def without_splits(recipe: Recipe) -> Recipe:
    """Return the recipe of data of which no row trains; of data sets that deal rows of tables out by options."""
    split = getattr(recipe.dataset, "split", None)
    if not isinstance(split, SplitConfig) or getattr(recipe.dataset, "task", None) not in ("node", "edge", "graph"):
        return recipe
    return recipe.model_copy(update={"dataset": recipe.dataset.model_copy(update={"split": SplitConfig(by="none")})})


def refuse_other_layout(options: LayoutOptions, name: str) -> None:
    """Raise RecipeError for options of a layout of a model that is one: nobody would read them."""
    given = options.not_usual()
    if given:
        raise RecipeError(
            f"{name} is a layout itself and stays as it is; leave {', '.join(given)} out, or run its recipe with "
            "another model.name or model.dim"
        )


def refuse_other_neighbors(texts: Sequence[str], name: str) -> None:
    """Raise RecipeError where overrides say what new vectors are near by: the layout does."""
    for text in texts:
        if text.strip().startswith("preprocess.neighbors"):
            raise RecipeError(f"{text}: new vectors are placed by what {name} is a layout by; leave it out")


def record_text(record: dict[str, Any]) -> str:
    """Return what was done as Markdown."""
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {name} | {plain_markdown(value)} |" for name, value in describe_record(record))]
    )


def describe_record(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was done as lines of name and value."""
    lines = [(record["what"], record["output"])] if record["output"] else []
    lines += [("model", f"{record['model']} version {record['version']}")]
    if "rows" in record:
        data = record["data"]
        size = f"{record['rows']:,}" + (f" vectors of {record['dim']}" if "dim" in record else "")
        as_of = f" as of {data['as_of']}" if data["as_of"] else ""
        own = "the training data" if data["of_training"] else "other data than the training's"
        sizes = f"{data['nodes']:,} nodes, {data['edges']:,} edges"
        lines += [("rows", size), ("data", f"{data['name']}{as_of}, {sizes}: {own}")]
    lines += [("layers", describe_kept(record["kept"]))] if "kept" in record else []
    lines += [("ids", record["ids"])] if record.get("ids") else []
    lines += [("columns", ", ".join(record["classes"]))] if record.get("ids") and record.get("classes") else []
    lines += [("page", record["page"])] if record.get("page") else []
    lines += [("warning", text) for text in record.get("data_warnings", ())]
    return [*lines, ("time", format_seconds(record["seconds"]))]
