"""Use a registered model, as a Prefect flow that a command or a schedule calls: predictions, vectors, its files.

Load it by module: `flows.apply.flows.use_model`. `NAME@champion` is whichever version is champion when it runs.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from prefect import flow, runtime, task
from prefect.cache_policies import NO_CACHE

from configs.load import dump_recipe
from configs.schema import Recipe
from flows.apply.model_use import STAGES, Data, ModelUse, record_text
from flows.notifications.events import announce
from flows.pipeline.pages import failure_told, leave_artifact
from flows.pipeline.run_endings import flow_record, report_crash, use_seen
from flows.pipeline.shards import make_pool_map
from flows.pipeline.vectors import make_vectors
from flows.records.run_record import earlier_failure, recorded
from flows.records.use_options import UseOptions
from flows.terminal.progress import REPORTER, RunListener
from tasks.apply.run import OutputKind
from tasks.calls import StageRecord, call_stage, find_stage
from tasks.prefect_tasks import TASKS
from tasks.processes import ending
from tasks.publish.vectors import READ_VECTORS, missing_vectors
from tasks.storage.home import Home


def _run_name() -> str:
    parameters = runtime.flow_run.parameters
    return f"{parameters.get('what', 'predictions')} of {parameters['model']}"


@flow(name="use_model", flow_run_name=_run_name, persist_result=False)
def use_model(
    model: str,
    what: OutputKind = "predictions",
    options: UseOptions | None = None,
    recipe: str | None = None,
    overrides: list[str] | None = None,
    snapshot: str | None = None,
    home: str | None = None,
) -> dict[str, Any]:
    """Write what a registered model predicts, makes or is.

    Args:
        model: `NAME@champion`, `NAME@VERSION` or `NAME@ALIAS`.
        what: `predictions` (classes or values of nodes or graphs, scores of pairs, completions of triples),
            `embeddings` (the vectors that the model scores by), `relations` (those of a knowledge graph), `layout` (a
            point for each vector) or `model` (its files).
        options: of which rows, and where it goes.
        recipe: name or file of a recipe with other data, of which the `dataset` and the `snapshot` matter; none: the
            data of the training.
        overrides: `dotted.key=value` changes of the recipe.
        snapshot: moment as of which the graph is taken, or `scheduled`: that of the run's scheduled start.
        home: folder of artifacts; default `GRAPHMILL_HOME`, else `.graphmill` under the current folder.

    Returns:
        What was written, by which model version, from which data: small plain values.
    """
    record = flow_record()
    with ExitStack() as stack:
        stack.enter_context(failure_told(record))
        place = Home.open(home)
        if record.deployment:  # a command that is typed says by itself what came of it
            record.failed_before = earlier_failure(place, record.id)
            stack.enter_context(ending.prompt_ending())
            stack.enter_context(ending.closing(lambda: report_crash(record.id)))
            stack.enter_context(recorded(place, record))
        else:
            stack.enter_context(use_seen(place, record.id))
        moment = runtime.flow_run.scheduled_start_time
        request = (options or UseOptions()).request(what, moment)
        use = FlowUse(model, request, Data(recipe, overrides, snapshot), home, moment)
        record.selected, record.stages = list(STAGES), use.stages
        record.config = {} if what == "model" else dump_recipe(use.recipe)
        done = use.run()
        record.written, record.champion = str(done["output"] or ""), f"{done['model']} version {done['version']}"
        leave_artifact(lambda: record_text(done), done["what"], "What was written")
        if record.deployment:
            announce(use.home, record)
    return done


class FlowUse(ModelUse):
    """A use whose stages are Prefect's tasks."""

    listener: RunListener

    def make_listener(self) -> RunListener:
        """Return one that Prefect's log and progress hear too."""
        return RunListener(REPORTER.get())

    def stage(self, name: str, recipe: Recipe, parents: dict[str, str]) -> StageRecord:
        """Run a stage, or find what it made; before it, make the vectors of registered models that it is to read."""
        reads_vectors = name in READ_VECTORS and missing_vectors(recipe, self.home)
        if reads_vectors and find_stage(name, recipe, parents, self.home) is None:
            make_vectors(self)
        self.listener.begin(name)
        shards = make_pool_map(recipe.preprocess)
        made: StageRecord = TASKS[name](
            partial(call_stage, name, recipe, self.home, parents, listener=self.listener, map_shards=shards)
        )
        return made

    def score(self) -> dict[str, Any]:
        """Write the files in a task."""
        written: dict[str, Any] = score(self)
        return written


@task(name="score", task_run_name="score", persist_result=False, cache_policy=NO_CACHE)
def score(use: FlowUse) -> dict[str, Any]:
    """Write the files; returns what `write_outputs` does."""
    return ModelUse.score(use)
