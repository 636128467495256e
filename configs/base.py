"""The base of all configuration: frozen, no unknown keys, every field described."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pydantic._internal._model_construction import ModelMetaclass

from configs.errors import readable
from configs.matching import did_you_mean
from configs.reading.parsing import without_collection

# Nobody means more than these, and libraries written in C fail on it in ways of their own: a number that a field itself
# does not bound is refused beyond them.
MAX_WHOLE = 2**31 - 1
MAX_NUMBER = 1e12


class _SafelyParsed(ModelMetaclass):
    """Makes a class of options while no garbage is collected: pydantic parses the class's source for its docstrings."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        with without_collection():
            return super().__new__(cls, name, bases, namespace, **options)


class ConfigModel(BaseModel, metaclass=_SafelyParsed):
    """A frozen section of a recipe: unknown keys are errors, and the string below a field describes it."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        use_attribute_docstrings=True,
        defer_build=True,  # of two hundred sections a command reads twenty
    )

    # Options that steer how a stage runs but never what it produces; they stay out of cache keys.
    runtime_fields: ClassVar[frozenset[str]] = frozenset()
    gone: ClassVar[dict[str, str]] = {}
    """Options of earlier versions, and what to write now."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key in cls.gone:
                    raise ValueError(f"{key} is no option any more: {cls.gone[key]}")
                if key not in cls.model_fields:
                    near, names = did_you_mean(str(key), cls.model_fields), ", ".join(sorted(cls.model_fields))
                    raise ValueError(f"unknown key {readable(str(key), 200)!r}{near}; known: {names}")
                for item in data[key] if isinstance(data[key], list | tuple) else [data[key]]:
                    # pydantic takes true and false for 1 and 0, where numbers are asked for
                    types = set(_types_in(cls.model_fields[key].annotation)) if isinstance(item, bool) else set()
                    if types & {int, float} and not types & {bool, Any}:
                        raise ValueError(f"{key}: {str(item).lower()} is no number")
        return data

    @model_validator(mode="after")
    def _refuse_excessive_numbers(self) -> Self:
        for name, field in type(self).model_fields.items():
            if not any(hasattr(bound, "le") or hasattr(bound, "lt") for bound in field.metadata):
                _refuse_excess(name, getattr(self, name))
        return self


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation is made of."""
    yield annotation
    for part in get_args(annotation):
        yield from _types_in(part)


def _refuse_excess(name: str, value: Any) -> None:
    """Refuse numbers, also those in sequences and maps, beyond what anybody means; ValueError names the option."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            _refuse_excess(f"{name}.{key}", item)
    elif isinstance(value, tuple | list):
        for item in value:
            _refuse_excess(name, item)
    elif isinstance(value, float) and not (math.isfinite(value) and abs(value) <= MAX_NUMBER):
        raise ValueError(f"{name}={value} is not a number between -{MAX_NUMBER:g} and {MAX_NUMBER:g}")
    elif isinstance(value, int) and abs(value) > MAX_WHOLE:
        shown = str(value) if abs(value) < 10**30 else "a number of more than 30 digits"
        raise ValueError(f"{name}: {shown} is beyond the largest whole number that an option takes, {MAX_WHOLE:,}")


class ComponentConfig(ConfigModel):
    """Options of a registered component, a class with a nested `Config(ComponentConfig)`.

    In a recipe they stand as `{name: graphsage, hidden_dim: 256}`: the registry finds the class by `name`.
    """

    name: str
    """Registered name of the component."""

    preprocess_defaults: ClassVar[dict[str, Any]] = {}
    """Of a data set: options of a recipe's `preprocess` that are other than usual where the recipe leaves them out."""

    def check_recipe(self, recipe: Any) -> None:
        """Raise ValueError for options that cannot work with the recipe's other sections. Called when it is read."""

    def reads_versions(self, by: str) -> bool:
        """Of a data set: whether a snapshot is its tables as they were (`snapshot.by`), and no choice by times."""
        if by == "versions":
            raise ValueError(
                f"snapshot.by=versions: {self.name} reads no tables that keep their versions; leave it out"
            )
        return False

    def source_files(self) -> list[str]:
        """Of a data set: its files as the recipe names them, where they may be tables that keep versions."""
        return []

    def with_versions(self, moment: str) -> ComponentConfig:
        """Return a data set's options that read the tables as they were at a moment, where `reads_versions`."""
        raise NotImplementedError(f"{self.name} says that it reads versions as of {moment}, and does not say how")

    @model_serializer(mode="wrap")
    def _name_first(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {"name": data.pop("name"), **data} if "name" in data else data


class OwnFileConfig(ComponentConfig):
    """Options of a component that may come from a user's own file."""

    file: str | None = None
    """A Python file of your own that registers the component; null: one of graphmill's."""
    file_sha256: str | None = None
    """Digest of that file; filled in when the recipe is read."""


def cache_view(config: ConfigModel) -> dict[str, Any]:
    """Return the options that decide what a stage produces, as plain JSON values (for cache keys)."""
    return _without_runtime(config, config.model_dump(mode="json"))


def _without_runtime(config: ConfigModel, data: dict[str, Any]) -> dict[str, Any]:
    """Take what decides nothing of a section, and of the sections in it, out of its plain values."""
    for name, value in config:
        sections = [(value, data[name])]
        if isinstance(value, tuple):
            sections = list(zip(value, data[name], strict=True))
        elif isinstance(value, dict):
            sections = [(section, data[name][key]) for key, section in value.items()]
        for section, plain in sections:
            if isinstance(section, ConfigModel):
                _without_runtime(section, plain)
    for name in type(config).runtime_fields:
        data.pop(name, None)
    return data


def split_commas(value: Any) -> Any:
    """Return the parts of a text, a number as one part, anything else as it is."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int | float) else value


# Sequences that may be written `15,10,5` on the command line.
IntTuple = Annotated[tuple[int, ...], BeforeValidator(split_commas)]
FloatTuple = Annotated[tuple[float, ...], BeforeValidator(split_commas)]
StrTuple = Annotated[tuple[str, ...], BeforeValidator(split_commas)]
