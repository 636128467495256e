"""Which options of a recipe are not at their defaults: what a person who knows graphmill wants to see first."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from configs.base import ComponentConfig, ConfigModel
from configs.schema import Recipe

_OF_THE_JOB = frozenset({"name", "description"})


def changed_options(recipe: Recipe) -> dict[str, str]:
    """Return dotted keys and values, as texts, of the options that differ from their defaults, in the schema's order.

    A component's own options differ from those of that component; its name from that of the section.
    """
    return {key: as_text(value) for key, value in _changed(recipe, "") if key not in _OF_THE_JOB}


def all_options(recipe: Recipe) -> dict[str, str]:
    """Return dotted keys and values, as texts, of all options."""
    return {key: as_text(value) for key, value in _leaves(recipe, "") if key not in _OF_THE_JOB}


def changed_rows(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield what `changed_options` returns, lists and maps of sections taken apart (`dataset.nodes.0.label`)."""
    return _by_item((key, value) for key, value in _changed(recipe, "") if key not in _OF_THE_JOB)


def all_rows(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield what `all_options` returns, a list of sections as the options of each that are not at their defaults."""
    return _by_item((key, value) for key, value in _leaves(recipe, "") if key not in _OF_THE_JOB)


def _by_item(options: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    for key, value in options:
        items = dict(enumerate(value)) if isinstance(value, tuple) else value
        if isinstance(items, dict) and items and isinstance(next(iter(items.values())), ConfigModel):
            for place, item in items.items():
                yield from ((f"{key}.{place}.{name}", as_text(inner)) for name, inner in _own_changes(item))
        else:
            yield key, as_text(value)


def as_text(value: Any) -> str:
    """Return a value as one would write it behind `key=`; lists and sections as JSON."""
    return value if isinstance(value, str) else json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, ConfigModel):
        return {name: _plain(inner) for name, inner in _own_changes(value)}
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def _own_changes(config: ConfigModel) -> Iterator[tuple[str, Any]]:
    for name, field in type(config).model_fields.items():
        value = getattr(config, name)
        if field.is_required() or value != field.get_default(call_default_factory=True):
            yield name, value


def _changed(config: ConfigModel, prefix: str, usual: ConfigModel | None = None) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of options that differ from those of `usual`; None: from their own defaults."""
    for name, field in type(config).model_fields.items():
        value, key = getattr(config, name), f"{prefix}{name}"
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        default = default if usual is None else getattr(usual, name)
        if isinstance(value, ComponentConfig):
            if value.name != (default.name if isinstance(default, ComponentConfig) else default):
                yield f"{key}.name", value.name
            yield from ((inner, change) for inner, change in _changed(value, f"{key}.") if inner != f"{key}.name")
        elif isinstance(value, ConfigModel):
            yield from _changed(value, f"{key}.", default if isinstance(default, type(value)) else None)
        elif value != default or (field.is_required() and usual is None):
            yield key, value


def _leaves(config: ConfigModel, prefix: str) -> Iterator[tuple[str, Any]]:
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, ConfigModel):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
