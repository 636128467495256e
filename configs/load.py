"""Read a recipe: find the YAML, expand variables, apply overrides, check, and say in words what is wrong."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from configs import registry
from configs.base import ComponentConfig
from configs.errors import RecipeError, UntrustedCodeError, readable
from configs.layout_options import LAYOUT
from configs.matching import did_you_mean
from configs.reading.yaml_reader import MAX_DEPTH, half_character, parse_yaml, read_yaml
from configs.schema import Recipe
from configs.source_files import DATA_SET_FILES
from configs.trust import own_files

RECIPE_DIR = Path(__file__).parent

# Places in a recipe where a component stands, and who knows its options.
COMPONENT_PATHS: dict[tuple[str, ...], registry.Registry] = {
    tuple(components.place.split(".")): components
    for components in registry.REGISTRIES.values()
    if components is not registry.TRANSFORMS  # a recipe lists any number of them
}

_SUBJECTS = {("dataset",), ("dataset", "name"), ("model",), ("model", "name")}
"""What a recipe's description is about."""
_MAX_SHOWN = 200
_VECTOR_FILES = (".npy", "-ubyte", "-ubyte.gz")
"""Endings of files that hold vectors and nothing else; a table may hold a graph."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def shipped_recipes() -> dict[str, Path]:
    """Return the shipped recipes: name to YAML file."""
    return {path.stem: path for path in sorted(RECIPE_DIR.glob("*.yaml"))}


def find_recipe(name_or_path: str) -> Path:
    """Return the YAML file of a shipped recipe's name or a path. Raises RecipeError with the known names."""
    shipped = shipped_recipes()
    if name_or_path in shipped:
        return shipped[name_or_path]
    path = os.path.expanduser(name_or_path)  # noqa: PTH111 -- Path's raises for users that there are not
    if os.path.isfile(path):  # noqa: PTH113 -- Path's raises for names that are too long
        return Path(path)
    shown = repr(readable(name_or_path, _MAX_SHOWN))
    if os.path.lexists(path):
        kind = "a folder" if Path(path).is_dir() else "no regular file"
        raise RecipeError(f"{shown} is {kind}; a recipe is a YAML file")
    raise RecipeError(
        f"no recipe {shown}{did_you_mean(name_or_path, shipped)}: it is neither a file nor one of {', '.join(shipped)}"
    )


def load_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply `dotted.key=value` overrides; `${NAME}` and `${NAME:-default}` are of the environment.

    Relative paths in it are relative to the current folder. Raises RecipeError: naming the file and the key.
    """
    path = find_recipe(name_or_path)
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise RecipeError(f"{path} must hold sections (dataset, model, ...), found {type(data).__name__}")
    return build_recipe(_expand(data, path), overrides, source=str(path))


def load_own_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe as `load_recipe` does that a person names now: the file of a model that it names may run."""
    with own_files():
        return load_recipe(name_or_path, overrides)


def build_recipe(data: dict[str, Any], overrides: Sequence[str] = (), source: str = "recipe") -> Recipe:
    """Check a recipe given as plain values; `source` is named in messages. Raises RecipeError.

    Overrides that put other data or another model in place take the description away with them.
    """
    parsed = [_parse_override(text) for text in overrides]
    files = {keys[:-1]: value for keys, value in parsed if keys[-1] == "file"}
    # Component names first: they decide which options exist.
    for keys, value in sorted(parsed, key=lambda item: item[0][-1] != "name" and item[0] not in COMPONENT_PATHS):
        if keys == ("dataset",) and isinstance(value, str) and ("." in value or "/" in value):
            data["dataset"] = file_data(value, data)
        elif keys[-1] == "name" and keys[:-1] in COMPONENT_PATHS:
            _switch_component(data, keys[:-1], str(value), files.get(keys[:-1]))
        elif keys in COMPONENT_PATHS and isinstance(value, str):
            _switch_component(data, keys, value, files.get(keys))
        else:
            _set(data, keys, value)
    changed = {keys for keys, _ in parsed}
    if ("description",) not in changed and changed & _SUBJECTS:
        data.pop("description", None)
    _check_values(data, (), source)
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            cause = item.get("ctx", {}).get("error")
            if isinstance(cause, UntrustedCodeError):  # says all by itself, and is told from mistakes
                raise cause from None
        raise RecipeError(f"{source}: {_one_line(flatten_errors(error))}") from error


def file_data(path: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data set of a file that a recipe is to be run on, by the name's ending; an edge list by default."""
    model = data.get("model")
    name = model.get("name") if isinstance(model, dict) else model
    is_layout = name in registry.MODELS.names() and getattr(registry.MODELS.config_class(name), "family", "") == LAYOUT
    ending = Path(path).suffix.lower()
    if path.endswith(_VECTOR_FILES) or (is_layout and ending == ".npz"):
        return {"name": "vectors", "title": _title(path, "vectors"), "files": path}
    if ending in DATA_SET_FILES:
        kind, option = DATA_SET_FILES[ending]
        return {"name": kind, option: path}
    edges = edge_list(path)
    if is_layout:
        return {key: value for key, value in edges.items() if key not in ("metric", "split")} | {"task": LAYOUT}
    return edges


def edge_list(path: str) -> dict[str, Any]:
    """Return the data set of a user's edge list: its first two columns; a twentieth of the edges is held out twice.

    Judged by ROC-AUC: hits@K of 100,000 negatives is 0 where the graph is small or the vectors are middling.
    """
    edges = {"files": path, "header": "auto", "source": "0", "target": "1"}
    split = {"train": 0.9, "valid": 0.05, "test": 0.05}
    title = _title(path, "edges")
    return {"name": "tables", "title": title, "task": "link", "metric": "rocauc", "edges": edges, "split": split}


def _title(path: str, usual: str) -> str:
    return re.sub(r"[^A-Za-z0-9._ -]", "_", Path(path).name).lstrip("._ -")[:100] or usual


def stored_options(components: registry.Registry, value: Any, copy: Path, source: str) -> ComponentConfig:
    """Return a component's options as a stored model has them; `copy` as `Registry.config` takes it.

    Raises RecipeError: beside what that raises, what this installation, or this version, has against them.
    """
    try:
        return components.config(value, copy)
    except ValidationError as error:
        raise RecipeError(f"{source}: {_one_line(flatten_errors(error))}") from error


def _one_line(mistakes: Iterable[tuple[tuple[Any, ...], str]]) -> str:
    return "; ".join(": ".join(filter(None, [".".join(map(str, place)), text])) for place, text in mistakes)


def flatten_errors(error: ValidationError, prefix: tuple[int | str, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield (location, message) for each mistake, those inside components included."""
    for item in error.errors(include_url=False):
        cause = item.get("ctx", {}).get("error")
        location = prefix + item["loc"]
        if isinstance(cause, ValidationError):
            yield from flatten_errors(cause, location)
        elif cause is not None:
            yield location, str(cause)
        elif item["type"] == "missing":
            yield location, "is missing"
        elif _is_nan(item["input"]):
            yield location, f"{item['input']!r} is not a number"
        elif item["input"] is None and item["type"].endswith("_type"):
            yield location, "null is no value of it; leave it out, or give one"
        else:
            given = readable(repr(item["input"]), _MAX_SHOWN)
            yield location, f"{item['msg'].replace('valid tuple', 'list')} (got {given})"


def _is_nan(value: Any) -> bool:
    """Whether a value is NaN, which no comparison holds for, or the word for it."""
    if isinstance(value, str):
        return value.strip().lower().lstrip("+-") in ("nan", ".nan")
    return isinstance(value, float) and math.isnan(value)


def dump_recipe(recipe: Recipe) -> dict[str, Any]:
    """Return the whole recipe as plain values, defaults included; `build_recipe` reads it back."""
    return recipe.model_dump(mode="json")


def _check_values(value: Any, at: tuple[Any, ...], source: str) -> None:
    """Refuse half of a character and more than MAX_DEPTH levels, which YAML could not bring, but a program may."""
    if len(at) > MAX_DEPTH:
        raise RecipeError(f"{source}: {at[0]}: more than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        for key, item in value.items():
            _check_values(key, (*at, key), source)
            _check_values(item, (*at, key), source)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            _check_values(item, (*at, place), source)
    elif isinstance(value, str) and (wrong := half_character(value)):
        raise RecipeError(f"{source}: {'.'.join(map(str, at))}: {wrong}")


def _expand(value: Any, path: Path) -> Any:
    """Replace `${NAME:-default}` in all strings. Raises RecipeError for a variable with no value."""
    if isinstance(value, dict):
        return {key: _expand(item, path) for key, item in value.items()}
    if isinstance(value, list):
        return [_expand(item, path) for item in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        setting = os.environ.get(name) or default
        if setting is None:
            raise RecipeError(f"{path} needs the environment variable {name}; set it or write ${{{name}:-default}}")
        return setting

    return _VARIABLE.sub(replace, value)


def _parse_override(text: str) -> tuple[tuple[str, ...], Any]:
    key, separator, raw = text.partition("=")
    keys = tuple(key.strip().split("."))
    if not separator or not all(keys):
        shown = readable(text, _MAX_SHOWN)
        raise RecipeError(f"override {shown!r} is not of the form section.key=value (such as train.epochs=5)")
    if not raw.strip():
        key = readable(key.strip(), _MAX_SHOWN)
        raise RecipeError(f'override {key}= has no value; give one, or say null for none, "" for an empty text')
    return keys, parse_yaml(raw, f"override {readable(text, _MAX_SHOWN)!r}")


def _set(data: dict[str, Any], keys: tuple[str, ...], value: Any) -> None:
    place = data
    for depth, key in enumerate(keys[:-1]):
        inner = place.get(key)
        if isinstance(inner, str) and keys[: depth + 1] in COMPONENT_PATHS:
            inner = {"name": inner}
        elif inner is None:
            inner = {}
        elif not isinstance(inner, dict):
            raise RecipeError(f"override {'.'.join(keys)}: {'.'.join(keys[: depth + 1])} is a value, not a section")
        place[key] = dict(inner)
        place = place[key]
    place[keys[-1]] = value


def _switch_component(data: dict[str, Any], keys: tuple[str, ...], name: str, file: Any) -> None:
    """Put another component in place, of an override's or the recipe's `file`; options that it lacks stay behind."""
    place: Any = data
    for key in keys:
        place = place.get(key) or {}
        if isinstance(place, str):
            place = {"name": place}
        if not isinstance(place, dict):
            raise RecipeError(f"override {'.'.join(keys)}: {key} is a value, not a section")
    components = COMPONENT_PATHS[keys]
    stay_behind = set()
    if components.takes_files and file is None and components.has(name):
        stay_behind = {"file", "file_sha256"}
    elif components.takes_files and (file := file or place.get("file")) is not None:
        components.load_file({"name": name, "file": file})
    try:
        options = components.config_class(name).model_fields.keys() - stay_behind
    except RecipeError as error:
        raise RecipeError(f"override {'.'.join(keys)}: {error}") from error
    _set(data, keys, {**{key: value for key, value in place.items() if key in options}, "name": name})
