"""`graphmill recipes | datasets | models | partitioners | show`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import BaseModel

from configs.load import shipped_recipes
from configs.registry import Registry
from configs.schema import Recipe
from configs.yaml_reader import read_yaml
from flows.terminal.console import out, table

_WIDTH = 120


def list_recipes() -> None:
    """Print name and description of each shipped recipe."""
    shown = table("recipe", "what it does")
    for name, path in shipped_recipes().items():
        shown.add_row(name, str(read_yaml(path).get("description", "")))
    out().print(shown)


def list_components(registry: Registry) -> None:
    """Print name and one line of each component, and its options."""
    shown = table(registry.kind, "what it is", "options")
    for name in registry.names():
        options = [field for field in registry.config_class(name).model_fields if field != "name"]
        shown.add_row(name, registry.summary(name), ", ".join(options))
    out().print(shown, markup=False)


def commented_yaml(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML, each option under the comment that explains it."""
    return "\n".join(_lines(recipe, 0)) + "\n"


def _lines(config: BaseModel, depth: int) -> Iterator[str]:
    pad, plain = "  " * depth, config.model_dump(mode="json")
    for name in _ordered(config):
        field = type(config).model_fields[name]
        value = getattr(config, name)
        if field.description and not (name == "name" and depth):
            for line in textwrap.wrap(" ".join(field.description.split()), _WIDTH - len(pad) - 2):
                yield f"{pad}# {line}"
        if isinstance(value, BaseModel):
            yield f"{pad}{name}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
            yield f"{pad}{name}:"
            for item in value:
                yield f"{pad}  - {_flow(item.model_dump(mode='json'))}"
        else:
            yield f"{pad}{name}: {_flow(plain[name])}"


def _ordered(config: BaseModel) -> list[str]:
    """Fields with `name` first, as people write them."""
    names = list(type(config).model_fields)
    return sorted(names, key=lambda name: name != "name")


def _flow(value: Any) -> str:
    """Return a value as one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
