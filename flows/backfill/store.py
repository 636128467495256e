"""Where a backfill lives: a variable, a work queue and tagged flow runs of the Prefect server. Nothing else."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

from pydantic import ValidationError

from configs.errors import RecipeError
from configs.matching import did_you_mean
from flows.backfill.spec import Backfill, Partition
from flows.deploy.deployments import all_pages
from flows.records.parameters import PARTITION_TAG, PROMOTE_TAG

_PREFIX = "graphmill_backfill_"
_TAGS = ["graphmill", "backfill"]
_MAX_VALUE = 5000  # characters of a variable's JSON


def _variable(backfill_id: str) -> str:
    return _PREFIX + backfill_id.replace("-", "_")  # an id has no underscore: two ids never meet


def save(client: Any, backfill: Backfill) -> None:
    """Keep the backfill. Raises RecipeError if it is too long to write down."""
    from prefect.client.schemas.actions import VariableCreate, VariableUpdate

    value = backfill.model_dump_json()
    if len(value) > _MAX_VALUE:
        raise RecipeError(f"the backfill takes {len(value):,} characters to write down, {_MAX_VALUE:,} is the most")
    name = _variable(backfill.id)
    if client.read_variable_by_name(name) is None:
        client.create_variable(VariableCreate(name=name, value=value, tags=_TAGS))
    else:
        client.update_variable(VariableUpdate(name=name, value=value, tags=_TAGS))


def find(client: Any, backfill_id: str) -> Backfill | None:
    """Return the backfill of this id, or None."""
    variable = client.read_variable_by_name(_variable(backfill_id))
    return None if variable is None else _read(variable.value)


def get(client: Any, backfill_id: str) -> Backfill:
    """Return the backfill. Raises RecipeError with the known ids."""
    backfill = find(client, backfill_id)
    if backfill is not None:
        return backfill
    ids = [backfill.id for backfill in all_backfills(client)]
    names = ", ".join(ids) or "none; make one with graphmill backfill create DEPLOYMENT ..."
    raise RecipeError(f"no backfill {backfill_id!r}{did_you_mean(backfill_id, ids)}; backfills: {names}")


def all_backfills(client: Any) -> list[Backfill]:
    """Return all backfills, the newest first."""

    def read(limit: int, offset: int) -> Any:  # the client's own method knows neither filters nor pages
        body = {"variables": {"tags": {"all_": _TAGS}}, "limit": limit, "offset": offset}
        return client.request("POST", "/variables/filter", json=body).json()

    backfills = filter(None, (_read(variable["value"]) for variable in all_pages(read)))
    return sorted(backfills, key=lambda backfill: backfill.created_at, reverse=True)


def forget(client: Any, backfill: Backfill) -> None:
    """Remove the variable; the backfill's runs stay."""
    client.delete_variable_by_name(_variable(backfill.id))


def _read(value: Any) -> Backfill | None:
    try:
        return Backfill.model_validate_json(value)
    except ValidationError:
        return None


def ensure_queue(client: Any, pool: str, backfill: Backfill) -> Any:
    """Make the backfill's work queue, or set its limit; return it."""
    from prefect.exceptions import ObjectNotFound

    try:
        queue = client.read_work_queue_by_name(backfill.queue, work_pool_name=pool)
    except ObjectNotFound:
        return client.create_work_queue(
            name=backfill.queue,
            work_pool_name=pool,
            concurrency_limit=backfill.max_active,
            description=f"backfill {backfill.id} of {backfill.deployment}",
        )
    if queue.concurrency_limit != backfill.max_active:
        client.update_work_queue(queue.id, concurrency_limit=backfill.max_active)
    return queue


def read_queue(client: Any, pool: str, backfill: Backfill) -> Any | None:
    """Return the work queue, or None where it was removed."""
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_work_queue_by_name(backfill.queue, work_pool_name=pool)
    except ObjectNotFound:
        return None


def create_run(client: Any, backfill: Backfill, deployment: Any, partition: Partition, place: int, at: Any) -> Any:
    """Create a partition's flow run, once: the same key always gives the same run, in the order of the partitions."""
    from prefect.states import Scheduled

    parameters: dict[str, Any] = {"overrides": [*deployment.parameters.get("overrides", ()), *partition.overrides]}
    if partition.snapshot is not None:
        parameters["snapshot"] = partition.snapshot
    if backfill.reprocess == "all":
        parameters["force"] = ["train", "evaluate", "publish"]
    if backfill.mlflow_run_id:
        parameters["parent_run"] = backfill.mlflow_run_id
    return client.create_flow_run_from_deployment(
        deployment.id,
        parameters=parameters,
        state=Scheduled(scheduled_time=at + timedelta(milliseconds=place)),
        name=f"{deployment.name} {partition.name}",
        tags=[backfill.tag, f"{PARTITION_TAG}{partition.name}", *([PROMOTE_TAG] if backfill.promote else [])],
        idempotency_key=f"{backfill.tag}/{partition.name}",
        work_queue_name=backfill.queue,
    )


def runs_of(client: Any, backfill: Backfill) -> dict[str, Any]:
    """Return the backfill's flow runs by the name of their partition."""
    return {partition_of(run): run for run in tagged_runs(client, [backfill.tag])}


def tagged_runs(client: Any, tags: list[str], deployment_id: Any = None) -> list[Any]:
    """Return the flow runs that have all of these tags (of a deployment), the oldest first."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId, FlowRunFilter, FlowRunFilterTags
    from prefect.client.schemas.sorting import FlowRunSort

    run_filter = FlowRunFilter(tags=FlowRunFilterTags(all_=tags)) if tags else None
    mine = DeploymentFilter(id=DeploymentFilterId(any_=[deployment_id])) if deployment_id else None
    filters = {"flow_run_filter": run_filter, "deployment_filter": mine}
    return all_pages(partial(client.read_flow_runs, **filters, sort=FlowRunSort.EXPECTED_START_TIME_ASC))


def partition_of(run: Any) -> str:
    """Return the partition that a flow run is tagged with, or an empty string."""
    return next((tag.removeprefix(PARTITION_TAG) for tag in run.tags if tag.startswith(PARTITION_TAG)), "")
