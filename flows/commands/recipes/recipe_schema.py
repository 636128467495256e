"""The recipe's JSON Schema: what editors complete and check with."""

from __future__ import annotations

from typing import Any

from configs.families.training_sections import SECTIONS, train_section
from configs.load import COMPONENT_PATHS
from configs.registry import MODELS, TRANSFORMS, Registry
from configs.schema import Recipe
from configs.training import TrainConfig


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a recipe; a component is one of its registry's, told by `name`."""
    schema = Recipe.model_json_schema()
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    _add_training(schema, definitions)
    for path, registry in COMPONENT_PATHS.items():
        for properties in _places(schema, path):
            field = properties[path[-1]]
            meaning = {key: field[key] for key in ("description", "default") if key in field}
            properties[path[-1]] = _component(registry, definitions) | meaning
    transforms = definitions["PreprocessConfig"]["properties"]["transforms"]
    transforms["items"] = _component(TRANSFORMS, definitions)
    definitions.pop("ComponentConfig", None)
    _allow_short_forms(schema)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "graphmill recipe"
    return schema


def _add_training(schema: dict[str, Any], definitions: dict[str, Any]) -> None:
    """Let `train` be the section of the model's family; a model of a user's own is none of the named ones."""
    definitions.pop("TrainBase", None)
    sections: dict[str, dict[str, str]] = {}
    for name, section in SECTIONS.items():
        definition = section.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(definition.pop("$defs", {}))
        definitions[f"train.{name}"] = definition
        sections[name] = {"$ref": f"#/$defs/train.{name}"}
    schema["properties"]["train"] = {
        "description": schema["properties"]["train"]["description"],
        "anyOf": list(sections.values()),
    }
    others = {name: _is_model_of(name) for name in sections if name != TrainConfig.family}
    conditions = {**others, TrainConfig.family: {"not": {"anyOf": list(others.values())}}}
    schema["allOf"] = [
        {"if": condition, "then": {"properties": {"train": sections[name]}}} for name, condition in conditions.items()
    ]


def _is_model_of(family: str) -> dict[str, Any]:
    names = [name for name in MODELS.names() if train_section(MODELS.config_class(name)).family == family]
    section = {"type": "object", "required": ["name"], "properties": {"name": {"enum": names}}}
    return {"required": ["model"], "properties": {"model": {"anyOf": [{"enum": names}, section]}}}


def _places(schema: dict[str, Any], path: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the `properties` that hold the component: one, or those of all families' trainings."""
    places: list[dict[str, Any]] = [schema["properties"]]
    for key in path[:-1]:
        fields = [place[key] for place in places]
        references = [each for field in fields for each in (field, *field.get("allOf", ()), *field.get("anyOf", ()))]
        names = [each["$ref"].rpartition("/")[2] for each in references if "$ref" in each]
        places = [schema["$defs"][name]["properties"] for name in names]
    return [place for place in places if path[-1] in place]


def _component(registry: Registry, definitions: dict[str, Any]) -> dict[str, Any]:
    """Return `name` alone, or `{name: ..., options}` of any registered component."""
    choices: list[dict[str, Any]] = []
    for name in registry.names():
        options = registry.config_class(name).model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(options.pop("$defs", {}))
        options["properties"]["name"] = {"const": name, "description": registry.summary(name)}
        options["required"] = sorted({*options.get("required", ()), "name"})
        options["title"] = name
        key = f"{registry.kind}.{name}"
        definitions[key] = options
        choices.append({"$ref": f"#/$defs/{key}"})
    if all("file" in registry.config_class(name).model_fields for name in registry.names()):
        named = {"name": {"type": "string"}, "file": {"type": "string"}}
        meaning = "one that a file of your own registers, with its options"
        choices.append({"type": "object", "required": ["file", "name"], "properties": named, "description": meaning})
    bare = {"enum": registry.names(), "description": "the component with its defaults"}
    return {"anyOf": [*choices, bare]}


def _allow_short_forms(node: Any) -> None:
    """Let numbers and words be written `15,10`, and a list of one section as that section, as recipes may."""
    if isinstance(node, dict):
        items = node.get("items")
        if node.get("type") == "array" and isinstance(items, dict):
            if items.get("type") in ("integer", "number", "string"):
                node["type"] = sorted({"array", "string", items["type"]})
            elif "$ref" in items:
                array = {key: node.pop(key) for key in ("type", "items", "minItems", "maxItems") if key in node}
                node["anyOf"] = [array, dict(items)]
        for value in list(node.values()):
            _allow_short_forms(value)
    elif isinstance(node, list):
        for value in node:
            if not (isinstance(value, dict) and "$ref" in value.get("items", ()) and value.get("type") == "array"):
                _allow_short_forms(value)
