"""The recipe's JSON Schema: what editors complete and check with."""

from __future__ import annotations

from typing import Any

from configs.load import COMPONENT_PATHS
from configs.registry import TRANSFORMS, Registry
from configs.schema import Recipe


def recipe_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a recipe; a component is one of its registry's, told by `name`."""
    schema = Recipe.model_json_schema()
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    for path, registry in COMPONENT_PATHS.items():
        _place(schema, path)[path[-1]] = _component(registry, definitions) | _meaning(schema, path)
    transforms = definitions["PreprocessConfig"]["properties"]["transforms"]
    transforms["items"] = _component(TRANSFORMS, definitions)
    definitions.pop("ComponentConfig", None)
    _allow_short_forms(schema)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "graphmill recipe"
    return schema


def _place(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the `properties` that hold the component."""
    properties: dict[str, Any] = schema["properties"]
    for key in path[:-1]:
        name = (properties[key].get("$ref") or properties[key]["allOf"][0]["$ref"]).rpartition("/")[2]
        properties = schema["$defs"][name]["properties"]
    return properties


def _meaning(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    field = _place(schema, path)[path[-1]]
    return {key: field[key] for key in ("description", "default") if key in field}


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
