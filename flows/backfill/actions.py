"""Making a backfill and changing its course. Every action may be cut off anywhere and done again."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from configs.errors import GraphmillError, RecipeError
from configs.load import load_recipe
from configs.schema import Recipe
from configs.values.versioned_tables import NO_VERSIONS, is_versioned, parse_reference
from flows.backfill import store
from flows.backfill.spec import Backfill, Partition, span
from flows.commands.recipes.plan import PlannedStage, make_plan
from flows.deploy.deployments import find_deployment
from flows.records.parameters import requested_overrides
from flows.terminal.selection import Selection
from tasks.processes.run_context import RunContext, publishing_from
from tasks.storage.home import Home
from tasks.storage.snapshots import check_snapshot

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_store import RunStatus

BAD_STATES = frozenset({"FAILED", "CRASHED"})
ENDED_STATES = frozenset({"COMPLETED", "FAILED", "CRASHED", "CANCELLED"})
MAX_STARTS = 4
"""Of a run that crashes: the first and three more (`flows.recovery`)."""
_RECOVERY_SECONDS = 600.0
"""A crashed run that has not started again by then will not: nobody looks after it."""


@dataclass(frozen=True)
class Planned:
    """A partition, and what would become of it."""

    partition: Partition
    recipe: Recipe
    steps: list[PlannedStage] = field(default_factory=list)
    run: Any = None
    """Its flow run, if there is one."""
    skip: str = ""
    """Why it is left out."""


def plan(client: Any, home: Home, backfill: Backfill) -> list[Planned]:
    """Check every partition's recipe, and say which run.

    Raises RecipeError: naming the partition whose recipe or snapshot is not right; nothing was created.
    """
    deployment = find_deployment(client, backfill.deployment, backfills=True)
    runs = store.runs_of(client, backfill)
    tagged = store.tagged_runs(client, [], deployment.id) if backfill.reprocess == "failed" else []
    before = {store.partition_of(run): state_of(run) for run in tagged}
    place = Home.open(str(deployment.parameters.get("home") or home.root))
    planned = []
    for partition in backfill.partitions():
        recipe = partition_recipe(deployment, partition)
        check_order(backfill, partition, recipe)
        steps = _steps(place, recipe, backfill)
        run, state, skip = runs.get(partition.name), before.get(partition.name, ""), ""
        if run is None and backfill.reprocess == "missing" and all(step.status == "cached" for step in steps):
            skip = "has a result"
        elif run is None and backfill.reprocess == "failed" and state not in BAD_STATES:
            skip = f"did not fail ({state.lower()})" if state else "never ran"
        planned.append(Planned(partition, recipe, steps, run, skip))
    return planned


def _steps(home: Home, recipe: Recipe, backfill: Backfill) -> list[PlannedStage]:
    """Say what a partition would do; where the gate chooses, a result that left the champion alone goes again."""
    steps = make_plan(home, recipe, Selection())
    if backfill.promote or [step.stage for step in steps if step.status != "cached"] != ["publish"]:
        return steps
    with publishing_from(RunContext(leave_champion=True)):
        return make_plan(home, recipe, Selection())


def check_order(backfill: Backfill, partition: Partition, recipe: Recipe) -> None:
    """Raise RecipeError where a snapshot would begin with the weights of one that has not been trained yet."""
    if partition.snapshot is None or not recipe.snapshot.warm_start:
        return
    option = "--reverse" if backfill.reverse else f"--max-active {backfill.max_active}"
    if backfill.reverse or backfill.max_active > 1:
        raise RecipeError(
            f"{option}: with snapshot.warm_start each snapshot begins with the weights of the one before, so that they "
            "run oldest first, one at a time; leave the option out, or add --set snapshot.warm_start=false"
        )


def partition_recipe(deployment: Any, partition: Partition) -> Recipe:
    """Return the recipe that a partition runs. Raises RecipeError naming the partition."""
    given = deployment.parameters
    try:
        texts = [*given.get("overrides", ()), *partition.overrides]
        now = datetime.datetime.now(datetime.UTC)
        overrides = requested_overrides(texts, given.get("options"), partition.snapshot or given.get("snapshot"), now)
        recipe = load_recipe(str(given["recipe"]), overrides)
        check_snapshot(recipe)
        return recipe
    except RecipeError as error:
        raise RecipeError(f"partition {partition.name}: {error}") from error


def create(client: Any, home: Home, backfill: Backfill, *, pause_schedule: bool) -> tuple[Backfill, list[Planned]]:
    """Make the backfill, or finish making it; what is there is not made again.

    Raises RecipeError: a backfill of this id asks for something else, or a partition's recipe is not right.
    """
    there = store.find(client, backfill.id)
    if there is not None:
        differing = [name for name, value in backfill.asked.items() if there.asked[name] != value]
        if differing:
            raise RecipeError(
                f"backfill {there.id} exists with a different {', '.join(differing)}; name this one with --id, or "
                "leave the options as they were to go on with it"
            )
        backfill = there
    planned = plan(client, home, backfill)
    deployment = find_deployment(client, backfill.deployment, backfills=True)
    if there is None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        changes = {"created_at": now, "resume_schedule": pause_schedule and not deployment.paused}
        backfill = backfill.model_copy(update=changes)
        store.save(client, backfill)  # before anything else: an id that is taken stays taken
    if backfill.resume_schedule and not backfill.complete:
        client.pause_deployment(deployment.id)
    if backfill.complete:
        return backfill, planned
    if not backfill.mlflow_run_id:
        backfill = backfill.model_copy(update={"mlflow_run_id": _mlflow_parent(home, backfill, planned)})
        store.save(client, backfill)
    store.ensure_queue(client, deployment.work_pool_name, backfill)
    at = datetime.datetime.fromisoformat(backfill.created_at)
    for place, item in enumerate(item for item in planned if not item.skip):
        if item.run is None:
            store.create_run(client, backfill, deployment, item.partition, place, at)
    backfill = backfill.model_copy(update={"complete": True})
    store.save(client, backfill)
    return backfill, planned


def _mlflow_parent(home: Home, backfill: Backfill, planned: list[Planned]) -> str:
    from tasks.publish.tracking.mlflow_store import open_parent

    if not planned:
        return ""
    experiment = planned[0].recipe.tracking.experiment
    try:
        return open_parent(home, experiment, backfill.id, {"deployment": backfill.deployment})
    except GraphmillError:
        return ""


def tracked_state(backfill: Backfill, runs: Iterable[Any]) -> RunStatus:
    """Return how the backfill's MLflow run stands: as its partitions do, and what went wrong counts."""
    states = {state_of(run) if has_ended(run) else "RUNNING" for run in runs}
    if not backfill.complete or "RUNNING" in states:
        return "RUNNING"
    if states & BAD_STATES:
        return "FAILED"
    return "FINISHED" if states <= {"COMPLETED"} else "KILLED"


def settle_tracking(client: Any, home: Home, backfill: Backfill) -> None:
    """Say in MLflow how the backfill stands, where that has changed; a store that is away is told the next time."""
    if not backfill.mlflow_run_id:
        return
    state = tracked_state(backfill, store.runs_of(client, backfill).values())
    if state == backfill.mlflow_state:
        return
    from tasks.publish.tracking.mlflow_store import set_state

    try:
        set_state(home, backfill.mlflow_run_id, state)
    except GraphmillError:
        return
    store.save(client, store.get(client, backfill.id).model_copy(update={"mlflow_state": state}))


def pause(client: Any, backfill: Backfill, paused: bool) -> None:
    """Hold back (or let go) the partitions that have not begun; those that run go on."""
    pool = str(find_deployment(client, backfill.deployment, backfills=True).work_pool_name)
    queue = store.ensure_queue(client, pool, backfill)
    client.update_work_queue(queue.id, is_paused=paused)


def cancel(client: Any, backfill: Backfill) -> int:
    """Cancel what waits and what runs. Returns how many runs that were."""
    from prefect.states import Cancelled, Cancelling

    number = 0
    for run in store.runs_of(client, backfill).values():
        state = state_of(run)
        if has_ended(run) or state == "CANCELLING":
            continue
        new = Cancelling if state == "RUNNING" else Cancelled
        forced = state in ("PENDING", "CRASHED")  # a crashed one would start again
        client.set_flow_run_state(run.id, new(message=f"backfill {backfill.id} was cancelled"), force=forced)
        number += 1
    if not backfill.complete:  # it was cut off while it was made; nothing more is to come
        store.save(client, backfill.model_copy(update={"complete": True}))
    return number


def state_of(run: Any) -> str:
    """Return a flow run's state, as Prefect's API names it: `COMPLETED`."""
    return str(run.state_type.value)


def has_ended(run: Any) -> bool:
    """Whether nothing more happens to a run by itself; one that crashed starts again some times."""
    state = state_of(run)
    if state != "CRASHED":
        return state in ENDED_STATES
    age = (datetime.datetime.now(datetime.UTC) - run.state.timestamp).total_seconds()
    return bool(run.run_count >= MAX_STARTS or age > _RECOVERY_SECONDS)


def remove(client: Any, backfill: Backfill) -> None:
    """Forget a backfill. Raises RecipeError while runs of it wait or run."""
    open_runs = [run.name for run in store.runs_of(client, backfill).values() if not has_ended(run)]
    if open_runs:
        raise RecipeError(
            f"backfill {backfill.id}: {len(open_runs)} of its runs have not ended; first: graphmill backfill cancel "
            f"{backfill.id}"
        )
    deployment = deployment_of(client, backfill)
    queue = None if deployment is None else store.read_queue(client, deployment.work_pool_name, backfill)
    if queue is not None:
        client.delete_work_queue_by_id(queue.id)
    store.forget(client, backfill)


def deployment_of(client: Any, backfill: Backfill) -> Any | None:
    """Return the backfill's deployment, or None where it was removed."""
    try:
        return find_deployment(client, backfill.deployment, backfills=True)
    except RecipeError:
        return None


def retry_failed(client: Any, backfill: Backfill) -> list[str]:
    """Schedule again what failed or crashed, as the same flow runs. Returns their partitions."""
    failed = {name: run for name, run in store.runs_of(client, backfill).items() if state_of(run) in BAD_STATES}
    for run in failed.values():
        schedule_again(client, run.id, "retry-failed")
    return list(failed)


def schedule_again(client: Any, run_id: Any, why: str) -> None:
    """Let a run that ended badly start again, under its own id: completed tasks are skipped, training resumes."""
    from prefect.states import AwaitingRetry

    now = datetime.datetime.now(datetime.UTC)
    client.set_flow_run_state(run_id, AwaitingRetry(scheduled_time=now, message=why), force=True)


def resume_schedule_if_done(client: Any, backfill: Backfill) -> bool:
    """Go on with the deployment's schedule when the backfill that paused it has ended."""
    if not (backfill.resume_schedule and backfill.complete):
        return False
    if not all(has_ended(run) for run in store.runs_of(client, backfill).values()):
        return False
    deployment = deployment_of(client, backfill)
    if deployment is not None:
        client.resume_deployment(deployment.id)
    store.save(client, backfill.model_copy(update={"resume_schedule": False}))
    return True


_SETTLED_MS = 3_600_000
"""Writes that lie less than an hour apart are one: a nightly job writes table after table."""


def over_versions(client: Any, backfill: Backfill) -> Backfill:
    """Return a backfill over versions as one over their moments; others stay as they are.

    Raises RecipeError: the recipe reads no tables that keep versions, or none of them lies in the range; DataError: a
    table cannot be read.
    """
    if backfill.every != "version":
        return backfill
    deployment = find_deployment(client, backfill.deployment, backfills=True)
    recipe = partition_recipe(deployment, Partition(name="version", overrides=backfill.overrides))
    first = -float("inf") if backfill.first is None else span("--from", backfill.first)[0].timestamp() * 1000
    # To the end of the last minute.
    last = float("inf") if backfill.last is None else span("--to", backfill.last)[1].timestamp() * 1000 + 59_999
    written = [one for one in version_moments(recipe) if first <= one <= last]
    if not written:
        raise RecipeError(
            "--every version: the recipe's tables have no version in that time; leave --from and --to out"
        )
    return backfill.model_copy(update={"every": None, "first": None, "last": None, "at": settled(written)})


def version_moments(recipe: Recipe) -> list[int]:
    """Return when the recipe's tables were written of which it names no version: milliseconds since 1970, ascending.

    From when each of the tables has a version on. Raises RecipeError: there are none; DataError: one cannot be read.
    """
    from tasks.readers.table_formats.opened import open_versioned

    references = [parse_reference(file) for file in recipe.dataset.source_files() if is_versioned(file)]
    tables = [open_versioned(reference) for reference in references if not reference.is_fixed]
    if not tables:
        raise RecipeError(f"--every version: {NO_VERSIONS.removesuffix(', or leave snapshot.as_of out')}")
    written = [[version.milliseconds for version in table.versions()] for table in tables]
    first = max(map(min, written))
    return sorted({one for moments in written for one in moments if one >= first})


def settled(written: list[int]) -> tuple[str, ...]:
    """Return moments as a recipe writes them, the last one of those that lie close together."""
    following = [*written[1:], written[-1] + _SETTLED_MS]
    last = [one for one, after in zip(written, following, strict=True) if after - one >= _SETTLED_MS]
    moments = [datetime.datetime.fromtimestamp(one // 1000, datetime.UTC) for one in last]
    return tuple(moment.isoformat(timespec="seconds") for moment in moments)
