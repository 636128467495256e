"""The base of all configuration: frozen, no unknown keys, every field described."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from configs.matching import did_you_mean


class ConfigModel(BaseModel):
    """A frozen section of a recipe. Unknown keys are errors, never ignored.

    A field is described by the string below it; `graphmill show` and the JSON Schema print that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, use_attribute_docstrings=True)

    # Options that steer how a stage runs but never what it produces; they stay out of cache keys.
    runtime_fields: ClassVar[frozenset[str]] = frozenset()

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    known = ", ".join(sorted(cls.model_fields))
                    raise ValueError(f"unknown key {key!r}{did_you_mean(str(key), cls.model_fields)}; known: {known}")
        return data


class ComponentConfig(ConfigModel):
    """Options of a registered component.

    A component is a class with a nested `Config(ComponentConfig)`. In a recipe it stands as
    `{name: graphsage, hidden_dim: 256}`: the registry finds the class by `name`, and its `Config` checks the rest.
    """

    name: str
    """Registered name of the component."""

    def check_recipe(self, recipe: Any) -> None:
        """Raise ValueError for options that cannot work with the recipe's other sections. Called when it is read."""

    @model_serializer(mode="wrap")
    def _name_first(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data: dict[str, Any] = handler(self)
        return {"name": data.pop("name"), **data} if "name" in data else data


def cache_view(config: ConfigModel) -> dict[str, Any]:
    """Return the options that decide what a stage produces, as plain JSON values (for cache keys)."""
    return _without_runtime(config, config.model_dump(mode="json"))


def _without_runtime(config: ConfigModel, data: dict[str, Any]) -> dict[str, Any]:
    """Take the runtime fields of a section, and of the sections in it, out of its plain values."""
    for name, value in config:
        sections = zip(value, data[name], strict=True) if isinstance(value, tuple) else [(value, data[name])]
        for section, plain in sections:
            if isinstance(section, ConfigModel):
                _without_runtime(section, plain)
    for name in type(config).runtime_fields:
        data.pop(name, None)
    return data


def _split_commas(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return [value] if isinstance(value, int | float) else value


# Sequences that may be written `15,10,5` on the command line.
IntTuple = Annotated[tuple[int, ...], BeforeValidator(_split_commas)]
FloatTuple = Annotated[tuple[float, ...], BeforeValidator(_split_commas)]
StrTuple = Annotated[tuple[str, ...], BeforeValidator(_split_commas)]
