"""Registered models and their versions as a registry holds them, whatever reads them from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tasks.storage.home import Home


@dataclass(frozen=True)
class StoredVersion:
    """A version as the registry has it."""

    name: str
    version: str
    source: str
    run_id: str
    created_ms: int
    tags: dict[str, str] = field(default_factory=dict)


class Registry(Protocol):
    """What reads registered models; all raise StageError where the store cannot be reached."""

    home: Home
    uri: str

    def model_names(self) -> list[str]:
        """Return the names of all registered models, sorted."""
        ...

    def aliases(self, name: str) -> dict[str, str]:
        """Return a model's aliases and their versions."""
        ...

    def model_tags(self, name: str) -> dict[str, str]:
        """Return a model's own tags."""
        ...

    def versions(self, name: str) -> list[StoredVersion]:
        """Return a model's versions."""
        ...

    def place_of(self, name: str, version: str) -> str:
        """Return the URI at which the registry says that a model version's files are."""
        ...

    def own_folders(self) -> Iterator[Path]:
        """Yield the folders of this machine that the store keeps its artifacts in; the home's, first of all."""
        ...

    def download(self, uri: str, folder: Path) -> None:
        """Copy what lies at a URI of artifacts into a folder that exists."""
        ...
