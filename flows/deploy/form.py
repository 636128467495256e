"""The run form of a deployment: a JSON Schema made from the recipe's, which the server checks before a run exists."""

from __future__ import annotations

import json
from typing import Any

from configs.base import ConfigModel
from configs.load import dump_recipe
from configs.schema import STAGES, Recipe
from flows.records.parameters import OVERRIDE_PATTERN, SCHEDULED, SNAPSHOT_PATTERN
from flows.records.use_options import UseOptions

# What a form can ask well: one value, or a short list of numbers or words. Tables of files stay in the recipe.
_PLAIN = frozenset({"integer", "number", "boolean", "string"})
_LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern", "minLength", "maxLength", "enum")
_NOT_PREDICTED = frozenset({"node_type", "layout", "explained", "triples"})
"""Options of other uses of a model."""
_OVERRIDES = {"type": "array", "items": {"type": "string", "pattern": OVERRIDE_PATTERN}, "default": []}


def form_schema(recipe: Recipe, source: str) -> dict[str, Any]:
    """Return the schema of the flow's parameters for this recipe; `source` names the recipe."""
    stage = {"type": "string", "enum": list(STAGES)}
    stages = {"type": "array", "items": stage, "uniqueItems": True}
    properties: dict[str, Any] = {
        "recipe": {
            "type": "string",
            "const": source,
            "default": source,
            "description": recipe.description or "The recipe that this deployment runs.",
        },
        "snapshot": _snapshot(),
        "options": _sections(recipe),
        "overrides": {
            **_OVERRIDES,
            "description": "Whatever the options do not offer, a line each: model.name=gcn, train.epochs=5.",
        },
        "only": {**stages, "description": "Run these stages; what they read is there."},
        "from_stage": {**stage, "description": "Begin at this stage."},
        "force": {**stages, "description": "Build these even where they are cached."},
        "home": {"type": "string", "description": "Folder of artifacts on the worker's machine."},
        "parent_run": {"type": "string", "description": "MLflow run above this one (backfills)."},
    }
    return _form(properties, "recipe")


def prediction_form(model: str) -> dict[str, Any]:
    """Return the schema of the parameters of `use_model` for predictions by this model."""
    fields = UseOptions.model_json_schema()["properties"]
    options = {name: {**field, "title": name} for name, field in fields.items() if name not in _NOT_PREDICTED}
    text = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    properties: dict[str, Any] = {
        "model": {"type": "string", "const": model, "default": model, "description": "The model that predicts."},
        "recipe": {**text, "description": "Recipe of the data; empty: the data of the training."},
        "snapshot": _snapshot(),
        "options": {"type": "object", "default": {}, "properties": options, "additionalProperties": False},
        "overrides": {**_OVERRIDES, "description": "Changes of that recipe, a line each: dataset.edges.files=new.csv."},
        "home": {"type": "string", "description": "Folder of artifacts on the worker's machine."},
    }
    return _form(properties, "model")


def _form(properties: dict[str, Any], required: str) -> dict[str, Any]:
    for position, name in enumerate(properties):
        properties[name] |= {"title": name, "position": position}
    return {
        "title": "Parameters",
        "type": "object",
        "properties": properties,
        "required": [required],
        "additionalProperties": False,
        "definitions": {},
    }


def _snapshot() -> dict[str, Any]:
    return {
        "anyOf": [{"type": "string", "pattern": SNAPSHOT_PATTERN}, {"type": "null"}],
        "default": None,
        "description": f"Take the graph as of a moment: 2023, 2023-06-30, ..., or `{SCHEDULED}` for the moment at "
        "which the run is scheduled. Empty: as the recipe says.",
    }


def _sections(recipe: Recipe) -> dict[str, Any]:
    values = dump_recipe(recipe)
    properties: dict[str, Any] = {}
    for name in Recipe.model_fields:
        section = getattr(recipe, name)
        if isinstance(section, ConfigModel):
            options = _options(section, values[name])
            if options:
                about = (type(section).__doc__ or "").strip().splitlines()[0]
                properties[name] = {
                    "type": "object",
                    "title": name,
                    "description": about,
                    "properties": options,
                    "additionalProperties": False,
                }
    properties["seed"] = {"type": "integer", "minimum": 0, "title": "seed", "description": f"Now {recipe.seed}."}
    return {
        "type": "object",
        "default": {},
        "description": "Changes of the recipe for this run; what is empty or None stays as it is.",
        "properties": properties,
        "additionalProperties": False,
    }


def _options(section: ConfigModel, values: dict[str, Any]) -> dict[str, Any]:
    schema = type(section).model_json_schema()
    options = {}
    for name, field in schema["properties"].items():
        plain = _plain(field)
        if plain is not None and name != "name":
            about = " ".join(str(field.get("description", "")).split())
            options[name] = {**plain, "title": name, "description": f"{about} Now {json.dumps(values[name])}.".strip()}
    return options


def _plain(field: dict[str, Any]) -> dict[str, Any] | None:
    if "anyOf" in field:
        choices = [choice for choice in (_plain(item) for item in field["anyOf"]) if choice is not None]
        if len(choices) == len(field["anyOf"]):
            return {"anyOf": choices}
        return None
    kind = field.get("type")
    if kind == "null":
        return {"type": "null"}
    if kind == "array":
        items = _plain(field.get("items", {}))
        return None if items is None or items.get("type") not in _PLAIN else {"type": "array", "items": items}
    if not isinstance(kind, str) or kind not in _PLAIN:
        return None
    if kind == "boolean":  # a box that nobody ticked would be sent as false
        return {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None}
    return {"type": kind, **{name: field[name] for name in _LIMITS if name in field}}
