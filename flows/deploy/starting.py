"""A deployment's run, started by hand from the command line: what its form asks, as `key=value` texts."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from configs.errors import RecipeError, StageError
from configs.load import load_recipe
from configs.matching import did_you_mean
from configs.reading.yaml_reader import parse_yaml
from flows.deploy.deployments import find_deployment, server
from flows.records.parameters import check_moment, requested_overrides

_LISTS = ("only", "force")
_FIELDS = ("recipe", "snapshot", "from_stage", *_LISTS)


def start(name: str, texts: list[str]) -> Any:
    """Start a run of a deployment and return the flow run.

    `texts` are `train.epochs=5`, `snapshot=2023`, `only=train,evaluate`: options and fields of the deployment's form.
    Raises RecipeError: no such deployment, or the form refuses a value; nothing was started; StageError: the server
    does not answer or refuses.
    """
    from prefect.exceptions import PrefectHTTPStatusError

    with server() as client:
        deployment = find_deployment(client, name)
        parameters = run_parameters(deployment, texts)
        _check_recipe(deployment, parameters)
        try:
            return client.create_flow_run_from_deployment(deployment.id, parameters=parameters)
        except PrefectHTTPStatusError as error:
            answer = error.response
            if answer.status_code == 409:
                raise RecipeError(f"the form of {name} refuses that: {answer.json().get('detail', '')}") from error
            raise StageError(f"the server did not start {name}: {answer.status_code} {answer.text[:400]}") from error


def run_parameters(deployment: Any, texts: list[str]) -> dict[str, Any]:
    """Return what to start the run with; options that its form does not offer become overrides. Raises RecipeError."""
    offered = deployment.parameter_openapi_schema["properties"]
    names = [name for name in _FIELDS if name in offered and "const" not in offered[name]]
    sections = offered["options"]["properties"]
    parameters: dict[str, Any] = dict(deployment.parameters)
    options: dict[str, Any] = dict(parameters.get("options") or {})
    overrides = list(parameters.get("overrides") or ())
    for text in texts:
        key, equals, raw = text.partition("=")
        if not equals or not key:
            raise RecipeError(f"{text!r} is not of the form key=value, such as train.epochs=5 or snapshot=2023")
        section, _, option = key.rpartition(".")
        if key in names:
            parameters[key] = [part.strip() for part in raw.split(",")] if key in _LISTS else raw
        elif option in sections.get(section, {}).get("properties", {}):
            options.setdefault(section, {})[option] = parse_yaml(raw, text)
        elif key in sections and "properties" not in sections[key]:
            kinds = sections[key].get("anyOf", [sections[key]])
            options[key] = raw if any(one.get("type") == "string" for one in kinds) else parse_yaml(raw, text)
        elif not section and key not in sections:
            known = list(dict.fromkeys([*names, *sections]))
            raise RecipeError(f"no parameter {key!r}{did_you_mean(key, known)}; there are {', '.join(known)}")
        else:
            overrides.append(text)
    if parameters.get("snapshot"):
        check_moment(parameters["snapshot"])
    return {**parameters, "options": options, "overrides": overrides}


def _check_recipe(deployment: Any, parameters: dict[str, Any]) -> None:
    """Read the recipe with what was asked, where it lies on this machine. Raises RecipeError."""
    import datetime

    folder = (deployment.job_variables or {}).get("working_dir", "")
    source = str(parameters.get("recipe") or "")
    if not source or not os.path.isdir(folder) or (os.sep in source and not os.path.isfile(source)):  # noqa: PTH112, PTH113
        return  # it was deployed from another machine; the run itself will tell
    options = None if "model" in parameters else parameters["options"]  # those of a use are not the recipe's
    now = datetime.datetime.now(datetime.UTC)
    texts = requested_overrides(parameters["overrides"], options, parameters.get("snapshot"), now)
    with contextlib.chdir(folder):  # relative paths in a recipe are relative to where it was deployed from
        load_recipe(source, texts)
