"""What a test registers is forgotten after it."""

from __future__ import annotations

import pytest

from configs.registry import Registry


def forget_registered(monkeypatch: pytest.MonkeyPatch, *registries: Registry) -> None:
    """Make the registries at the end of the test what they are now.

    All of graphmill's own components are imported first: one that the test imported would be forgotten too, and never
    be imported again.
    """
    for registry in registries:
        for name in registry.names():
            registry.get(name)
        monkeypatch.setattr(registry, "_classes", dict(registry._classes))
