"""Use a registered model, as Prefect flows that a command or a schedule calls: predictions, vectors, the model's files.

Load them by module: `flows.apply.predict_nodes`, `flows.apply.export_model`. A schedule that names `NAME@champion`
takes whichever version is champion when it runs.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from typing import Any

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE

from configs.load import dump_recipe
from configs.schema import Recipe
from flows.hooks import failure_told, flow_record, leave_artifact, report_crash, use_seen
from flows.model_use import STAGES, Data, ModelUse, dated, given_files, layout_options, names_splits, record_text
from flows.notifications.events import announce
from flows.results import result_storage
from flows.run_records import earlier_failure, recorded
from flows.shards import make_map_shards
from flows.terminal.progress import RunListener, current_reporter
from flows.vectors import make_vectors
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.run import OutputKind, OutputRequest
from tasks.calls import calling, find_stage
from tasks.prefect_tasks import TASKS
from tasks.processes import ending
from tasks.publish.vectors import READ_VECTORS, missing_vectors
from tasks.storage.home import Home


def _run_name() -> str:
    parameters = runtime.flow_run.parameters
    return f"{parameters.get('what', 'predictions')} of {parameters['model']}"


@flow(name="predict_nodes", flow_run_name=_run_name, persist_result=False)
def predict_nodes(
    model: str,
    nodes: str | None = None,
    pairs: str | None = None,
    graphs: str | None = None,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    queries: str | None = None,
    k: int | None = None,
    known: str | None = None,
    type: str | None = None,
    any_type: bool | None = None,
    output: str | None = None,
    format: str | None = None,
    threshold: str | None = None,
    split: str | None = None,
    keep_layers: bool = False,
    timezone: str | None = None,
    recipe: str | None = None,
    overrides: list[str] | None = None,
    snapshot: str | None = None,
    home: str | None = None,
) -> dict[str, Any]:
    """Predict with a registered model: classes or values of nodes or graphs, scores of pairs, completions of triples.

    Args:
        model: `NAME@champion`, `NAME@VERSION` or `NAME@ALIAS`.
        nodes: file of node ids; none: all nodes that can carry labels.
        pairs: file of `source` and `target` ids (link models).
        graphs: file of graph ids; none: all.
        head: of a triple that a model of a knowledge graph completes; two of the three are given.
        relation: likewise.
        tail: likewise.
        queries: file of such triples, with the columns `head`, `relation` and `tail`, one of them empty in each row.
        k: completions of each; default 10.
        known: what becomes of completions that are triples of the data: `leave-out` (the default) or `mark`.
        type: complete by entities of this type only; none: of the types that the relation has had at that end.
        any_type: complete by entities of all types.
        output: file to write; default `NAME-vVERSION-predictions.parquet` in the current folder. `{date}` and
            `{time}` in it stand for the run's scheduled start.
        format: `parquet`, `csv`, `csv.gz`, or of all probabilities `npy`; default by the output's ending.
        threshold: probability from which class 1 is predicted, or of one of several classes `NAME=P`; none: the
            likeliest class is.
        split: `none`: no row is called one of a split, and tables need no labels; none: as the data set deals them out.
        keep_layers: keep the outputs of all layers in the home; rows that are those of an earlier graph, for which they
            were kept, are taken from there.
        timezone: of `{date}` and `{time}`, `Europe/Berlin` say; none: this machine's.
        recipe: name or file of a recipe with other data, of which the `dataset` and the `snapshot` matter; none: the
            data of the training.
        overrides: `dotted.key=value` changes of the recipe.
        snapshot: moment as of which the graph is taken, or `scheduled`: that of the run's scheduled start.
        home: folder of artifacts; default `GRAPHMILL_HOME`, else `.graphmill` under the current folder.

    Returns:
        What was written, by which model version, from which data: small plain values.
    """
    given = given_files(nodes=nodes, pairs=pairs, graphs=graphs, queries=queries)
    asked = CompletionRequest(head, relation, tail, k, known, type, any_type)
    request = OutputRequest(
        "predictions",
        dated(output, runtime.flow_run.scheduled_start_time, timezone),
        format,
        given,
        asked=asked,
        keep_layers=keep_layers,
        threshold=threshold,
        names_splits=names_splits(split),
    )
    return _run(model, request, Data(recipe, overrides, snapshot), home)


@flow(name="export_model", flow_run_name=_run_name, persist_result=False)
def export_model(
    model: str,
    what: OutputKind = "embeddings",
    nodes: str | None = None,
    graphs: str | None = None,
    output: str | None = None,
    format: str | None = None,
    node_type: str | None = None,
    layout: dict[str, Any] | None = None,
    recipe: str | None = None,
    overrides: list[str] | None = None,
    snapshot: str | None = None,
    home: str | None = None,
) -> dict[str, Any]:
    """Export what a registered model makes, or the model itself.

    Args:
        model: `NAME@champion`, `NAME@VERSION` or `NAME@ALIAS`.
        what: `embeddings` (the vectors that the model scores by), `relations` (those of a knowledge graph),
            `predictions`, `layout` (a point for each vector) or `model` (its files).
        nodes: as for `predict_nodes`.
        graphs: as for `predict_nodes`.
        output: file to write, or folder for the model's files; `{date}` and `{time}` as for `predict_nodes`.
        format: `parquet`, `npy`; for the model `files` or `safetensors`; default by the output's ending.
        node_type: embeddings: whose, where there are several types; default the type that carries labels.
        layout: options as of `evaluate.layout`.
        recipe: as for `predict_nodes`.
        overrides: as for `predict_nodes`.
        snapshot: as for `predict_nodes`.
        home: as for `predict_nodes`.

    Returns:
        As `predict_nodes`.
    """
    files, options = given_files(nodes=nodes, graphs=graphs), layout_options(layout)
    output = dated(output, runtime.flow_run.scheduled_start_time)
    request = OutputRequest(what, output, format, files, node_type, layout=options)
    return _run(model, request, Data(recipe, overrides, snapshot), home)


class FlowUse(ModelUse):
    """A use whose stages are Prefect's tasks."""

    def make_listener(self) -> RunListener:
        """Return one that Prefect's log and progress hear too."""
        return RunListener(current_reporter())

    def stages_called(self) -> AbstractContextManager[None]:
        """Return the context that stages are called in."""
        return calling(self.listener, make_map_shards(self.recipe.preprocess))

    def before_stage(self, name: str, recipe: Recipe, parents: dict[str, str]) -> None:
        """Make the vectors of registered models that a stage is to read."""
        if name not in READ_VECTORS or not missing_vectors(recipe, self.home):
            return
        if find_stage(name, recipe, parents, self.home) is None:
            make_vectors(self, parents.get("ingest"))

    def stage(self, name: str, recipe: Recipe, parents: dict[str, str], *, again: bool) -> dict[str, Any]:
        """Run a stage, or find what it made."""
        task = TASKS[name].with_options(result_storage=result_storage(self.home), refresh_cache=again)
        record: dict[str, Any] = task(dump_recipe(recipe), str(self.home.root), parents, False)
        return record

    def score(self) -> dict[str, Any]:
        """Write the files in a task."""
        written: dict[str, Any] = score(self)
        return written


def _run(model: str, request: OutputRequest, data: Data, home: str | None) -> dict[str, Any]:
    begun = flow_record()
    with ExitStack() as stack:
        stack.enter_context(failure_told(begun))
        place = Home.open(home)
        if begun.deployment:  # a command that is typed says by itself what came of it
            begun.failed_before = earlier_failure(place, begun.id)
            stack.enter_context(ending.prompt_ending())
            stack.enter_context(ending.closing(lambda: report_crash(begun.id)))
            stack.enter_context(recorded(place, begun))
        else:
            stack.enter_context(use_seen(place, begun.id))
        use = FlowUse(model, request, data, home, runtime.flow_run.scheduled_start_time)
        begun.selected, begun.stages = list(STAGES), use.stages
        begun.config = {} if use.request.what == "model" else dump_recipe(use.recipe)
        done = use.run()
        begun.written, begun.champion = str(done["output"] or ""), f"{done['model']} version {done['version']}"
        leave_artifact(lambda: record_text(done), done["what"], "What was written")
        if begun.deployment:
            announce(use.home, begun)
    return done


@task(name="score", task_run_name="score", persist_result=False, cache_policy=NO_CACHE)
def score(use: FlowUse) -> dict[str, Any]:
    """Write the files; returns what `write_outputs` does."""
    return ModelUse.score(use)
