"""The reference of recipes: every key with its values, its default and its meaning, read from the schema."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from configs.base import ComponentConfig, ConfigModel
from configs.families.row_training import SECTIONS, train_section
from configs.load import shipped_recipes
from configs.registry import MODELS, REGISTRIES, Registry
from configs.schema import Recipe
from configs.training import TrainBase

_TITLES = {"datasets": "Data sets"}
_PAGE_AT = {registry.place: page for page, registry in REGISTRIES.items()}
_BOUNDS = (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))


@dataclass(frozen=True)
class Option:
    """One key of a recipe."""

    key: str
    values: str
    default: str
    meaning: str
    runtime: bool
    """Whether it steers how a stage runs, and never what it makes."""


def recipe_page() -> str:
    """Return the page of all sections that are not components."""
    parts = [
        "# Recipe",
        "A recipe is a YAML file; `graphmill show RECIPE` prints one whole, with the meaning of each key. Any key can "
        "be given on the command line, dotted: `train.epochs=5`. A key that there is not, or a value that cannot be, "
        "is refused before anything runs. `${NAME}` and `${NAME:-default}` are taken from the environment.",
        "⟳ marks what changes how a stage runs and never what it makes: a change of it makes nothing again.",
        "## Top level",
        _table(option for option in options(Recipe) if "." not in option.key),
    ]
    for name, field in Recipe.model_fields.items():
        section = nested_section(field.annotation)
        if section is TrainBase:
            parts += _trainings()
        elif section is not None:
            parts += [f"## {name}", (section.__doc__ or "").strip(), _table(options(section, name))]
    return "\n\n".join(parts) + "\n"


def _trainings() -> list[str]:
    """Return the section `train` of each family of models."""
    parts = ["## train", "Its options depend on the model."]
    for family, section in SECTIONS.items():
        models = [name for name in MODELS.names() if train_section(MODELS.config_class(name)).family == family]
        of_models = ", ".join(f"[{name}](models.md#{name})" for name in models)
        parts += [f"### train of {family}", f"{(section.__doc__ or '').strip()} Models: {of_models}."]
        parts.append(_table(options(section, "train")))
    return parts


def component_page(page: str) -> str:
    """Return the page of a registry: every component with its options."""
    registry = REGISTRIES[page]
    base = _common_base(registry)
    place = registry.place
    parts = [f"# {_TITLES.get(page, page.capitalize())}", f"Where it stands in a recipe: `{place}`."]
    shared = [option for option in options(base, place) if option.key != f"{place}.name"]
    if shared:
        parts += [f"## Options of every {registry.kind}", _table(shared)]
    known = {option.key: option for option in shared}
    for name in registry.names():
        config = registry.config_class(name)
        own = [o for o in options(config, place) if o.key != f"{place}.name" and known.get(o.key) != o]
        parts += [f"## {name}", registry.description(name)]
        parts.append(_table(own) if own else "No options of its own.")
    return "\n\n".join(parts) + "\n"


def shipped_page() -> str:
    """Return the page of the shipped recipes, as they lie in `configs/`."""
    parts = ["# Shipped recipes", "`graphmill run NAME` runs one; copy the file to change more than a few options."]
    for name, path in shipped_recipes().items():
        parts += [f"## {name}", f"```yaml\n{path.read_text(encoding='utf-8').rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def options(config: type[ConfigModel], prefix: str = "") -> Iterator[Option]:
    """Yield the keys of a section, those of sections inside of it included."""
    schema = config.model_json_schema()
    for name, field in config.model_fields.items():
        key = f"{prefix}.{name}" if prefix else name
        nested = nested_section(field.annotation)
        shown = schema["properties"][name]
        yield Option(
            key,
            _component_values(key) or ("a section" if nested else values_text(shown)),
            "" if nested and field.default is None else _default_text(field),
            " ".join((field.description or "").split()),
            name in config.runtime_fields,
        )
        if nested is not None and prefix:
            yield from options(nested, key)


def nested_section(annotation: Any) -> type[ConfigModel] | None:
    """Return the section that a field holds (also one among several); None for values and components."""
    if isinstance(annotation, type):
        known = issubclass(annotation, ConfigModel) and not issubclass(annotation, ComponentConfig)
        return annotation if known else None
    found = (nested_section(inner) for inner in typing.get_args(annotation))
    return next((section for section in found if section is not None), None)


def values_text(schema: dict[str, Any]) -> str:
    """Say in words what a JSON Schema of one value allows."""
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(values_text(choice) for choice in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{_plain(value)}`" for value in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " or ".join(values_text({**schema, "type": one}) for one in kind)
    if kind == "array":
        return f"list: {values_text(schema.get('items', {}))}"
    if kind == "object":
        return "names with values"
    words = {"integer": "whole number", "number": "number", "boolean": "`true`, `false`", "null": "`null`"}
    bounds = [f"{sign} {schema[name]}" for name, sign in _BOUNDS if isinstance(schema.get(name), int | float)]
    return " ".join([words.get(str(kind), "text"), *bounds])


def _common_base(registry: Registry) -> type[ComponentConfig]:
    """Return the nearest class from which all configurations of a registry come."""
    lines = [registry.config_class(name).__mro__ for name in registry.names()]
    base: type[ComponentConfig] = next(cls for cls in lines[0] if all(cls in line for line in lines))
    return base


def _component_values(key: str) -> str:
    page = _PAGE_AT.get(key)
    if page is None:
        return ""
    word = "a list of transforms" if page == "transforms" else f"a {REGISTRIES[page].kind}"
    return f"[{word}]({page}.md)"


def _default_text(field: Any) -> str:
    if field.is_required():
        return "**needed**"
    default = field.get_default(call_default_factory=True)
    if isinstance(default, ConfigModel):
        return ""
    return f"`{_plain(default)}`"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _table(found: Iterator[Option] | list[Option]) -> str:
    lines = ["| key | default | values | meaning |", "|---|---|---|---|"]
    for option in found:
        mark = " ⟳" if option.runtime else ""
        cells = (f"`{option.key}`{mark}", option.default, option.values, option.meaning)
        lines.append("| " + " | ".join(_cell(text) for text in cells) + " |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
