"""Deployments of recipes on a Prefect server: made, listed, paused, removed."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from configs.errors import RecipeError, StageError
from configs.load import find_recipe, load_own_recipe, shipped_recipes
from configs.matching import did_you_mean
from flows.records.parameters import NO_PROMOTE_TAG, check_moment, requested_overrides
from flows.records.run_record import RECIPE_TAG
from flows.services.bootstrap import RUN_TAG
from flows.terminal.options import graphmill_command
from tasks.storage.home import Home
from tasks.storage.snapshots import check_snapshot
from tasks.train.families import check_options

FLOWS = {"train_graph": "flows.pipeline.train.train_graph", "use_model": "flows.apply.flows.use_model"}
"""Flows that are deployed, and their entry points."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EVERY = re.compile(r"(\d{1,9})\s*(m|min|h|d|w)")
_PAGE = 200
_LONGEST = datetime.timedelta(days=3653)
_UNITS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class DeployRequest:
    """What the command line asks for."""

    recipe: str
    name: str
    overrides: list[str] = field(default_factory=list)
    cron: str | None = None
    timezone: str | None = None
    every: str | None = None
    snapshot: str | None = None
    pool: str = "graphmill"
    no_promote: bool = False
    """Its runs leave the champion alone."""


@dataclass(frozen=True)
class DeploymentRow:
    """A deployment as it is listed."""

    name: str
    recipe: str
    schedule: str
    paused: bool
    next_run: datetime.datetime | None
    last_run: str
    last_state: str
    id: str

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**vars(self), "next_run": self.next_run.isoformat() if self.next_run else None}


def deploy(home: Home, request: DeployRequest) -> str:
    """Make (or renew) a deployment and return its id.

    Raises RecipeError: recipe, override, schedule or name are not right; nothing was changed; StageError: the server
    does not answer or refuses.
    """
    schedule = make_schedule(request)
    check_moments(request)
    recipe = load_own_recipe(request.recipe, request.overrides)
    check_options(recipe)
    source = request.recipe if request.recipe in shipped_recipes() else str(find_recipe(request.recipe).resolve())
    from flows.deploy.form import form_schema

    parameters: dict[str, Any] = {"recipe": source, "overrides": request.overrides, "home": str(home.root)}
    if request.snapshot is not None:
        parameters["snapshot"] = request.snapshot
    about = f"**{recipe.name}**: {recipe.description or 'a graphmill recipe'}\n\nRecipe: `{source}`"
    place = DeploymentPage("train_graph", form_schema(recipe, source), about, [f"{RECIPE_TAG}{recipe.name}"])
    return save(request, schedule, parameters, place)


def check_moments(request: DeployRequest) -> None:
    """Raise UserError where the recipe cannot be taken as of the moment that is asked for."""
    if request.snapshot is not None:
        check_moment(request.snapshot)
    now = datetime.datetime.now(datetime.UTC)
    as_of = requested_overrides(request.overrides, None, request.snapshot, now)
    check_snapshot(load_own_recipe(request.recipe, as_of))


@dataclass(frozen=True)
class DeploymentPage:
    """Where a deployment stands, and what its page shows."""

    flow: str
    form: dict[str, Any]
    about: str
    tags: list[str]


def save(request: DeployRequest, schedule: Any, parameters: dict[str, Any], place: DeploymentPage) -> str:
    """Make (or renew) a deployment on the server and return its id. Raises RecipeError, StageError."""
    if not _NAME.fullmatch(request.name):
        raise RecipeError(f"--name {request.name!r}: letters, digits, '.', '_' and '-', a letter or digit first")
    with server() as client:
        pools = [pool.name for pool in client.read_work_pools()]
        if request.pool not in pools:  # runs would wait in it for ever
            raise RecipeError(
                f"--pool {request.pool}: no such work pool{did_you_mean(request.pool, pools)}; known: "
                f"{', '.join(pools) or 'none'}. A worker makes it: "
                + graphmill_command("worker", "--pool", request.pool)
            )
        for other in _all(client, [flow for flow in FLOWS if flow != place.flow]):
            if other.name == request.name:
                raise RecipeError(f"--name {request.name}: there is a deployment of {_subject(other)} of that name")
        return str(
            client.create_deployment(
                client.create_flow_from_name(place.flow),
                request.name,
                schedules=[] if schedule is None else [schedule],
                parameters=parameters,
                description=place.about,
                work_pool_name=request.pool,
                tags=[RUN_TAG, *place.tags, *([NO_PROMOTE_TAG] if request.no_promote else [])],
                entrypoint=FLOWS[place.flow],
                parameter_openapi_schema=place.form,
                enforce_parameter_schema=True,
                # Nothing is said of `paused`: a new one is not, and one that somebody (or a backfill) paused stays so.
                # Relative paths in a recipe are relative to where it was deployed from.
                job_variables={"working_dir": str(Path.cwd())},
            )
        )


def make_schedule(request: DeployRequest) -> Any:
    """Return the schedule as Prefect takes it, or None. Raises RecipeError."""
    if request.cron and request.every:
        raise RecipeError("--cron and --every are two schedules; name one")
    if request.timezone and not request.cron:
        raise RecipeError("--timezone goes with --cron")
    if not (request.cron or request.every):
        return None
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule, IntervalSchedule
    from pydantic import ValidationError

    if request.every:
        return DeploymentScheduleCreate(schedule=IntervalSchedule(interval=parse_every(request.every)))
    try:
        schedule = CronSchedule(cron=request.cron or "", timezone=request.timezone or _local_timezone())
    except ValidationError as error:
        what = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise RecipeError(f'--cron "{request.cron}" --timezone {request.timezone}: {what}') from error
    return DeploymentScheduleCreate(schedule=schedule)


def parse_every(text: str) -> datetime.timedelta:
    """Read `30m`, `6h`, `1d`, `2w`. Raises RecipeError."""
    match = _EVERY.fullmatch(text.strip())
    if match is None or int(match[1]) == 0:
        raise RecipeError(f"--every {text[:40]!r}: write 30m, 6h, 1d or 2w")
    interval = datetime.timedelta(**{_UNITS[match[2]]: int(match[1])})
    if interval > _LONGEST:
        raise RecipeError(f"--every {text!r} is more than ten years; write 30m, 6h, 1d or 2w")
    return interval


def _local_timezone() -> str:
    named = os.environ.get("TZ", "").removeprefix(":")
    if named:
        return named
    try:
        target = str(Path("/etc/localtime").resolve())
    except OSError:
        return "UTC"
    return target.partition("/zoneinfo/")[2] or "UTC"


def server() -> Any:
    """Return a client of the lasting server. Raises StageError where there is none, or where it does not answer."""
    if not os.environ.get("PREFECT_API_URL"):
        raise StageError("deployments need servers that last: start them with graphmill up (or set PREFECT_API_URL)")
    from flows.services.addresses import check_answers

    check_answers(os.environ["PREFECT_API_URL"])
    from flows.terminal.waiting import waiting

    with waiting("loading Prefect"):
        from prefect.client.orchestration import get_client

    return get_client(sync_client=True)


def find_deployment(client: Any, name: str, *, backfills: bool = False) -> Any:
    """Return a deployment (`backfills`: one of a recipe) by its name. Raises RecipeError with the known names."""
    by_name = {deployment.name: deployment for deployment in _all(client)}
    if name in by_name and backfills and "model" in by_name[name].parameters:
        raise RecipeError(f"{name} makes {_subject(by_name[name])}; a backfill is of a recipe's deployment")
    if name in by_name:
        return by_name[name]
    names = ", ".join(sorted(by_name)) or "none; make one with graphmill deploy RECIPE --name N"
    raise RecipeError(f"no deployment {name!r}{did_you_mean(name, by_name)}; deployments: {names}")


def list_deployments(client: Any) -> list[DeploymentRow]:
    """Return all deployments, with their next and last runs."""
    return [_row(client, deployment) for deployment in _all(client)]


def _all(client: Any, flows: Sequence[str] = tuple(FLOWS)) -> list[Any]:
    from prefect.client.schemas.filters import FlowFilter, FlowFilterName

    read = partial(client.read_deployments, flow_filter=FlowFilter(name=FlowFilterName(any_=list(flows))))
    return sorted(all_pages(read), key=lambda deployment: str(deployment.name))


def all_pages(read: Callable[..., list[Any]]) -> list[Any]:
    """Return all that the server has for `read(limit, offset)`, page by page."""
    items: list[Any] = []
    while True:
        page = read(limit=_PAGE, offset=len(items))
        items += page
        if len(page) < _PAGE:
            return items


def _row(client: Any, deployment: Any) -> DeploymentRow:
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterId
    from prefect.client.schemas.objects import StateType
    from prefect.client.schemas.sorting import FlowRunSort

    mine = DeploymentFilter(id=DeploymentFilterId(any_=[deployment.id]))
    runs = client.read_flow_runs(deployment_filter=mine, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=50)
    waiting = [run for run in runs if run.state_type == StateType.SCHEDULED]
    past = [run for run in runs if run.state_type != StateType.SCHEDULED]
    zones = [getattr(item.schedule, "timezone", None) for item in deployment.schedules]
    zone = ZoneInfo(zones[0]) if zones and zones[0] else None
    soonest = min((run.expected_start_time for run in waiting if run.expected_start_time), default=None)
    return DeploymentRow(
        name=deployment.name,
        recipe=_subject(deployment),
        schedule=", ".join(_schedule_text(item.schedule) for item in deployment.schedules) or "by hand",
        paused=bool(deployment.paused),
        next_run=None if deployment.paused or soonest is None else soonest.astimezone(zone),
        last_run=past[0].name if past else "",
        last_state=(past[0].state_name or "") if past else "",
        id=str(deployment.id),
    )


def _subject(deployment: Any) -> str:
    """Return what a deployment runs: a recipe, or a use of a model and the recipe of its data."""
    given = deployment.parameters
    recipe = str(given.get("recipe") or "")
    if "model" not in given:
        return recipe
    use = f"{given.get('what') or 'predictions'} of {given['model']}"
    return f"{use} for {recipe}" if recipe else use


def _schedule_text(schedule: Any) -> str:
    if hasattr(schedule, "cron"):
        return f"{schedule.cron} {schedule.timezone or 'UTC'}"
    return f"every {_every_text(schedule.interval)}" if hasattr(schedule, "interval") else str(schedule)


def _every_text(interval: datetime.timedelta) -> str:
    """Write a length as `parse_every` reads it; one that has no such form as Python does."""
    for unit in "wdhm":
        count, rest = divmod(interval, datetime.timedelta(**{_UNITS[unit]: 1}))
        if not rest:
            return f"{count}{unit}"
    return str(interval)
