"""Deployments that predict with a registered model: `graphmill deploy --predict NAME@champion`."""

from __future__ import annotations

import datetime
from typing import Any

from configs.errors import RecipeError
from configs.load import find_recipe, load_own_recipe, shipped_recipes
from configs.source_files import user_path
from flows.deploy.deployments import DeploymentPage, DeployRequest, check_moments, make_schedule, save
from flows.deploy.form import prediction_form
from flows.records.use_options import UseOptions
from tasks.apply.model.published import read_published
from tasks.publish.tracking.registered import fetch_model, find_version
from tasks.publish.tracking.registry import open_registry
from tasks.storage.file_names import file_name
from tasks.storage.home import Home


def deploy_predictions(home: Home, of: DeployRequest, model: str, options: UseOptions) -> str:
    """Make (or renew) a deployment that predicts with whichever version the model's alias names, and return its id.

    The recipe of `of` may be an empty text: that of the training. Raises UserError: model, recipe, output, schedule or
    name are not right; nothing was changed; StageError: the server does not answer or refuses.
    """
    schedule = make_schedule(of)
    source = None
    if of.recipe:
        check_moments(of)
        load_own_recipe(of.recipe, of.overrides)
        source = of.recipe if of.recipe in shipped_recipes() else str(find_recipe(of.recipe).resolve())
    registry = open_registry(home)
    version = find_version(registry, model)
    published = read_published(fetch_model(registry, version), version.reference)
    if published.recipe.is_layout:
        raise RecipeError(f"{version.reference} is a layout, which predicts nothing")
    moment = "{date}" if of.cron else "{date}-{time}"
    files = {
        name: str(user_path(path).resolve())
        for name, path in options.model_dump(
            include={"nodes", "edges", "pairs", "graphs", "queries"}, exclude_none=True
        ).items()
    }
    output = options.output or f"{file_name(version.name)}-predictions-{moment}.parquet"
    zone = schedule.schedule.timezone if of.cron else None
    options = options.model_copy(update={**files, "output": output, "timezone": zone})
    options.request("predictions", datetime.datetime.now(datetime.UTC)).placed(version.name, published.task)
    parameters: dict[str, Any] = {
        "model": model,
        "options": options.model_dump(exclude_defaults=True),
        "recipe": source,
        "overrides": of.overrides,
        "home": str(home.root),
    }
    parameters |= {"snapshot": of.snapshot} if of.snapshot is not None else {}
    about = f"Predictions of **{model}**" + (f"\n\nData: `{source}`" if source else "")
    place = DeploymentPage("use_model", prediction_form(model), about, [])
    return save(of, schedule, parameters, place)
