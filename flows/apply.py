"""Use a registered model, as Prefect flows that a command or a schedule calls: predictions, vectors, the model's files.

Load them by module: `flows.apply.predict_nodes`, `flows.apply.export_model`. A schedule that names `NAME@champion`
takes whichever version is champion when it runs.
"""

from __future__ import annotations

import datetime
import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE

from configs.errors import IntegrityError
from configs.load import dump_recipe, load_recipe
from configs.schema import Recipe
from flows.parameters import requested_overrides
from flows.pipeline import describe
from flows.results import result_storage
from flows.shards import make_map_shards
from flows.terminal.console import format_bytes, format_seconds
from flows.terminal.progress import RunListener, current_reporter
from tasks.apply.needs import check_options
from tasks.apply.published import Published, model_recipe, read_published
from tasks.apply.run import Wanted, What, write_outputs
from tasks.calls import ParentGoneError, calling, expected_key, load_parents, load_stage
from tasks.prefect_tasks import TASKS
from tasks.processes import ending
from tasks.publish.tracking.registered import ModelVersion, fetch_model, find_version, open_registry
from tasks.stage import Parent
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.home import Home
from tasks.storage.snapshots import check_snapshot
from tasks.storage.temporary import temporary_folder
from tasks.storage.trusted_code import remember_in_home

logger = logging.getLogger(__name__)
_AFTER_INGEST = ("preprocess", "components", "partition")


def _run_name() -> str:
    parameters = runtime.flow_run.parameters
    return f"{parameters.get('what', 'predictions')} of {parameters['model']}"


@flow(name="predict_nodes", flow_run_name=_run_name, persist_result=False)
def predict_nodes(
    model: str,
    nodes: str | None = None,
    pairs: str | None = None,
    graphs: str | None = None,
    output: str | None = None,
    format: str | None = None,
    recipe: str | None = None,
    overrides: list[str] | None = None,
    snapshot: str | None = None,
    home: str | None = None,
) -> dict[str, Any]:
    """Predict with a registered model: classes or values of nodes or graphs, scores of pairs.

    Args:
        model: `NAME@champion`, `NAME@VERSION` or `NAME@ALIAS`.
        nodes: file of node ids; none: all nodes that can carry labels.
        pairs: file of `source` and `target` ids (link models).
        graphs: file of graph ids; none: all.
        output: file to write; default `NAME-vVERSION-predictions.parquet` in the current folder.
        format: `parquet` or `npy`; default by the output's ending.
        recipe: name or file of a recipe with other data, of which the `dataset` and the `snapshot` matter; none: the
            data of the training.
        overrides: `dotted.key=value` changes of the recipe.
        snapshot: moment as of which the graph is taken, or `scheduled`: that of the run's scheduled start.
        home: folder of artifacts; default `GRAPHMILL_HOME`, else `.graphmill` under the current folder.

    Returns:
        What was written, by which model version, from which data: small plain values.
    """
    given = _given(nodes=nodes, pairs=pairs, graphs=graphs)
    return Serving(model, Wanted("predictions", output, format, given), Data(recipe, overrides, snapshot), home).run()


@flow(name="export_model", flow_run_name=_run_name, persist_result=False)
def export_model(
    model: str,
    what: What = "embeddings",
    nodes: str | None = None,
    graphs: str | None = None,
    output: str | None = None,
    format: str | None = None,
    node_type: str | None = None,
    recipe: str | None = None,
    overrides: list[str] | None = None,
    snapshot: str | None = None,
    home: str | None = None,
) -> dict[str, Any]:
    """Export what a registered model makes, or the model itself.

    Args:
        model: `NAME@champion`, `NAME@VERSION` or `NAME@ALIAS`.
        what: `embeddings` (the vectors that the model scores by), `predictions` or `model` (its files).
        nodes: as for `predict_nodes`.
        graphs: as for `predict_nodes`.
        output: file to write, or folder for the model's files.
        format: `parquet`, `npy`; for the model `files` or `safetensors`; default by the output's ending.
        node_type: embeddings: whose, where there are several types; default the type that carries labels.
        recipe: as for `predict_nodes`.
        overrides: as for `predict_nodes`.
        snapshot: as for `predict_nodes`.
        home: as for `predict_nodes`.

    Returns:
        As `predict_nodes`.
    """
    wanted = Wanted(what, output, format, _given(nodes=nodes, graphs=graphs), node_type)
    return Serving(model, wanted, Data(recipe, overrides, snapshot), home).run()


def check(model: str, home: str, recipe: str | None, overrides: list[str], **wanted: Any) -> None:
    """Look for mistakes in what one of the flows is to be told, before it is called. Raises UserError."""
    given = _given(**{name: wanted.get(name) for name in ("nodes", "pairs", "graphs")})
    rest = {name: wanted.get(name) for name in ("output", "format", "node_type")}
    now = datetime.datetime.now(datetime.UTC)
    Serving(model, Wanted(wanted.get("what", "predictions"), given=given, **rest), Data(recipe, overrides), home, now)


def _given(**files: str | None) -> dict[str, str]:
    return {name: path for name, path in files.items() if path is not None}


@dataclass(frozen=True)
class Data:
    """Which data a model is used on."""

    recipe: str | None = None
    overrides: list[str] | None = None
    snapshot: str | None = None


class Serving:
    """One call of a flow."""

    def __init__(
        self, model: str, wanted: Wanted, data: Data, home: str | None, scheduled_at: datetime.datetime | None = None
    ) -> None:
        """Find the model and check what can be checked before anything is computed. Raises UserError.

        `scheduled_at` is when the run was to start; None: the flow run that this is part of says so.
        """
        self.started = time.perf_counter()
        self.home = Home.open(home)
        remember_in_home(self.home)
        self.listener = RunListener(current_reporter())
        tracker = open_registry(self.home)
        self.version: ModelVersion = find_version(tracker, model)
        self.published: Published = read_published(fetch_model(tracker, self.version), self.version.reference)
        path, chosen = wanted.place(f"{self.version.name}-v{self.version.version}")
        self.wanted = replace(wanted, output=str(path), format=chosen)
        self.wanted.check(self.published.task)
        self.stages: dict[str, dict[str, Any]] = {}
        if self.wanted.what == "model":
            return  # its files are copied: there may be code among them, and nothing of it runs
        moment = scheduled_at or runtime.flow_run.scheduled_start_time
        texts = requested_overrides(data.overrides, None, data.snapshot, moment)
        if data.recipe is None:
            self.recipe: Recipe = model_recipe(self.published.folder, overrides=texts)
        else:
            self.recipe = load_recipe(data.recipe, texts)
        check_options(self.recipe, self.published.recipe)
        check_snapshot(self.recipe)

    def run(self) -> dict[str, Any]:
        """Prepare the data, write what is wanted, and say so."""
        with ending.prompt_ending(), temporary_folder(self.home):
            return self._run()

    def _run(self) -> dict[str, Any]:
        record: dict[str, Any] = {
            "what": self.wanted.what,
            "model": self.version.name,
            "version": self.version.version,
            "output": self.wanted.output,
        }
        if self.wanted.what == "model":
            assert self.wanted.output is not None
            self.published.export(Path(self.wanted.output), str(self.wanted.format))
        else:
            with ExitStack() as stack:
                stack.enter_context(calling(self.listener, make_map_shards(self.recipe.preprocess)))
                if self.listener.reporter is not None:
                    stack.callback(self.listener.reporter.close)
                self._prepare()
                record |= self._write()
        record["seconds"] = round(time.perf_counter() - self.started, 3)
        _leave_artifact(record)
        return record

    def _prepare(self) -> None:
        """Run ingest to partition, or find what they made; what the model needs of them is in the recipe then."""
        try:
            self._stages()
        except (ParentGoneError, IntegrityError) as error:
            self.listener.warning(self.wanted.what, f"{error}; looking at the earlier stages again")
            self._stages(again=True)

    def _stages(self, *, again: bool = False) -> None:
        recipe, storage = self.recipe, result_storage(self.home)
        for name in ("ingest", *_AFTER_INGEST):
            self.listener.begin(name)
            stage = TASKS[name].with_options(result_storage=storage, refresh_cache=again)
            parents = {parent: self.stages[parent]["key"] for parent in load_stage(name).parents}
            self.stages[name] = stage(dump_recipe(recipe), str(self.home.root), parents, False)
            self.listener.end(name, describe(self.stages[name]))
            if name == "ingest":
                recipe = self._adapted()

    def _adapted(self) -> Recipe:
        keys = {"ingest": self.stages["ingest"]["key"]}
        ingest = self.parents()["ingest"]
        key = expected_key("preprocess", self.recipe, keys, self.home)
        return self.published.recipe_for(self.recipe, key, DatasetStore(ingest.folder, ingest.manifest))

    def parents(self) -> dict[str, Parent]:
        """Open ingest's artifact, and partition's where there is one."""
        keys = {name: self.stages[name]["key"] for name in self.stages}
        found = load_parents(load_stage("preprocess"), self.home, keys)
        if "partition" in keys:
            found |= load_parents(load_stage("train"), self.home, keys)
        return found

    def _write(self) -> dict[str, Any]:
        graph, what = self.parents()["partition"].manifest, self.wanted.what
        self.listener.begin(what)
        written: dict[str, Any] = score(self)
        self.listener.end(what, f"written {written['rows']:,} rows, peak {format_bytes(written['peak_bytes'])}")
        names = ("status", "key", "seconds")
        return {
            **written,
            "data": {
                "name": graph.dataset,
                "nodes": graph.num_nodes,
                "edges": graph.num_edges,
                "as_of": self.recipe.snapshot.as_of,
                "of_training": graph.digest == self.published.lineage["partition"]["digest"],
            },
            "stages": {name: {key: record[key] for key in names} for name, record in self.stages.items()},
        }


@task(name="score", task_run_name="score", persist_result=False, cache_policy=NO_CACHE)
def score(serving: Serving) -> dict[str, Any]:
    """Write the files; returns what `write_outputs` does."""
    return write_outputs(
        serving.home, serving.listener, serving.published, serving.wanted, serving.recipe, serving.parents()
    )


def describe_record(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what was done as lines of name and value."""
    lines = [(record["what"], record["output"]), ("model", f"{record['model']} version {record['version']}")]
    if "rows" in record:
        data = record["data"]
        size = f"{record['rows']:,}" + (f" vectors of {record['dim']}" if "dim" in record else "")
        as_of = f" as of {data['as_of']}" if data["as_of"] else ""
        own = "the training data" if data["of_training"] else "other data than the training's"
        lines.append(("rows", size))
        lines.append(("data", f"{data['name']}{as_of}, {data['nodes']:,} nodes, {data['edges']:,} edges: {own}"))
    if record.get("ids"):
        lines.append(("ids", record["ids"]))
    lines.append(("time", format_seconds(record["seconds"])))
    return lines


def _leave_artifact(record: dict[str, Any]) -> None:
    """Show on the run's page what was written; a server that refuses it does not fail a run that is done."""
    import prefect.artifacts

    artifacts: Any = prefect.artifacts  # `_sync` is not in its annotations
    text = "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in describe_record(record))])
    try:
        artifacts.create_markdown_artifact(text, key=record["what"], description="What was written", _sync=True)
    except Exception as error:
        logger.warning("Prefect took no artifact: %s", error)
