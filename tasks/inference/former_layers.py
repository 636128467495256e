"""Where kept outputs of layers lie, told to the process that computes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FormerLayers:
    """What was kept of an earlier graph."""

    layers: Path
    """Folder of the outputs."""
    graph: Path
    """Folder of its partition's artifact."""
    dataset: Path
    """Folder of its ingest artifact."""


@dataclass(frozen=True)
class KeepJob:
    """Where outputs of layers are kept."""

    folder: Path
    is_complete: bool
    """Whether they lie there already."""
    former: FormerLayers | None
    """Those of an earlier graph by the same model."""
