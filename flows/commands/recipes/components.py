"""`graphmill recipes | datasets | transforms | ... | evaluators | show`: what recipes name, and what stands in one."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import BaseModel

from configs.base import ComponentConfig
from configs.errors import GraphmillError
from configs.load import shipped_recipes
from configs.reading.yaml_reader import read_yaml
from configs.registry import REGISTRIES, TRANSFORMS
from configs.schema import Recipe
from flows.terminal.console import err, out, table
from tasks.preprocess.transforms.configs import from_models
from tasks.publish.vectors import with_versions

if TYPE_CHECKING:
    from tasks.storage.home import Home

_WIDTH = 120


def list_recipes() -> None:
    """Print name and description of each shipped recipe."""
    shown = table("recipe", "what it does")
    for name, path in shipped_recipes().items():
        shown.add_row(name, str(read_yaml(path).get("description", "")))
    out().print(shown)


def show_components(plural: str) -> None:
    """Print name and first line of each component of a registry, and how to learn more."""
    registry = REGISTRIES[plural]
    names = registry.names()
    shown = table(registry.kind, "what it is")
    for name in names:
        shown.add_row(name, registry.summary(name))
    out().print(shown, markup=False)
    example = registry.default or names[0]
    err().print(
        f"a recipe names one under `{registry.place}`; graphmill {plural} {example} shows its options", style="dim"
    )


def show_component(plural: str, name: str) -> None:
    """Print what a component is and its options, as they stand in a recipe. Raises RecipeError with the known names."""
    registry = REGISTRIES[plural]
    for line in registry.description(name).splitlines():
        print(f"# {line}".rstrip())
    keys = registry.place.split(".")
    for depth, key in enumerate(keys):
        print("  " * depth + f"{key}:")
    in_list = registry is TRANSFORMS
    first, *others = _lines(registry.config_class(name).model_construct(name=name), len(keys) + in_list)
    print(first if not in_list else "  " * len(keys) + f"- {first.strip()}")
    print("\n".join(others), end="\n" if others else "")


def components_json(plural: str, name: str | None = None) -> list[dict[str, Any]]:
    """Return the components of a registry, or the one, with their options."""
    registry = REGISTRIES[plural]
    return [
        {
            "name": each,
            "summary": registry.summary(each),
            "place": registry.place,
            "options": registry.config_class(each).model_json_schema(),
        }
        for each in ([name] if name else registry.names())
    ]


def commented_yaml(recipe: Recipe) -> str:
    """Return the resolved recipe as YAML, each option under the comment that explains it."""
    return "\n".join(_lines(recipe, 0)) + "\n"


def with_known_versions(recipe: Recipe, open_home: Callable[[], Home]) -> Recipe:
    """Return the recipe with the versions that its registered models' names mean now, or say why that is not known."""
    if not any(one.is_open for one in from_models(recipe.preprocess.transforms)):
        return recipe  # a recipe is shown without a home, and none is made
    try:
        return with_versions(recipe, open_home())
    except GraphmillError as error:
        err().print(f"warning: {error}", style="yellow", markup=False)
        return recipe


def _lines(config: BaseModel, depth: int) -> Iterator[str]:
    pad, plain = "  " * depth, config.model_dump(mode="json")
    for name in sorted(type(config).model_fields, key=lambda name: name != "name"):
        field = type(config).model_fields[name]
        value = getattr(config, name, None)
        if field.description and not (name == "name" and isinstance(config, ComponentConfig)):
            for line in textwrap.wrap(" ".join(field.description.split()), _WIDTH - len(pad) - 2):
                yield f"{pad}# {line}"
        if isinstance(value, BaseModel):
            yield f"{pad}{name}:"
            yield from _lines(value, depth + 1)
        elif isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
            yield f"{pad}{name}:"
            for item in value:
                yield f"{pad}  - {_flow(item.model_dump(mode='json'))}"
        elif isinstance(value, dict) and any(isinstance(item, BaseModel) for item in value.values()):
            yield f"{pad}{name}:"
            for key, item in value.items():
                yield f"{pad}  {_flow(key)}: {_flow(item.model_dump(mode='json'))}"
        else:
            yield f"{pad}{name}: {_flow(plain[name])}" if name in plain else f"{pad}{name}:  # has to be given"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, sort_keys=False, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")
