"""What a report is made of, and what its sections are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from configs.schema import Recipe
from tasks.publish.plots.figures import Canvas
from tasks.stage import Parent
from tasks.storage.outcomes import GateRecord

Facts = list[tuple[str, str]]
"""Rows of (name, text)."""


@dataclass(frozen=True)
class Publication:
    """Where a run went: what the report says of MLflow and Prefect."""

    run_id: str = ""
    run_url: str = ""
    model_name: str = ""
    model_version: str = ""
    gate: GateRecord | None = None
    flow_run_id: str = ""
    flow_run_url: str = ""


@dataclass(frozen=True)
class ReportedRun:
    """A run as its report shows it."""

    recipe: Recipe
    parents: Mapping[str, Parent]
    """Stage to its artifact; what a run lacks is left out of its report."""
    publication: Publication = Publication()
    snapshot: dict[str, Any] | None = None
    """What `tasks.publish.snapshots.write_snapshot` returned."""


@dataclass(frozen=True)
class ReportTable:
    """Rows of texts."""

    caption: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    figures: int = 0
    """How many of the last columns are numbers, flushed right."""
    folded: bool = False
    """Whether a click shows it."""


@dataclass(frozen=True)
class Picture:
    """One figure."""

    caption: str
    svg: str


@dataclass
class Section:
    """A heading with facts, tables and figures; without any it is not shown."""

    title: str
    facts: Facts = field(default_factory=list)
    tables: list[ReportTable] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)

    def draw(self, canvas: Canvas | None, caption: str) -> None:
        """Add a figure, where there is one."""
        if canvas is not None:
            self.pictures.append(Picture(caption, canvas.svg(caption)))
