"""What is registered: by family of models; and what a test registers is forgotten after it."""

from __future__ import annotations

import pytest

from configs.families.row_training import train_section
from configs.registry import MODELS, STRATEGIES, Registry


def models_of(family: str) -> list[str]:
    return [name for name in MODELS.names() if train_section(MODELS.config_class(name)).family == family]


def strategies_of(family: str) -> list[str]:
    return [name for name in STRATEGIES.names() if family in STRATEGIES.config_class(name).families]


def forget_registered(monkeypatch: pytest.MonkeyPatch, *registries: Registry) -> None:
    """Make the registries at the end of the test what they are now.

    All of graphmill's own components are imported first: one that the test imported would be forgotten too, and never
    be imported again.
    """
    for registry in registries:
        for name in registry.names():
            registry.get(name)
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
