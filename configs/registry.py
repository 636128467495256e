"""Registries of components, filled on demand by importing the package where they live.

`@DATASETS.register("ogb")` on a class with a nested `Config` is all that adding a component takes: put the file into
the registry's package, nothing else is edited. configs imports no stage; a registry knows its package by name only.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, TypeVar

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.matching import did_you_mean

C = TypeVar("C", bound=type)


class Registry:
    """Components of one kind by name."""

    def __init__(self, kind: str, package: str) -> None:
        """`kind` is the word for messages (`dataset`); `package` is scanned for components on the first look-up."""
        self.kind = kind
        self.package = package
        self._classes: dict[str, type] = {}
        self._scanned = False

    def register(self, name: str) -> Callable[[C], C]:
        """Class decorator: make the component known as `name` and tell its `Config` so."""

        def add(cls: C) -> C:
            config = cls.__dict__.get("Config")
            if not (isinstance(config, type) and issubclass(config, ComponentConfig)):
                raise TypeError(f"{self.kind} {name!r}: {cls.__name__} needs a nested class Config(ComponentConfig)")
            if not (cls.__doc__ or "").strip():
                raise TypeError(f"{self.kind} {name!r}: {cls.__name__} needs a docstring: users see its first line")
            known = self._classes.get(name)
            if known is not None and known.__qualname__ != cls.__qualname__:
                raise TypeError(f"{self.kind} {name!r} is registered twice: {known.__module__} and {cls.__module__}")
            self._classes[name] = cls
            return cls

        return add

    def names(self) -> list[str]:
        """All registered names, sorted."""
        self._scan()
        return sorted(self._classes)

    def get(self, name: str) -> type[Any]:
        """Return the component's class. Raises RecipeError with the known names."""
        if name not in self._classes:
            self._scan()
        if name not in self._classes:
            known = self.names()
            raise RecipeError(
                f"unknown {self.kind} {name!r}{did_you_mean(name, known)}; known: {', '.join(known) or 'none'}"
            )
        return self._classes[name]

    def summary(self, name: str) -> str:
        """First line of the component's docstring."""
        return (self.get(name).__doc__ or "").strip().splitlines()[0]

    def config(self, value: Any) -> ComponentConfig:
        """Turn `{name: ..., **options}` (or a bare name) into the component's `Config`.

        Raises:
            RecipeError: no name or an unknown one. Wrong options raise pydantic's ValidationError.
        """
        if isinstance(value, ComponentConfig):
            return value
        if isinstance(value, str):
            value = {"name": value}
        if not isinstance(value, dict) or not isinstance(value.get("name"), str):
            raise RecipeError(f"a {self.kind} needs a name; known: {', '.join(self.names())}")
        config_class: type[ComponentConfig] = self.get(value["name"]).Config
        return config_class.model_validate(value)

    def create(self, config: ComponentConfig, *args: Any, **kwargs: Any) -> Any:
        """Build the component from its `Config`: `Component(config, *args, **kwargs)`."""
        return self.get(config.name)(config, *args, **kwargs)

    def _scan(self) -> None:
        """Import every module of the package: each registers what it holds."""
        if self._scanned:
            return
        self._scanned = True  # before the imports: a module may ask this registry for a sibling
        package = importlib.import_module(self.package)
        for module in pkgutil.iter_modules(package.__path__):
            if not module.name.startswith("_") and module.name != "task":
                importlib.import_module(f"{self.package}.{module.name}")


DATASETS = Registry("dataset", "tasks.ingest")
TRANSFORMS = Registry("transform", "tasks.preprocess")
PARTITIONERS = Registry("partitioner", "tasks.partition")
MODELS = Registry("model", "models")
STRATEGIES = Registry("strategy", "tasks.train.strategies")
EVALUATORS = Registry("evaluator", "tasks.evaluate")
