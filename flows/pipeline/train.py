"""The pipeline as a Prefect flow: seven stages, each a task, chained by the keys of their artifacts.

Load it by module, `flows.pipeline.train:train_graph`, never by file (that would put this folder first on sys.path).
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from prefect import flow, runtime

from configs.errors import IntegrityError, RecipeError
from configs.load import build_recipe, dump_recipe, load_recipe
from configs.schema import Recipe
from flows.notifications.events import announce
from flows.pipeline.limits import guarded
from flows.pipeline.pages import failure_told, leave_artifact, leave_map, result_text
from flows.pipeline.run_endings import conclude, flow_record, mark_killed_runs, report_crash
from flows.pipeline.shards import make_map_shards
from flows.pipeline.tracking import close_tracking, end_tracking, log_cached_publication, note_champion, open_tracking
from flows.pipeline.vectors import make_vectors
from flows.pipeline.watched_data import DataWatch
from flows.records.parameters import PARTITION_TAG, SCHEDULED, leaves_champion, requested_overrides
from flows.records.run_record import RunRecord, earlier_failure, ending_of, read_record, recorded
from flows.records.tables import stage_text
from flows.services.addresses import prefect_page
from flows.terminal.progress import REPORTER, RunListener
from flows.terminal.selection import Selection, select_stages
from tasks.calls import ParentGoneError, StageRecord, call_stage, find_stage, load_stage
from tasks.prefect_tasks import TASKS
from tasks.processes import ending
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish.vectors import READ_VECTORS, missing_vectors, with_recorded_versions, with_versions
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import temporary_folder
from tasks.storage.home_files.trusted_code import remember_in_home
from tasks.storage.snapshots import check_snapshot
from tasks.train.families import check_options
from tasks.train.prepared import check_labels

_ON_CLUSTER = {"preprocess", "train", "evaluate"}
"""Stages that machines of a cluster work on."""


def _run_name() -> str:
    parameters = runtime.flow_run.parameters
    recipe = parameters.get("recipe")
    name = recipe.get("name", "recipe") if isinstance(recipe, dict) else str(recipe).rpartition("/")[2]
    snapshot = parameters.get("snapshot")
    partition = next((tag.partition(":")[2] for tag in runtime.flow_run.tags if tag.startswith(PARTITION_TAG)), "")
    if partition:
        return f"{name.removesuffix('.yaml')} {partition}"
    moment = f"{runtime.flow_run.scheduled_start_time:%Y-%m-%d %H:%M:%S}"
    return f"{name.removesuffix('.yaml')} {moment if snapshot in (None, SCHEDULED) else f'as of {snapshot}'}"


@flow(name="train_graph", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def train_graph(
    recipe: str | dict[str, Any],
    overrides: list[str] | None = None,
    home: str | None = None,
    only: list[str] | None = None,
    from_stage: str | None = None,
    force: list[str] | None = None,
    snapshot: str | None = None,
    options: dict[str, Any] | None = None,
    parent_run: str | None = None,
) -> dict[str, Any]:
    """Run a recipe from source data to a registered model; what is there already is found, not made again.

    Args:
        recipe: name of a shipped recipe, path of a YAML file, or the recipe itself.
        overrides: `dotted.key=value` texts.
        home: folder of artifacts; default `GRAPHMILL_HOME`, else `.graphmill` under the current folder.
        only: stages to run; what they read must be there.
        from_stage: first stage to run; what it reads must be there.
        force: stages to build even where there is an artifact.
        snapshot: moment as of which the graph is taken, or `scheduled` (`flows.records.parameters`).
        options: the same changes as `overrides`, as sections of the recipe: what the form of a deployment asks.
        parent_run: MLflow run under which this one stands (a backfill's).

    Returns:
        The run's record (`flows.records.run_record.RunRecord`) as plain values.
    """
    record = flow_record()
    with ExitStack() as stack:
        stack.enter_context(failure_told(record))
        place = Home.open(home)
        earlier = read_record(place, record.id)
        if earlier is not None and earlier.status == "completed":  # whoever started it again could not know
            return earlier.model_dump(mode="json")
        record.failed_before = earlier_failure(place, record.id)
        if earlier is not None:
            record.champion, record.config = earlier.champion, earlier.config
        stack.enter_context(ending.prompt_ending())
        stack.enter_context(ending.closing(lambda: report_crash(record.id)))
        stack.enter_context(recorded(place, record))
        stack.enter_context(temporary_folder(place))
        remember_in_home(place)
        mark_killed_runs(place, besides=record.id)
        record.overrides = requested_overrides(overrides, options, snapshot, runtime.flow_run.scheduled_start_time)
        selection = select_stages(only, from_stage, force)
        record.selected = list(selection.stages)
        checked = _checked_recipe(recipe, record, selection)
        checked = with_versions(_as_begun(checked, record.config), place)
        record.recipe, record.config = checked.name, dump_recipe(checked)
        record.write(place)
        listener = RunListener(REPORTER.get())
        context = RunContext(
            flow_run_id=record.id,
            flow_run_url=prefect_page(f"runs/flow-run/{record.id}"),
            name=runtime.flow_run.name or "",
            parent_run=parent_run or "",
            leave_champion=leaves_champion(record.tags),
            note_champion=partial(note_champion, place, record),
        )
        stack.enter_context(publishing_from(context))
        made_before = {} if earlier is None else earlier.stages
        _run_stages(_Run(place, checked, selection, record, listener, made_before))
        conclude(place, record)
        log_cached_publication(place, checked, record)
        leave_artifact(lambda: result_text(place, record), "result", f"{record.recipe}: what came of it")
        leave_map(record)
        announce(place, record)
    return record.model_dump(mode="json")


def _checked_recipe(recipe: str | dict[str, Any], record: RunRecord, selection: Selection) -> Recipe:
    """Return the recipe, with what its run changes."""
    checked = read_recipe(recipe, record.overrides)
    if "train" in selection.stages:
        check_options(checked)
    check_snapshot(checked)
    return checked


def _as_begun(recipe: Recipe, begun: dict[str, Any]) -> Recipe:
    """Return the recipe with the versions of models that an earlier start of this run took, if there was one."""
    return with_recorded_versions(recipe, build_recipe(dict(begun))) if begun else recipe


def _run_stages(run: _Run) -> None:
    """Run the stages; however they end, the run's MLflow run and its line on the terminal end with them."""
    home, listener, record = run.home, run.listener, run.record
    with ending.closing(lambda: end_tracking(listener, home, "KILLED")):
        try:
            with ending.undisguised():
                run.stages()
        except BaseException as error:
            if not isinstance(error, Exception):
                ending.unwinding()
            end_tracking(listener, home, "KILLED" if ending_of(error, home)[0] == "cancelled" else "FAILED")
            raise
        finally:
            listener.close()
        if not record.has_run("publish"):  # which would have ended it
            end_tracking(listener, home, "FINISHED")


def read_recipe(recipe: str | dict[str, Any], overrides: list[str] | None) -> Recipe:
    """Return the checked recipe. Raises RecipeError."""
    if isinstance(recipe, str):
        return load_recipe(recipe, overrides or ())
    return build_recipe(dict(recipe), overrides or ())


class _Run:
    def __init__(
        self,
        home: Home,
        recipe: Recipe,
        selection: Selection,
        record: RunRecord,
        listener: RunListener,
        made_before: dict[str, StageRecord],
    ) -> None:
        """`made_before`: by an earlier start of this very run."""
        self.home, self.recipe, self.selection = home, recipe, selection
        self.record, self.listener = record, listener
        self._made_before = made_before
        self._cluster_unchecked = recipe.cluster.address is not None
        self._map_shards = make_map_shards(recipe, home)
        self._watch = DataWatch(home, recipe, has_champion=not leaves_champion(record.tags))

    def _check_cluster(self, name: str) -> None:
        """Before the first stage that is to be built see that the recipe's cluster is there and runs the same code.

        Raises GraphmillError.
        """
        if not self._cluster_unchecked or not _ON_CLUSTER & set(self.selection.stages):
            return
        if name not in self.selection.force and find_stage(name, self.recipe, self._parents(name), self.home):
            return
        self._cluster_unchecked = False
        from tasks.cluster.survey import check_cluster

        for machine in (one.machine for one in check_cluster(self.recipe.cluster, self.home)):
            gpus = f", {machine.gpus:g} GPUs" if machine.gpus else ""
            self.listener.message("cluster", f"{machine.name} ({machine.address}): {machine.cpus:g} CPUs{gpus}")

    def stages(self) -> None:
        """Run the selected stages in order; the record is on disk after each."""
        for name in self.selection.all:
            self.record.stages[name] = self._run(name) if name in self.selection.stages else self._find_existing(name)
            self.record.write(self.home)
            if name == "preprocess" and "train" in self.selection.stages:
                check_labels(self.recipe, self.record.parent_keys(("ingest", "preprocess")), self.home)
            if name in ("ingest", "partition") and name in self.selection.stages:
                self._watch_data(name)

    def _watch_data(self, name: str) -> None:
        """Compare data with the champion's as far as it is prepared. Raises UserError where the recipe says so."""

        def warn(text: str) -> None:
            self.record.stages[name].warnings.append(text)  # shown again at the end
            self.listener.warning(name, text)

        keys = self.record.parent_keys(tuple(self.record.stages))
        self._watch.look(name, keys, partial(self.listener.message, name), warn)
        self.record.write(self.home)

    def _find_existing(self, name: str) -> StageRecord:
        outcome = find_stage(name, self.recipe, self._parents(name), self.home)
        if outcome is None:
            selected = ",".join(self.selection.stages)
            raise RecipeError(
                f"cannot run {selected} alone: {name} has not run for this recipe; run it first "
                f"(graphmill run {self.record.source or 'RECIPE'} --only {name}) or leave --only and --from out"
            )
        return StageRecord.of(outcome)

    def _run(self, name: str) -> StageRecord:
        self._provide_vectors(name)
        self.listener.begin(name)
        try:
            self._check_cluster(name)
            if name == "train":
                open_tracking(self.listener, self.home, self.recipe, self.record, force=name in self.selection.force)
            made = self._call(name)
        except (ParentGoneError, IntegrityError) as error:
            # A parent that was whole a moment ago is not any more: make it again, then go on.
            self.listener.warning(name, f"{error}; looking at the earlier stages again")
            for parent in self._ancestors(name):
                self.record.stages[parent] = self._call(parent)
            made = self._call(name)
        if name == "train":
            close_tracking(self.listener)
        self.listener.end(name, stage_text(made))
        return made

    def _call(self, name: str) -> StageRecord:
        call = partial(
            call_stage,
            name,
            self.recipe,
            self.home,
            self._parents(name),
            listener=self.listener,
            map_shards=self._map_shards,
            force=name in self.selection.force,
        )
        with guarded(name, self.recipe, self.record, self.listener):
            made: StageRecord = TASKS[name](call)
        before = self._made_before.get(name)
        return before if before is not None and before.key == made.key and made.status == "cached" else made

    def _parents(self, name: str) -> dict[str, str]:
        return self.record.parent_keys(load_stage(name).parents)

    def _provide_vectors(self, name: str) -> None:
        """Make the vectors of registered models that are features here, where the stage is to read them."""
        if name not in READ_VECTORS or not missing_vectors(self.recipe, self.home):
            return
        parents = self._parents(name)
        if name in self.selection.force or find_stage(name, self.recipe, parents, self.home) is None:
            with guarded(name, self.recipe, self.record, self.listener):
                make_vectors(self)

    def _ancestors(self, name: str) -> list[str]:
        needed = {name}
        for stage in reversed(list(TASKS)):
            if stage in needed:
                needed.update(load_stage(stage).parents)
        return [stage for stage in TASKS if stage in needed - {name}]
