"""Deployments that predict with a registered model: `graphmill deploy --predict NAME@champion`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from configs.errors import RecipeError
from configs.load import find_recipe, load_own_recipe, shipped_recipes
from configs.source_files import user_path
from flows.deploy.deployments import PREDICTIONS, DeployRequest, Place, check_moments, make_schedule, save
from flows.deploy.form import prediction_form
from tasks.apply.model.published import read_published
from tasks.apply.run import OutputRequest
from tasks.publish.tracking.registered import fetch_model, find_version
from tasks.publish.tracking.registry import open_registry
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

ENTRYPOINT = "flows.apply.predict_nodes"


@dataclass(frozen=True)
class PredictRequest:
    """What the command line asks for: `of` is the deployment, whose recipe may be an empty text."""

    of: DeployRequest
    model: str
    output: str | None = None
    given: dict[str, str] = field(default_factory=dict)
    """`nodes`, `pairs`, `graphs`, `queries`: files of what is asked about."""
    keep_layers: bool = False


def deploy_predictions(home: Home, request: PredictRequest) -> str:
    """Make (or renew) a deployment that predicts with whichever version the model's alias names, and return its id.

    Raises:
        UserError: model, recipe, output, schedule or name are not right; nothing was changed.
        StageError: the server does not answer or refuses.
    """
    of = request.of
    schedule = make_schedule(of)
    source = None
    if of.recipe:
        check_moments(of)
        load_own_recipe(of.recipe, of.overrides)
        source = of.recipe if of.recipe in shipped_recipes() else str(find_recipe(of.recipe).resolve())
    registry = open_registry(home)
    version = find_version(registry, request.model)
    published = read_published(fetch_model(registry, version), version.reference)
    if published.recipe.is_layout:
        raise RecipeError(f"{version.reference} is a layout, which predicts nothing")
    moment = "{date}" if of.cron else "{date}-{time}"
    output = request.output or f"{file_name(version.name)}-predictions-{moment}.parquet"
    placed = OutputRequest("predictions", output, given=request.given, keep_layers=request.keep_layers)
    placed.placed(version.name, published.task)
    parameters: dict[str, Any] = {
        "model": request.model,
        "output": output,
        "recipe": source,
        "overrides": of.overrides,
        "home": str(home.root),
        **{name: str(user_path(path).resolve()) for name, path in request.given.items()},
    }
    parameters |= {"snapshot": of.snapshot} if of.snapshot is not None else {}
    parameters |= {"timezone": schedule.schedule.timezone} if of.cron else {}
    parameters |= {"keep_layers": True} if request.keep_layers else {}
    about = f"Predictions of **{request.model}**" + (f"\n\nData: `{source}`" if source else "")
    place = Place(PREDICTIONS, ENTRYPOINT, prediction_form(request.model), about, [])
    return save(of, schedule, parameters, place)
