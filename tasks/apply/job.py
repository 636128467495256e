"""What serving's own process is told; imports nothing that computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from configs.layout_options import LayoutOptions
from tasks.apply.completion.asked import CompletionRequest
from tasks.apply.mapped_data import MappedData
from tasks.inference.former_layers import KeepJob
from tasks.inference.opened import ScoringJob
from tasks.kinds.judged import Threshold


@dataclass(frozen=True, kw_only=True)
class ServeJob(ScoringJob):
    """What is wanted of which model, and of which graph."""

    what: Literal["predictions", "embeddings", "relations", "layout"]
    format: str
    """Of `vector_files.formats.ENDINGS`; predictions are Parquet or npy, completions of triples Parquet or csv."""
    model: Path
    """Folder of the model's files."""
    graph: Path
    """Folder of the partition's artifact."""
    own_graph: bool
    """Whether it is the very graph that the model was trained on."""
    given: dict[str, Path]
    """`nodes`, `pairs` or `graphs`: a file of ids; none: everything. `queries`: of triples."""
    node_type: str | None
    classes: list[str] | None
    """Names of the model's classes."""
    asked: CompletionRequest = field(default_factory=CompletionRequest)
    """What is asked of a model of triples."""
    is_shown: bool = False
    """Whether completions of triples are returned, not written."""
    keep: KeepJob | None = None
    """Where outputs of all layers are kept, and those of an earlier graph; None: nowhere."""
    threshold: Threshold | None = None
    """From which probability a class is predicted; None: the likeliest is."""
    names_splits: bool = True
    """Whether predictions say of each row which split it is in."""
    label_order: list[int] | None = None
    """Where among the model's scores those of each of the data's label columns stand; None: in the same places."""
    layout: LayoutOptions = field(default_factory=LayoutOptions)
    """How vectors are laid out."""
    seed: int = 0
    """Of the layout."""
    mapped: MappedData | None = None
    """What the model is a layout of, where points of other data are placed among its own."""
