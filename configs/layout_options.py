"""Options of the layout that an evaluation draws of a model's vectors."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from configs.base import ConfigModel


class LayoutOptions(ConfigModel):
    """A map of what the model has learnt: a point for each of its vectors.

    Of a layout, which is its own map, `color` alone is read.
    """

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"color"})

    method: Literal["largevis", "umap", "tsne"] = "largevis"
    """How points are laid out (`graphmill models`)."""
    dim: Literal[2, 3] = 2
    """Dimensions of the picture."""
    neighbors: int | None = Field(default=None, ge=1, le=1000)
    """Nearest vectors that each point is drawn to; null: as data of vectors has it (preprocess.neighbors)."""
    metric: Literal["euclidean", "cosine", "dot"] = "cosine"
    """What near means."""
    color: str | None = None
    """Column that colours the map first; null: predictions, labels, or what else there is."""
