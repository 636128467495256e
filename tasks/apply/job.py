"""What serving's own process is told; imports nothing that computes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from configs.errors import IntegrityError, RecipeError
from configs.layout_options import LayoutOptions
from tasks.apply.completion.asked import CompletionRequest
from tasks.explain.asked import ExplainRequest
from tasks.inference.former_layers import KeepJob
from tasks.inference.opened import ScoringJob
from tasks.kinds.judged import Threshold
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import DatasetManifest, PartitionManifest

if TYPE_CHECKING:
    from tasks.apply.model.published import Published


@dataclass(frozen=True)
class MappedData:
    """What a layout was made of."""

    graph: Path
    """Folder of the partition's artifact."""
    dataset: Path
    """Folder of the ingest artifact."""

    @classmethod
    def of(cls, published: Published, home: Home) -> MappedData:
        """Find it in the home. Raises RecipeError: it is no longer there."""
        store, folders = ArtifactStore(home), []
        for stage, kind in (("partition", PartitionManifest), ("ingest", DatasetManifest)):
            made, manifest = published.lineage[stage], None
            with suppress(IntegrityError):
                manifest = store.load(stage, str(made["key"]), kind)
            if manifest is None or manifest.digest != made["digest"]:
                raise RecipeError(
                    f"new points are placed by what {published.name} is a layout of, and this home no longer "
                    "has it; run its recipe again, or lay out all of the data anew"
                )
            folders.append(store.folder(stage, str(made["key"])))
        return cls(*folders)


@dataclass(frozen=True, kw_only=True)
class ServeJob(ScoringJob):
    """What is wanted of which model, and of which graph."""

    what: Literal["predictions", "embeddings", "relations", "layout", "explanations"]
    format: str
    """Of `vector_files.formats.ENDINGS`; predictions are Parquet or npy, completions of triples Parquet or csv."""
    model: Path
    """Folder of the model's files."""
    graph: Path
    """Folder of the partition's artifact."""
    own_graph: bool
    """Whether it is the very graph that the model was trained on."""
    given: dict[str, Path]
    """`nodes`, `edges`, `pairs` or `graphs`: a file of ids; none: everything. `queries`: of triples."""
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
    explained: ExplainRequest = field(default_factory=ExplainRequest)
    """What is explained, and how."""
    seed: int = 0
    """Of the layout."""
    mapped: MappedData | None = None
    """What the model is a layout of, where points of other data are placed among its own."""
